"""Generated sequences with exact answers: copy, reverse, sort."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

Rearrangement = Literal["copy", "reverse", "sort"]
Split = Literal["train", "valid"]

ANSWERS: dict[str, Callable[[list[int]], list[int]]] = {
    "copy": list,
    "reverse": lambda sequence: sequence[::-1],
    "sort": sorted,
}


def sequences(count: int, *, symbols: int, shortest: int, longest: int, seed: int, split: Split) -> list[list[int]]:
    """Random sequences of numbers below `symbols`; every length from shortest to longest is as likely."""
    random = np.random.default_rng([seed, ("train", "valid").index(split)])
    lengths = random.integers(shortest, longest + 1, size=count)
    return [random.integers(0, symbols, size=length).tolist() for length in lengths]


def symbol_names(symbols: int) -> list[str]:
    """a, b, c, ...; beyond the alphabet s26, s27, ..."""
    return [chr(ord("a") + number) if number < 26 else f"s{number}" for number in range(symbols)]
