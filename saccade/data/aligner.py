"""Which word of a sentence translates which, learned from the pairs alone.

    p(target_j | source) = sum_i a(i | j) t(target_j | source_i),   a(i | j) ~ exp(-4 |i / S - j / T|)

t is estimated by expectation and maximisation (Brown et al. 1993, model 1; the diagonal preference of Dyer et al.
2013), once in each direction; a link is kept where both directions choose it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from saccade.data.readers import TextPair, hash_of, read_lines
from saccade.errors import SaccadeError

ROUNDS = 5
DIAGONAL = 4.0
NOTHING = 0.08  # prior share of words that translate nothing
MOST_PAIRS = 30_000  # more teach little, and cost memory and time

Words = Sequence[str]
Links = list[tuple[int, int]]  # places of a source and a target word, sorted


@dataclass(frozen=True)
class Direction:
    """t(target | source) as a sorted list of (source, target) keys with their probabilities."""

    sources: dict[str, int]  # 0 stands for nothing
    targets: dict[str, int]
    keys: np.ndarray
    probabilities: np.ndarray

    @staticmethod
    def learn(pairs: Sequence[tuple[Words, Words]]) -> Direction:
        sources = _numbered((words for words, _ in pairs), first=1)
        targets = _numbered((words for _, words in pairs), first=0)
        cells, rows, prior = _cells(pairs, sources, targets)
        keys, places = np.unique(cells, return_inverse=True)
        owner = keys // len(targets)
        probabilities = np.full(len(keys), 1.0 / len(targets))
        for _ in range(ROUNDS):
            weight = prior * probabilities[places]
            weight /= np.bincount(rows, weight)[rows]
            counts = np.bincount(places, weight, minlength=len(keys))
            probabilities = counts / np.maximum(np.bincount(owner, counts)[owner], 1e-12)
        return Direction(sources, targets, keys, probabilities)

    def best(self, source: Words, target: Words) -> list[int | None]:
        """For each target word the place of the source word it most probably translates, or None for nothing."""
        left = np.array([0, *(self.sources.get(word, -1) for word in source)], np.int64)
        right = np.array([self.targets.get(word, -1) for word in target], np.int64)
        keys = left[None, :] * len(self.targets) + right[:, None]  # (T, 1 + S)
        places = np.searchsorted(self.keys, keys).clip(max=max(len(self.keys) - 1, 0))
        known = (self.keys[places] == keys) & (left >= 0)[None, :] & (right >= 0)[:, None]
        weight = np.where(known, self.probabilities[places], 0.0) * _prior(len(source), len(target))
        chosen = weight.argmax(1)
        return [int(c) - 1 if c > 0 and weight[j, c] > 0 else None for j, c in enumerate(chosen)]


@dataclass(frozen=True)
class Aligner:
    """Both directions; links are what they agree on."""

    forward: Direction
    backward: Direction

    @staticmethod
    def learn(pairs: Sequence[TextPair]) -> Aligner:
        """From at most MOST_PAIRS pairs, chosen by hash."""
        chosen = pairs
        if len(pairs) > MOST_PAIRS:
            chosen = sorted(pairs, key=lambda pair: hash_of(pair.source))[:MOST_PAIRS]
        words = [(words_of(pair.source), words_of(pair.target)) for pair in chosen]
        words = [(source, target) for source, target in words if source and target]
        return Aligner(Direction.learn(words), Direction.learn([(target, source) for source, target in words]))

    def links(self, pair: TextPair) -> Links:
        """Over the words between spaces."""
        source, target = words_of(pair.source), words_of(pair.target)
        if not source or not target:
            return []
        there, back = self.forward.best(source, target), self.backward.best(target, source)
        return sorted((i, j) for j, i in enumerate(there) if i is not None and back[i] == j)


def read_links(path: str | Path) -> Iterator[Links]:
    """Links between words from a file in the format of Pharaoh: i-j, counted from zero, a line per pair."""
    for number, line in enumerate(read_lines(path), start=1):
        try:
            yield sorted((int(i), int(j)) for i, j in (link.split("-") for link in line.split()))
        except ValueError:
            raise SaccadeError(f"{path}:{number}: {line[:40]!r} are no links like 0-0 1-2") from None


def words_of(text: str) -> list[str]:
    """Words between spaces, in small letters and without the marks around them where letters are left."""
    return [word.strip(".,;:!?…\"'«»()").lower() or word for word in text.split()]


def _cells(
    pairs: Sequence[tuple[Words, Words]], sources: dict[str, int], targets: dict[str, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every (source or nothing, target) of the pairs: its key, the target word it belongs to, its prior."""
    keys, rows, priors, before = [], [], [], 0
    for source, target in pairs:
        left = np.array([0, *(sources[word] for word in source)], np.int64)
        right = np.array([targets[word] for word in target], np.int64)
        keys.append((left[None, :] * len(targets) + right[:, None]).ravel())
        rows.append(np.repeat(np.arange(before, before + len(target)), len(left)))
        priors.append(_prior(len(source), len(target)).ravel())
        before += len(target)
    return np.concatenate(keys), np.concatenate(rows), np.concatenate(priors)


def _numbered(sentences: Iterator[Words], *, first: int) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for words in sentences:
        for word in words:
            numbers.setdefault(word, len(numbers) + first)
    return numbers


@lru_cache(maxsize=10_000)
def _prior(source: int, target: int) -> np.ndarray:
    """(T, 1 + S): how probable each place is before the words are looked at, "nothing" first."""
    i, j = (np.arange(source) + 0.5) / source, (np.arange(target) + 0.5) / target
    near = np.exp(-DIAGONAL * np.abs(i[None, :] - j[:, None]))
    near *= (1 - NOTHING) / near.sum(1, keepdims=True)
    return np.concatenate([np.full((target, 1), NOTHING), near], axis=1)
