"""Target tokens per second in training, side by side with what others would train: `saccade bench train`.

Everybody makes whole updates of the same model on the same random tokens, none of them padding: forward, backward,
gradients clipped to norm 1, fused AdamW; label smoothing 0.1, dropout 0.1. Each is tried with one thread and with all,
and its better figure counts. Ours also collates its batch each time and looks whether its numbers are finite.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from saccade.bench.measure import alone, circumstances, interleaved, warn_if_busy
from saccade.bench.peers import with_threads
from saccade.bench.trainers import CLIP, CONTESTANTS, DROPOUT, SMOOTHING, Size, absence
from saccade.errors import SaccadeError
from saccade.models.shapes import parameter_count

ROUNDS = 5
SIZES = {
    "tiny": Size(4, 128, 256, 4, 10_000, rows=128, positions=32, goal=1.5),
    "base": Size(6, 512, 2048, 8, 32_000, rows=32, positions=32, goal=1.2),
}


@dataclass(frozen=True)
class Speed:
    """One contestant with the number of threads that suits it better."""

    contestant: str
    parameters: int
    tokens: float  # per second, of the best round
    median: float  # the same of the median round
    threads: int
    multiple: float | None  # of the best float32 peer


@dataclass(frozen=True)
class Training:
    """All that `saccade bench train` found out."""

    speeds: tuple[Speed, ...]
    missing: dict[str, str]  # contestants that could not take part, and why
    settings: dict[str, Any]
    circumstances: dict[str, Any]

    def content(self) -> dict[str, Any]:
        return asdict(self)


def named_size(name: str) -> Size:
    if name not in SIZES:
        raise SaccadeError(f"--size {name}: there are {' and '.join(SIZES)}")
    return SIZES[name]


def measure(size: Size, *, rounds: int = ROUNDS, tell: Callable[[str], None] = lambda _: None) -> Training:
    """Let everybody who is installed train; `tell` hears of each round that is done."""
    missing = {name: why for name, each in CONTESTANTS.items() if (why := absence(each))}
    there = {name: each for name, each in CONTESTANTS.items() if name not in missing}
    libraries = sorted({each.library for each in there.values()})
    settings = asdict(size) | {"rounds": rounds, "smoothing": SMOOTHING, "dropout": DROPOUT, "clip": CLIP}
    settings |= {"versions": {library: version(library) for library in libraries}}
    # whether freed memory is kept: asking the system anew for all logits in every update is much of a peer's time
    settings |= {"allocator": {name: value for name, value in os.environ.items() if name.startswith("MALLOC_")}}
    prepared = {}
    for name, contestant in there.items():
        torch.manual_seed(1)
        prepared[name] = contestant.prepare(size)
    before = torch.get_num_threads()
    works = {
        (name, threads): with_threads(threads, work)
        for name, (_, work) in prepared.items()
        for threads in sorted({1, before})
    }
    warn_if_busy()
    with alone():
        around = circumstances()
        try:
            timings = interleaved(works, rounds=rounds, tell=tell)
        finally:
            torch.set_num_threads(before)
    best = {name: min((t.best, t.median, key[1]) for key, t in timings.items() if key[0] == name) for name in prepared}
    peer = fastest_peer({name: size.tokens / seconds for name, (seconds, _, _) in best.items()})
    speeds = [
        Speed(
            contestant=name,
            parameters=parameter_count(prepared[name][0], trained_only=True),
            tokens=size.tokens / seconds,
            median=size.tokens / median,
            threads=threads,
            multiple=None if peer is None else size.tokens / seconds / peer,
        )
        for name, (seconds, median, threads) in best.items()
    ]
    return Training(tuple(speeds), missing, settings, around)


def fastest_peer(tokens: Mapping[str, float]) -> float | None:
    """Tokens per second of the best of the others in float32."""
    return max((speed for name, speed in tokens.items() if not CONTESTANTS[name].ours), default=None)


def to_table(training: Training) -> Table:
    """A row for each contestant, in float32 unless it says otherwise, those that are not installed included."""
    goal = training.settings["goal"]
    notes = [f"{CONTESTANTS[name].label} is {why}" for name, why in training.missing.items()]
    notes += [] if goal is None else [f"goal: saccade at least {goal:g} x the best peer"]
    table = Table("trained by", box=None, pad_edge=False, caption=Text("\n".join(notes)), caption_justify="left")
    for heading in ("parameters", "threads", "tokens/s", "median", "x best peer"):
        table.add_column(heading, justify="right")
    speeds = {speed.contestant: speed for speed in training.speeds}
    for name, contestant in CONTESTANTS.items():
        if name in training.missing:
            table.add_row(contestant.label, "not installed")
            continue
        speed = speeds[name]
        table.add_row(
            contestant.label,
            f"{speed.parameters:,}",
            str(speed.threads),
            f"{speed.tokens:,.0f}",
            f"{speed.median:,.0f}",
            "-" if speed.multiple is None else f"{speed.multiple:.2f}",
        )
    return table
