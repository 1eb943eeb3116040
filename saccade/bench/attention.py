"""Fused and explicit attention over 1k to 32k positions, and what the tap costs while nobody looks.

One sequence, forward only. The fused kernel never holds the T x T weights, so its memory grows with T; the explicit
path holds them twice, as scores and as weights, so that they can be looked at:

    fused     O(T^2 D) operations    O(T D) memory
    explicit  O(T^2 D) operations    O(T^2) memory

The tap is one question (`is there a tap?`) in each call of the attention. It is measured as a ratio of calls with and
without that question, round by round, beside the ratio of two calls that are the same: the noise.
"""

from __future__ import annotations

import inspect
import math
import statistics
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table
from torch import Tensor

import saccade.nn.attention as original
from saccade.bench.layers import MOST_BYTES, STYLES, WAYS, SelfAttention
from saccade.bench.measure import alone, circumstances, interleaved, peak_bytes, warn_if_busy
from saccade.errors import SaccadeError
from saccade.nn.attention import Attention

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, HEADS = 64, 1
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
ROUNDS = 5
EXPLICIT_COPIES = 2  # of T x T numbers that are held at once, going forward: scores and weights
QUESTION = "self.tap is not None or "  # in Attention.forward
TAP_ROUNDS, TAP_LENGTH = 100, 32


@dataclass(frozen=True)
class Point:
    """One path at one length."""

    way: str
    length: int
    seconds: float  # forward, best of several rounds
    median: float
    bytes: int  # at the peak, beyond the layer and its input


@dataclass(frozen=True)
class Ratio:
    """Of two times that are taken in every round."""

    best: float  # of the best rounds of both
    median: float  # of all rounds, each with its own ratio ...
    low: float  # ... whose middle nine tenths go from here ...
    high: float  # ... to here

    @staticmethod
    def of(these: Sequence[float], those: Sequence[float]) -> Ratio:
        ratios = [this / that for this, that in zip(these, those, strict=True)]
        cuts = statistics.quantiles(ratios, n=20)
        return Ratio(min(these) / min(those), statistics.median(ratios), cuts[0], cuts[-1])


@dataclass(frozen=True)
class AttentionCosts:
    """All that `saccade bench attention` found out."""

    points: tuple[Point, ...]
    left_out: tuple[int, ...]  # lengths at which explicit attention would not fit
    tap: Ratio  # a call that asks for a tap, and there is none, to one that does not ask
    noise: Ratio  # two calls that do not ask
    settings: dict[str, Any]
    circumstances: dict[str, Any]

    def content(self) -> dict[str, Any]:
        return asdict(self)

    def growth(self, way: str) -> float | None:
        """The power of the length with which memory grows, between the last two lengths that were measured."""
        found = sorted((point.length, point.bytes) for point in self.points if point.way == way)
        if len(found) < 2:
            return None
        (length, held), (longer, more) = found[-2:]
        return math.log(more / held) / math.log(longer / length)


def measure(
    lengths: Sequence[int] = LENGTHS,
    *,
    rounds: int = ROUNDS,
    tap_rounds: int = TAP_ROUNDS,
    tell: Callable[[str], None] = lambda _: None,
) -> AttentionCosts:
    """Measure both paths at every length where they fit into memory, then the tap."""
    settings = {"lengths": list(lengths), "width": WIDTH, "heads": HEADS, "batch": 1, "rounds": rounds}
    settings |= {"passes": "forward", "dtype": "float32", "tap_rounds": tap_rounds, "tap_length": TAP_LENGTH}
    works, left_out = {}, []
    for length, way in product(lengths, ("fused", "explicit")):
        if way == "explicit" and explicit_bytes(length) > MOST_BYTES:
            left_out.append(length)
        else:
            works[way, length] = forward(way, length)
    warn_if_busy()
    with alone():
        around = circumstances()
        timings = interleaved(works, rounds=rounds, tell=tell)
        points = [
            Point(way, length, timings[way, length].best, timings[way, length].median, peak_bytes(work))
            for (way, length), work in works.items()
        ]
        tap, noise = tap_ratios(tap_rounds)
    return AttentionCosts(tuple(points), tuple(left_out), tap, noise, settings, around)


def explicit_bytes(length: int) -> int:
    return EXPLICIT_COPIES * 4 * HEADS * length**2


def forward(way: str, length: int) -> Callable[[], Tensor]:
    """A call that runs self-attention on one sequence."""
    torch.manual_seed(0)
    layer = SelfAttention(WIDTH, heads=HEADS, explicit=way == "explicit").eval()
    x = torch.randn(1, length, WIDTH)
    return torch.no_grad()(lambda: layer(x))


def forward_without_question() -> Callable[..., Tensor]:
    """Attention.forward without the question for a tap: made of its own source, so that the two cannot drift apart."""
    source = textwrap.dedent(inspect.getsource(Attention.forward))
    if source.count(QUESTION) != 1:
        raise SaccadeError(f"Attention.forward has no {QUESTION!r} to be left out: its tap cannot be measured")
    names = dict(vars(original))
    exec(source.replace(QUESTION, ""), names)
    return names["forward"]


def tap_ratios(rounds: int) -> tuple[Ratio, Ratio]:
    """Asking to not asking, and not asking to not asking, in turns whose order changes from round to round."""
    torch.manual_seed(0)
    attention = Attention(WIDTH, heads=HEADS).eval()
    x = torch.randn(1, TAP_LENGTH, WIDTH)
    never = forward_without_question()
    with torch.no_grad():
        kv = attention.remember(x)
        contestants = [
            ("asking", lambda: Attention.forward(attention, x, kv)),
            ("never", lambda: never(attention, x, kv)),
            ("again", lambda: never(attention, x, kv)),
        ]
        found = []
        for _ in range(rounds):
            contestants = [*contestants[1:], contestants[0]]
            found.append(interleaved(dict(contestants), rounds=1))
    seconds = {name: [each[name].best for each in found] for name, _ in contestants}
    return Ratio.of(seconds["asking"], seconds["never"]), Ratio.of(seconds["again"], seconds["never"])


def to_table(costs: AttentionCosts) -> Table:
    """One row per length and path, those that did not fit included; how memory grows below."""
    grown = [f"{way} T^{power:.2f}" for way in ("fused", "explicit") if (power := costs.growth(way)) is not None]
    caption = f"memory grows with {', '.join(grown)}" if grown else None
    table = Table("positions", "attention", box=None, pad_edge=False, caption=caption, caption_justify="left")
    for heading in ("ms", "x fused", "peak MB"):
        table.add_column(heading, justify="right")
    fused = {point.length: point.seconds for point in costs.points if point.way == "fused"}
    for point in costs.points:
        table.add_row(
            str(point.length) if point.way == "fused" else "",
            point.way,
            f"{point.seconds * 1e3:,.1f}",
            f"{point.seconds / fused[point.length]:.2f}",
            f"{point.bytes / 1e6:,.1f}",
        )
        if point.length in costs.left_out:
            table.add_row("", "explicit", "left out", "", f"needs {explicit_bytes(point.length) / 1e6:,.0f}")
    return table


def tap_table(costs: AttentionCosts) -> Table:
    """What it costs to ask for a tap that is off, and what two equal calls differ by."""
    table = Table("a call's time to one that never asks for a tap", box=None, pad_edge=False)
    for heading in ("best", "median", "90% from", "to"):
        table.add_column(heading, justify="right")
    for name, ratio in (("asks, and there is none", costs.tap), ("never asks either: noise", costs.noise)):
        table.add_row(name, *(f"{value:.4f}" for value in (ratio.best, ratio.median, ratio.low, ratio.high)))
    return table


def to_figure(costs: AttentionCosts) -> Figure:
    """Time and memory against length, all axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.2), layout="constrained")
    panels = figure.subplots(1, 2)
    lengths = sorted({point.length for point in costs.points})
    quantities: list[tuple[str, str, Callable[[Point], float]]] = [
        ("Time, forward", "milliseconds", lambda point: point.seconds * 1e3),
        ("Memory at the peak", "megabytes", lambda point: point.bytes / 1e6),
    ]
    for axes, (title, unit, value) in zip(panels, quantities, strict=True):
        for way in ("fused", "explicit"):
            line = [(point.length, value(point)) for point in costs.points if point.way == way]
            axes.loglog(*zip(*line, strict=True), label=WAYS[way].label, markersize=7, **STYLES[way])
        axes.set_title(title, fontsize=11)
        axes.set_ylabel(unit)
        axes.set_xlabel("positions in the sequence")
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.set_xticks([], minor=True)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(alpha=0.25)
    panels[0].legend(frameon=False)
    return figure
