"""An attention map in the characters of a terminal: words, images and time in shades."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence

from torch.nn.functional import adaptive_max_pool2d

from saccade.maps.axes import AttentionMap, Frames, Grid
from saccade.maps.pictures import grid_of, pictures_of

SHADES = " ░▒▓█"
LABEL = 12  # characters of a token that are shown
SIDE = 16  # cells of an image that are shown in a line; of a larger grid the largest of some neighbours
TIMES = 40  # lines of a map whose rows are times
ALIKE = 0.95  # of the strongest weight is as strong, to the eye
TICK = 9  # characters of a time scale from one number to the next, at least


def to_text(map_: AttentionMap, *, width: int = 80) -> str:
    """The mean over heads in shades, in blocks that fit the terminal."""
    grid = grid_of(map_)
    if grid is not None:
        body = _pictures(map_, grid, width)
    elif isinstance(map_.columns, Frames):
        body = _over_time(map_, width)
    else:
        body = _table(map_.binned(rows=TIMES, columns=width), width)
    return f"{map_.mean_name}\n{body}"


def _table(map_: AttentionMap, width: int) -> str:
    """Two characters a cell, in blocks of columns."""
    names = [short(label, max(LABEL, width // 3)) for label in map_.rows.labels]
    margin = max(map(_cells, names)) + 1
    per_block = max(1, (width - margin) // 2)
    top = map_.top(map_.mean)
    shades = [_shades(row) for row in (map_.mean / top).tolist()]
    every = range(0, len(map_.columns), per_block)
    marked = [first for first in every if any("".join(row[first : first + per_block]).strip() for row in shades)]
    blocks = []
    for first in marked or every:
        labels = [short(label) for label in map_.columns.labels[first : first + per_block]]
        height = max(len(label) for label in labels)
        lines = [
            " " * margin + "".join(_fill(label.rjust(height)[line], 2) for label in labels).rstrip()
            for line in range(height)
        ]
        for name, row in zip(names, shades, strict=True):
            lines.append(_fill(name, margin) + "".join(2 * each for each in row[first : first + per_block]).rstrip())
        blocks.append("\n".join(lines))
    hidden = sum(min(per_block, len(map_.columns) - first) for first in every if marked and first not in marked)
    left_out = f"; {hidden} columns in which nothing is marked are left out" if hidden else ""
    return "\n\n".join(blocks) + f"\n█ is {percent(top)}{left_out}"


def _pictures(map_: AttentionMap, grid: Grid, width: int) -> str:
    """A small picture for each word, side by side, each on its own scale, with the largest weight at its foot."""
    fit = min(1.0, min(SIDE, max(1, width // 2 - 1)) / max(grid.height, grid.width))
    height, across = (max(1, round(fit * side)) for side in (grid.height, grid.width))
    frames = []
    for picture in pictures_of(map_, map_.mean):
        cells = adaptive_max_pool2d(picture.cells.float()[None], (height, across))[0]
        shades = ["".join(2 * _shade(weight) for weight in row) for row in (cells / map_.top(picture.cells)).tolist()]
        frames.append(_frame(picture.label, shades, percent(float(picture.cells.max()))))
    wide = 2 * across + 2
    per_line = max(1, (width + 1) // (wide + 1))
    rows = [frames[first : first + per_line] for first in range(0, len(frames), per_line)]
    blocks = ["\n".join(" ".join(parts).rstrip() for parts in zip(*row, strict=True)) for row in rows]
    asked = "" if grid is map_.columns else "which cells looked at each word\n"
    least = percent(map_.top(map_.mean * 0))
    scale = f"under each picture is its largest weight; █ is that much, or {least} where it is less"
    return asked + "\n".join([*blocks, scale, f"even attention would be {percent(map_.even)} everywhere"])


def _frame(label: str, lines: list[str], foot: str) -> list[str]:
    inner = len(lines[0])
    return [
        _fill(_cut(label, inner + 2), inner + 2),
        "┌" + "─" * inner + "┐",
        *(f"│{line}│" for line in lines),
        "└" + (foot if len(foot) <= inner else "").rjust(inner, "─") + "┘",
    ]


def _over_time(map_: AttentionMap, width: int) -> str:
    """One line for each row; neighbouring times are joined until they fit, with their weights summed."""
    margin = max(_cells(_visible(label)) for label in map_.binned(rows=TIMES, columns=1).rows.labels) + 1
    room = max(1, width - margin)
    fitted = map_.binned(rows=TIMES, columns=room)
    time = fitted.columns
    assert isinstance(time, Frames)
    each = 2 if 2 * len(time) <= room else 1  # characters a position
    weights = fitted.mean
    top = fitted.top(weights)
    lines = [
        _fill(_visible(label), margin) + "".join(each * shade for shade in _shades(row)).rstrip()
        for label, row in zip(fitted.rows.labels, (weights / top).tolist(), strict=True)
    ]
    lines.append(" " * margin + _scale(time.seconds / each, each * len(time)))
    joined = "" if time is map_.columns else f", a column is {time.seconds / each:.2g} s"
    return "\n".join(lines) + f"\n█ is {percent(top)}{joined}"


def _scale(seconds: float, length: int) -> str:
    """Numbers under the columns at which their second begins: ╵0 s     ╵0.5     ╵1"""
    step = round_step(seconds * TICK)
    line = ""
    for number in range(math.floor(length * seconds / step) + 1):
        time = f"╵{number * step:.4g}" + ("" if number else " s")
        place = round(number * step / seconds)
        if place + len(time) <= length or not number:
            line = line.ljust(place) + time
    return line


def round_step(least: float) -> float:
    """The least of 1, 2, 5, 10, 20, ... and of their tenths, hundredths, ... that is no less."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(round(factor * power, 12) for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def percent(weight: float) -> str:
    return f"{100 * weight:.{0 if weight >= 0.01 else 1}f}%"


def short(label: str, longest: int = LABEL) -> str:
    printable = "".join(character if character.isprintable() else "·" for character in label)
    return printable if len(printable) <= longest else printable[: longest - 1] + "…"


def _cut(label: str, width: int) -> str:
    text = short(label, width)
    while _cells(text) > width:  # of wide characters there are fewer
        text = text[:-2] + "…"
    return text


def _visible(label: str) -> str:
    return short(label) if label.strip() else "␣"  # between letters a space is a row like all others


def _shades(row: Sequence[float]) -> list[str]:
    """Of a row's weights; where it is strongest, it is never blank, however weak that is beside other rows."""
    enough = ALIKE * max(row)
    least = 1 / len(SHADES)  # of the lightest shade
    return [_shade(max(weight, least) if 0 < weight >= enough else weight) for weight in row]


def _shade(weight: float) -> str:
    if not math.isfinite(weight):  # of broken weights, which are looked at to see where they are
        return "?"
    return SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]


def _cells(text: str) -> int:
    """Terminal cells: wide characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _fill(text: str, width: int) -> str:
    return text + " " * (width - _cells(text))
