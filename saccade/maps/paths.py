"""The plan of a walk: corridors in the colours of their floors, what stands at the crossings, and numbered steps."""

from __future__ import annotations

import math
from collections import Counter
from itertools import cycle
from typing import TYPE_CHECKING

from saccade.maps.axes import Steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AHEAD = {0: (0, -1), 90: (1, 0), 180: (0, 1), 270: (-1, 0)}
# floors that people give the name of a colour or a material; any other gets the next of OTHERS
COLOURS = {
    "blue": "#9ec5e8",
    "brick": "#dba596",
    "concrete": "#c9c9c9",
    "flower": "#f0c3dc",
    "grass": "#aed6a0",
    "gravel": "#a99f94",
    "wood": "#d8b98a",
    "yellow": "#f3e28c",
}
OTHERS = ("#b9b3e0", "#9fd6d2", "#f2c08d", "#cdd98a", "#d7a6d9", "#b5c4cf")
MARKERS = {0: "^", 90: ">", 180: "v", 270: "<"}
WALKED = "#b3261e"
ASIDE = 0.14  # how far beside the middle of a corridor one walks: the way back lies on its other side
ROOM = 0.6  # around the outermost crossings
INCHES = 0.72  # from a crossing to the next


def plan_size(steps: Steps) -> tuple[float, float]:
    """Width and height in inches, without the legend beneath."""
    left, right, top, bottom = _edges(steps)
    return max((right - left) * INCHES, _legend(steps)[1]), (bottom - top) * INCHES


def legend_height(steps: Steps) -> float:
    entries = len(floor_colours(steps)) + len(item_letters(steps))
    return 0.12 + 0.16 * math.ceil(entries / _legend(steps)[0])


def _legend(steps: Steps) -> tuple[int, float]:
    """How many columns fit under the plan, and the inches of one."""
    left, right, _, _ = _edges(steps)
    column = 0.55 + 0.06 * max(map(len, [*floor_colours(steps), *item_letters(steps)]), default=0)
    return max(1, int((right - left) * INCHES / column)), column


def _edges(steps: Steps) -> tuple[float, float, float, float]:
    """Left, right, top and bottom of the plan, with some room around."""
    across, down = [x for x, _, _ in steps.items], [y for _, y, _ in steps.items]
    return min(across) - ROOM, max(across) + ROOM, min(down) - ROOM, max(down) + ROOM


def draw_plan(axes: Axes, steps: Steps) -> None:
    """Up is heading 0. A step stands beside its corridor; turns and the stop stand in a line beside their crossing."""
    from matplotlib.lines import Line2D

    colours = floor_colours(steps)
    for (x, y), (u, v), floor in steps.corridors:
        axes.plot([x, u], [y, v], color=colours[floor], linewidth=9, solid_capstyle="round", zorder=1)
    letters = item_letters(steps)
    for x, y, item in steps.items:
        size = 15 if item else 5
        axes.plot(x, y, "o", color="white", markeredgecolor="0.45", markersize=size, markeredgewidth=0.8, zorder=2)
        if item:
            axes.text(x, y, letters[item], fontsize=7, ha="center", va="center_baseline", color="0.25", zorder=3)
    _draw_steps(axes, steps)

    left, right, top, bottom = _edges(steps)
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal")
    axes.set_axis_off()
    floors = [Line2D([], [], color=colour, linewidth=6, label=floor) for floor, colour in colours.items()]
    items = [
        Line2D([], [], linestyle="", marker=rf"$\mathrm{{{letter}}}$", color="0.25", markersize=6, label=item)
        for item, letter in letters.items()
    ]
    signs, (columns, _) = [*floors, *items], _legend(steps)
    axes.legend(handles=signs, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=columns, fontsize=7, frameon=False)


def floor_colours(steps: Steps) -> dict[str, str]:
    spare = cycle(OTHERS)
    floors = sorted({floor for *_, floor in steps.corridors})
    return {floor: COLOURS.get(floor) or next(spare) for floor in floors}


def item_letters(steps: Steps) -> dict[str, str]:
    """A letter or two for each thing, no two alike."""
    letters: dict[str, str] = {}
    for item in sorted({item for *_, item in steps.items if item}):
        plain = "".join(character for character in item.upper() if character.isalnum()) or "?"
        choices = [plain[0], *(plain[0] + other for other in plain[1:])]
        letters[item] = next((each for each in choices if each not in letters.values()), str(len(letters)))
    return letters


def _draw_steps(axes: Axes, steps: Steps) -> None:
    x, y, heading = steps.poses[0]
    right, down = AHEAD[heading]
    axes.plot(x, y, "o", color="none", markeredgecolor=WALKED, markersize=19, markeredgewidth=1.6, zorder=4)
    axes.plot(x + 0.3 * right, y + 0.3 * down, marker=MARKERS[heading], color=WALKED, markersize=7, zorder=4)
    taken = {
        corner for place in range(len(steps) - 1) for corner in _corners(steps.poses[place], steps.poses[place + 1])
    }
    standing: Counter[tuple[int, int]] = Counter()  # labels that already stand beside a crossing
    walked: Counter[tuple[int, int, int]] = Counter()  # and beside a stretch of corridor, this way
    for number, (x, y, heading) in enumerate(steps.poses, start=1):
        right, down = AHEAD[heading]
        after = steps.poses[number] if number < len(steps) else (x, y, heading)
        if after[:2] != (x, y):
            aside, below = -down * ASIDE, right * ASIDE  # at the walker's right hand
            ends = [(x + aside + share * right, y + below + share * down) for share in (0.22, 0.82)]
            if not walked[x, y, heading]:
                axes.annotate("", ends[1], ends[0], arrowprops=_arrow(), zorder=4)
            # who comes the same way again is written beside the number of the first time
            share = 2.1 + 1.3 * walked[x, y, heading]
            _number(axes, x + aside * share + 0.5 * right, y + below * share + 0.5 * down, str(number))
            walked[x, y, heading] += 1
        else:
            turn = (after[2] - heading) % 360
            sign = {90: "↱", 270: "↰"}.get(turn, "■" if number == len(steps) else "✕")
            free = [(u, v) for v in (-1, 1) for u in (1, -1) if (x, y, u, v) not in taken]
            across, up = free[0] if free else (1, -1)
            _number(axes, x + 0.3 * across, y + (0.3 + 0.2 * standing[x, y]) * up, f"{number}{sign}")
            standing[x, y] += 1


def _corners(before: tuple[int, int, int], after: tuple[int, int, int]) -> list[tuple[int, int, int, int]]:
    """The corners of two crossings, as crossing and direction, between which a step's arrow lies; none for a turn."""
    (x, y, heading), (u, v, _) = before, after
    if (x, y) == (u, v):
        return []
    right, down = AHEAD[heading]
    return [(x, y, right - down, down + right), (u, v, -right - down, right - down)]


def _number(axes: Axes, x: float, y: float, text: str) -> None:
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": WALKED, "linewidth": 0.7}
    axes.text(x, y, text, fontsize=6.5, color=WALKED, ha="center", va="center", bbox=box, zorder=5)


def _arrow() -> dict[str, object]:
    return {"arrowstyle": "-|>", "color": WALKED, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
