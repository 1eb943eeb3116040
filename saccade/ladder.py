"""The course in one command, on one's own data: five models, the same minutes each, and what each step is worth.

Recurrent with the source in one vector, given once or at each step; with attention; convolutional; Transformer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from saccade import api, curves
from saccade.errors import SaccadeError
from saccade.metrics import Score, bleu, chrf, paired_p_value
from saccade.train.progress import Event
from saccade.train.signals import StopRequest

RUNGS: dict[str, tuple[str, ...]] = {
    "one vector, once": ("model.kind=sutskever", "model.width=128", "model.hidden=256"),
    "one vector, each step": ("model.kind=sutskever", "model.context=each", "model.width=128", "model.hidden=256"),
    "recurrent, attention": ("model.kind=bahdanau", "model.width=128", "model.hidden=256"),
    "convolutional": ("model.kind=convolutional", "model.width=192", "model.layers=4"),
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
    bleu: Score
    chrf: Score
    p_value: float | None  # of the difference to the rung before
    by_length: tuple[tuple[str, int, float], ...]  # words, sentences, chrF
    curve: curves.Points  # minutes, BLEU of the validation part


def climb(
    directory: Path,
    settings: Sequence[str],
    *,
    minutes: float,
    tell: Callable[[str, Event], None] | None = None,
    stop: StopRequest | None = None,
) -> list[Rung]:
    """Train every rung into a run of its own below `directory`, for the same share of `minutes`.

    Asked to stop, it returns the rungs that were finished; called again, it goes on with the one that was not.
    """
    rungs: list[Rung] = []
    before: list[str] = []
    for number, (name, model) in enumerate(RUNGS.items(), start=1):
        out = directory / f"{number}-{name.lower().replace(',', '').replace(' ', '-')}"
        chosen = [*model, *settings, f"train.minutes={minutes / len(RUNGS)}", "train.patience=null"]
        training = _begun(out, chosen)
        for event in training.events(stop):
            if tell is not None:
                tell(name, event)
        if stop:
            return rungs
        scored = api.load(out).score()
        answers = [answer for _, answer, _ in scored.samples]
        references = list(scored.references)
        _, (learned,) = curves.read([out], score="bleu", minutes=True)
        rungs.append(
            Rung(
                name,
                training.parameters,
                training.trainer.step,
                bleu(answers, references, interval=True),
                chrf(answers, references, interval=True),
                paired_p_value(before, answers, references) if before else None,
                by_length([source for source, _, _ in scored.samples], answers, references),
                learned.score,
            )
        )
        before = answers
    return rungs


def _begun(out: Path, settings: Sequence[str]) -> api.Training:
    """A rung, which goes on where it stands if it was begun before."""
    if not (out / "recipe.yaml").is_file():
        return api.begin("translate", out=out, settings=settings)
    try:
        return api.resumed(out, settings=settings)
    except SaccadeError as error:
        raise SaccadeError(f"{out.parent} has a ladder that cannot go on; choose another --out. {error}") from error


def plot(rungs: Sequence[Rung]) -> Figure:
    """BLEU while they were trained, and chrF against the length of the source sentence; one line per rung."""
    figure = Figure(figsize=(10.8, 4.2), layout="constrained")
    learned, lengths = figure.subplots(1, 2)
    lengths.set_visible(any(rung.by_length for rung in rungs))  # few sentences say nothing about lengths
    for rung, marker in zip(rungs, "os^vD", strict=False):
        learned.plot(*zip(*rung.curve, strict=True), f"{marker}-", label=rung.name)
        words, scores = [row[0] for row in rung.by_length], [row[2] for row in rung.by_length]
        lengths.plot(words, scores, f"{marker}-", label=rung.name)
    learned.set_xlabel("minutes")
    learned.set_ylabel("BLEU")
    learned.set_ylim(bottom=0)
    lengths.set_xlabel("words in the source sentence")
    lengths.set_ylabel("chrF")
    lengths.set_ylim(0, 100)
    for axes in (learned, lengths):
        axes.grid(alpha=0.3)
    learned.legend(frameon=False)
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
