"""The picture of `saccade evaluate --confusion`: which labels are taken for which."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from saccade.metrics import Confusion

MOST_NAMES = 40  # of labels that can still be read


def draw_confusion(table: Confusion, path: Path) -> None:
    """A row for each right label, a column for each answer; a cell is as dark as its share of the row."""
    size = len(table.labels)
    shares = table.counts / np.maximum(table.counts.sum(axis=1, keepdims=True), 1)
    side = 3 + 0.22 * min(size, MOST_NAMES)
    figure = Figure(figsize=(side + 1, side), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    if size <= MOST_NAMES:
        axes.set_xticks(range(size), [str(label) for label in table.labels], rotation=90, fontsize=8)
        axes.set_yticks(range(size), [str(label) for label in table.labels], fontsize=8)
    axes.set_xlabel("answer")
    axes.set_ylabel("right label")
    figure.colorbar(image, label="share of the row")
    axes.set_title(f"{int(np.trace(table.counts)):,} of {int(table.counts.sum()):,} are right", fontsize=10)
    figure.savefig(path, dpi=120)
