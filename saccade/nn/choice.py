"""What a search goes on with: the best ways after one step, or after a stretch of steps that needed no search."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

from saccade.nn import native, structures
from saccade.nn.native import is_plain, pointer
from saccade.nn.screen import Screen

LONGEST_STRETCH = 16  # steps without a look at the keyboard


class Continuations(NamedTuple):
    """The best words to go on with, `ways` for each sentence, one sentence after the other: few numbers, of which much
    is asked."""

    ways: int
    row: Sequence[int]  # (B ways,), of the hypothesis that goes on
    word: Sequence[int]
    log_p: Sequence[float]  # of the word ...
    score: Sequence[float]  # ... and of all
    highest: Sequence[float]  # (R,), log_p of each row's best word

    def first(self, sentences: int) -> Continuations:
        """Those of so many sentences."""
        ways, rows = sentences * self.ways, sentences * (len(self.highest) * self.ways // len(self.row))
        row, word, log_p, score = self.row[:ways], self.word[:ways], self.log_p[:ways], self.score[:ways]
        return Continuations(self.ways, row, word, log_p, score, self.highest[:rows])


def continuations(log_p: Tensor, score: Sequence[float], width: int, *, each: int, count: int) -> Continuations:
    """The `count` best of all ways to go on for each sentence, best first, NaN before all: a sentence has `width` rows
    of log_p (R, V), which stand at these scores and offer their `each` best words. A single one is the first of its
    equals."""
    (rows, words), sentences = log_p.shape, len(score) // width
    if rows != len(score) or each > words or count > width * each:
        asked = f"{count} of {each} words of each of {width} rows for {len(score)} scores"
        raise ValueError(f"log-probabilities {tuple(log_p.shape)} cannot give {asked}")
    if not is_plain(log_p) or (made := native.library()) is None:
        return _continuations(log_p, score, sentences, each, count)
    scores, (found, ways) = array("d", score), _room(sentences, rows, count)
    sizes = sentences, width, words, each, count
    at = log_p.data_ptr(), _at(scores)
    made.continuations(*at, *sizes, ctypes.addressof(ways), torch.get_num_threads())
    return found


def _continuations(log_p: Tensor, score: Sequence[float], sentences: int, each: int, count: int) -> Continuations:
    """The same by torch."""
    scores = torch.tensor(score, dtype=torch.float64, device=log_p.device)
    if each == 1:  # topk may take any of its equals
        words = log_p.argmax(-1, keepdim=True)
        own = log_p.gather(1, words)
    else:
        own, words = log_p.topk(each)  # (R, each)
    total = (scores[:, None] + own).view(sentences, -1)  # (B, W each)
    best, place = total.topk(count)
    place = (place + torch.arange(sentences, device=place.device)[:, None] * total.shape[1]).flatten()  # in (R each)
    found = place // each, words.flatten()[place], own.flatten()[place], best.flatten(), own[:, 0]
    return Continuations(count, *(numbers.tolist() for numbers in found))


@dataclass(frozen=True)
class Asked:
    """What has to be known to go on without the search: R rows of B sentences, the same number of each. Ranks compare
    what has ended: scores times a factor of the length."""

    token: Sequence[int]  # (R,), the last of each row
    score: Sequence[float]  # (R,)
    ways: int  # of each sentence that are looked at
    end: int  # the token that ends a hypothesis
    forbidden: Sequence[int]  # tokens that may not follow
    # (B, best): of the best that have ended, highest first, -inf for each that is missing
    ranks: Sequence[Sequence[float]]
    factor: Sequence[float]  # (steps,), of one that ends in each step ...
    last_factor: Sequence[float]  # (B,), ... and of one that is as long as it may be
    scored: bool = True  # otherwise only the best word of each row is asked for, whose log-probability is told as 0

    @property
    def sentences(self) -> int:
        return len(self.ranks)

    @property
    def steps(self) -> int:
        """At most."""
        return len(self.factor)


class Stretch(NamedTuple):
    """Steps in which the best ways of a sentence went on, one for each row, or ended, until all was said; and the one
    after them, of the sentences that were left. In `notes` and `ended` rows are numbered as they were at first."""

    steps: int
    notes: Sequence[tuple[Sequence[int], Sequence[int], Sequence[float]]]  # row, word and log_p of each step, all (R,)
    ended: Sequence[tuple[int, int, float]]  # in which step, which row, and the log_p of its end
    left: Sequence[int]  # sentences that are not over, in the order of what follows
    score: Sequence[float]  # of their rows, before the last step ...
    found: Continuations  # ... and what may follow it
    seen: Tensor | None  # (their rows, S), cells that they see after it


class Notebook:
    """Where our own code writes down what it did in a stretch, with so many words to choose from. Where rows see only
    some of their sentence's cells, `filled` says how many there are in the first step. A `screen` finds the words that
    nobody asks the scores of."""

    def __init__(self, asked: Asked, words: int, filled: int | None, screen: Screen | None = None):
        steps, self.screen = asked.steps, screen
        if not asked.scored and asked.ways > 1:
            raise ValueError(f"{asked.ways} ways to go on have to be compared by their scores")
        self.rows, self.filled = len(asked.score), filled
        self.width = self.rows // asked.sentences
        each = min(asked.ways, words)
        self.count = min(asked.ways, self.width * each)
        self.found, ways = _room(asked.sentences, self.rows, self.count)
        self.score, self.left = array("d", asked.score), array("q", range(asked.sentences))
        self.notes, self.ends = (_arrays("qqd", self.rows * (steps - 1)) for _ in range(2))
        self.forbidden, self.factor = array("q", asked.forbidden), array("d", asked.factor)
        self.last_factor = array("d", asked.last_factor)
        self.ranks = array("d", chain.from_iterable(asked.ranks))
        most = None if filled is None else self.rows * (filled + (steps - 1) * self.width)
        self.sees = None if most is None else torch.empty(most, dtype=torch.bool)
        row, word, log_p = map(_at, self.notes)
        ended_in, ended, end_log_p = map(_at, self.ends)
        self.given = structures.Stretch(
            steps=steps,
            each=each,
            count=self.count,
            end=asked.end,
            forbidden=_at(self.forbidden),
            forbidden_count=len(asked.forbidden),
            scored=asked.scored,
            screen=None if screen is None else screen.address,
            factor=_at(self.factor),
            last_factor=_at(self.last_factor),
            ranks=_at(self.ranks),
            best=len(asked.ranks[0]),
            score=_at(self.score),
            row=row,
            word=word,
            log_p=log_p,
            ended_in=ended_in,
            ended=ended,
            end_log_p=end_log_p,
            left=_at(self.left),
            last=ways,
            sees=pointer(self.sees),
        )

    def read(self, steps: int) -> Stretch:
        """What was done in so many steps."""
        if self.screen is not None:
            self.screen.note(self.given.looked_at, self.given.computed)
        left = self.given.sentences_left
        rows, noted = left * self.width, steps - 1 if left else steps
        edges = [(step * self.rows, (step + 1) * self.rows) for step in range(noted)]
        row, word, log_p = self.notes
        notes = [(row[first:last], word[first:last], log_p[first:last]) for first, last in edges]
        ended = list(zip(*(each[: self.given.ends] for each in self.ends), strict=True))
        found = self.found if rows == self.rows else self.found.first(left)
        seen = None
        if self.sees is not None and self.filled is not None:
            filled = self.filled + noted * self.width
            seen = self.sees[: rows * filled].view(rows, filled)
        return Stretch(steps, notes, ended, self.left[:left], self.score[:rows], found, seen)


def _room(sentences: int, rows: int, count: int) -> tuple[Continuations, structures.Ways]:
    """Empty continuations, and where they lie."""
    row, word, log_p, score = _arrays("qqdd", sentences * count)
    (highest,) = _arrays("d", rows)
    found = Continuations(count, row, word, log_p, score, highest)
    return found, structures.Ways(*map(_at, (row, word, log_p, score, highest)))


def _arrays(kinds: str, count: int) -> list[array[Any]]:
    """Arrays of Python's own, which are made and read in a tenth of the time of tensors."""
    return [array(kind, bytes(8 * count)) for kind in kinds]


def _at(numbers: array[Any]) -> int:
    return numbers.buffer_info()[0]
