"""Three ways of processing a sequence: recurrent, convolution, self-attention; measured over its length.

One layer each, forward and backward, on one sequence. The table of Vaswani et al. (2017), table 1, with figures: per
layer of width D over T positions

                      operations    sequential steps    longest path
    recurrent         T D^2         T                   T
    convolution       k T D^2       1                   2 T / k, in layers stacked until the two ends meet
    self-attention    T^2 D         1                   1

and self-attention twice: by the fused kernel, whose memory grows with T, and explicitly, where the T x T weights can
be looked at and have to be held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table
from torch import Tensor, nn

from saccade.bench.measure import alone, circumstances, interleaved, peak_bytes, warn_if_busy
from saccade.errors import SaccadeError
from saccade.nn.attention import Attention
from saccade.nn.convolution import ConvolutionEncoder
from saccade.nn.recurrent import make_cell

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEADS, KERNEL = 128, 4, 3
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
ROUNDS = 7
MOST_BYTES = 2 * 2**30  # of explicit attention; longer sequences are left out
EXPLICIT_COPIES = 3  # of T x T numbers that it holds at once: weights, their gradient and that of the scores


class Recurrent(nn.Module):
    """A GRU."""

    def __init__(self, width: int):
        super().__init__()
        self.cell = make_cell("gru", width, width)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.cell(x)
        return states


class SelfAttention(nn.Module):
    """Every position looks at every other; explicit: by weights that could be looked at, not by the fused kernel."""

    def __init__(self, width: int, *, heads: int, explicit: bool):
        super().__init__()
        self.attention = Attention(width, heads=heads)
        self.attention.tap = (lambda _weights: None) if explicit else None

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, self.attention.remember(x))


@dataclass(frozen=True)
class Way:
    """One way of processing a sequence: how its layer is made, and what follows from how it works."""

    label: str
    layer: Callable[[int, int], nn.Module]  # of width and heads
    steps: Callable[[int], int]  # that wait for each other, in one layer
    path: Callable[[int], int]  # of cells or layers between the two ends of a sequence


def one(_length: int) -> int:
    return 1


# the colours of Okabe and Ito (2008), which every eye tells apart
STYLES: dict[str, dict[str, Any]] = {
    "recurrent": {"color": "#D55E00", "marker": "o", "linestyle": "-"},
    "convolution": {"color": "#009E73", "marker": "s", "linestyle": "-"},
    "fused": {"color": "#0072B2", "marker": "^", "linestyle": "-"},
    "explicit": {"color": "#CC79A7", "marker": "v", "linestyle": "--"},
}
WAYS = {
    "recurrent": Way(
        "recurrent (GRU)", lambda width, _: Recurrent(width), lambda length: length, lambda length: length
    ),
    "convolution": Way(
        f"convolution (kernel {KERNEL})",
        lambda width, _: ConvolutionEncoder(width, layers=1, kernel=KERNEL),
        one,
        lambda length: math.ceil((length - 1) / (KERNEL // 2)),
    ),
    "fused": Way(
        "self-attention, fused", lambda width, heads: SelfAttention(width, heads=heads, explicit=False), one, one
    ),
    "explicit": Way(
        "self-attention, explicit",
        lambda width, heads: SelfAttention(width, heads=heads, explicit=True),
        one,
        one,
    ),
}


@dataclass(frozen=True)
class Point:
    """One layer at one length."""

    way: str
    length: int
    seconds: float  # forward and backward, best of several rounds
    median: float
    bytes: int  # at the peak, beyond the layer and its input
    steps: int
    path: int


@dataclass(frozen=True)
class Comparison:
    """All that `saccade bench layers` found out."""

    points: tuple[Point, ...]
    settings: dict[str, Any]
    circumstances: dict[str, Any]

    def content(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    lengths: Sequence[int] = LENGTHS,
    *,
    width: int = WIDTH,
    heads: int = HEADS,
    rounds: int = ROUNDS,
    tell: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Measure every way at every length where it fits into memory; `tell` hears of each round that is done."""
    settings = {"lengths": list(lengths), "width": width, "heads": heads, "kernel": KERNEL, "batch": 1}
    settings |= {"rounds": rounds, "passes": "forward and backward", "dtype": "float32"}
    works = {}
    for length, (name, way) in product(lengths, WAYS.items()):
        if name != "explicit" or EXPLICIT_COPIES * 4 * heads * length**2 <= MOST_BYTES:
            torch.manual_seed(0)
            works[name, length] = forward_and_backward(way.layer(width, heads), length, width)
    warn_if_busy()
    with alone():
        around = circumstances()
        timings = interleaved(works, rounds=rounds, tell=tell)
        points = [
            Point(
                way=name,
                length=length,
                seconds=timings[name, length].best,
                median=timings[name, length].median,
                bytes=peak_bytes(work),
                steps=WAYS[name].steps(length),
                path=WAYS[name].path(length),
            )
            for (name, length), work in works.items()
        ]
    return Comparison(tuple(points), settings, around)


def forward_and_backward(layer: nn.Module, length: int, width: int) -> Callable[[], object]:
    """A call that runs the layer on one sequence and takes the gradients of input and parameters."""
    x = torch.randn(1, length, width, requires_grad=True)
    from_above = torch.randn(1, length, width)
    wanted = [x, *layer.parameters()]
    return lambda: torch.autograd.grad(layer(x), wanted, from_above)


def read_lengths(text: str) -> list[int]:
    """Lengths as a person writes them: 64,128,256."""
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise SaccadeError(f"--lengths {text}: write numbers with commas between, for example 64,128,256") from error
    if min(lengths) < 2:
        raise SaccadeError(f"--lengths {text}: a sequence to be compared has at least 2 positions")
    return sorted(set(lengths))


def to_table(comparison: Comparison) -> Table:
    """One row per length and way; times also as ratios to the fused self-attention of that length."""
    table = Table("positions", "layer", box=None, pad_edge=False)
    for heading in ("ms", "x fused", "peak MB", "steps", "path"):
        table.add_column(heading, justify="right")
    fused = {point.length: point.seconds for point in comparison.points if point.way == "fused"}
    before = None
    for point in comparison.points:
        if before not in (None, point.length):
            table.add_row()
        table.add_row(
            "" if point.length == before else str(point.length),
            WAYS[point.way].label,
            _milliseconds(point.seconds),
            f"{point.seconds / fused[point.length]:.2f}",
            f"{point.bytes / 1e6:,.1f}",
            str(point.steps),
            str(point.path),
        )
        before = point.length
    return table


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}" if seconds < 0.1 else f"{seconds * 1e3:,.0f}"


def to_figure(comparison: Comparison) -> Figure:
    """Time, memory, sequential steps and longest path against length, both axes logarithmic."""
    from matplotlib.figure import Figure

    points = comparison.points
    figure = Figure(figsize=(9, 7.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    _draw(panels[0, 0], "Time, forward and backward", "milliseconds", [(p, p.seconds * 1e3) for p in points])
    _draw(panels[0, 1], "Memory at the peak", "megabytes", [(p, p.bytes / 1e6) for p in points])
    _draw(panels[1, 0], "Steps that wait for each other", "steps in one layer", [(p, p.steps) for p in points])
    _draw(panels[1, 1], "Longest path between two positions", "cells or stacked layers", [(p, p.path) for p in points])
    panels[1, 0].annotate("convolution and self-attention: 1", (0.04, 0.1), xycoords="axes fraction")
    panels[1, 1].annotate("self-attention: 1", (0.04, 0.1), xycoords="axes fraction")
    panels[1, 1].annotate("recurrent and convolution", (0.04, 0.86), xycoords="axes fraction")
    lengths = sorted({point.length for point in points})
    for axes in panels[1]:
        axes.set_xlabel("positions in the sequence")
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.set_xticks([], minor=True)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False)
    return figure


def _draw(axes: Axes, title: str, unit: str, values: Sequence[tuple[Point, float]]) -> None:
    lines = {name: [(point.length, value) for point, value in values if point.way == name] for name in WAYS}
    for name, line in lines.items():
        if not line:
            continue
        # lines that lie on each other take turns with their markers, so that each is seen
        together = [other for other in lines if _coincide(lines[other], line)]
        turn = (together.index(name), len(together))
        axes.loglog(*zip(*line, strict=True), label=WAYS[name].label, markevery=turn, markersize=7, **STYLES[name])
    axes.set_title(title, fontsize=11)
    axes.set_ylabel(unit)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.25)


def _coincide(line: Sequence[tuple[int, float]], other: Sequence[tuple[int, float]]) -> bool:
    pairs = zip(line, other, strict=False)
    return bool(line and other) and all(math.isclose(mine, its, rel_tol=0.02) for (_, mine), (_, its) in pairs)
