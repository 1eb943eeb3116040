"""Attention maps as one figure: tables of words, images with what was looked at, sounds above what was heard, walks
beside what was read.

A figure is a column of sections. A section knows its size in inches, so that labels keep their size on any page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from saccade.maps.axes import AttentionMap, Frames, Grid, Steps
from saccade.maps.paths import draw_plan, legend_height, plan_size
from saccade.maps.pictures import Picture, asking_of, grid_of, pictures_of
from saccade.maps.png import coloured, reduced
from saccade.maps.tables import draw_table, literal, table_size
from saccade.maps.text import LABEL, percent, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure, FigureBase

ACROSS = 6  # pictures in a line
TABLES = 3  # of words in a line, where each is a map of its own ...
HEADS = 8  # ... and where they are heads of one
TIMES = 60  # lines of a table whose rows are times
PANEL = 1.6  # the width of a picture, in inches, as all sizes here
EDGE = 0.12  # around a picture
PITCHES = (500, 1000, 2000, 4000, 8000)  # hertz that are told beside a spectrogram
PHOTO = 400  # pixels of an image's longer side
PIXELS = 160  # of the weights over an image
TITLE = 0.3  # a line of text
SMALL = 0.23  # and a small one


Table = tuple[str, Tensor, AttentionMap]  # title, weights (T, S) and the map they are of


@dataclass(frozen=True)
class Section:
    """A part of a figure, as wide as the whole."""

    width: float
    height: float
    draw: Callable[[FigureBase], None]
    table: bool = False  # the layout engine places what is in it


def figure_of(maps: Sequence[AttentionMap], *, every_head: bool | None = None) -> Figure:
    """All maps: the mean of a single map's heads, and every head of several maps, unless told otherwise."""
    from matplotlib.figure import Figure

    heads = len(maps) > 1 if every_head is None else every_head
    sections: list[Section] = []
    for (make, *_), group in groupby(maps, lambda map_: (_section_of(map_), len(map_.rows), len(map_.columns))):
        alike = list(group)
        sections += [_tables(alike, heads)] if make is None else [make(each, heads) for each in alike]
    width = max(section.width for section in sections)
    heights = [section.height for section in sections]
    tables = any(section.table for section in sections)
    figure = Figure(figsize=(width, sum(heights)), layout="constrained" if tables else None)
    places: Sequence[FigureBase] = [figure]
    if len(sections) > 1:
        places = cast("Sequence[FigureBase]", figure.subfigures(len(sections), 1, height_ratios=heights))
    for place, section in zip(places, sections, strict=True):
        rest = width - section.width
        if rest > EDGE:
            place = cast("Sequence[FigureBase]", place.subfigures(1, 2, width_ratios=[section.width, rest]))[0]
        section.draw(place)
    return figure


def _section_of(map_: AttentionMap) -> Callable[[AttentionMap, bool], Section] | None:
    """What makes the section of a map; none for tables of words, which share one with others of their size."""
    if grid_of(map_) is not None:
        return _pictures
    if isinstance(map_.columns, Frames):
        return _sound
    return _walk if isinstance(map_.rows, Steps) else None


# Words and words.


def _tables(maps: list[AttentionMap], every_head: bool) -> Section:
    """Maps of the same size, the heads of each in a line; narrower than it would be alone where there are many."""
    maps = [map_.binned(rows=TIMES, columns=TIMES) for map_ in maps]
    lines = _lines([[(title, weights, map_) for title, weights in _heads(map_, every_head)] for map_ in maps])
    across = max(map(len, lines))
    wide, high = (max(sizes) for sizes in zip(*map(table_size, maps), strict=True))
    panel = max(wide, 3.2) if across <= TABLES else max(wide * max(TABLES / across, 0.5), 2.2)

    def draw(figure: FigureBase) -> None:
        grid = figure.subplots(len(lines), across, squeeze=False)
        for row, line in zip(grid, lines, strict=True):
            for axes, each in zip_longest(row, line):
                if each is None:
                    axes.set_axis_off()
                else:
                    draw_table(axes, *each)

    return Section(across * panel, len(lines) * (2 * TITLE + high), draw, table=True)


def _lines(tables: list[list[Table]]) -> list[list[Table]]:
    """The heads of one attention, side by side in as few even lines as they need; single tables share theirs."""
    lines: list[list[Table]] = []
    for alone, group in groupby(tables, lambda heads: len(heads) == 1):
        for line in [[each for (each,) in group]] if alone else group:
            per_line = TABLES if alone else math.ceil(len(line) / math.ceil(len(line) / HEADS))
            lines += [line[first : first + per_line] for first in range(0, len(line), per_line)]
    return lines


# Walks.


def _walk(map_: AttentionMap, every_head: bool) -> Section:
    """The plan with the steps, and beside it for each head what was read at each."""
    steps, blocks = map_.rows, _heads(map_, every_head)
    assert isinstance(steps, Steps)
    plan, legend = plan_size(steps), legend_height(steps)
    left, wide, high = 0.9, 0.27 * len(map_.columns), 0.27 * len(steps)
    above = 2 * TITLE + 0.07 * max(len(short(label)) for label in map_.columns.labels)
    table = above + high
    size = (plan[0] + left + wide + EDGE, max(plan[1] + legend, len(blocks) * table) + 2 * EDGE)

    def draw(figure: FigureBase) -> None:
        draw_plan(figure.add_axes(_inches((0, size[1] - EDGE - plan[1], *plan), size)), steps)
        for number, (title, weights) in enumerate(blocks, start=1):
            box = (plan[0] + left, size[1] - EDGE - number * table, wide, high)
            draw_table(figure.add_axes(_inches(box, size)), title, weights, map_)

    return Section(*size, draw)


# Images.


def _pictures(map_: AttentionMap, every_head: bool) -> Section:
    """For each head the plain image, then one for each word with what was looked at laid over it."""
    grid = grid_of(map_)
    assert grid is not None
    note = "" if grid is map_.columns else ": the cells that looked at each"
    blocks = [(title + note, pictures_of(map_, weights)) for title, weights in _heads(map_, every_head)]
    image = None if grid.image is None else reduced(grid.image, PHOTO)
    plain = [] if image is None else [None]
    count = len(plain) + len(blocks[0][1])
    lines = math.ceil(count / ACROSS)
    across = math.ceil(count / lines)
    height, width = (grid.height, grid.width) if grid.image is None else grid.image.shape[:2]
    shape = min(max(height / width, 0.4), 2.5)
    wide = PANEL / math.sqrt(max(shape, 1.0))
    high = wide * shape
    pitch = high + 2 * SMALL  # from line to line
    block = TITLE + lines * pitch
    size = (max(across * (wide + EDGE), 3.2) + EDGE, len(blocks) * block + EDGE)

    def draw(figure: FigureBase) -> None:
        for number, (title, pictures) in enumerate(blocks):
            top = size[1] - number * block
            figure.text(EDGE / size[0], (top - EDGE) / size[1], literal(title), fontsize=9, va="top")
            for place, picture in enumerate([*plain, *pictures]):
                line, column = divmod(place, across)
                left = EDGE + column * (wide + EDGE)
                bottom = top - TITLE - line * pitch - SMALL - high
                axes = figure.add_axes(_inches((left, bottom, wide, high), size))
                own = None if picture is None else picture.image
                _picture(axes, map_, grid, image if own is None else reduced(own, PHOTO), picture)

    return Section(*size, draw)


def _picture(
    axes: Axes, map_: AttentionMap, grid: Grid, image: NDArray[np.uint8] | None, picture: Picture | None
) -> None:
    """The image as it is, or in grey with the weights over it, from clear at zero to red at the map's top."""
    from matplotlib.patches import Rectangle

    across, down = (grid.width, grid.height)
    extent = (0.0, float(across), float(down), 0.0)
    axes.set_xticks([])
    axes.set_yticks([])
    if image is not None:
        axes.imshow(image if picture is None else _pale(image), extent=extent, aspect="auto")
    if picture is None:
        axes.set_title("image", fontsize=8, color="0.4", pad=4)
        return
    cells = picture.cells.float().cpu()
    if image is None:
        axes.imshow(cells.numpy(), cmap="Blues", vmin=0.0, vmax=map_.top(cells), extent=extent, aspect="auto")
    else:
        smooth = _smooth(cells)
        axes.imshow(smooth.numpy(), cmap=_heat(), vmin=0.0, vmax=map_.top(smooth), extent=extent, aspect="auto")
    axes.set_title(_cut(picture.label, 20), fontsize=8, pad=4)
    most = f"up to {percent(float(cells.max()))} (even: {percent(map_.even)})"
    axes.set_xlabel(most, fontsize=6.5, color="0.4", labelpad=3)
    asking = asking_of(map_)
    if picture.asked is not None and isinstance(asking, Grid):
        row, column = divmod(picture.asked, asking.width)
        high, wide = down / asking.height, across / asking.width
        axes.add_patch(Rectangle((column * wide, row * high), wide, high, fill=False, edgecolor="0.1", linewidth=1.2))


def _smooth(cells: Tensor) -> Tensor:
    """(height, width) -> as many pixels as a picture has on paper, through the weights in the middle of the cells."""
    scale = math.ceil(PIXELS / max(cells.shape))
    return interpolate(cells[None, None], scale_factor=scale, mode="bicubic")[0, 0].clamp(min=0)


def _pale(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Mostly grey and lighter: a colour over it means weight, whatever the colours of the image."""
    grey = image.mean(2, keepdims=True)
    return (0.75 * (0.75 * grey + 0.25 * image) + 0.25 * 255).astype(np.uint8)


def _heat() -> Colormap:
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    colours = colormaps["YlOrRd"](np.linspace(0.2, 0.85, 256))
    colours[:, 3] = np.linspace(0.0, 0.75, 256)
    return ListedColormap(colours)


# Sounds.


def _sound(map_: AttentionMap, every_head: bool) -> Section:
    """The spectrogram, and beneath it, over the same seconds, a table for each head."""
    time = map_.columns
    assert isinstance(time, Frames)
    blocks = _heads(map_, every_head)
    left = 0.5 + 0.075 * max(len(short(label)) for label in map_.rows.labels)
    right = min(max(0.05 * len(time), 5.0), 11.0)
    spectrogram = 0.0 if time.spectrogram is None else 1.1
    times = isinstance(map_.rows, Frames)
    high = min(max(0.17 * len(map_.rows), 1.0), 4.0 if times else 12.0)
    foot = 0.5
    size = (left + right + 0.25, spectrogram + len(blocks) * (TITLE + high) + foot + EDGE)

    def draw(figure: FigureBase) -> None:
        bottom = size[1] - EDGE - spectrogram
        first = None
        if time.spectrogram is not None:
            first = figure.add_axes(_inches((left, bottom, right, spectrogram), size))
            first.imshow(coloured(time.spectrogram), extent=(0, time.duration, 0, 1), aspect="auto")
            heard = [pitch for pitch in PITCHES if time.hertz and time.hertz[0] <= pitch <= time.hertz[-1]]
            middles = (np.arange(len(time.hertz)) + 0.5) / max(1, len(time.hertz))
            first.set_yticks([float(np.interp(pitch, time.hertz, middles)) for pitch in heard], map(str, heard))
            first.set_ylabel("hertz" if heard else "bands", fontsize=8, color="0.4")
            first.tick_params(labelbottom=False, labelsize=7, length=2)
        for number, (title, weights) in enumerate(blocks):
            bottom -= TITLE + high
            axes = figure.add_axes(_inches((left, bottom, right, high), size), sharex=first)
            first = first or axes
            _heard(axes, title, weights, map_, time)
            axes.tick_params(labelbottom=number == len(blocks) - 1)
            if not times:
                axes.tick_params(axis="y", labelsize=min(7.0, 60 * high / len(map_.rows)), length=0)
        axes.set_xlabel("seconds", fontsize=8)

    return Section(*size, draw)


def _heard(axes: Axes, title: str, weights: Tensor, map_: AttentionMap, time: Frames) -> None:
    rows = map_.rows
    down = rows.duration if isinstance(rows, Frames) else float(len(rows))
    extent = (0.0, time.duration, down, 0.0)
    shown = weights.float().cpu().numpy()
    axes.imshow(shown, cmap="Blues", vmin=0.0, vmax=map_.top(weights), extent=extent, aspect="auto")
    axes.set_title(f"{literal(title)}  ·  up to {percent(float(weights.max()))}", fontsize=8, pad=3, loc="left")
    axes.tick_params(labelsize=8, length=2)
    if isinstance(rows, Frames):
        axes.set_ylabel("seconds", fontsize=8)
    else:
        labels = [_cut(label) if label.strip() else "␣" for label in rows.labels]
        axes.set_yticks([place + 0.5 for place in range(len(rows))], labels)


def _heads(map_: AttentionMap, every: bool) -> list[tuple[str, Tensor]]:
    if map_.heads == 1 or not every:
        return [(map_.mean_name, map_.mean)]
    return [(f"{map_.name}, head\N{NO-BREAK SPACE}{head + 1}", map_.weights[head]) for head in range(map_.heads)]


def _inches(box: tuple[float, float, float, float], size: tuple[float, float]) -> tuple[float, float, float, float]:
    left, bottom, width, height = box
    return left / size[0], bottom / size[1], width / size[0], height / size[1]


def _cut(label: str, longest: int = LABEL) -> str:
    return literal(short(label, longest))
