"""An attention map, and its pictures: in the terminal, as PNG, SVG or PDF, as a page, as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.errors import SaccadeError
from saccade.maps.axes import AttentionMap, Axis, Frames, Grid, Groups, Steps, Tokens
from saccade.maps.figure import figure_of
from saccade.maps.text import to_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "AttentionMap", "Axis", "Frames", "Grid", "Groups", "Steps", "Tokens",
    "figure_of", "save_figure", "save_maps", "to_json", "to_text",
]  # fmt: skip

WHOLE = (".html", ".json")  # of these one chooses afterwards: they hold every head
FORMATS = (".png", ".svg", ".pdf", *WHOLE)
DOTS = 110  # an inch
SIDE, AREA = 60_000, 2e8  # dots of a picture: beyond, fewer of them an inch


def require_format(path: Path) -> None:
    """Refuse a file of which the ending says nothing."""
    if path.suffix not in FORMATS:
        raise SaccadeError(
            f"{path}: cannot draw {path.suffix or 'a file without ending'}; there are {', '.join(FORMATS)}"
        )


def save_maps(maps: Sequence[AttentionMap], path: str | Path, *, every_head: bool | None = None) -> None:
    """All maps on one page, in the format of the file's ending; `every_head` as in `figure_of`, for PNG, SVG and PDF
    (the others are WHOLE)."""
    path = Path(path)
    if not maps:
        raise SaccadeError("there is no map to save: this model has no attention")
    require_format(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(to_json(maps), encoding="utf-8")
        return
    if path.suffix == ".html":
        from saccade.maps.html import to_html

        path.write_text(to_html(maps), encoding="utf-8", newline="\n")
        return
    save_figure(figure_of(maps, every_head=every_head), path)


def save_figure(figure: Figure, path: Path) -> None:
    """However large it is."""
    width, height = figure.get_size_inches()
    figure.savefig(path, dpi=min(DOTS, SIDE / max(width, height), math.sqrt(AREA / (width * height))))


def to_json(maps: Sequence[AttentionMap]) -> str:
    """Every number, for other programs; `axes` says what the labels stand for."""
    content = [
        {
            "name": map_.name,
            "rows": list(map_.rows.labels),
            "columns": list(map_.columns.labels),
            "axes": {"rows": map_.rows.describe(), "columns": map_.columns.describe()},
            "weights": _numbers(map_),
        }
        for map_ in maps
    ]
    return json.dumps({"maps": content})  # in ASCII: a label may hold half a character


def _numbers(map_: AttentionMap) -> list[list[list[float | None]]]:
    """The weights of each head; what is not finite has no number in JSON."""
    heads: list[list[list[float]]] = map_.weights.tolist()
    return [[[each if math.isfinite(each) else None for each in row] for row in head] for head in heads]
