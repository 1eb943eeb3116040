"""Small generated pictures of two coloured shapes, and what is said of them: "a red square left of a blue circle"."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 24  # pixels of a picture
SIDE = 10  # pixels of a shape
COLOURS = {"red": (230, 30, 30), "green": (30, 200, 30), "blue": (40, 40, 240)}
FORMS = ("circle", "square")


@dataclass(frozen=True)
class Shape:
    """A coloured shape with its upper left corner."""

    colour: str
    form: str
    row: int
    column: int

    def covers(self, row: float, column: float) -> bool:
        """Whether a place lies in the square around the shape."""
        return self.row <= row <= self.row + SIDE and self.column <= column <= self.column + SIDE


@dataclass(frozen=True)
class Scene:
    """Two shapes, one in each half."""

    left: Shape
    right: Shape

    @property
    def caption(self) -> str:
        return f"a {self.left.colour} {self.left.form} left of a {self.right.colour} {self.right.form}"

    @property
    def other_caption(self) -> str:
        return f"A {self.right.colour} {self.right.form} right of a {self.left.colour} {self.left.form}."

    def pixels(self) -> np.ndarray:
        """(SIZE, SIZE, 3), grey behind the shapes."""
        image = np.full((SIZE, SIZE, 3), 90, np.uint8)
        across = np.arange(SIDE) - (SIDE - 1) / 2
        radius = np.hypot(across[:, None], across)
        ring = (radius <= SIDE / 2) & (radius >= SIDE / 4)
        for shape in (self.left, self.right):
            part = image[shape.row : shape.row + SIDE, shape.column : shape.column + SIDE]
            part[ring if shape.form == "circle" else np.ones_like(ring)] = COLOURS[shape.colour]
        return image


def scenes(count: int, seed: int = 0) -> list[Scene]:
    draw = np.random.default_rng(seed)

    def shape(first: int) -> Shape:
        row, column = draw.integers(SIZE - SIDE + 1), first + draw.integers(SIZE // 2 - SIDE + 1)
        return Shape(str(draw.choice(list(COLOURS))), str(draw.choice(FORMS)), int(row), int(column))

    return [Scene(shape(0), shape(SIZE // 2)) for _ in range(count)]


def write_scenes(folder: Path, parts: dict[str, list[Scene]], *, both: bool = False) -> Path:
    """A data set of captioned images in a folder: captions.jsonl, and images/ as PNG; `both` captions or one."""
    (folder / "images").mkdir(parents=True)
    lines = []
    for part, members in parts.items():
        for number, scene in enumerate(members):
            name = f"{part}{number}.png"
            Image.fromarray(scene.pixels()).save(folder / "images" / name)
            captions = [scene.caption, scene.other_caption] if both else [scene.caption]
            lines.append(json.dumps({"file": name, "captions": captions, "split": part}))
    (folder / "captions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder
