"""What a training tells while it runs, and how fast it is."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from saccade.tasks.base import Scores


@dataclass(frozen=True)
class Update:
    """One optimizer update: the mean of each named term, and how it was made."""

    step: int
    means: dict[str, float]
    rate: float
    gradient_norm: float
    tokens: int
    parts: int = 1  # that every batch was cut into, to fit into the memory


@dataclass(frozen=True)
class Skipped:
    """An update that was not made because its numbers were not finite; `step` is what it would have been."""

    step: int
    problem: str
    examples: tuple[int, ...]
    in_a_row: int


@dataclass(frozen=True)
class Split:
    """From this update on every batch is cut into parts: it did not fit into the memory."""

    step: int
    parts: int


@dataclass(frozen=True)
class Progress:
    """What happened since the last line of the log."""

    step: int
    steps: int
    means: dict[str, float]
    rate: float
    gradient_norm: float
    tokens_per_second: float
    seconds_left: float


@dataclass(frozen=True)
class Evaluated:
    step: int
    scores: Scores
    best: bool


@dataclass(frozen=True)
class Saved:
    step: int


@dataclass(frozen=True)
class Stopped:
    """The last event: why it ended ("steps", "minutes", "patience", "signal"), and the best there was."""

    step: int
    reason: str
    best_step: int | None
    best_score: float | None


Event = Progress | Evaluated | Saved | Skipped | Split | Stopped


@dataclass
class Window:
    """The updates since the last line of the log; part of a checkpoint, so that a resumed log has the same lines."""

    updates: int = 0
    sums: dict[str, float] = field(default_factory=dict)

    def add(self, update: Update) -> None:
        self.updates += 1
        for name, mean in update.means.items():
            self.sums[name] = self.sums.get(name, 0.0) + mean

    def means(self) -> dict[str, float]:
        return {name: total / self.updates for name, total in self.sums.items()}


class Pace:
    """How fast updates are made; evaluating and saving do not count."""

    def __init__(self) -> None:
        self._seconds = self._window_seconds = 0.0
        self._updates = self._window_tokens = 0
        self._since = time.monotonic()

    def add(self, update: Update) -> None:
        elapsed = time.monotonic() - self._since
        self._seconds, self._window_seconds = self._seconds + elapsed, self._window_seconds + elapsed
        self._updates, self._window_tokens = self._updates + 1, self._window_tokens + update.tokens

    def tokens_per_second(self) -> float:
        """Since it was last asked for."""
        speed = self._window_tokens / max(self._window_seconds, 1e-9)
        self._window_seconds, self._window_tokens = 0.0, 0
        return speed

    def seconds_for(self, updates: int) -> float:
        return updates * self._seconds / max(self._updates, 1)

    def resume(self) -> None:
        self._since = time.monotonic()
