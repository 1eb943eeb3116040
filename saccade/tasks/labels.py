"""What all tasks that choose a label share: the file of labels, scores with baseline and control, the worst labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from saccade.errors import SaccadeError
from saccade.metrics import Confusion, Score, accuracy, confusion, macro_f1
from saccade.metrics.score import exchanged, share_score

LABELS = "labels.json"
WORST = 20  # labels that are spoken of one by one
CONFUSED = 3  # labels that another one is named to be taken for


@runtime_checkable
class Labelling(Protocol):
    """A task that gives each input one of the labels it knows."""

    def confusion(self, model: Any, split: str) -> Confusion:
        """How often each label (row) was answered with each label (column)."""


def write_labels(directory: Path, labels: Sequence[str]) -> None:
    (directory / LABELS).write_text(json.dumps(labels, ensure_ascii=False) + "\n", encoding="utf-8")


def read_labels(directory: Path) -> tuple[str, ...]:
    """Those that a model was trained with, in the order of its answers."""
    path = directory / LABELS
    try:
        return tuple(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise SaccadeError(f"{path}: cannot read the labels: {error}") from error


def label_scores(
    answers: Sequence[str], references: Sequence[str], labels: Sequence[str], *, usual: str, what: str
) -> list[Score]:
    """Accuracy, macro F1, the trivial baseline, the control; then label by label, the worst first."""
    shuffled, against = exchanged(answers), f"{what} shuffled against labels"

    def counted(name: str, given: Sequence[str], wanted: Sequence[str], signature: str) -> Score:
        return replace(accuracy(given, wanted), name=name, signature=signature)

    return [
        counted("accuracy", answers, references, f"of {len(answers):,} {what}"),
        macro_f1(answers, references, interval=True),
        always(usual, references, "baseline accuracy"),
        counted("control accuracy", shuffled, references, against),
        replace(macro_f1(shuffled, references, interval=True), name="control macro F1", signature=against),
        *worst_labels(answers, references, labels),
    ]


def always(label: str, references: Sequence[str], name: str) -> Score:
    """The accuracy of one answer to everything."""
    return replace(accuracy([label] * len(references), references), name=name, signature=f"always {label}")


def worst_labels(answers: Sequence[str], references: Sequence[str], labels: Sequence[str]) -> list[Score]:
    """Of what has each label, how much was given it, and what the rest was taken for."""
    table = confusion(answers, references, labels).counts
    scores = []
    for number, label in enumerate(labels):
        row = table[number]
        if not row.sum():
            continue
        wrong = [other for other in np.argsort(-row, kind="stable") if other != number and row[other]][:CONFUSED]
        taken = ", ".join(f"{labels[other]} {100 * row[other] / row.sum():.1f}" for other in wrong)
        score = share_score(label, np.arange(row.sum()) < row[number])
        scores.append(replace(score, signature=f"taken for {taken}" if taken else ""))
    return sorted(scores, key=lambda score: score.value)[:WORST]
