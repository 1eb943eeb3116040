"""A small world of cells, seen from above as an image: walls, coloured things, and a lamp that says which one to fetch.

    step:   up, down, left and right; walls, and a door without its key, lead nowhere; who enters a thing has fetched it
    solve:  distances of all states from success, breadth first from the end; an action is right if it comes nearer

The lamp is set somewhere into the outer wall and shines in the colour of the thing that is wanted. In some worlds a
door shuts the way: it opens, once, for the one who has walked over the key. Worlds come from numbers: the same number
of the same part is always the same world.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saccade.errors import SaccadeError

Spot = tuple[int, int]  # row and column, from the upper left

MOVES: Mapping[str, Spot] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
ACTIONS = tuple(MOVES)
COLOURS: Mapping[str, tuple[int, int, int]] = {
    "red": (220, 40, 40),
    "green": (30, 160, 60),
    "blue": (50, 90, 230),
    "purple": (170, 60, 200),
}
PARTS = ("train", "valid", "test")
PIXELS = 8  # of a side of a cell
SMALLEST = 5  # cells of a side, the outer walls included: room for a wall with a door in it
ROCKS = 0.15  # share of the inner cells that are walls
TRIES = 1000  # worlds that are drawn for one in which all has room

FLOOR, WALL, KEY, GOLD = (236, 236, 230), (92, 92, 100), (190, 140, 0), (250, 200, 40)
WOOD, FACE = (140, 90, 50), (25, 25, 25)
# one letter a pixel: . floor, # wall, c the colour of a thing or a lamp, a agent, k key, g gold, w wood
TILES = {
    "floor": "........ ........ ........ ........ ........ ........ ........ ........",
    "wall": "######## ######## ######## ######## ######## ######## ######## ########",
    "thing": "........ ...cc... ..cccc.. .cccccc. .cccccc. ..cccc.. ...cc... ........",
    "lamp": "######## #cccccc# #cccccc# #cccccc# #cccccc# #cccccc# #cccccc# ########",
    "agent": "..aaaa.. .aaaaaa. aa.aa.aa aa.aa.aa aaaaaaaa aa....aa .aaaaaa. ..aaaa..",
    "agent with key": "..aaaa.. .aaaaaa. agggggga agggggga agggggga agggggga .aaaaaa. ..aaaa..",
    "key": "........ .kk..... k..k.... k..kkkkk k..kkkkk .kk..k.k .....k.k ........",
    "door": "wwwwwwww wwwwwwww wwwwwwww wwwwwggw wwwwwggw wwwwwwww wwwwwwww wwwwwwww",
}


@dataclass(frozen=True, eq=False)
class Room:
    """What nobody can change. Two rooms are the same only if they are one."""

    side: int  # cells, the outer walls included
    walls: frozenset[Spot]  # the outer ones, too
    things: Mapping[Spot, str]  # their colours, no two alike
    lamp: Spot
    wanted: str
    key: Spot | None = None
    door: Spot | None = None


class World(NamedTuple):
    """A room, and what has been done in it so far."""

    room: Room
    agent: Spot
    holding: bool = False  # the key
    opened: bool = False  # the door
    fetched: str | None = None  # the colour of a thing; then all is over

    @property
    def succeeded(self) -> bool:
        return self.fetched == self.room.wanted


def step(world: World, action: str) -> World:
    """What an action makes of a world; nothing, where the way is shut or a thing has been fetched."""
    room, (row, column), (down, right) = world.room, world.agent, MOVES[action]
    spot = (row + down, column + right)
    at_door = spot == room.door and not world.opened
    if world.fetched is not None or spot in room.walls or (at_door and not world.holding):
        return world
    holding = (world.holding or (spot == room.key and not world.opened)) and not at_door
    return World(room, spot, holding, world.opened or at_door, room.things.get(spot))


def distances(world: World) -> dict[World, int]:
    """Actions to success, at the least, from every world that can become of this one and can still succeed."""
    before: dict[World, list[World]] = {world: []}
    left = deque([world])
    while left:
        each = left.popleft()
        for action in ACTIONS:
            after = step(each, action)
            if after not in before:
                before[after] = []
                left.append(after)
            before[after].append(each)
    found = {each: 0 for each in before if each.succeeded}
    left.extend(found)
    while left:
        each = left.popleft()
        for earlier in before[each]:
            if earlier not in found:
                found[earlier] = found[each] + 1
                left.append(earlier)
    return found


class Move(NamedTuple):
    """A step of a demonstration: all actions that come one nearer to success, and the one of them that is taken."""

    world: World
    right: tuple[str, ...]
    action: str


def demonstrate(world: World, draw: np.random.Generator | None = None) -> list[Move]:
    """A shortest way to success: wherever several actions are right the first, or one that is drawn."""
    far = distances(world)
    if world not in far:
        raise SaccadeError(f"in this world {world.room.wanted} cannot be reached")
    moves: list[Move] = []
    while not world.succeeded:
        right = tuple(action for action in ACTIONS if far.get(step(world, action), far[world]) < far[world])
        moves.append(Move(world, right, right[0 if draw is None else int(draw.integers(len(right)))]))
        world = step(world, moves[-1].action)
    return moves


def solve(world: World) -> list[str]:
    """The actions of a shortest way to success."""
    return [move.action for move in demonstrate(world)]


def make_world(number: int, part: str, *, side: int, things: int, locked: float, seed: int = 1) -> World:
    """The world with that number; drawn again until what is wanted can be reached, by two actions at least."""
    if side < SMALLEST or not 1 <= things <= len(COLOURS):
        raise SaccadeError(
            f"a world has {SMALLEST} cells a side at least, and 1 to {len(COLOURS)} things; got {side} and {things}"
        )
    draw = np.random.default_rng([seed, PARTS.index(part), number])
    shut = bool(draw.random() < locked)
    for _ in range(TRIES):
        world = _drawn(draw, side, things, shut)
        if world is not None and distances(world).get(world, 0) >= 2:
            return world
    raise SaccadeError(f"{things} things and a way to each find no room in {side} x {side} cells: ask for more cells")


def _drawn(draw: np.random.Generator, side: int, things: int, shut: bool) -> World | None:
    """Any world, perhaps without a way to success; none where there is no room for all that is to be in it."""
    inside, last = range(1, side - 1), side - 1
    inner = [(row, column) for row in inside for column in inside]
    lamps = [spot for place in inside for spot in ((0, place), (last, place), (place, 0), (place, last))]
    outer = {*lamps, (0, 0), (0, last), (last, 0), (last, last)}
    walls = {spot for spot in inner if draw.random() < ROCKS}
    here, door = set(inner), None
    if shut:
        axis, line = int(draw.integers(2)), int(draw.integers(2, side - 2))  # a wall from side to side
        between = [spot for spot in inner if spot[axis] == line]
        door = between[int(draw.integers(len(between)))]
        walls = (walls | set(between)) - {door}
        first = bool(draw.integers(2))
        here = {spot for spot in inner if (spot[axis] < line) == first and spot[axis] != line}
    free = [inner[place] for place in draw.permutation(len(inner)) if inner[place] not in walls | {door}]
    near, far = [spot for spot in free if spot in here], [spot for spot in free if not shut or spot not in here]
    if len(near) < 2 or len(far) < things + (0 if shut else 2):
        return None
    colours = [tuple(COLOURS)[place] for place in draw.permutation(len(COLOURS))[:things]]
    room = Room(
        side=side,
        walls=frozenset(walls | outer),
        things=dict(zip(far[-things:], colours, strict=True)),
        lamp=lamps[int(draw.integers(len(lamps)))],
        wanted=colours[0],
        key=near[1] if shut else None,
        door=door,
    )
    return World(room, near[0])


def render(world: World) -> NDArray[np.uint8]:
    """The image (side * PIXELS, side * PIXELS, 3)."""
    room, tiles = world.room, _tiles()
    codes = np.full((room.side, room.side), tiles.numbers["floor"])
    for spot in room.walls:
        codes[spot] = tiles.numbers["wall"]
    for spot, colour in room.things.items():
        codes[spot] = tiles.numbers[f"{colour} thing"]
    codes[room.lamp] = tiles.numbers[f"{room.wanted} lamp"]
    if room.key is not None and not world.holding and not world.opened:
        codes[room.key] = tiles.numbers["key"]
    if room.door is not None and not world.opened:
        codes[room.door] = tiles.numbers["door"]
    codes[world.agent] = tiles.numbers["agent with key" if world.holding else "agent"]
    size = room.side * PIXELS
    return tiles.pixels[codes].swapaxes(1, 2).reshape(size, size, 3)


class _Tiles(NamedTuple):
    numbers: Mapping[str, int]
    pixels: NDArray[np.uint8]  # (tiles, PIXELS, PIXELS, 3)


@cache
def _tiles() -> _Tiles:
    """Every tile; things and lamps in every colour."""
    ink = {".": FLOOR, "#": WALL, "a": FACE, "k": KEY, "g": GOLD, "w": WOOD}
    drawn: dict[str, list[list[tuple[int, int, int]]]] = {}
    for name, letters in TILES.items():
        colours = {f"{colour} {name}": rgb for colour, rgb in COLOURS.items()} if "c" in letters else {name: FLOOR}
        for title, rgb in colours.items():
            drawn[title] = [[rgb if letter == "c" else ink[letter] for letter in line] for line in letters.split()]
    numbers = {name: number for number, name in enumerate(drawn)}
    return _Tiles(numbers, np.array(list(drawn.values()), dtype=np.uint8))
