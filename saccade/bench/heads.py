"""The picture of `saccade heads`: how much worse a model is without each of its heads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from saccade.heads import Heads, Removal


def draw_heads(found: Heads, path: Path) -> None:
    """A row for each attention, a cell for each head; a dot where the change is more than chance."""
    names = list(dict.fromkeys(removal.name for removal in found.removals))
    rows = [[removal for removal in found.removals if removal.name == name] for name in names]
    widest = max(len(row) for row in rows)
    changes = np.full((len(rows), widest), np.nan)
    for place, row in enumerate(rows):
        changes[place, : len(row)] = [removal.change for removal in row]
    figure = Figure(figsize=(3.2 + 0.7 * widest, 1.6 + 0.45 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    reach = max(float(np.nanmax(np.abs(changes))), 1e-9)
    image = axes.imshow(changes, cmap="RdBu_r", norm=TwoSlopeNorm(0.0, -reach, reach), aspect="auto")
    for place, row in enumerate(rows):
        _dots(axes, place, row)
    axes.set_xticks(range(widest), [str(head + 1) for head in range(widest)])
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel("head  (dot: its 95% interval is above zero)")
    figure.colorbar(image, label="change of the loss without it")
    axes.set_title(f"{found.needed} of {len(found.removals)} heads are missed", fontsize=10)
    figure.savefig(path, dpi=120)


def _dots(axes: object, place: int, row: Sequence[Removal]) -> None:
    needed = [removal.head for removal in row if removal.needed]
    axes.plot(needed, [place] * len(needed), "k.", markersize=5)  # type: ignore[attr-defined]
