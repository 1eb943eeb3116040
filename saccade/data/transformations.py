"""Rules to be understood from their examples: "abcd>XdcbaY", "efgh>XhgfeY": turned round, with a letter at each end.

A rule is a rearrangement of four letters and what stands before and after them; a fifth of the rules is held out whole.
Generated, exact answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from saccade.data.readers import hash_of
from saccade.errors import SaccadeError

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LENGTH = 4  # letters of a word, all different, so that a rule can be read off one pair
HELD_OUT = 0.2  # share of the rules
GROUPS = 60  # rules of each table to ask about
REARRANGED = {
    "same": (0, 1, 2, 3),
    "reversed": (3, 2, 1, 0),
    "turned left": (1, 2, 3, 0),
    "turned right": (3, 0, 1, 2),
    "halves exchanged": (2, 3, 0, 1),
    "neighbours exchanged": (1, 0, 3, 2),
    "first doubled": (0, 0, 1, 2, 3),
    "last dropped": (0, 1, 2),
}


@dataclass(frozen=True)
class Rule:
    """What becomes of a word: its letters by their places, between what is put before and after."""

    name: str
    before: str
    after: str

    def __call__(self, word: str) -> str:
        return self.before + "".join(word[place] for place in REARRANGED[self.name]) + self.after

    def __str__(self) -> str:
        return f"{self.before}({self.name}){self.after}"


def rules() -> tuple[list[Rule], list[Rule]]:
    """Those to train on and those held out, by a hash of what they do; each list in the order of that hash."""
    ends = ["", *LETTERS.upper()]
    everything = sorted(
        (Rule(*parts) for parts in product(REARRANGED, ends, ends)), key=lambda rule: hash_of(str(rule))
    )
    held = round(HELD_OUT * len(everything))
    return everything[held:], everything[:held]


def pairs(rule: Rule, count: int, draw: np.random.Generator) -> list[tuple[str, str]]:
    """Words drawn anew, and what the rule makes of them."""
    words = ["".join(draw.permutation(list(LETTERS))[:LENGTH]) for _ in range(count)]
    return [(word, rule(word)) for word in words]


def write_transformations(folder: Path, *, texts: int = 40_000, examples: int = 8, seed: int = 1) -> list[Path]:
    """train.txt, texts of pairs with one rule each; seen.tsv and held_out.tsv, groups of pairs to ask about."""
    files = [folder / name for name in ("train.txt", "seen.tsv", "held_out.tsv")]
    if there := [path for path in files if path.exists()]:
        raise SaccadeError(f"{there[0]}: is there already, and is not written over; choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    known, held = rules()
    draw = np.random.default_rng(seed)
    with files[0].open("w", encoding="utf-8") as file:
        for _ in range(texts):
            rule = known[int(draw.integers(len(known)))]
            file.write("".join(f"{left}>{right}\n" for left, right in pairs(rule, examples, draw)) + "\n")
    for path, some in zip(files[1:], (known, held), strict=True):
        with path.open("w", encoding="utf-8") as file:
            for rule in some[:GROUPS]:
                for left, right in pairs(rule, examples + 4, draw):
                    file.write(f"{rule}\t{left}\t{right}\n")
    return files
