"""Small worlds of corridors with routes in them, and instructions that say which."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from saccade.data.world import FloorPlan, Pose, World

ITEMS = ("chair", "lamp", "sofa")
FLOORS = ("blue", "grass", "wood")
NAMES = ("oak", "elm", "fir")


def lattice(name: str, side: int = 4) -> dict[str, Any]:
    """A square of crossings, every other one with an item; every line of corridors has its floor."""
    draw = random.Random(name)
    nodes = [[x, y, draw.choice(ITEMS) if (x + y) % 2 else ""] for y in range(side) for x in range(side)]
    edges = [[[x, y], [x + 1, y], "fish", FLOORS[y % 3]] for y in range(side) for x in range(side - 1)]
    edges += [[[x, y], [x, y + 1], "tower", FLOORS[(x + 1) % 3]] for y in range(side - 1) for x in range(side)]
    return {"nodes": nodes, "edges": edges}


def plan_of(content: dict[str, Any]) -> FloorPlan:
    edges = (((a, b), (c, d), wall, floor) for [a, b], [c, d], wall, floor in content["edges"])
    return FloorPlan(tuple((x, y, item) for x, y, item in content["nodes"]), tuple(edges))


def told(world: World, start: Pose, draw: random.Random) -> tuple[str, list[Pose]] | None:
    """Turn perhaps, then walk to an item or to the end: what that means depends on what is seen on the way."""
    turn = draw.choice(["", "left", "right"])
    way = world.walked(start, [turn] if turn else [])
    item = draw.choice([*ITEMS, "end"])
    while way[-1] != (further := world.moved(way[-1], "forward")):
        way.append(further)
        if world.plans[further.map].items[further.spot] == item:
            break
    else:
        if item != "end":
            return None  # there is none that way
    begun = f"turn {turn} and " if turn else ""
    return f"{begun}go to the {item}", way


def write_corridors(path: Path, *, paragraphs: int = 300, seed: int = 0) -> Path:
    """Three maps, and paragraphs of two sentences on each of them: the second begins where the first ends."""
    maps = {name: lattice(name) for name in NAMES}
    world = World({name: plan_of(content) for name, content in maps.items()})
    draw = random.Random(seed)
    written: list[dict[str, Any]] = []
    while len(written) < paragraphs:
        first = told(world, draw.choice(world.poses), draw)
        second = first and told(world, first[1][-1], draw)
        if first is None or second is None:
            continue
        paths = [[[pose.x, pose.y, pose.heading] for pose in way] for _, way in (first, second)]
        written.append({"map": first[1][0].map, "sentences": [first[0], second[0]], "paths": paths})
    path.write_text(json.dumps({"maps": maps, "paragraphs": written}), encoding="utf-8")
    return path
