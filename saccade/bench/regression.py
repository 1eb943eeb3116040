"""Attention as kernel regression, drawn: the curves of four kernels with their attention, and a real landscape."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib.cbook
import numpy as np
from matplotlib.figure import Figure
from rich.table import Table

from saccade import api
from saccade.data.tables import curve
from saccade.maps.axes import AttentionMap
from saccade.maps.tables import draw_table
from saccade.metrics import Score
from saccade.tasks.regress import Regress

KERNELS = {
    "narrow, fixed": ["model.width=0.05", "model.learn_width=false"],
    "wide, fixed": ["model.width=0.6", "model.learn_width=false"],
    "learned width": [],
    "learned embeddings": ["model.embedding=learned", "train.steps=400"],
}
ASKED = np.linspace(0, 5, 101)
PLACES = 400  # of the landscape, that are measured


@dataclass(frozen=True)
class Fit:
    """One kernel on one table: what it answers, where it looked, and its errors on held-out examples."""

    kernel: str
    data: str
    scores: tuple[Score, ...]
    answers: np.ndarray | None = None
    process: np.ndarray | None = None  # what a Gaussian process with the same kernel answers
    seen: AttentionMap | None = None  # what was asked about, over the examples


def fits(tell: Callable[[str], None]) -> list[Fit]:
    """Every kernel on the noisy curve, and the learned ones on heights of a landscape."""
    found: list[Fit] = []
    with tempfile.TemporaryDirectory() as folder:
        land = Path(folder) / "land.csv"
        _write_land(land)
        for kernel, settings in KERNELS.items():
            tell(f"the curve, {kernel}")
            found.append(_fit(kernel, "curve", settings, Path(folder) / f"curve-{len(found)}", asked=True))
        for kernel in ("learned width", "learned embeddings"):
            tell(f"heights, {kernel}")
            settings = [f"task.data={land}", *KERNELS[kernel]]
            found.append(_fit(kernel, "heights", settings, Path(folder) / f"land-{len(found)}"))
    return found


def to_table(found: list[Fit]) -> Table:
    """Errors in percent of the target's standard deviation, with intervals."""
    table = Table(
        "data", "kernel", "error", "GP mean", "mean", "shuffled", box=None, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for fit in found:
        own, process, baseline, control = fit.scores
        spread = (f"{each.shown} {each.ends}" for each in (own, process))
        table.add_row(fit.data, fit.kernel, *spread, baseline.shown, control.shown)
    return table


def to_figure(found: list[Fit]) -> Figure:
    """Curves above, and below them what each point of the curve was made of."""
    curves = [(fit, fit.seen) for fit in found if fit.answers is not None and fit.seen is not None]
    figure = Figure(figsize=(3.1 * len(curves), 6.0), layout="constrained")
    for column, ((fit, seen), axes) in enumerate(zip(curves, figure.subplots(2, len(curves)).T, strict=True)):
        upper, lower = axes
        task = _task(fit.kernel)
        train, _ = task.tables
        upper.plot(train[:, 0], train[:, 1], ".", color="0.6", markersize=4, label="examples")
        upper.plot(ASKED, curve(ASKED), "--", color="0.3", linewidth=1, label="truth")
        upper.plot(ASKED, fit.process, color="#c0602f", linewidth=1, label="Gaussian process")
        upper.plot(ASKED, fit.answers, color="#1f5f9f", label="attention")
        upper.set_title(f"{fit.kernel}\nerror {fit.scores[0].shown}", fontsize=10)
        draw_table(lower, "attention", seen.mean, seen)
        lower.set_xlabel("x of the examples")
        if column == 0:
            upper.legend(fontsize=8)
            lower.set_ylabel("x that is asked about")
    return figure


def _fit(kernel: str, data: str, settings: list[str], out: Path, *, asked: bool = False) -> Fit:
    predictor = api.train("regress", out=out, settings=settings)
    scores = tuple(predictor.evaluate())
    if not asked:
        return Fit(kernel, data, scores)
    answers = [float(each.text) for each in predictor.predict([f"{x}" for x in ASKED])]
    seen = predictor.look(";".join(f"{x}" for x in ASKED))[0]
    task: Any = predictor.task
    process = task.process(predictor.model, ASKED[:, None])
    return Fit(kernel, data, scores, np.array(answers), process, seen)


def _task(kernel: str) -> Regress:
    from saccade.config import load_recipe

    return Regress(load_recipe("regress", KERNELS[kernel]))


def _write_land(path: Path) -> None:
    """Heights of a real landscape at places drawn once: the elevation model that matplotlib ships (public domain)."""
    land: Any = matplotlib.cbook.get_sample_data("jacksboro_fault_dem.npz")
    heights = land["elevation"]
    draw = np.random.default_rng(1)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "column", "height"])
        for row, column in zip(*(draw.integers(size, size=PLACES) for size in heights.shape), strict=True):
            writer.writerow([int(row), int(column), int(heights[row, column])])
