"""Corridors that one can walk in: what is seen from a place, and where an action leads.

    seen(pose) = [item here; ahead; left; right; behind],  each way = [floor; wall; items in view; blocked]

All are zeros and ones. Floor and wall are those of the next stretch of corridor that way; items in view are those of
all crossings from the next one to the end of the straight line; the last number says that there is no way. For the
maps of SAIL that is 6 + 4 (8 + 3 + 6 + 1) = 78 numbers, as in Mei, Bansal and Walter (2016). Heading 0 is y - 1, 90 is
x + 1, 180 is y + 1, 270 is x - 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ACTIONS = ("forward", "left", "right")  # to stop is to do nothing more
HEADINGS = (0, 90, 180, 270)
WAYS = {"ahead": 0, "left": 270, "right": 90, "behind": 180}  # and how far one would have to turn
AHEAD = {0: (0, -1), 90: (1, 0), 180: (0, 1), 270: (-1, 0)}
TURNS: dict[int, tuple[str, ...]] = {0: (), 90: ("right",), 180: ("right", "right"), 270: ("left",)}

Spot = tuple[int, int]


class Pose(NamedTuple):
    """Where somebody stands, and where he looks."""

    map: str
    x: int
    y: int
    heading: int

    @property
    def spot(self) -> Spot:
        return self.x, self.y

    @property
    def ahead(self) -> Spot:
        """The next spot in the direction of looking, whether there is one or not."""
        across, down = AHEAD[self.heading]
        return self.x + across, self.y + down

    def turned(self, degrees: int) -> Pose:
        return self._replace(heading=(self.heading + degrees) % 360)


@dataclass(frozen=True)
class FloorPlan:
    """Crossings with what stands there, and the stretches of corridor between neighbours."""

    nodes: tuple[tuple[int, int, str], ...]  # x, y, item ("" for none)
    edges: tuple[tuple[Spot, Spot, str, str], ...]  # from, to, wall, floor

    @cached_property
    def items(self) -> dict[Spot, str]:
        return {(x, y): item for x, y, item in self.nodes}

    @cached_property
    def stretches(self) -> dict[tuple[Spot, Spot], tuple[str, str]]:
        """Wall and floor, by the two ends in either order."""
        there = {(one, other): (wall, floor) for one, other, wall, floor in self.edges}
        return there | {(other, one): look for (one, other), look in there.items()}


class World:
    """Some maps as one set of numbered poses; nothing in it changes when somebody walks."""

    def __init__(self, plans: Mapping[str, FloorPlan]):
        self.plans = dict(plans)
        self.items = sorted({item for plan in plans.values() for item in plan.items.values() if item})
        self.walls = sorted({wall for plan in plans.values() for _, _, wall, _ in plan.edges})
        self.floors = sorted({floor for plan in plans.values() for *_, floor in plan.edges})
        self.poses = [
            Pose(name, x, y, heading) for name, plan in plans.items() for x, y, _ in plan.nodes for heading in HEADINGS
        ]
        self.numbers = {pose: number for number, pose in enumerate(self.poses)}

    @property
    def features(self) -> list[str]:
        """What each number of an observation stands for."""
        way = [*(f"{floor} floor" for floor in self.floors), *(f"{wall} wall" for wall in self.walls)]
        way += [*(f"{item} in view" for item in self.items), "blocked"]
        return [f"{item} here" for item in self.items] + [f"{where}: {what}" for where in WAYS for what in way]

    def moved(self, pose: Pose, action: str) -> Pose:
        """Where an action leads; a step where there is no way leads nowhere: one stays."""
        if action == "forward":
            there = (pose.spot, pose.ahead) in self.plans[pose.map].stretches
            return Pose(pose.map, *pose.ahead, pose.heading) if there else pose
        return pose.turned({"left": -90, "right": 90}[action])

    def walked(self, pose: Pose, actions: Sequence[str]) -> list[Pose]:
        """The poses from the first to the last."""
        poses = [pose]
        for action in actions:
            poses.append(self.moved(poses[-1], action))
        return poses

    def actions(self, way: Sequence[Pose]) -> list[str] | None:
        """What leads along a way; None if it jumps somewhere."""
        actions: list[str] = []
        for one, other in pairwise(way):
            if one.spot == other.spot:
                actions += TURNS[(other.heading - one.heading) % 360]
            elif self.moved(one, "forward") == other:
                actions.append("forward")
            else:
                return None
        return actions

    def seen(self, pose: Pose) -> NDArray[np.float32]:
        """What is seen from there, as numbers; `features` says which."""
        here = self.plans[pose.map].items[pose.spot]
        parts = [[here == item for item in self.items]]
        parts += [self._way(pose.turned(turn)) for turn in WAYS.values()]
        return np.array([number for part in parts for number in part], dtype=np.float32)

    def _way(self, pose: Pose) -> list[bool]:
        plan = self.plans[pose.map]
        wall, floor = plan.stretches.get((pose.spot, pose.ahead), ("", ""))
        blocked = (pose.spot, pose.ahead) not in plan.stretches
        view = set()
        while (pose.spot, pose.ahead) in plan.stretches:
            pose = self.moved(pose, "forward")
            view.add(plan.items[pose.spot])
        return [
            *(floor == each for each in self.floors),
            *(wall == each for each in self.walls),
            *(each in view for each in self.items),
            blocked,
        ]

    def observations(self) -> NDArray[np.float32]:
        """What is seen from every pose: (poses, features)."""
        return np.stack([self.seen(pose) for pose in self.poses])

    def moves(self) -> NDArray[np.int64]:
        """The number of the pose that each action leads to: (poses, actions)."""
        led = [[self.numbers[self.moved(pose, action)] for action in ACTIONS] for pose in self.poses]
        return np.array(led, dtype=np.int64)
