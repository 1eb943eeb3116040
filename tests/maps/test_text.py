"""Maps of images and sounds in the terminal: the word above, the shade in its place, nothing beyond the edge."""

from __future__ import annotations

import pytest
import torch

from saccade.maps.axes import AttentionMap, Axis, Frames, Grid, Tokens
from saccade.maps.render import to_text
from saccade.maps.text import round_step
from tests.maps.drawn import caption, self_attention, spoken


def test_each_word_stands_above_its_picture() -> None:
    assert to_text(caption(3, Grid(2, 2))).splitlines() == [
        "caption",
        "w0     w1     w2",
        "┌────┐ ┌────┐ ┌────┐",
        "│██  │ │  ██│ │    │",
        "│    │ │    │ │██  │",
        "└100%┘ └100%┘ └100%┘",
        "under each picture is its largest weight; █ is that much, or 75% where it is less",
        "even attention would be 25% everywhere",
    ]


def test_pictures_are_wrapped_at_the_edge() -> None:
    lines = to_text(caption(4, Grid(2, 2)), width=20).splitlines()
    assert [line for line in lines if line.startswith("w")] == ["w0     w1     w2", "w3"]


def test_an_even_picture_is_pale() -> None:
    map_ = AttentionMap("map", torch.full((1, 1, 25), 1 / 25), Tokens(("everywhere",)), Grid(5, 5))
    lines = to_text(map_).splitlines()
    assert lines[3] == "│" + "░" * 10 + "│"
    assert lines[8] == "└────────4%┘"


def test_large_grids_keep_their_shape_and_place() -> None:
    lines = to_text(AttentionMap("map", torch.eye(800)[None, -1:], Tokens(("corner",)), Grid(40, 20))).splitlines()
    pictured = [line for line in lines if line.startswith("│")]
    assert len(pictured) == 16
    assert {len(line) for line in pictured} == {2 * 8 + 2}
    assert [place for place, line in enumerate(pictured) if line.strip("│ ")] == [15]
    assert pictured[-1].endswith("██│")


def test_cells_that_look_are_shown_as_their_mean_and_a_few() -> None:
    lines = to_text(self_attention(Grid(4, 4), heads=3), width=200).splitlines()
    assert lines[0] == "self (mean of 3 heads)"
    assert lines[1] == "mean of a… row 2, co… row 2, co… row 3, co… row 3, co…"
    assert lines[4].split("│")[3] == "  ██    "


def test_words_that_cells_look_at_get_a_picture_of_those_cells() -> None:
    map_ = AttentionMap("map", torch.eye(4)[None, :, :2], Grid(2, 2), Tokens(("a", "b")))
    lines = to_text(map_).splitlines()
    assert lines[1:6] == [
        "which cells looked at each word",
        "a      b",
        "┌────┐ ┌────┐",
        "│██  │ │  ██│",
        "│    │ │    │",
    ]


def test_wide_characters_are_cut_at_the_frame() -> None:
    map_ = AttentionMap("map", torch.eye(2)[None], Tokens(("猫猫猫猫猫猫", "a")), Grid(1, 2))
    assert to_text(map_).splitlines()[1] == "猫猫…  a"


def test_every_row_shows_where_it_is_strongest() -> None:
    weights = torch.full((3, 10), 0.1)
    weights[0] = torch.eye(10)[0]
    weights[1, 7] = 0.12
    map_ = AttentionMap("map", weights[None], Tokens(("sharp", "weak", "even")), Tokens(tuple("abcdefghij")))
    assert to_text(map_).splitlines()[2:-1] == ["sharp ██", f"weak  {14 * ' '}░░", f"even  {20 * '░'}"]
    heard = AttentionMap("map", weights[None], map_.rows, Frames(10, 0.1))
    assert to_text(heard).splitlines()[1:4] == ["sharp ██", f"weak  {14 * ' '}░░", f"even  {20 * '░'}"]


def test_blocks_in_which_nothing_is_marked_are_left_out() -> None:
    places = Tokens(tuple(f"w{number}" for number in range(45)))
    weights = torch.full((45, 45), 0.001)
    weights[:, 3] = weights[:, 44] = 1.0
    lines = to_text(AttentionMap("map", weights[None], places, places), width=30).splitlines()
    assert lines[-1] == "█ is 100%; 26 columns in which nothing is marked are left out"
    assert [line.split()[0] for line in lines if line.startswith("w")] == 2 * [*places.labels]
    assert all("█" in line for line in lines if line.startswith("w"))
    nothing = AttentionMap("map", 0 * weights[None], places, places)
    assert len(to_text(nothing, width=30).splitlines()) > 4 * 45


def test_letters_are_seen_at_their_time() -> None:
    assert to_text(spoken("hi u", 8)).splitlines() == [
        "sound",
        "h ██",
        "i     ██",
        "␣         ██",
        "u             ██",
        "  ╵0 s      ╵0.5",
        "█ is 100%",
    ]


def test_times_are_joined_until_they_fit() -> None:
    map_ = spoken("abcd", 400)
    lines = to_text(map_, width=52).splitlines()
    assert [line.index("█") - 2 for line in lines[1:5]] == [0, 12, 25, 37]
    assert lines[-1] == "█ is 100%, a column is 0.8 s"
    assert lines[5].split() == ["╵0", "s", "╵10", "╵20", "╵30"]
    assert [lines[5].index(f"╵{number}") - 2 for number in (0, 10, 20, 30)] == [0, 12, 25, 38]


def test_many_asking_times_are_joined_too() -> None:
    lines = to_text(AttentionMap("map", torch.eye(100)[None], Frames(100, 0.1), Frames(100, 0.1))).splitlines()
    assert len(lines) == 1 + 34 + 2
    assert lines[2].startswith("0.30 s ")


@pytest.mark.parametrize("width", [10, 23, 80, 131])
@pytest.mark.parametrize("columns", [Grid(7, 7), Grid(3, 50), Frames(5, 0.1), Frames(333, 0.04)], ids=repr)
def test_nothing_is_wider_than_the_terminal(columns: Axis, width: int) -> None:
    weights = torch.full((1, 12, len(columns)), 1 / len(columns))
    map_ = AttentionMap("map", weights, Tokens(4 * ("a", "\x1b[31m", "猫")), columns)
    lines = to_text(map_, width=width).splitlines()
    notes = 2 if isinstance(columns, Grid) else 1  # at the end
    assert max(len(line) for line in lines[:-notes]) <= width
    assert "\x1b" not in "".join(lines)


@pytest.mark.parametrize(
    ("least", "step"), [(1.0, 1.0), (1.1, 2.0), (0.3, 0.5), (0.09, 0.1), (7.0, 10.0), (20.0, 20.0)]
)
def test_scales_have_round_steps(least: float, step: float) -> None:
    assert round_step(least) == pytest.approx(step)
