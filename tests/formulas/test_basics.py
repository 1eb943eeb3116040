"""Linear layers, embeddings, softmax: worked examples, PyTorch's references, and what follows from the formulas."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import formulas as f

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


def test_softmax_of_one_one_one_five_is_not_what_the_deck_rounds_it_to():
    weights = f.softmax(np.asarray([1.0, 1.0, 1.0, 5.0]))
    np.testing.assert_allclose(weights, [0.0174, 0.0174, 0.0174, 0.948], atol=5e-4)
    deck = [0.05, 0.05, 0.05, 0.85]  # as deck 004 prints it
    assert np.abs(weights - deck).max() > 0.09


@settings(deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8), st.floats(-1e3, 1e3))
def test_softmax_adds_up_to_one_and_ignores_a_shift_of_all_scores(scores, shift):
    weights = f.softmax(np.asarray(scores))
    assert abs(weights.sum() - 1) < 1e-12
    np.testing.assert_allclose(f.softmax(np.asarray(scores) + shift), weights, atol=1e-9)


def test_softmax_and_its_logarithm_are_the_same_as_in_torch_on_any_axis(draw):
    x = torch.tensor(50 * draw(3, 4, 5))
    for axis in (0, 1, -1):
        assert_close(f.softmax(x, axis), F.softmax(x, axis), rtol=1e-12, atol=1e-15)
        assert_close(f.log_softmax(x, axis), F.log_softmax(x, axis), rtol=1e-12, atol=1e-12)


def test_a_linear_layer_is_the_same_as_in_torch(draw):
    x, weight, bias = (torch.tensor(draw(*shape)) for shape in ((2, 3, 4), (5, 4), (5,)))
    assert_close(f.linear(x, weight, bias), F.linear(x, weight, bias))
    assert_close(f.linear(x, weight), F.linear(x, weight))


def test_two_linear_layers_in_a_row_collapse_into_one(draw):
    x = draw(6, 3)
    first, second = (draw(4, 3), draw(4)), (draw(2, 4), draw(2))
    two = f.linear(f.linear(x, *first), *second)
    np.testing.assert_allclose(f.linear(x, *f.collapse(*first, *second)), two, atol=1e-12)


def test_an_activation_in_between_keeps_two_layers_from_collapsing(draw):
    x = draw(6, 3)
    layers = (draw(4, 3), draw(4)), (draw(2, 4), draw(2))
    bent = f.mlp(x, layers, last_activation=f.identity)
    straight = f.linear(x, *f.collapse(*layers[0], *layers[1]))
    assert np.abs(bent - straight).max() > 0.1


def test_a_network_of_one_layer_is_an_activated_linear_layer(draw):
    x, weight, bias = draw(2, 3), draw(4, 3), draw(4)
    np.testing.assert_allclose(f.mlp(x, [(weight, bias)], f.tanh), np.tanh(x @ weight.T + bias))


def test_a_network_is_the_same_as_torch_layers_in_a_row():
    layers = torch.nn.Sequential(
        torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)
    ).double()
    pairs = [(layer.weight, layer.bias) for layer in layers if isinstance(layer, torch.nn.Linear)]
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
    assert_close(f.mlp(x, pairs, last_activation=f.identity), layers(x))
    assert_close(f.mlp(x, pairs), torch.relu(layers(x)))


def test_a_residual_layer_with_zero_weights_is_the_identity(draw):
    x = draw(2, 3)
    np.testing.assert_array_equal(f.residual(x, np.zeros((3, 3)), np.zeros(3)), x)


def test_residuals_carry_gradient_through_a_deep_stack_where_plain_layers_lose_it(draw):
    x = torch.tensor(draw(3), requires_grad=True)
    weight, bias = 0.1 * torch.tensor(draw(3, 3)), torch.zeros(3, dtype=torch.float64)
    plain = with_residual = x
    for _ in range(30):
        plain = torch.tanh(f.linear(plain, weight, bias))
        with_residual = f.residual(with_residual, weight, bias, f.tanh)
    (faded,) = torch.autograd.grad(plain.sum(), x)
    (carried,) = torch.autograd.grad(with_residual.sum(), x)
    assert faded.norm() < 1e-9
    assert carried.norm() > 1e-3


def test_an_embedding_is_a_one_hot_row_times_a_matrix(draw):
    tokens, table = np.asarray([[3, 0], [1, 3]]), draw(4, 5)
    np.testing.assert_array_equal(f.embedding(tokens, table), f.embedding_by_product(tokens, table))
    np.testing.assert_array_equal(f.embedding(tokens, table), table[tokens])


def test_one_hot_rows_have_a_single_one_at_their_index():
    np.testing.assert_array_equal(f.one_hot(np.asarray([2, 0]), 3, np.float64), [[0, 0, 1], [1, 0, 0]])
