"""Attention maps as one HTML file that needs nothing else: no network, no other file, no server.

Labels are foreign text. They enter the page as escaped HTML (the first map, for readers without JavaScript) and as
JSON in which no character can end the script element; the page's own script writes them as text only, and the
content policy allows no other script, no connection, and no image but those that the page itself holds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import unicodedata
from collections.abc import Sequence
from html import escape
from importlib import resources
from typing import Any

from numpy.typing import NDArray

from saccade.errors import SaccadeError
from saccade.maps.axes import AttentionMap, Tokens
from saccade.maps.png import array_of, images_of, png_address

DIGITS = 4
STRONGEST = 3  # places that are named for a row where there are too many for a table
LONGEST = 60  # characters of a label that are shown; the data holds all of them
SCRIPTS = ("page.table.js", "page.picture.js", "page.sound.js", "page.js")  # the last one starts
UNSAFE = str.maketrans({character: f"\\u{ord(character):04x}" for character in "<>&"})
HIDDEN = {"Cc", "Cs", "Zl", "Zp"}  # control characters, lone surrogates, line and paragraph separators
TURNING = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # change the reading direction


def to_html(maps: Sequence[AttentionMap], title: str = "Where the model looked") -> str:
    """A page to look through all maps and heads; the first map is there without JavaScript, too."""
    if not maps:
        raise SaccadeError("there is no map to show: this model has no attention")
    first = maps[0]
    script = "".join(_file(name) for name in SCRIPTS)
    name = first.name if first.heads == 1 else f"{first.name}, mean of {first.heads} heads"
    axes = [axis for map_ in maps for axis in (map_.rows, map_.columns)]
    arrays = [array for axis in axes for array in (array_of(axis), *images_of(axis)) if array is not None]
    pictures = {id(array): array for array in arrays}
    fields = {
        "policy": _policy(script, pictures=bool(pictures)),
        "title": escape(_plain(title)),
        "style": _file("page.css"),
        "name": escape(_plain(name)),
        "table": _table(first) if isinstance(first.columns, Tokens) else _strongest(first),
        "data": _data(maps, pictures),
        "script": script,
    }
    # In one pass: a label that spells a placeholder stays a label.
    return re.sub(r"\{\{(\w+)\}\}", lambda found: fields[found[1]], _file("page.html"))


def _file(name: str) -> str:
    return (resources.files("saccade.maps") / name).read_text(encoding="utf-8")


def _policy(script: str, *, pictures: bool) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    images = "img-src data:; " if pictures else ""
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; {images}"
        "base-uri 'none'; form-action 'none'"
    )


def _data(maps: Sequence[AttentionMap], pictures: dict[int, NDArray[Any]]) -> str:
    """JSON in ASCII without <, > and &: also U+2028 and lone surrogates are escapes. Maps that lie over the same
    picture share it by its number."""
    numbers = {key: number for number, key in enumerate(pictures)}
    content = [
        {
            "name": map_.name,
            "rows": map_.rows.labels,
            "columns": map_.columns.labels,
            "axes": {
                side: {**axis.describe(), "picture": numbers.get(id(array_of(axis)))}
                | ({"each": [numbers[id(image)] for image in images]} if (images := images_of(axis)) else {})
                for side, axis in (("rows", map_.rows), ("columns", map_.columns))
            },
            "darkest": map_.top(map_.weights.new_zeros(1)),
            "weights": [[_rounded(map_, row) for row in head] for head in map_.weights.tolist()],
        }
        for map_ in maps
    ]
    whole = {"maps": content, "pictures": [png_address(array) for array in pictures.values()]}
    return json.dumps(whole, separators=(",", ":")).translate(UNSAFE)


def _rounded(map_: AttentionMap, row: list[float]) -> list[float]:
    if not all(math.isfinite(weight) for weight in row):
        raise SaccadeError(f"map {map_.name}: a weight is not a finite number, so there is nothing to show")
    return [round(weight, DIGITS) or 0 for weight in row]  # 0 is shorter than 0.0: half of a causal map


def _table(map_: AttentionMap) -> str:
    """The mean over heads; the script fills the same table with the map and head that are chosen."""
    labels = "".join(f'<th scope="col"><span>{escape(_plain(label))}</span></th>' for label in map_.columns.labels)
    lines = [
        f'<tr><th scope="row"><span>{escape(_plain(label))}</span></th>'
        + "".join(f'<td class="shade" style="--w:{round(w, DIGITS):g}">{100 * w:.0f}</td>' for w in row)
        + "</tr>"
        for label, row in zip(map_.rows.labels, map_.mean.tolist(), strict=True)
    ]
    return (
        f'<table id="table" translate="no" style="--columns:{len(map_.columns)}">\n'
        "<caption>Each row looks at the columns; numbers are percent.</caption>\n"
        f"<thead><tr><td></td>{labels}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table>"
    )


def _strongest(map_: AttentionMap) -> str:
    """Of an image or a time, which have too many columns for a table, the places that each row looked at most."""
    count = min(STRONGEST, len(map_.columns))
    weights, places = map_.mean.topk(count, dim=1)
    labels = map_.columns.labels
    heads = "".join(f'<th scope="col"><span>{place}.</span></th>' for place in range(1, count + 1))
    lines = [
        f'<tr><th scope="row"><span>{escape(_plain(label))}</span></th>'
        + "".join(f"<td>{escape(labels[at])}: {100 * w:.0f} %</td>" for w, at in zip(some, where, strict=True))
        + "</tr>"
        for label, some, where in zip(map_.rows.labels, weights.tolist(), places.tolist(), strict=True)
    ]
    return (
        '<table id="table" class="strongest" translate="no">\n'
        "<caption>The places that each row looked at most.</caption>\n"
        f"<thead><tr><td></td>{heads}</tr></thead>\n<tbody>\n" + "\n".join(lines) + "\n</tbody>\n</table>"
    )


def _plain(text: str) -> str:
    """Text to be shown: nothing invisible, nothing that turns its surroundings around, not too long."""
    hidden = [unicodedata.category(letter) in HIDDEN or letter in TURNING for letter in text]
    shown = "".join("·" if hide else letter for letter, hide in zip(text, hidden, strict=True))
    shown = shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
    return shown if shown.strip() else "␣"
