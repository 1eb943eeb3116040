"""Maps as a page: every number is there, nothing foreign is run, nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from html.parser import HTMLParser
from importlib import resources
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.errors import SaccadeError
from saccade.maps.html import SCRIPTS, to_html
from saccade.maps.render import AttentionMap, Frames, Grid, Tokens, save_maps
from tests.maps.drawn import caption, image, self_attention, spoken

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "</ScRiPt ><svg onload=alert(2)>",
    "<!--",
    "-->",
    "<!--<script>",
    "]]>",
    '" onmouseover="alert(3)" \'',
    "&lt;b&gt;&amp;",
    "{{data}}{{script}}",
    "\\u003c\\",
    "a\u2028b\u2029c",
    "x\u202etxt.exe",
    "\ud800",
    "\udc00\ud800",
    "\x00\x1b[31m\r\n",
    "",
    " ",
    "w" * 5000,
    "▁chat",
    "猫",
    "مرحبا",
    "👩‍🚀",
)
VOID = {"meta", "input"}


class Page(HTMLParser):
    """The elements of a page; every end must fit its beginning."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.comments: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.append((self._open[-1], data))

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def scripts(self) -> list[str]:
        """What stands in each script element; each holds one run of text."""
        return [text for tag, text in self.texts if tag == "script"]

    def data(self) -> list[dict]:
        return json.loads(self.scripts()[0])["maps"]

    def pictures(self) -> list[np.ndarray]:
        """The images that the page holds, decoded."""
        start = "data:image/png;base64,"
        addresses = json.loads(self.scripts()[0])["pictures"]
        assert all(address.startswith(start) for address in addresses)
        opened = (Image.open(BytesIO(base64.b64decode(address.removeprefix(start)))) for address in addresses)
        return [np.asarray(each) for each in opened]

    def policy(self) -> dict[str, str]:
        policy = next(a["content"] for _, a in self.elements if a.get("http-equiv") == "Content-Security-Policy")
        assert policy is not None
        return dict(rule.strip().split(" ", 1) for rule in policy.split(";"))


def some(rows: tuple[str, ...], columns: tuple[str, ...], heads: int = 2, name: str = "map") -> AttentionMap:
    scores = torch.randn(heads, len(rows), len(columns), generator=torch.Generator().manual_seed(7))
    return AttentionMap(name, scores.softmax(-1), Tokens(rows), Tokens(columns))


def hostile() -> str:
    maps = [some(HOSTILE, HOSTILE, name=HOSTILE[0]), some(("a",), HOSTILE, heads=1, name="\ud800<b>")]
    return to_html(maps, title="</title><script>alert(4)</script>\ud800")


def test_data_are_all_names_labels_and_rounded_weights() -> None:
    maps = [some(("le", "chat"), ("the", "cat", "."), heads=4, name="one"), some(HOSTILE, HOSTILE[::-1], name="two")]
    found = Page(to_html(maps)).data()
    assert [each["name"] for each in found] == ["one", "two"]
    for map_, each in zip(maps, found, strict=True):
        assert tuple(each["rows"]) == map_.rows.labels
        assert tuple(each["columns"]) == map_.columns.labels
        shown = torch.tensor(each["weights"], dtype=torch.float64)
        assert torch.equal(shown, torch.round(map_.weights.double(), decimals=4))


def test_images_with_names_are_shown_beside_their_names() -> None:
    red, blue = np.zeros((2, 3, 3), np.uint8) + (200, 0, 0), np.zeros((2, 3, 3), np.uint8) + (0, 0, 200)
    images = Tokens(("red.png", "blue.png"), tuple(each.astype(np.uint8) for each in (red, blue)))
    page = Page(to_html([AttentionMap("similarity", torch.eye(2)[None], Tokens(("red", "blue")), images)]))
    (map_,) = page.data()
    assert map_["axes"]["columns"]["each"] == [0, 1]
    assert "each" not in map_["axes"]["rows"]
    assert [each[0, 0].tolist() for each in page.pictures()] == [[200, 0, 0], [0, 0, 200]]
    assert page.policy()["img-src"] == "data:"


def test_hostile_text_stays_text() -> None:
    kinds = {tag for tag, _ in Page(hostile()).elements}
    assert kinds == {tag for tag, _ in Page(to_html([some(("a",), ("b",))])).elements}
    page = Page(hostile())
    assert page.comments == []
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    labels = [text for tag, text in page.texts if tag == "span"]
    assert labels.count(HOSTILE[0]) == 2  # as a row and as a column of the table for readers without JavaScript
    assert labels.count("{{data}}{{script}}") == 2
    assert ("title", "</title><script>alert(4)</script>·") in page.texts


def test_hostile_markup_is_nowhere_in_the_file() -> None:
    text = hostile()
    for piece in ("<img", "<svg", "<!--", "]]>", "alert(4)</script>", "\u2028", "\u2029", "\u202e", "\x00", "\x1b"):
        assert piece not in text, piece
    data = Page(text).scripts()[0]
    assert data.isascii()
    assert not set("<>&") & set(data)


@pytest.mark.parametrize("label", HOSTILE)
def test_every_label_alone_can_be_written_as_utf8(label: str, tmp_path: Path) -> None:
    save_maps([some((label,), (label,), name=label)], tmp_path / "map.html")
    found = Page((tmp_path / "map.html").read_bytes().decode("utf-8")).data()[0]
    assert [found["name"], *found["rows"], *found["columns"]] == [label] * 3


def test_long_tokens_are_cut_where_they_are_shown() -> None:
    shown = [text for tag, text in Page(hostile()).texts if tag == "span"]
    assert max(len(text) for text in shown) == 60
    assert "w" * 59 + "…" in shown


def test_the_policy_allows_the_own_script_alone() -> None:
    page = Page(hostile())
    assert [attributes for tag, attributes in page.elements if tag == "script"] == [
        {"type": "application/json", "id": "data"},
        {},
    ]
    assert len(page.scripts()) == 2
    digest = base64.b64encode(hashlib.sha256(page.scripts()[1].encode()).digest()).decode()
    assert page.policy() == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "script-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_policy_comes_before_all_that_it_governs() -> None:
    tags = [tag for tag, _ in Page(hostile()).elements]
    assert tags[:4] == ["html", "head", "meta", "meta"]


def test_nothing_is_fetched() -> None:
    page = Page(hostile())
    assert not {"src", "href", "srcset", "action", "data"} & {name for _, each in page.elements for name in each}
    bare = to_html([some(("a",), ("b",))])
    assert re.findall(r"https?:|//\w|url\(|@import|@font-face", bare) == []


def test_the_script_writes_text_only() -> None:
    files = [file for file in resources.files("saccade.maps").iterdir() if file.name.endswith(".js")]
    assert {file.name for file in files} == set(SCRIPTS)
    script = "".join(file.read_text(encoding="utf-8") for file in files)
    assert "textContent" in script
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval", "Function(", "DOMParser"):
        assert way not in script, way
    assert "</script" not in script.lower()
    assert "<!--" not in script


def test_the_script_finds_every_element_that_it_asks_for() -> None:
    page = Page(to_html([some(("a",), ("b",))]))
    asked = set(re.findall(r'(?:find|getElementById)\("(\w+)"\)', page.scripts()[1]))
    assert len(asked) > 10
    assert asked <= {str(attributes["id"]) for _, attributes in page.elements if "id" in attributes}


def test_the_first_map_is_a_table_without_javascript() -> None:
    weights = torch.tensor([[[0.25, 0.75], [1.0, 0.0]], [[0.75, 0.25], [1.0, 0.0]]])
    first = AttentionMap("first", weights, Tokens(("a", "b")), Tokens(("c", "d")))
    page = Page(to_html([first, some(("e",), ("f",))]))
    scopes = [attributes["scope"] for tag, attributes in page.elements if tag == "th"]
    assert scopes == ["col", "col", "row", "row"]
    assert [text.strip() for tag, text in page.texts if tag == "td"] == ["50", "50", "100", "0"]
    shades = [attributes["style"] for tag, attributes in page.elements if attributes.get("class") == "shade"]
    assert shades == ["--w:0.5", "--w:0.5", "--w:1", "--w:0"]
    assert any(tag == "h2" and text == "first, mean of 2 heads" for tag, text in page.texts)
    assert any(tag == "noscript" for tag, _ in page.elements)


def test_what_needs_the_script_is_hidden_without_it() -> None:
    hidden = {attributes.get("id") for _, attributes in Page(hostile()).elements if "hidden" in attributes}
    assert hidden == {"controls", "heads", "sentences", "reading", "tip", "pictured", "heard"}


def test_the_same_maps_give_the_same_file(tmp_path: Path) -> None:
    assert hostile() == hostile()
    save_maps([some(("a",), ("b",))], tmp_path / "deep/map.html")
    written = (tmp_path / "deep/map.html").read_bytes()
    assert written == to_html([some(("a",), ("b",))]).encode("utf-8")
    assert b"\r" not in written


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_may_be_of_any_precision(kind: torch.dtype) -> None:
    map_ = AttentionMap("map", torch.eye(2, dtype=kind)[None], Tokens(("a", "b")), Tokens(("c", "d")))
    assert Page(to_html([map_])).data()[0]["weights"] == [[[1, 0], [0, 1]]]


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused(weight: float) -> None:
    map_ = AttentionMap("odd", torch.tensor([[[0.5, weight]]]), Tokens(("a",)), Tokens(("b", "c")))
    with pytest.raises(SaccadeError, match="map odd: a weight is not a finite number"):
        to_html([map_])


def test_no_maps_are_refused() -> None:
    with pytest.raises(SaccadeError, match="no map"):
        to_html([])


def test_the_template_is_filled_completely() -> None:
    assert "{{" not in to_html([some(("a",), ("b",))])


def test_the_page_holds_the_image_once_for_all_its_maps() -> None:
    pixels = image()
    grid = Grid(2, 2, pixels)
    page = Page(to_html([caption(2, grid), self_attention(grid), caption(2, Grid(2, 2))]))
    (picture,) = page.pictures()
    assert np.array_equal(picture, pixels)
    assert [each["axes"]["columns"]["picture"] for each in page.data()] == [0, 0, None]
    assert page.data()[1]["axes"]["rows"] == {"kind": "grid", "size": 4, "height": 2, "width": 2, "picture": 0}


def test_large_images_are_made_smaller() -> None:
    (picture,) = Page(to_html([caption(2, Grid(2, 2, np.zeros((300, 3000, 3), np.uint8)))])).pictures()
    assert picture.shape == (80, 800, 3)


def test_the_spectrogram_is_a_picture_with_time_across_and_low_bands_at_the_foot() -> None:
    spectrogram = np.zeros((6, 3))
    spectrogram[4, 0] = 1.0
    page = Page(to_html([spoken("ab", 4, spectrogram=spectrogram)]))
    (picture,) = page.pictures()
    assert picture.shape == (3, 6, 4)
    assert np.argwhere(picture.sum(2) > picture[0, 0].sum()).tolist() == [[2, 4]]
    assert page.data()[0]["axes"]["columns"]["seconds"] == 0.1


def test_images_are_allowed_only_from_the_page_itself_and_where_there_are_any() -> None:
    with_image, without = (to_html([caption(2, Grid(2, 2, pixels))]) for pixels in (image(), None))
    assert Page(with_image).policy()["img-src"] == "data:"
    assert Page(with_image).policy().keys() - {"img-src"} == Page(without).policy().keys()
    assert "img-src" not in Page(without).policy()
    assert Page(with_image).policy()["default-src"] == "'none'"


@pytest.mark.parametrize("columns", [Grid(2, 2, image()), Frames(4, 0.5, np.eye(4))], ids=["image", "sound"])
def test_images_and_sounds_are_named_by_their_strongest_places_without_javascript(columns: Grid | Frames) -> None:
    weights = torch.tensor([[[0.1, 0.6, 0.3, 0.0]]])
    page = Page(to_html([AttentionMap("first", weights, Tokens(("<b>word",)), columns)]))
    labels = columns.labels
    cells = [text.strip() for tag, text in page.texts if tag == "td"]
    assert cells == [f"{labels[1]}: 60 %", f"{labels[2]}: 30 %", f"{labels[0]}: 10 %"]
    assert ("span", "<b>word") in page.texts


def test_hostile_words_over_an_image_stay_text() -> None:
    grid = Grid(3, 3, image())
    weights = torch.full((2, len(HOSTILE), 9), 1 / 9)
    text = to_html([AttentionMap(HOSTILE[0], weights, Tokens(HOSTILE), grid)])
    page = Page(text)
    assert tuple(page.data()[0]["rows"]) == HOSTILE
    assert {tag for tag, _ in page.elements} == {tag for tag, _ in Page(to_html([some(("a",), ("b",))])).elements}
    assert not set("<>&") & set(page.scripts()[0])
    assert "<img" not in text


def test_the_page_knows_from_which_weight_on_a_row_is_dark() -> None:
    map_ = caption(2, Grid(4, 4))
    assert Page(to_html([map_])).data()[0]["darkest"] == map_.top(torch.zeros(1)) == 3 / 16
