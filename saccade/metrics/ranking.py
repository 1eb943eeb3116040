"""Scores of choices: recall at k of a retrieval, accuracy, the confusion table and macro F1, all in percent.

recall at k:  how many of the rows have a right answer among the k most similar                (Hodosh et al. 2013)
macro F1:     mean over the labels of 2 right / (2 right + wrongly given + missed)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from saccade.errors import SaccadeError
from saccade.metrics.score import Score, bootstrap_interval, check_matched, share_score

Label = str | int


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each label (row) was answered with each label (column)."""

    labels: tuple[Label, ...]
    counts: np.ndarray  # (labels, labels)

    def tsv(self) -> str:
        """As text, with tabs between the columns: what was right, then how often each label was the answer."""
        rows = [("right", *self.labels)]
        rows += [(label, *counts) for label, counts in zip(self.labels, self.counts.tolist(), strict=True)]
        return "".join("\t".join(map(str, row)) + "\n" for row in rows)


def recall_at(k: int, similarity: ArrayLike, right: ArrayLike, *, name: str = "") -> Score:
    """Each row asks, the columns answer; similarity and right (bool) are (rows, columns), several right in a row.

    A wrong answer as similar as the best right one stands before it: what cannot be told apart is not found.
    """
    nearness, correct = np.asarray(similarity, dtype=np.float64), np.asarray(right, dtype=bool)
    if k < 1:
        raise SaccadeError(f"recall at k needs a k of 1 or more; got {k}")
    if nearness.ndim != 2 or nearness.shape != correct.shape or nearness.size == 0:
        raise SaccadeError(f"similarity has shape {nearness.shape} and right {correct.shape}; both are (rows, columns)")
    if np.isnan(nearness).any():
        raise SaccadeError(f"the similarity of row and column {np.argwhere(np.isnan(nearness))[0].tolist()} is NaN")
    if not correct.any(axis=1).all():
        raise SaccadeError(f"row {int(correct.any(axis=1).argmin())} has no right answer among the columns")
    best = np.where(correct, nearness, -np.inf).max(axis=1, keepdims=True)
    before = (~correct & (nearness >= best)).sum(axis=1)
    return share_score(name or f"R@{k}", before < k)


def recalls(
    similarity: ArrayLike,
    right: ArrayLike,
    *,
    at: Sequence[int] = (1, 5, 10),
    ways: tuple[str, str] = ("rows to columns", "columns to rows"),
) -> list[Score]:
    """Recall at each k, rows asking and then columns asking."""
    both = (np.asarray(similarity), np.asarray(right)), (np.asarray(similarity).T, np.asarray(right).T)
    return [
        recall_at(k, nearness, correct, name=f"{way} R@{k}")
        for way, (nearness, correct) in zip(ways, both, strict=True)
        for k in at
    ]


def accuracy(answers: Sequence[Label], references: Sequence[Label]) -> Score:
    """How many answers are their reference, with Wilson's interval."""
    check_matched(answers, references)
    hits = [answer == reference for answer, reference in zip(answers, references, strict=True)]
    return share_score("accuracy", np.array(hits))


def confusion(
    answers: Sequence[Label], references: Sequence[Label], labels: Sequence[Label] | None = None
) -> Confusion:
    """The table of references against answers, for all labels that occur or for those given, in their order."""
    known, pairs = _numbered(answers, references, labels)
    return Confusion(tuple(known), _table(pairs, len(known)))


def macro_f1(answers: Sequence[Label], references: Sequence[Label], *, interval: bool = False) -> Score:
    """The mean of the labels' F1, each label alike however rare; over the labels that occur on either side."""
    known, pairs = _numbered(answers, references, None)

    def score(pairs: np.ndarray) -> float:
        table = _table(pairs, len(known))
        there = table.sum(axis=0) + table.sum(axis=1)  # 2 right + wrongly given + missed
        return float(100 * np.mean(2 * np.diag(table)[there > 0] / there[there > 0]))

    return Score("macro F1", score(pairs), bootstrap_interval(pairs, score) if interval else None)


def _numbered(
    answers: Sequence[Label], references: Sequence[Label], labels: Sequence[Label] | None
) -> tuple[list[Label], np.ndarray]:
    """The labels, and a pair of numbers (reference, answer) for each item: (n, 2)."""
    check_matched(answers, references)
    known = sorted({*answers, *references}, key=_order) if labels is None else list(labels)
    number = {label: place for place, label in enumerate(known)}
    if strange := {*answers, *references} - number.keys():
        raise SaccadeError(f"{min(strange, key=_order)!r} is not among the labels: {', '.join(map(repr, known))}")
    pairs = zip(references, answers, strict=True)
    return known, np.array([(number[reference], number[answer]) for reference, answer in pairs])


def _order(label: Label) -> tuple[bool, Label]:
    return isinstance(label, str), label  # numbers before words, which cannot be compared


def _table(pairs: np.ndarray, labels: int) -> np.ndarray:
    return np.bincount(pairs[:, 0] * labels + pairs[:, 1], minlength=labels**2).reshape(labels, labels)
