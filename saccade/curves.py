"""What runs logged while they were trained, drawn together: the training loss, and a score of the validation part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from saccade.errors import SaccadeError
from saccade.train.run import Run

PREFIX = "valid_"  # of what the log says of the validation part
Points = tuple[tuple[float, float], ...]  # updates or minutes, and what was measured then


@dataclass(frozen=True)
class Curve:
    """One run: its name, and what was measured when."""

    name: str
    loss: Points
    score: Points


def read(paths: Sequence[str | Path], *, score: str | None = None, minutes: bool = False) -> tuple[str, list[Curve]]:
    """The curves of some runs, and the name of the score: the one that is asked for, else the loss, else the first.

    Against `minutes` of training, which were spent evenly on all updates.
    """
    runs = list(dict.fromkeys(map(Path, paths)))  # one that is named twice is one
    names = _names(runs)
    logs = {name: _records(Run.open(path)) for name, path in zip(names, runs, strict=True)}
    known = list(dict.fromkeys(key for records in logs.values() for record in records for key in record))
    scores = [key.removeprefix(PREFIX) for key in known if key.startswith(PREFIX)]
    if not scores:
        raise SaccadeError(f"{', '.join(map(str, paths))}: no log of a validation part (a packed run has none)")
    if score is not None and score not in scores:
        raise SaccadeError(f"no run logged a score {score!r}; there is: {', '.join(scores)}")
    score = score or ("loss" if "loss" in scores else scores[0])
    curves = []
    for (name, records), path in zip(logs.items(), runs, strict=True):
        scale = _minutes_per_update(Run.open(path)) if minutes else 1.0
        curves.append(Curve(name, _points(records, "loss", scale), _points(records, f"{PREFIX}{score}", scale)))
    return score, curves


def draw(score: str, curves: Sequence[Curve], *, minutes: bool = False) -> Figure:
    """Loss on the left, the score on the right; one colour for each run."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    for axes, title in zip(figure.subplots(1, 2), ("training loss", f"validation, {score}"), strict=True):
        for curve in curves:
            points = curve.loss if title == "training loss" else curve.score
            if points:
                axes.plot(*zip(*points, strict=True), "-" if title == "training loss" else "o-", label=curve.name, ms=3)
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("minutes" if minutes else "updates")
        axes.grid(alpha=0.3)
    if len(curves) > 1:
        axes.legend(frameon=False)
    return figure


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, or all of it where two would have the same."""
    last = [path.resolve().name for path in paths]
    return last if len(set(last)) == len(last) else [str(path) for path in paths]


def _records(run: Run) -> list[dict[str, Any]]:
    return [record for record in run.metrics() if isinstance(record.get("step"), int)]


def _points(records: Sequence[dict[str, Any]], name: str, scale: float) -> Points:
    found = [(record["step"] * scale, record[name]) for record in records if isinstance(record.get(name), float | int)]
    return tuple(point for point in found if math.isfinite(point[1]))


def _minutes_per_update(run: Run) -> float:
    checkpoint = run.latest()
    if checkpoint is None:
        raise SaccadeError(f"{run.path}: without a checkpoint nobody knows how many minutes it was trained")
    return checkpoint.state["minutes"] / max(checkpoint.step, 1)
