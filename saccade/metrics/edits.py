"""Error rates of transcripts: how many edits turn the answer into the reference, for each unit of the reference.

    rate = 100 (substitutions + insertions + deletions) / length of the references, over the whole corpus

The edits are the fewest possible (Levenshtein 1966). Case and punctuation count: normalise both sides before, if they
should not. The rate exceeds 100 where more is inserted than was said.

Empty references: their words in the answers are insertions like any others, and add nothing to the length. Where all
references are empty the rate is 0 if all answers are too, and else 100: all that was heard is wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from saccade.metrics.score import Score, bootstrap_interval, check_matched


def word_error_rate(answers: Sequence[str], references: Sequence[str], *, interval: bool = False) -> Score:
    """Words are what stands between white space."""
    return _rate("WER", [text.split() for text in answers], [text.split() for text in references], interval)


def character_error_rate(answers: Sequence[str], references: Sequence[str], *, interval: bool = False) -> Score:
    """Characters are code points; a stretch of white space is one, and none at the ends."""
    ours, theirs = ([" ".join(text.split()) for text in texts] for texts in (answers, references))
    return _rate("CER", ours, theirs, interval)


def edit_distance(answer: Sequence[Hashable], reference: Sequence[Hashable]) -> int:
    """The fewest substitutions, insertions and deletions that turn one into the other."""
    numbers: dict[Hashable, int] = {}
    row = np.array([numbers.setdefault(unit, len(numbers)) for unit in answer], dtype=np.int64)
    place = np.arange(len(row) + 1)
    distance = place  # of every beginning of the answer to what was read of the reference
    for count, unit in enumerate(reference, start=1):
        kept = distance[:-1] + (row != numbers.get(unit, -1))  # the same unit, or another in its place
        best = np.concatenate([[count], np.minimum(kept, distance[1:] + 1)])
        distance = np.minimum.accumulate(best - place) + place  # any number of units more in the answer
    return int(distance[-1])


def _rate(
    name: str, answers: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Hashable]], interval: bool
) -> Score:
    check_matched(answers, references)
    pairs = zip(answers, references, strict=True)
    counts = np.array([(edit_distance(answer, reference), len(reference)) for answer, reference in pairs])  # (n, 2)
    ends = bootstrap_interval(counts, _ratio) if interval else None
    return Score(name, _ratio(counts), ends)


def _ratio(counts: np.ndarray) -> float:
    edits, length = counts.sum(axis=0)
    return float(100 * edits / length) if length else 100.0 * bool(edits)
