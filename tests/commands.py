"""A small language of commands, in the format of SCAN."""

from __future__ import annotations

from itertools import product
from pathlib import Path

ACTIONS = {"walk": "WALK", "run": "RUN", "jump": "JUMP", "look": "LOOK"}
TIMES = {"": 1, "twice": 2, "thrice": 3}


def scan(path: Path) -> Path:
    """All its commands, with what is to be done."""
    phrases = {
        f"{verb} {times}".strip(): " ".join([ACTIONS[verb]] * TIMES[times]) for verb, times in product(ACTIONS, TIMES)
    }
    both = list(phrases.items())
    both += [(f"{a} and {b}", f"{phrases[a]} {phrases[b]}") for a, b in product(phrases, phrases)]
    path.write_text("".join(f"IN: {command} OUT: {actions}\n" for command, actions in both))
    return path
