"""Scores of translations by sacrebleu, with what is needed to compare them: its signature and an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest

from saccade.errors import SaccadeError
from saccade.metrics.score import Score

RESAMPLES = 1000


def bleu(
    answers: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False, interval: bool = False
) -> Score:
    """BLEU (Papineni et al. 2002) by sacrebleu (Post 2018); each answer has one or more references."""
    return _score(BLEU(lowercase=lowercase), "BLEU, lower case" if lowercase else "BLEU", answers, references, interval)


def chrf(answers: Sequence[str], references: Sequence[Sequence[str]], *, interval: bool = False) -> Score:
    """chrF (Popovic 2015) by sacrebleu."""
    return _score(_CHRF(), "chrF", answers, references, interval)


class _CHRF(CHRF):
    """Of resampled sentences sacrebleu's own has scores of two types, where none matches, and no mean of both."""

    def _compute_f_score(self, statistics: list[int]) -> float:
        return float(super()._compute_f_score(statistics))


def paired_p_value(first: Sequence[str], second: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """How probable so large a difference in BLEU is by chance: paired bootstrap resampling (Koehn 2004) by
    sacrebleu."""
    if bleu(first, references).value == bleu(second, references).value:
        return 1.0  # sacrebleu counts differences larger than this one, finds few, and would call none significant
    known: Any = streams(first, references)
    test = PairedTest(
        [("first", list(first)), ("second", list(second))],
        {"BLEU": BLEU(references=known)},
        references=None,
        test_type="bs",
        n_samples=RESAMPLES,
    )
    return float(cast(Any, test()[1]["BLEU"])[1].p_value)


def streams(answers: Sequence[str], references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """References as sacrebleu takes them: the first of each answer, the second of each, ...; None fills the gaps."""
    if len(answers) != len(references):
        raise SaccadeError(f"{len(answers)} answers cannot be scored with {len(references)} references")
    if not answers or not all(references):
        raise SaccadeError("there is nothing to score: every answer needs at least one reference")
    most = max(len(each) for each in references)
    return [[each[number] if number < len(each) else None for each in references] for number in range(most)]


def _score(
    metric: BLEU | CHRF, name: str, answers: Sequence[str], references: Sequence[Sequence[str]], interval: bool
) -> Score:
    known: Any = streams(answers, references)  # sacrebleu takes None for a missing reference, its types do not say so
    found = metric.corpus_score(answers, known, n_bootstrap=RESAMPLES if interval else 1)
    mean, half = float(found._mean), float(found._ci)  # of few sentences it would go beyond what a score can be
    ends = (max(0.0, mean - half), min(100.0, mean + half)) if interval else None
    return Score(name, float(found.score), ends, str(metric.get_signature()))
