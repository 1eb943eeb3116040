"""How long one waits for the first answer: `saccade bench start`, every time in a new process.

Processes are cold, files are not: the first start of each, which reads them from the disk, does not count.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from saccade.bench.measure import alone, circumstances, interleaved, warn_if_busy
from saccade.errors import SaccadeError

ROUNDS = 5
TORCH = "import torch"  # what the others are compared with
COMMANDS = {  # arguments of the interpreter
    "python": ("-c", "pass"),
    TORCH: ("-c", "import torch"),
    "saccade --help": ("-m", "saccade", "--help"),
    'saccade translate "Bonjour."': ("-m", "saccade", "translate", "Bonjour."),
}


@dataclass(frozen=True)
class Start:
    """One command."""

    command: str
    seconds: float  # best of several rounds
    median: float
    multiple: float  # of importing torch alone


@dataclass(frozen=True)
class Starts:
    """All that `saccade bench start` found out."""

    starts: tuple[Start, ...]
    settings: dict[str, Any]
    circumstances: dict[str, Any]

    def content(self) -> dict[str, Any]:
        return asdict(self)


def measure(*, rounds: int = ROUNDS, tell: Callable[[str], None] = lambda _: None) -> Starts:
    """Start every command once per round; `tell` hears of each round that is done."""
    warn_if_busy()
    with alone():
        around = circumstances()
        timings = interleaved({name: starting(name) for name in COMMANDS}, rounds=rounds, tell=tell)
    starts = [Start(name, t.best, t.median, t.best / timings[TORCH].best) for name, t in timings.items()]
    return Starts(tuple(starts), {"rounds": rounds, "commands": {n: list(c) for n, c in COMMANDS.items()}}, around)


def starting(name: str) -> Callable[[], object]:
    """A call that runs a command to its end."""
    command = [sys.executable, *COMMANDS[name]]

    def start() -> None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
            raise SaccadeError(f"{name} ended with code {done.returncode}: {last}")

    return start


def to_table(found: Starts) -> Table:
    """One row per command."""
    table = Table("start", box=None, pad_edge=False)
    for heading in ("seconds", "median", "x torch"):
        table.add_column(heading, justify="right")
    for start in found.starts:
        table.add_row(start.command, f"{start.seconds:.3f}", f"{start.median:.3f}", f"{start.multiple:.2f}")
    return table
