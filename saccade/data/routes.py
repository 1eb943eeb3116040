"""Route instructions with the ways that were walked, as JSON: the format of SAIL (MacMahon et al. 2006; Chen and Mooney
2011), or maps and texts of one's own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from saccade.data.readers import read_lines
from saccade.data.world import HEADINGS, FloorPlan, Pose, Spot
from saccade.errors import SaccadeError

UNKNOWN = -1  # a heading that the data does not say


@dataclass(frozen=True)
class Paragraph:
    """Some sentences, and the way that goes with each; the heading of a way's first pose may be UNKNOWN."""

    sentences: tuple[str, ...]
    ways: tuple[tuple[Pose, ...], ...]
    where: str  # for messages


@dataclass(frozen=True)
class Route:
    """An instruction and the way that it describes, from the first pose to the last."""

    text: str
    way: tuple[Pose, ...]
    where: str
    open: bool = False  # the data does not say how one stands at first

    @property
    def start(self) -> Pose:
        return self.way[0]

    @property
    def goal(self) -> Pose:
        return self.way[-1]

    def starts(self) -> list[Route]:
        """The same from every heading that one may have at first: four where that is open, the usual one first."""
        turns = (0, 90, 180, 270) if self.open else (0,)
        return [replace(self, way=(self.start.turned(turn), *self.way[1:])) for turn in turns]


def read_routes(path: str | Path) -> tuple[dict[str, FloorPlan], list[Paragraph]]:
    """The maps of a file by name, and its paragraphs."""
    text = "\n".join(read_lines(path))
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise SaccadeError(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # numbers of too many digits, or lists in lists in lists
        raise SaccadeError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict) or not all(content.get(key) for key in ("maps", "paragraphs")):
        raise SaccadeError(f"{path}: an object with 'maps' and 'paragraphs' is expected, neither of them empty")
    plans = read_plans(content["maps"], str(path))
    entries = content["paragraphs"]
    if not isinstance(entries, list):
        raise SaccadeError(f"{path}: 'paragraphs' is to be a list; got {_shown(entries)}")
    return plans, [_paragraph(entry, plans, f"{path}: paragraph {n}") for n, entry in enumerate(entries, start=1)]


def read_plans(content: Any, where: str) -> dict[str, FloorPlan]:
    """Maps by name, each with `nodes` [x, y, item] and `edges` [[x, y], [x, y], wall, floor]."""
    if not isinstance(content, dict) or not content:
        raise SaccadeError(f"{where}: 'maps' is to hold maps by name; got {_shown(content)}")
    return {name: _plan(plan, f"{where}: map {name!r}") for name, plan in content.items()}


def routes_of(paragraphs: Sequence[Paragraph], sentences: Literal["single", "paragraphs"]) -> list[Route]:
    """Every sentence, or every paragraph, as a route of its own.

    A first heading that is UNKNOWN becomes the one from which a turn to the right leads to the first known heading:
    so it is in the data of Mei, Bansal and Walter (2016). `Route.open` says that it might be any.
    """
    return [route for paragraph in paragraphs for route in _routes(paragraph, sentences)]


def _routes(paragraph: Paragraph, sentences: str) -> Iterator[Route]:
    if sentences == "single":
        texts, ways = paragraph.sentences, paragraph.ways
    else:
        # only the very first pose may have no heading: later ones have the heading that was known before
        first, *rest = (pose for way in paragraph.ways for pose in way)
        texts, ways = (" ".join(paragraph.sentences),), ((first, *(pose for pose in rest if pose.heading != UNKNOWN)),)
    for number, (text, way) in enumerate(zip(texts, ways, strict=True), start=1):
        where = f"{paragraph.where}, sentence {number}" if sentences == "single" else paragraph.where
        if way[0].heading != UNKNOWN:
            yield Route(text, way, where)
            continue
        after = [*way, *(pose for later in paragraph.ways[number:] for pose in later)]
        known = next((pose.heading for pose in after if pose.heading != UNKNOWN), HEADINGS[0])
        yield Route(text, (way[0]._replace(heading=(known - 90) % 360), *way[1:]), where, open=True)


def _plan(content: Any, where: str) -> FloorPlan:
    if not isinstance(content, dict) or not all(isinstance(content.get(key), list) for key in ("nodes", "edges")):
        raise SaccadeError(f"{where}: lists 'nodes' and 'edges' are expected; got {_shown(content)}")
    nodes: dict[Spot, str] = {}
    for number, node in enumerate(content["nodes"], start=1):
        match node:
            case [int(x), int(y), str(item)] if (x, y) not in nodes:
                nodes[x, y] = item
            case _:
                raise SaccadeError(
                    f"{where}, node {number}: [x, y, item] is expected, no spot twice; got {_shown(node)}"
                )
    edges = []
    for number, edge in enumerate(content["edges"], start=1):
        match edge:
            case [[int(x), int(y)], [int(u), int(v)], str(wall), str(floor)] if (
                abs(x - u) + abs(y - v) == 1 and {(x, y), (u, v)} <= nodes.keys()
            ):
                edges.append(((x, y), (u, v), wall, floor))
            case _:
                raise SaccadeError(
                    f"{where}, edge {number}: [[x, y], [x, y], wall, floor] between neighbouring nodes is expected; "
                    f"got {_shown(edge)}"
                )
    if not edges:
        raise SaccadeError(f"{where}: there is no edge, so there is nowhere to walk")
    return FloorPlan(tuple((x, y, item) for (x, y), item in nodes.items()), tuple(edges))


def _paragraph(content: Any, plans: dict[str, FloorPlan], where: str) -> Paragraph:
    if not isinstance(content, dict):
        raise SaccadeError(f"{where}: an object is expected; got {_shown(content)}")
    name, texts, paths = (content.get(key) for key in ("map", "sentences", "paths"))
    if not isinstance(name, str) or name not in plans:
        raise SaccadeError(f"{where}: 'map' is {_shown(name)}; the maps are {', '.join(plans)}")
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts) or not texts:
        raise SaccadeError(f"{where}: 'sentences' is to be a list of texts, none of them blank; got {_shown(texts)}")
    if not isinstance(paths, list) or len(paths) != len(texts):
        raise SaccadeError(f"{where}: 'paths' is to have a path for each of {len(texts)} sentences")
    ways = tuple(_way(path, name, plans[name], f"{where}, path {n}") for n, path in enumerate(paths, start=1))
    return Paragraph(tuple(texts), ways, where)


def _way(content: Any, name: str, plan: FloorPlan, where: str) -> tuple[Pose, ...]:
    if not isinstance(content, list) or not content:
        raise SaccadeError(f"{where}: a list of [x, y, heading] is expected, one at least; got {_shown(content)}")
    way = []
    for number, pose in enumerate(content, start=1):
        match pose:
            case [int(x), int(y), int(heading)] if (x, y) in plan.items and (
                heading in HEADINGS or (heading == UNKNOWN and number == 1)
            ):
                way.append(Pose(name, x, y, heading))
            case _:
                raise SaccadeError(
                    f"{where}, pose {number}: [x, y, heading] is expected, a node of map {name!r} and a heading of "
                    f"{', '.join(map(str, HEADINGS))} (or, at first, {UNKNOWN}: not known); got {_shown(pose)}"
                )
    return tuple(way)


def _shown(content: Any) -> str:
    text = json.dumps(content, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
