"""An attention map, and its pictures: in the terminal, as PNG or SVG, as a page, as JSON."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from saccade.errors import SaccadeError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Groups = Sequence[tuple[str, Sequence[int]]]  # a label and the places it stands for

SHADES = " ░▒▓█"
LABEL = 12  # characters of a token that are shown
FORMATS = (".png", ".svg", ".pdf", ".html", ".json")


@dataclass(frozen=True)
class Tokens:
    """An axis of words or pieces."""

    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class AttentionMap:
    """Where each row looked: weights (H, T, S) with a label for each row and column."""

    name: str
    weights: Tensor
    rows: Tokens
    columns: Tokens

    def __post_init__(self) -> None:
        shape = (len(self.rows), len(self.columns))
        if self.weights.dim() != 3 or tuple(self.weights.shape[1:]) != shape:
            raise SaccadeError(f"map {self.name}: weights {tuple(self.weights.shape)} do not fit {shape} labels")

    @property
    def heads(self) -> int:
        return self.weights.shape[0]

    @property
    def mean(self) -> Tensor:
        return self.weights.mean(0)  # (T, S)

    def grouped(self, rows: Groups, columns: Groups) -> AttentionMap:
        """The same map over words instead of pieces: what a word's pieces looked at is averaged, what was looked at in
        a word's pieces is summed, so that rows still sum to one."""
        asked = torch.stack([self.weights[:, places].mean(1) for _, places in rows], dim=1)
        seen = torch.stack([asked[:, :, places].sum(2) for _, places in columns], dim=2)
        labels = (Tokens(tuple(label for label, _ in groups)) for groups in (rows, columns))
        return AttentionMap(self.name, seen, *labels)


def to_text(map_: AttentionMap, *, width: int = 80) -> str:
    """The mean over heads in shades of two characters a cell, in blocks of columns that fit the terminal."""
    margin = max(_cells(_short(label)) for label in map_.rows.labels) + 1
    per_block = max(1, (width - margin) // 2)
    weights = map_.mean.tolist()
    blocks = []
    for first in range(0, len(map_.columns), per_block):
        labels = [_short(label) for label in map_.columns.labels[first : first + per_block]]
        height = max(len(label) for label in labels)
        lines = [
            " " * margin + "".join(_fill(label.rjust(height)[line], 2) for label in labels).rstrip()
            for line in range(height)
        ]
        for label, row in zip(map_.rows.labels, weights, strict=True):
            shades = "".join(2 * SHADES[_level(value)] for value in row[first : first + per_block])
            lines.append(_fill(_short(label), margin) + shades.rstrip())
        blocks.append("\n".join(lines))
    heads = "" if map_.heads == 1 else f" (mean of {map_.heads} heads)"
    return f"{map_.name}{heads}\n" + "\n\n".join(blocks)


def save_maps(maps: Sequence[AttentionMap], path: str | Path) -> None:
    """All maps with all their heads on one page, in the format of the file's ending."""
    path = Path(path)
    if not maps:
        raise SaccadeError("there is no map to save: this model has no attention")
    if path.suffix not in FORMATS:
        raise SaccadeError(
            f"{path}: cannot draw {path.suffix or 'a file without ending'}; there are {', '.join(FORMATS)}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(to_json(maps), encoding="utf-8")
        return
    if path.suffix == ".html":
        from saccade.maps.html import to_html

        path.write_text(to_html(maps), encoding="utf-8", newline="\n")
        return
    figure_of(maps).savefig(path, dpi=110)


def figure_of(maps: Sequence[AttentionMap]) -> Figure:
    """All maps with all their heads, side by side."""
    from matplotlib.figure import Figure

    panels = [panel for map_ in maps for panel in _panels(map_)]
    across = min(len(panels), 3)
    down = math.ceil(len(panels) / across)
    wide = 1.4 + 0.32 * max(len(map_.columns) for map_ in maps)
    high = 1.4 + 0.28 * max(len(map_.rows) for map_ in maps)
    figure = Figure(figsize=(across * max(wide, 3.2), down * max(high, 2.8)), layout="constrained")
    grid = figure.subplots(down, across, squeeze=False)
    for place, axes in enumerate(grid.flat):
        if place < len(panels):
            _draw(axes, *panels[place])
        else:
            axes.set_axis_off()
    return figure


def to_json(maps: Sequence[AttentionMap]) -> str:
    """Every number, for other programs."""
    content = [
        {
            "name": map_.name,
            "rows": list(map_.rows.labels),
            "columns": list(map_.columns.labels),
            "weights": map_.weights.tolist(),
        }
        for map_ in maps
    ]
    return json.dumps({"maps": content})  # in ASCII: a label may hold half a character


def _panels(map_: AttentionMap) -> list[tuple[str, Tensor, AttentionMap]]:
    if map_.heads == 1:
        return [(map_.name, map_.weights[0], map_)]
    return [(f"{map_.name}, head {head + 1}", map_.weights[head], map_) for head in range(map_.heads)]


def _draw(axes: Axes, title: str, weights: Tensor, map_: AttentionMap) -> None:
    axes.imshow(weights.numpy(), cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_title(title, fontsize=9)
    axes.set_xticks(range(len(map_.columns)), [_plain(label) for label in map_.columns.labels], rotation=90, fontsize=8)
    axes.set_yticks(range(len(map_.rows)), [_plain(label) for label in map_.rows.labels], fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)


def _plain(label: str) -> str:
    return _short(label).replace("$", r"\$")  # a dollar would start mathematics


def _short(label: str) -> str:
    printable = "".join(character if character.isprintable() else "·" for character in label)
    return printable if len(printable) <= LABEL else printable[: LABEL - 1] + "…"


def _level(weight: float) -> int:
    return min(int(weight * len(SHADES)), len(SHADES) - 1)


def _cells(text: str) -> int:
    """Terminal cells: wide characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fill(text: str, width: int) -> str:
    return text + " " * (width - _cells(text))
