"""Axes and maps: labels, sameness, grouping, joining of times."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from saccade.errors import SaccadeError
from saccade.maps.axes import AttentionMap, Frames, Grid, Tokens
from tests.maps.drawn import caption, image


def some(rows: Tokens | Grid | Frames, columns: Tokens | Grid | Frames, heads: int = 2) -> AttentionMap:
    scores = torch.randn(heads, len(rows), len(columns), generator=torch.Generator().manual_seed(3))
    return AttentionMap("map", scores.softmax(-1), rows, columns)


def test_cells_are_named_in_reading_order() -> None:
    grid = Grid(2, 3)
    assert len(grid) == 6
    assert grid.labels[1] == "row 1, column 2"
    assert grid.labels[3] == "row 2, column 1"


def test_times_are_named_in_seconds() -> None:
    assert Frames(4, 0.08).labels == ("0.00 s", "0.08 s", "0.16 s", "0.24 s")
    assert Frames(4, 0.5).duration == 2.0


def test_axes_are_the_same_over_the_same_array() -> None:
    pixels, sound = image(), np.zeros((4, 3))
    assert Grid(2, 2, pixels) == Grid(2, 2, pixels)
    assert Grid(2, 2, pixels) != Grid(2, 2, pixels.copy())
    assert Grid(1, 4) != Grid(2, 2)
    assert Frames(4, 0.1, sound) == Frames(4, 0.1, sound)
    assert Frames(4, 0.1, sound) != Frames(4, 0.1)
    assert len({Grid(2, 2), Grid(2, 2), Frames(4, 0.1), Frames(4, 0.1), Tokens(("a",) * 4)}) == 3


@pytest.mark.parametrize(
    "pixels",
    [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)],
    ids=["grey", "four channels", "floats", "empty"],
)
def test_what_is_no_image_is_refused(pixels: np.ndarray) -> None:
    with pytest.raises(SaccadeError, match=r"bytes of shape \(height, width, 3\); got"):
        Grid(2, 2, pixels)


def test_axes_without_places_are_refused() -> None:
    with pytest.raises(SaccadeError, match="0 x 3"):
        Grid(0, 3)
    with pytest.raises(SaccadeError, match="0 of"):
        Frames(0, 0.1)
    with pytest.raises(SaccadeError, match="3 of nan s"):
        Frames(3, math.nan)
    with pytest.raises(SaccadeError, match=r"\(times, bands\); got \(3,\)"):
        Frames(3, 0.1, np.zeros(3))


@pytest.mark.parametrize("columns", [Grid(2, 2), Frames(4, 0.1)])
def test_grouping_leaves_images_and_time_as_they_are(columns: Grid | Frames) -> None:
    map_ = some(Tokens(("un", "der", "it")), columns)
    words = [("under", [0, 1]), ("it", [2])]
    for grouped in (map_.grouped(words), map_.grouped(words, [("all", [0, 1, 2, 3])])):
        assert grouped.rows == Tokens(("under", "it"))
        assert grouped.columns is columns
        assert torch.allclose(grouped.weights[:, 0], map_.weights[:, :2].mean(1))
        assert torch.allclose(grouped.weights.sum(-1), torch.ones(2, 2))


def test_grouping_of_columns_alone_leaves_rows() -> None:
    map_ = some(Tokens(("a", "b")), Tokens(("un", "der", "it")))
    grouped = map_.grouped(columns=[("under", [0, 1]), ("it", [2])])
    assert grouped.rows is map_.rows
    assert torch.allclose(grouped.weights[..., 0], map_.weights[..., :2].sum(-1))


def test_joined_times_are_averaged_where_they_look_and_summed_where_they_are_looked_at() -> None:
    map_ = some(Frames(5, 0.1), Frames(7, 0.1))
    joined = map_.binned(rows=3, columns=4)
    assert joined.rows == Frames(3, 0.2)
    assert joined.columns == Frames(4, 0.2)
    assert torch.allclose(joined.weights[:, 1, 3], map_.weights[:, 2:4, 6].mean(1))
    assert torch.allclose(joined.weights[:, 2, 0], map_.weights[:, 4, :2].sum(-1))
    assert torch.allclose(joined.weights.sum(-1), torch.ones(2, 3))


def test_what_fits_and_what_is_no_time_is_not_joined() -> None:
    map_ = some(Tokens(("a", "b")), Frames(7, 0.1))
    fitting = map_.binned(rows=1, columns=7)
    assert fitting.rows is map_.rows
    assert fitting.columns is map_.columns


def test_an_even_row_is_not_drawn_dark() -> None:
    map_ = caption(1, Grid(5, 5))
    assert map_.top(torch.full((25,), 1 / 25)) == pytest.approx(3 / 25)
    assert map_.top(torch.eye(25)[0]) == 1.0
    assert some(Tokens(("a",)), Tokens(("b", "c"))).top(torch.zeros(2)) == 1.0
