"""Small generated pictures of two coloured squares, and questions about them that no one answers without looking."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 16  # pixels of a picture
SIDE = 6  # pixels of a square
COLOURS = {"red": (230, 30, 30), "green": (30, 200, 30), "blue": (40, 40, 240)}


@dataclass(frozen=True)
class Squares:
    """A square on the left, one on the right; of different colours."""

    left: str
    right: str
    rows: tuple[int, int]  # where the two begin

    def pixels(self) -> np.ndarray:
        image = np.full((SIZE, SIZE, 3), 90, np.uint8)
        for column, colour, row in ((1, self.left, self.rows[0]), (SIZE - SIDE - 1, self.right, self.rows[1])):
            image[row : row + SIDE, column : column + SIDE] = COLOURS[colour]
        return image

    def questions(self) -> list[tuple[str, str, str]]:
        """Of type, question and answer: which colour is on a side, and whether a colour is there at all."""
        there = [
            ("there", f"is there a {colour} square?", "yes" if colour in (self.left, self.right) else "no")
            for colour in COLOURS
        ]
        return [
            ("colour", "what colour is the left square?", self.left),
            ("colour", "What colour is the right square?", self.right),
            *there,
        ]


def squares(count: int, seed: int = 0) -> list[Squares]:
    draw = np.random.default_rng(seed)
    colours = [draw.choice(list(COLOURS), 2, replace=False) for _ in range(count)]
    rows = draw.integers(SIZE - SIDE + 1, size=(count, 2))
    return [Squares(*map(str, two), tuple(map(int, at))) for two, at in zip(colours, rows, strict=True)]


def write_squares(folder: Path, parts: dict[str, list[Squares]]) -> Path:
    """A table of questions and a folder of images beside it; the path of the table."""
    (folder / "images").mkdir(parents=True)
    lines = ["image\tsplit\ttype\tquestion\tanswer"]
    for part, members in parts.items():
        for number, each in enumerate(members):
            name = f"{part}{number}.png"
            Image.fromarray(each.pixels()).save(folder / "images" / name)
            lines += ["\t".join((name, part, *question)) for question in each.questions()]
    (folder / "questions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "questions.tsv"
