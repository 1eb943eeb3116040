"""Activation functions agree with PyTorch's and have the values and limits that they are known for."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from saccade import formulas as f

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)

X = torch.linspace(-12, 12, 481, dtype=torch.float64)

TWINS = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "erf": torch.erf,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: F.silu(1.702 * x) / 1.702,
    "silu": F.silu,
}


@pytest.mark.parametrize("name", TWINS)
def test_an_activation_is_the_same_as_in_torch(name):
    assert_close(getattr(f, name)(X), TWINS[name](X), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", [name for name in TWINS if name not in ("relu", "leaky_relu")])
def test_a_smooth_activation_has_the_gradient_of_torch(name):
    x = X.clone().requires_grad_()
    (ours,) = torch.autograd.grad(getattr(f, name)(x).sum(), x)
    (theirs,) = torch.autograd.grad(TWINS[name](x).sum(), x)
    assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_erf_agrees_with_the_standard_library_to_the_last_digits():
    x = np.linspace(-7, 7, 1001)
    np.testing.assert_allclose(f.erf(x), [math.erf(value) for value in x], rtol=4e-15)


def test_the_tanh_form_of_gelu_is_near_the_exact_one_but_not_equal_to_it():
    difference = abs(f.gelu(X) - f.gelu_tanh(X)).max()
    assert 1e-4 < difference < 1e-3


@pytest.mark.parametrize("name", TWINS)
def test_an_activation_of_a_huge_number_neither_overflows_nor_warns(name):
    with np.errstate(all="raise", under="ignore"):
        result = getattr(f, name)(np.asarray([-1e4, 1e4]))
    assert np.all(np.isfinite(result))


def test_glu_gates_the_first_half_by_the_second_as_in_torch(draw):
    x = torch.tensor(draw(3, 8, 4))
    for axis in (-1, 1):
        assert_close(f.glu(x, axis), F.glu(x, axis), rtol=0, atol=1e-14)


def test_the_gated_forms_differ_only_in_the_activation_of_the_gate(draw):
    gate, value = draw(5), draw(5)
    np.testing.assert_allclose(f.swiglu(gate, value), f.silu(gate) * value)
    np.testing.assert_allclose(f.geglu(gate, value), f.gelu(gate) * value)
    np.testing.assert_allclose(f.glu(np.concatenate([value, gate])), f.sigmoid(gate) * value)
