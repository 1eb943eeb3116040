"""The course in one command, on one's own data: four models, the same minutes each, and what each step is worth.

Recurrent without attention, recurrent with attention, convolutional, Transformer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from saccade import api
from saccade.metrics import TextScore, bleu, chrf, paired_p_value
from saccade.train.progress import Event
from saccade.train.signals import StopRequest

RUNGS: dict[str, tuple[str, ...]] = {
    "recurrent, one vector": ("model.kind=sutskever", "model.width=128", "model.hidden=256"),
    "recurrent, attention": ("model.kind=bahdanau", "model.width=128", "model.hidden=256"),
    "convolutional, attention": ("model.kind=convolutional", "model.width=192", "model.layers=4"),
    "Transformer": (),
}
BUCKETS = ((1, 5), (6, 8), (9, 12), (13, 20), (21, 1000))  # words of the source sentence
FEWEST = 10  # sentences that a bucket needs to be shown


@dataclass(frozen=True)
class Rung:
    """One model after its minutes: scores of its translations of the validation part, whole and by length."""

    name: str
    parameters: int
    updates: int
    bleu: TextScore
    chrf: TextScore
    p_value: float | None  # of the difference to the rung before
    by_length: tuple[tuple[str, int, float], ...]  # words, sentences, chrF


def climb(
    directory: Path,
    settings: Sequence[str],
    *,
    minutes: float,
    tell: Callable[[str, Event], None] | None = None,
    stop: StopRequest | None = None,
) -> list[Rung]:
    """Train every rung into a run of its own below `directory`, for the same share of `minutes`; asked to stop, it
    returns the rungs that were finished."""
    rungs: list[Rung] = []
    before: list[str] = []
    for number, (name, model) in enumerate(RUNGS.items()):
        budget = (f"train.minutes={minutes / len(RUNGS)}", "train.patience=null")
        out = directory / f"{number + 1}-{name.split(',')[0].lower()}{'-attention' if 'attention' in name else ''}"
        training = api.begin("translate", out=out, settings=[*model, *settings, *budget])
        for event in training.events(stop):
            if tell is not None:
                tell(name, event)
        if stop:
            return rungs
        scored = api.load(out).score()
        answers = [answer for _, answer, _ in scored.samples]
        references = list(scored.references)
        rungs.append(
            Rung(
                name,
                training.parameters,
                training.trainer.step,
                bleu(answers, references, interval=True),
                chrf(answers, references, interval=True),
                paired_p_value(before, answers, references) if before else None,
                by_length([source for source, _, _ in scored.samples], answers, references),
            )
        )
        before = answers
    return rungs


def plot(rungs: Sequence[Rung]) -> Figure:
    """chrF against the length of the source sentence, one line per rung."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    for rung, marker in zip(rungs, "os^D", strict=False):
        words, scores = [row[0] for row in rung.by_length], [row[2] for row in rung.by_length]
        axes.plot(words, scores, f"{marker}-", label=rung.name)
    axes.set_xlabel("words in the source sentence")
    axes.set_ylabel("chrF")
    axes.set_ylim(0, 100)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    return figure


def by_length(
    sources: Sequence[str], answers: Sequence[str], references: Sequence[Sequence[str]]
) -> tuple[tuple[str, int, float], ...]:
    """chrF of the sentences in each bucket of source lengths: words, how many sentences, score."""
    rows = []
    for low, high in BUCKETS:
        chosen = [n for n, source in enumerate(sources) if low <= len(source.split()) <= high]
        if len(chosen) >= FEWEST:
            score = chrf([answers[n] for n in chosen], [references[n] for n in chosen]).value
            rows.append((f"{low}-{high}" if high < 1000 else f"{low}+", len(chosen), score))
    return tuple(rows)
