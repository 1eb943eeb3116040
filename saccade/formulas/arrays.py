"""The kinds of things that formulas take: arrays of any library, named weights, functions between arrays.

Array API standard, data-apis.org/array-api.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Array: TypeAlias = Any  # of NumPy, PyTorch, JAX or any other library that follows the standard
Weights: TypeAlias = Mapping[str, Array]  # names with dots, as in a state dict: "query.weight", "query.bias"
Activation: TypeAlias = Callable[[Array], Array]
Score: TypeAlias = Callable[[Array, Array], Array]  # query (..., T, K), key (..., S, K) -> (..., T, S)
Axes: TypeAlias = tuple[int, ...]
