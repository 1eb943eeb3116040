"""A score and how sure it is: intervals by resampling the items, and Wilson's for shares.

bootstrap:  the middle 95% of the score on as many items, drawn with replacement                       (Efron 1979)
Wilson:     (p + z^2 / 2n  +-  z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n),  z = 1.96         (Wilson 1927)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from saccade.errors import SaccadeError

Item = TypeVar("Item")

RESAMPLES = 1000
SEED = 12345  # of the draws: the same answers have the same interval, and the same control
NORMAL = 1.959963984540054  # the middle 95% of a normal law reach so far


@dataclass(frozen=True)
class Score:
    """A score, in percent where nothing else is said, the ends of its 95% interval, and how it was counted."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    signature: str = ""
    digits: int = 1

    @property
    def shown(self) -> str:
        return f"{self.value:.{self.digits}f}"

    @property
    def ends(self) -> str:
        """The interval for people; nothing where there is none."""
        return "" if self.interval is None else f"[{', '.join(f'{end:.{self.digits}f}' for end in self.interval)}]"

    def __str__(self) -> str:
        return f"{self.name} {self.shown} {self.ends}".rstrip()


def mean(values: np.ndarray) -> float:
    return float(values.mean())


def bootstrap_interval(
    per_item_values: ArrayLike, statistic: Callable[[np.ndarray], float] = mean, *, resamples: int = RESAMPLES
) -> tuple[float, float]:
    """The 95% interval of a statistic of items (n, ...); by default of the mean of one value per item."""
    items = np.asarray(per_item_values)
    if len(items) == 0:
        raise SaccadeError("there is nothing to resample: no item was scored")
    draw = np.random.default_rng(SEED)
    scores = [statistic(items[draw.integers(len(items), size=len(items))]) for _ in range(resamples)]
    low, high = np.percentile(scores, [2.5, 97.5])
    return float(low), float(high)


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """The 95% interval of a share: it stays between 0 and 1, and says something even where all are right."""
    if not 0 <= right <= count or count == 0:
        raise SaccadeError(f"{right} of {count} is no share")
    share, spread = right / count, NORMAL**2 / count
    half = NORMAL * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    low, high = ((share + spread / 2 + side * half) / (1 + spread) for side in (-1, 1))
    return max(low, 0.0), min(high, 1.0)


def share_score(name: str, hits: np.ndarray) -> Score:
    """How many of all are hits, in percent, with Wilson's interval."""
    low, high = wilson_interval(int(hits.sum()), len(hits))
    return Score(name, 100 * float(hits.mean()), (100 * low, 100 * high))


def exchanged(items: Sequence[Item]) -> list[Item]:
    """Everybody has another's, and nobody of several the own one: what a control is scored with."""
    order = np.random.default_rng(SEED).permutation(len(items))
    others = dict(zip(order.tolist(), np.roll(order, 1).tolist(), strict=True))
    return [items[others[number]] for number in range(len(items))]


def check_matched(answers: Sized, references: Sequence[object]) -> None:
    """Every answer has its reference, and there is at least one: lists that have slipped are never scored."""
    if len(answers) != len(references):
        raise SaccadeError(f"{len(answers)} answers cannot be scored with {len(references)} references")
    if len(references) == 0:
        raise SaccadeError("there is nothing to score: no answers were given")
