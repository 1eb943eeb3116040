"""The pictures of a map that has an image for an axis: one for each word, or for a few places that stand for many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from saccade.maps.axes import AttentionMap, Axis, Grid, Tokens


@dataclass(frozen=True)
class Picture:
    """Weights over the cells of an image (height, width), and the place that asked for them."""

    label: str
    cells: Tensor
    asked: int | None = None
    image: NDArray[np.uint8] | None = None  # its own, where not all lie over the same


def grid_of(map_: AttentionMap) -> Grid | None:
    """The image of a map: the one that is looked at, else the one whose cells look."""
    axes = (map_.columns, map_.rows)
    return next((axis for axis in axes if isinstance(axis, Grid)), None)


def asking_of(map_: AttentionMap) -> Axis:
    """What stands above the pictures: rows where the image is looked at, columns where its cells look."""
    return map_.rows if isinstance(map_.columns, Grid) else map_.columns


def pictures_of(map_: AttentionMap, weights: Tensor) -> list[Picture]:
    """A picture for each word; of cells and times the mean of all and a few, spread evenly. Weights are (T, S)."""
    grid, asking = grid_of(map_), asking_of(map_)
    assert grid is not None
    over = weights if grid is map_.columns else weights.T
    cells = over.unflatten(1, (grid.height, grid.width))  # (asking, height, width)
    if isinstance(asking, Tokens):
        own = grid.images or (None,) * len(asking)
        return [Picture(label, each, image=image) for label, each, image in zip(asking.labels, cells, own, strict=True)]
    of = "cells" if isinstance(asking, Grid) else "times"
    few = [Picture(asking.labels[place], cells[place], place) for place in _few(asking)]
    return [Picture(f"mean of all {of}", cells.mean(0)), *few]


def _few(axis: Axis) -> list[int]:
    """Four places: the middles of the quarters of an image, or of a time."""
    if isinstance(axis, Grid):
        down, across = ([side // 4, side - 1 - side // 4] for side in (axis.height, axis.width))
        found = [row * axis.width + column for row in down for column in across]
    else:
        found = [len(axis) * part // 8 for part in (1, 3, 5, 7)]
    return sorted(set(found))
