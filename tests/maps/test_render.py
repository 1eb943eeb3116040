"""Maps as pictures: right labels, nothing hostile, nothing off the page."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from PIL import Image

from saccade.errors import SaccadeError
from saccade.maps.record import title_of
from saccade.maps.render import AttentionMap, Tokens, save_maps, to_json, to_text


def diagonal(labels: tuple[str, ...]) -> AttentionMap:
    return AttentionMap("map", torch.eye(len(labels))[None], Tokens(labels), Tokens(labels))


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("decoder.stack.blocks.0.cross", "decoder block 1, cross-attention"),
        ("decoder.writer.attention", "decoder, attention"),
        ("decoder.attentions.1", "decoder, attention 2"),
    ],
)
def test_an_attention_has_a_title_for_people(name: str, title: str) -> None:
    assert title_of(name) == title


def test_a_diagonal_is_seen_as_a_diagonal() -> None:
    lines = to_text(diagonal(("a", "b", "c"))).splitlines()
    assert lines == ["map", "  a b c", "a ██", "b   ██", "c     ██", "█ is 100%"]


def test_small_weights_are_seen_on_a_scale_that_is_told() -> None:
    weights = torch.full((1, 1, 20), 0.04)
    weights[0, 0, 3] = 0.24
    lines = to_text(AttentionMap("map", weights, Tokens(("row",)), Tokens(tuple("abcdefghijklmnopqrst")))).splitlines()
    assert lines[-2:] == ["row       ██", "█ is 24%"]


def test_rows_of_words_have_as_much_of_their_text_as_there_is_room_for() -> None:
    texts = Tokens(("a man in a boat with a dog and a red sail", "a cat"))
    map_ = AttentionMap("map", torch.eye(2)[None], texts, Tokens(("a", "b")))
    assert to_text(map_, width=150).splitlines()[2].startswith("a man in a boat with a dog and a red sail ██")
    assert to_text(map_, width=60).splitlines()[2].startswith("a man in a boat wit… ██")


def test_wide_maps_are_cut_into_blocks_that_fit() -> None:
    text = to_text(diagonal(tuple(f"w{number}" for number in range(60))), width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert text.count("██") == 60


def test_wide_characters_and_control_characters_keep_the_columns() -> None:
    lines = to_text(diagonal(("猫", "e\u0301", "\x1b[31m", "a" * 40))).splitlines()
    assert "\x1b" not in "".join(lines)
    assert all("…" in line for line in lines if line.startswith("aaa"))
    first = [line.index("██") for line in lines if "██" in line]
    assert first == sorted(first)


@pytest.mark.parametrize("ending", ["png", "svg", "pdf", "json"])
def test_every_format_is_written(ending: str, tmp_path: Path) -> None:
    hostile = ("$x$", "<script>", "a & b", "\\frac", "_^", "日本")
    drawn = ending != "json"
    with pytest.warns(UserWarning, match="missing from font") if drawn else nullcontext():
        save_maps([diagonal(hostile), diagonal(("a", "b"))], tmp_path / f"deep/map.{ending}")
    assert (tmp_path / f"deep/map.{ending}").stat().st_size > 100
    if ending == "svg":
        assert "<script>" not in (tmp_path / "deep/map.svg").read_text(encoding="utf-8")
    if ending == "png":
        with Image.open(tmp_path / "deep/map.png") as picture:
            assert picture.size > (100, 100)


def test_json_holds_every_number() -> None:
    content = json.loads(to_json([diagonal(("a", "b"))]))
    assert content["maps"][0]["weights"] == [[[1.0, 0.0], [0.0, 1.0]]]
    assert content["maps"][0]["rows"] == ["a", "b"]


def test_labels_must_fit_the_weights(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"weights \(1, 2, 3\) do not fit \(2, 2\) labels"):
        AttentionMap("m", torch.zeros(1, 2, 3), Tokens(("a", "b")), Tokens(("a", "b")))
    with pytest.raises(SaccadeError, match="no attention"):
        save_maps([], tmp_path / "map.png")
