"""What the tests of the fast modules share: stirred weights, agreement in value and gradient, laws, kernels."""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

Part = TypeVar("Part", bound=nn.Module)

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


def stir(module: Part) -> Part:
    """Draw every parameter anew, biases and norms too: zeros and ones hide mistakes."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5)
    return module


def assert_agree(ours: Tensor, theirs: Tensor, *inputs: Tensor) -> None:
    """The same values and, for a random direction, the same gradients by these inputs."""
    assert_close(ours, theirs)
    direction = torch.randn_like(ours)
    slopes = [
        torch.autograd.grad(
            (each * direction).sum(), inputs, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        for each in (ours, theirs)
    ]
    for our, their in zip(*slopes, strict=True):
        assert_close(our, their)


def assert_law(drawn: Tensor, variance: float, *, uniform: bool = False) -> None:
    """Mean zero within five standard errors, variance within four percent; drawn large enough to tell."""
    drawn = drawn.detach()
    assert drawn.numel() >= 20_000
    assert abs(float(drawn.mean())) < 5 * (variance / drawn.numel()) ** 0.5
    assert float(drawn.var()) == pytest.approx(variance, rel=0.04)
    largest, bound = float(drawn.abs().max()), (3 * variance) ** 0.5  # a uniform law stops there, a normal one does not
    assert 0.99 * bound < largest <= bound if uniform else largest > bound


def here(make: Callable[[], Part]) -> Part:
    return make()


def on_meta(make: Callable[[], Part]) -> Part:
    """As large models are loaded: built without memory, then given some, then drawn, children before parents."""
    with torch.device("meta"):
        module = make()
    module.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(torch.nan)
    return module.apply(lambda each: each.reset_parameters() if hasattr(each, "reset_parameters") else None)


both_ways = pytest.mark.parametrize("build", [here, on_meta])


class Operations(TorchDispatchMode):
    """The names of the aten operations that ran; the profiler would say the same, slower."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))
