"""The world of processes that train together. With one process it is the identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class World:
    """One process: it does all the work, and a sum over all processes is its own."""

    rank: int = 0
    size: int = 1

    def share(self, items: Sequence[Item]) -> Sequence[Item]:
        """The part of a global plan that falls to this process."""
        return items[self.rank :: self.size]

    def sum(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Each number, summed over all processes."""
        return dict(counts)
