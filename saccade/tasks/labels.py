"""What all tasks that choose a label share: scores with baseline and control, and the labels that go wrong most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from saccade.metrics import Score, accuracy, confusion, macro_f1
from saccade.metrics.score import share_score

SHUFFLE = 12345  # seed of the control
WORST = 20  # labels that are spoken of one by one
CONFUSED = 3  # labels that another one is named to be taken for


def label_scores(
    answers: Sequence[str], references: Sequence[str], labels: Sequence[str], *, usual: str, what: str
) -> list[Score]:
    """Accuracy, macro F1, the trivial baseline, the control; then label by label, the worst first."""
    order = np.random.default_rng(SHUFFLE).permutation(len(references))
    shuffled = [references[number] for number in order]

    def counted(name: str, given: Sequence[str], wanted: Sequence[str], signature: str) -> Score:
        return replace(accuracy(given, wanted), name=name, signature=signature)

    return [
        counted("accuracy", answers, references, f"of {len(answers):,} {what}"),
        macro_f1(answers, references, interval=True),
        counted("baseline accuracy", [usual] * len(references), references, f"always {usual}"),
        counted("control accuracy", answers, shuffled, f"{what} shuffled against labels"),
        *worst_labels(answers, references, labels),
    ]


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
