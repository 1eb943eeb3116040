"""A run on one page: curves, scores, samples as they improved, where it looked, the recipe; one file that needs no
network."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from saccade.api import load
from saccade.curves import draw, read
from saccade.errors import SaccadeError
from saccade.ladder import by_length
from saccade.maps.render import figure_of
from saccade.metrics import bleu, chrf
from saccade.models.shapes import parameter_count
from saccade.predictor import Predictor
from saccade.tasks.base import Scores
from saccade.train.run import Run

SAMPLES = 5  # sentences that are followed through the training
LOOKED_AT = 3  # sentences whose attention is shown
# Nothing but the page itself may be loaded, and no script runs: texts of a model cannot do anything here.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
STYLE = """
:root { color-scheme: light dark; --line: #8884; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .3rem .6rem .3rem 0;
vertical-align: top; border-bottom: 1px solid var(--line); } img { max-width: 100%; background: white; border-radius:
6px; } pre { overflow-x: auto; font-size: .85rem; padding: .8rem; border: 1px solid var(--line); border-radius: 6px; }
small { opacity: .7; }
"""


def report(path: str | Path) -> str:
    """The page of a run, as HTML."""
    run, predictor = Run.open(path), load(path)
    scores = predictor.score()
    records = run.metrics()
    last = max((record["step"] for record in records if "step" in record), default=0)
    sections = [
        _facts(predictor, scores, last),
        _section("Curves", _picture(draw(*read([path])), "loss and validation score against updates")),
        _section("Samples, as they improved", _samples(records)),
    ]
    if scores.references:
        sections.append(_section("Score against length", _lengths(scores)))
    sections.append(_section("Where it looked", "".join(_looks(predictor, scores))))
    sections.append(_section("Recipe", f"<pre>{_text(run.recipe_text)}</pre>"))
    title = _text(f"{predictor.recipe.task.kind} with {predictor.recipe.model.kind}: {Path(path).name}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{title}</h1>{''.join(sections)}</body></html>\n"
    )


def _facts(predictor: Predictor, scores: Scores, last: int) -> str:
    rows = [("parameters", f"{parameter_count(predictor.model):,}"), ("updates", f"{last:,}")]
    if scores.references:
        answers = [answer for _, answer, _ in scores.samples]
        for score in (bleu(answers, scores.references, interval=True), chrf(answers, scores.references, interval=True)):
            rows.append((f"validation, {len(answers)} sentences", f"{score} <small>{_text(score.signature)}</small>"))
    else:
        rows += [(f"validation, {name}", f"{value:.4f}") for name, value in scores.values.items()]
    return _table(rows)


def _samples(records: Sequence[dict[str, Any]]) -> str:
    rounds = [(record["step"], record["samples"]) for record in records if "samples" in record]
    if not rounds:
        return "<p>None were logged.</p>"
    shown = (
        rounds if len(rounds) <= 4 else [rounds[0], rounds[len(rounds) // 3], rounds[2 * len(rounds) // 3], rounds[-1]]
    )
    parts = []
    for number, (source, _, reference) in enumerate(shown[-1][1][:SAMPLES]):
        rows = [(f"after {step:,}", _text(samples[number][1])) for step, samples in shown if number < len(samples)]
        parts.append(f"<h3>{_text(source)}</h3>{_table([*rows, ('reference', _text(reference))])}")
    return "".join(parts)


def _lengths(scores: Scores) -> str:
    sources, answers = ([sample[place] for sample in scores.samples] for place in (0, 1))
    figure = Figure(figsize=(6, 3), layout="constrained")
    axes = figure.subplots()
    rows = by_length(sources, answers, scores.references)
    axes.bar(
        [f"{words}\n{count} sentences" for words, count, _ in rows], [score for *_, score in rows], color="#1f5f9f"
    )
    axes.set_ylabel("chrF")
    axes.set_xlabel("words in the source sentence")
    return _picture(figure, "chrF against the length of the source sentence")


def _looks(predictor: Predictor, scores: Scores) -> Iterable[str]:
    for source, _, _ in scores.samples[:LOOKED_AT]:
        try:
            maps = predictor.look(source)
        except SaccadeError as error:  # of a sample that was cut, or has no name of its own
            yield f"<p>{_text(str(error))}</p>"
            continue
        if not maps:
            yield "<p>This model has no attention to look at.</p>"
            return
        yield _picture(figure_of(maps[:1]), f"where the model looked while it answered {source}")


def _section(title: str, content: str) -> str:
    return f"<h2>{_text(title)}</h2>{content}"


def _table(rows: Iterable[tuple[str, str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{_text(name)}</th><td>{value}</td></tr>" for name, value in rows) + "</table>"


def _picture(figure: Figure, description: str) -> str:
    stream = io.BytesIO()
    figure.savefig(stream, format="svg")
    data = base64.b64encode(stream.getvalue()).decode()
    return f'<p><img alt="{_text(description)}" src="data:image/svg+xml;base64,{data}"></p>'


def _text(text: str) -> str:
    """Text as text, whatever stands in it."""
    return escape(text.encode("utf-8", "replace").decode())
