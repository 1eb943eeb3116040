"""Which examples meet in which batch: buckets of like length, a budget of tokens, and a place that can be resumed.

The plan of an epoch depends on the seed, the epoch and the lengths alone, so a cursor of two numbers is the whole
state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from saccade.errors import SaccadeError


@dataclass(frozen=True)
class Cursor:
    """The next batch: which epoch, and which of its batches."""

    epoch: int = 0
    batch: int = 0


class Batches:
    """An endless, resumable stream of batches of example numbers."""

    def __init__(self, lengths: Sequence[int], *, batch_tokens: int, seed: int):
        if not len(lengths):
            raise SaccadeError("there are no examples to make batches of")
        self.lengths = np.asarray(lengths)
        self.batch_tokens, self.seed = batch_tokens, seed
        self.plan = lru_cache(maxsize=2)(self._plan)

    @property
    def fingerprint(self) -> str:
        """Tells whether a cursor belongs to this data."""
        return hashlib.blake2b(self.lengths.astype("<i8").tobytes(), digest_size=8).hexdigest()

    def stream(self, cursor: Cursor) -> Iterator[tuple[list[int], Cursor]]:
        """Batches from the cursor on, each with the cursor that follows it."""
        epoch, first = cursor.epoch, cursor.batch
        while True:
            plan = self.plan(epoch)
            for number in range(first, len(plan)):
                last = number + 1 == len(plan)
                yield plan[number], Cursor(epoch + 1, 0) if last else Cursor(epoch, number + 1)
            epoch, first = epoch + 1, 0

    def _plan(self, epoch: int) -> list[list[int]]:
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(len(self.lengths))
        by_length = order[np.argsort(self.lengths[order], kind="stable")]  # like lengths together, else in random order
        batches: list[list[int]] = [[]]
        longest = 0
        for number in by_length.tolist():
            longest = max(longest, int(self.lengths[number]))
            if batches[-1] and longest * (len(batches[-1]) + 1) > self.batch_tokens:
                batches.append([])
                longest = int(self.lengths[number])
            batches[-1].append(number)
        random.shuffle(batches)
        return batches
