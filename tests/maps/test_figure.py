"""Maps of images and sounds on paper: the image once per word, letters under their sound, one page for all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from PIL import Image

from saccade.errors import SaccadeError
from saccade.maps import render
from saccade.maps.axes import AttentionMap, Frames, Grid, Tokens
from saccade.maps.render import figure_of, save_maps, to_json
from tests.maps.drawn import caption, image, self_attention, spoken


def titles(axes: list[Axes]) -> list[str]:
    return [each.get_title() or each.get_title(loc="left") for each in axes]


def over(axes: Axes) -> np.ndarray:
    """What was drawn last."""
    return np.asarray(axes.get_images()[-1].get_array())


def test_the_plain_image_comes_first_and_then_one_for_each_word() -> None:
    pixels = image()
    panels = figure_of([caption(3, Grid(3, 4, pixels))]).axes
    assert titles(panels) == ["image", "w0", "w1", "w2"]
    assert np.array_equal(over(panels[0]), pixels)
    assert [len(each.get_images()) for each in panels] == [1, 2, 2, 2]


def test_without_an_image_the_cells_are_shown_as_they_are() -> None:
    panels = figure_of([caption(2, Grid(3, 4))]).axes
    assert titles(panels) == ["w0", "w1"]
    assert np.array_equal(over(panels[1]), np.eye(12)[1].reshape(3, 4))


def test_weights_lie_over_their_part_of_the_image() -> None:
    panel = figure_of([caption(7, Grid(3, 4, image()))]).axes[7]  # w6: row 2, column 3
    drawn = panel.get_images()[-1]
    smooth = over(panel)
    row, column = np.unravel_index(smooth.argmax(), smooth.shape)
    assert row / smooth.shape[0] * 3 == pytest.approx(1.5, abs=0.1)
    assert column / smooth.shape[1] * 4 == pytest.approx(2.5, abs=0.1)
    assert drawn.get_extent() == panel.get_images()[0].get_extent()
    assert drawn.get_clim()[1] == pytest.approx(smooth.max())
    assert smooth.min() == 0


def test_weights_are_clear_where_nothing_was_looked_at() -> None:
    colours = figure_of([caption(1, Grid(2, 2, image()))]).axes[1].get_images()[-1].get_cmap()
    assert colours(0.0)[3] == 0.0
    assert 0.5 < colours(1.0)[3] < 1.0


def test_at_most_six_pictures_stand_in_a_line() -> None:
    panels = figure_of([caption(12, Grid(4, 4, image()))]).axes
    tops = [round(each.get_position().y1, 3) for each in panels]
    lines = [tops.count(top) for top in sorted(set(tops), reverse=True)]
    assert lines == [5, 5, 3]
    assert tops == sorted(tops, reverse=True)


def test_heads_are_averaged_unless_asked_for_or_in_several_maps() -> None:
    map_ = caption(2, Grid(2, 2), heads=3)
    sound = spoken("ab", 10, heads=3)
    assert len(figure_of([map_]).axes) == 2
    assert len(figure_of([sound]).axes) == 1
    assert len(figure_of([map_], every_head=True).axes) == 3 * 2
    assert len(figure_of([map_, sound]).axes) == 3 * 2 + 3
    assert len(figure_of([map_, sound], every_head=False).axes) == 2 + 1


def test_cells_that_look_are_framed() -> None:
    panels = figure_of([self_attention(Grid(4, 4, image()), heads=2)], every_head=True).axes
    few = ["row 2, column 2", "row 2, column 3", "row 3, column 2", "row 3, column 3"]
    assert titles(panels) == 2 * ["image", "mean of all cells", *few]
    (frame,) = panels[3].patches
    assert (frame.get_x(), frame.get_y(), frame.get_width(), frame.get_height()) == (2, 1, 1, 1)


def test_letters_stand_under_their_sound() -> None:
    spectrogram = np.arange(80 * 5).reshape(80, 5)
    above, beneath = figure_of([spoken("hi u", 20, spectrogram=spectrogram)]).axes
    assert above.get_shared_x_axes().joined(above, beneath)
    assert above.get_xlim() == beneath.get_xlim() == (0.0, 2.0)
    assert above.get_position().y0 > beneath.get_position().y1
    assert (above.get_position().x0, above.get_position().x1) == (beneath.get_position().x0, beneath.get_position().x1)
    assert over(above).shape == (5, 80, 4)
    assert [label.get_text() for label in beneath.get_yticklabels()] == ["h", "i", "␣", "u"]
    assert beneath.get_images()[0].get_extent() == [0.0, 2.0, 4.0, 0.0]
    assert beneath.get_xlabel() == "seconds"


def test_every_head_stands_under_one_spectrogram() -> None:
    axes = figure_of([spoken("ab", 10, heads=3, spectrogram=np.ones((10, 2)))], every_head=True).axes
    assert len(axes) == 4
    assert [bool(each.get_xlabel()) for each in axes] == [False, False, False, True]


def test_silence_without_a_logarithm_is_drawn() -> None:
    spectrogram = np.full((10, 3), -np.inf)
    spectrogram[5, :2] = 1.0, 0.0
    colours = over(figure_of([spoken("ab", 10, spectrogram=spectrogram)]).axes[0])
    assert colours[2, 5].sum() > colours[0, 0].sum() == colours[1, 5].sum()  # low bands are at the foot


def test_bands_are_told_in_hertz_where_they_are_frequencies() -> None:
    sound, hertz = np.ones((10, 4)), (100.0, 400.0, 1000.0, 3000.0)
    weights, letters = torch.full((1, 2, 10), 0.1), Tokens(("a", "b"))
    above = figure_of([AttentionMap("sound", weights, letters, Frames(10, 0.1, sound, hertz))]).axes[0]
    assert [label.get_text() for label in above.get_yticklabels()] == ["500", "1000", "2000"]
    assert above.get_yticks() == pytest.approx([(1.5 + 1 / 6) / 4, 2.5 / 4, 3.0 / 4])
    assert above.get_ylabel() == "hertz"
    assert figure_of([spoken("ab", 10, spectrogram=sound)]).axes[0].get_ylabel() == "bands"
    with pytest.raises(SaccadeError, match="4 frequencies do not fit"):
        Frames(10, 0.1, np.ones((10, 3)), hertz)


def test_nothing_is_drawn_behind_the_end_of_a_sound() -> None:
    spectrogram = np.ones((10, 3))
    spectrogram[8:] = np.nan
    colours = over(figure_of([spoken("ab", 5, spectrogram=spectrogram)]).axes[0])
    assert [int(alpha) for alpha in colours[0, :, 3]] == 8 * [255] + 2 * [0]


def words_of(rows: int, columns: int, most: float = 1.0) -> AttentionMap:
    weights = torch.zeros(1, rows, columns)
    weights[:, :, 0] = most
    names = [
        Tokens(tuple(f"{side}{number}" for number in range(count))) for side, count in (("r", rows), ("c", columns))
    ]
    return AttentionMap("words", weights, *names)


def test_a_table_of_small_weights_is_dark_at_the_largest_and_says_how_much_that_is() -> None:
    (axes,) = figure_of([words_of(3, 50, 0.18)]).axes
    assert axes.get_images()[0].get_clim() == (0.0, pytest.approx(0.18))
    assert axes.get_title() == "words, up\u00a0to\u00a018%"


def test_tables_are_as_large_as_they_need_to_be() -> None:
    one, many = (figure_of([words_of(rows, 8)]) for rows in (1, 20))
    assert one.get_size_inches()[1] < 1.5
    both = figure_of([words_of(1, 8), words_of(20, 8)])
    assert both.get_size_inches()[1] == pytest.approx(one.get_size_inches()[1] + many.get_size_inches()[1])


def test_a_single_table_shows_its_heads_only_when_asked() -> None:
    map_ = AttentionMap("words", torch.eye(3).expand(4, -1, -1), Tokens(tuple("abc")), Tokens(tuple("def")))
    assert len([axes for axes in figure_of([map_]).axes if axes.get_title()]) == 1
    assert len([axes for axes in figure_of([map_], every_head=True).axes if axes.get_title()]) == 4


def lines_of(maps: list[AttentionMap]) -> list[list[str]]:
    """What stands in each line of a figure: names and heads."""
    figure = figure_of(maps)
    figure.draw_without_rendering()
    lines: dict[float, list[str]] = {}
    for axes in figure.axes:
        if axes.get_title():
            lines.setdefault(round(axes.get_position().y0, 2), []).append(" ".join(axes.get_title().split(",")[:-1]))
    return list(lines.values())


@pytest.mark.parametrize(("heads", "per_line"), [(2, 2), (4, 4), (8, 8), (12, 6)])
def test_the_heads_of_one_attention_share_a_line_with_no_other(heads: int, per_line: int) -> None:
    axis = Tokens(tuple("abcd"))
    layers = [AttentionMap(f"layer {n}", torch.eye(4).expand(heads, -1, -1), axis, axis) for n in (1, 2)]
    mean = AttentionMap("mean", torch.eye(4)[None], axis, axis)
    first, *rest = lines_of([mean, *layers])
    assert first == ["mean"]
    assert [len(line) for line in rest] == [per_line] * (2 * heads // per_line)
    assert all(len({title.split(" head\u00a0")[0].replace("\n", " ") for title in line}) == 1 for line in rest)


def test_maps_of_one_head_stand_three_in_a_line() -> None:
    assert [len(line) for line in lines_of([words_of(2, 4)] * 5)] == [3, 2]


def test_many_heads_are_narrower_than_few() -> None:
    axis = Tokens(tuple(f"w{number}" for number in range(30)))
    few, many = (
        figure_of([AttentionMap("map", torch.eye(30).expand(heads, -1, -1), axis, axis)], every_head=True)
        for heads in (3, 8)
    )
    assert many.get_size_inches()[0] < 8 / 3 * 0.55 * few.get_size_inches()[0]


def test_columns_that_are_images_have_them_above() -> None:
    names = Tokens(("one.jpg", "two.jpg"), (image(), 255 - image()))
    (axes,) = figure_of([AttentionMap("choice", torch.eye(2)[None], Tokens(("a", "b")), names)]).axes
    weights, *above = axes.get_images()
    assert np.array_equal(np.asarray(above[1].get_array()), 255 - image())
    assert [round(sum(each.get_extent()[:2]) / 2) for each in above] == [0, 1]
    assert max(each.get_extent()[2] for each in above) < weights.get_extent()[3]  # they cover no cell
    with pytest.raises(SaccadeError, match="1 for 2"):
        Tokens(("one.jpg", "two.jpg"), (image(),))


def test_pictures_say_what_even_attention_would_be() -> None:
    assert figure_of([caption(1, Grid(4, 5, image()))]).axes[1].get_xlabel() == "up to 100% (even: 5%)"


def test_maps_of_all_kinds_share_a_page() -> None:
    words = AttentionMap("words", torch.eye(3).expand(2, -1, -1), Tokens(("a", "b", "c")), Tokens(("d", "e", "f")))
    figure = figure_of([caption(2, Grid(2, 2, image())), words, spoken("ab", 10)])
    figure.draw_without_rendering()
    boxes = [axes.get_position() for axes in figure.axes]
    words = [f"words, head\u00a0{head}, up\u00a0to\u00a0100%" for head in (1, 2)]
    assert titles(figure.axes)[:5] == ["image", "w0", "w1", *words]
    wide, high = figure.bbox.width, figure.bbox.height
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box is not None
        assert box.x0 >= 0 and box.x1 <= wide and box.y0 >= 0 and box.y1 <= high
    assert len(boxes) == 6


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "html", "json"])
def test_every_pair_of_axes_is_written(ending: str, tmp_path: Path) -> None:
    axes = [Tokens(("$a$", "<b>")), Grid(3, 4, image()), Frames(9, 0.1, np.ones((18, 4)))]
    maps = [
        AttentionMap("$map", torch.full((1, len(rows), len(columns)), 0.25, dtype=torch.bfloat16), rows, columns)
        for rows in (axes if ending == "png" else axes[:1])
        for columns in axes
    ]
    save_maps(maps, tmp_path / f"map.{ending}")
    assert (tmp_path / f"map.{ending}").stat().st_size > 1000


def test_pages_that_are_too_large_have_fewer_dots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "AREA", 10_000)
    save_maps([caption(2, Grid(2, 2))], tmp_path / "map.png")
    with Image.open(tmp_path / "map.png") as picture:
        assert 5_000 < picture.size[0] * picture.size[1] <= 10_500


def test_json_says_what_the_axes_are() -> None:
    maps = [caption(2, Grid(2, 3, image())), spoken("ab", 4)]
    first, second = json.loads(to_json(maps))["maps"]
    assert first["axes"] == {
        "rows": {"kind": "tokens", "size": 2},
        "columns": {"kind": "grid", "size": 6, "height": 2, "width": 3},
    }
    assert first["columns"][5] == "row 2, column 3"
    assert second["axes"]["columns"] == {"kind": "frames", "size": 4, "seconds": 0.1}
    assert second["columns"][3] == "0.30 s"
