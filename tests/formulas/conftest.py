"""What the tests of the formulas share: repeatable random arrays, and the three libraries."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
import torch

jax.config.update("jax_enable_x64", True)  # or JAX computes in float32, whatever it is given

Draw = Callable[..., np.ndarray]


@pytest.fixture
def draw() -> Draw:
    """Normal float64 numbers of a given shape, the same ones in every run."""
    generator = np.random.default_rng(20150519)
    return lambda *shape: generator.standard_normal(shape)


def numpy_library() -> SimpleNamespace:
    return SimpleNamespace(array=np.asarray, kind=np.ndarray | np.generic, numpy=np.asarray)


def torch_library() -> SimpleNamespace:
    return SimpleNamespace(array=torch.tensor, kind=torch.Tensor, numpy=lambda x: x.numpy())


def jax_library() -> SimpleNamespace:
    return SimpleNamespace(array=jax.numpy.asarray, kind=jax.Array, numpy=np.asarray)


@pytest.fixture(params=[numpy_library, torch_library, jax_library], ids=["numpy", "torch", "jax"])
def library(request: pytest.FixtureRequest) -> Any:
    return request.param()
