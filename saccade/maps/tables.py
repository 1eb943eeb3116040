"""A table of an attention map: shades of blue up to the map's top, with labels, or images, above its columns."""

from __future__ import annotations

import math
from textwrap import wrap
from typing import TYPE_CHECKING

from torch import Tensor

from saccade.maps.axes import AttentionMap, Axis, Tokens
from saccade.maps.png import reduced
from saccade.maps.text import LABEL, percent, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONGEST = 48  # characters of a row's label
LETTER = 0.07  # the width of one, in inches, as all sizes here
LINE = 0.13  # a label needs
DOWN, ACROSS = 0.28, 0.32  # a cell
THUMB = 0.8  # a column with an image, and the image above it
DOTS = 200  # of such an image's longer side


def table_size(map_: AttentionMap) -> tuple[float, float]:
    """Width and height with the labels, and without a title."""
    images = _images(map_.columns)
    wide = 0.4 + _longest(map_.rows, LONGEST) + len(map_.columns) * (THUMB if images else ACROSS)
    high = _longest(map_.columns, LABEL) + len(map_.rows) * DOWN + (THUMB if images else 0.0)
    return wide, high


def draw_table(axes: Axes, title: str, weights: Tensor, map_: AttentionMap) -> None:
    """Weights (T, S) of a map, on a scale that the title tells; where labels would overlap, only some of them."""
    rows, columns = len(map_.rows), len(map_.columns)
    shades, top = weights.float().cpu().numpy(), map_.top(weights)
    axes.imshow(shades, cmap="Blues", vmin=0.0, vmax=top, aspect="auto", interpolation="nearest")
    above = THUMB / DOWN if _images(map_.columns) else 0.0  # in rows
    for column, image in enumerate(_images(map_.columns)):
        box = (column - 0.48, column + 0.48, -0.6, -0.4 - above)
        axes.imshow(reduced(image, DOTS), extent=box, aspect="auto")
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5 - above)
    room, dots = axes.get_window_extent(), axes.figure.dpi
    most = f"up\N{NO-BREAK SPACE}to\N{NO-BREAK SPACE}{percent(float(weights.max()))}"
    lines = wrap(f"{title}, {most}", max(LABEL, int(room.width / dots / LETTER)))
    axes.set_title(literal("\n".join(lines)), fontsize=9)
    for side, axis, length, longest in (
        (axes.xaxis, map_.columns, room.width, LABEL), (axes.yaxis, map_.rows, room.height, LONGEST)
    ):  # fmt: skip
        places = range(0, len(axis), math.ceil(LINE * dots * len(axis) / length))
        side.set_ticks(places, [literal(short(axis.labels[place], longest)) for place in places], fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.tick_params(axis="x", rotation=90)


def literal(text: str) -> str:
    return text.replace("$", r"\$")  # a dollar would start mathematics


def _images(axis: Axis) -> tuple:
    return axis.images if isinstance(axis, Tokens) else ()


def _longest(axis: Axis, most: int) -> float:
    return LETTER * max(len(short(label, most)) for label in axis.labels)
