"""Coloured shapes with names: images that are generated, to be classified or captioned."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 80, 220), "yellow": (230, 210, 40)}
PLACES = ("left", "right")
SIZE = 24


def drawn(shape: str, colour: str, random: np.random.Generator, place: str | None = None) -> Image.Image:
    """A shape of some size at some place, on a dim background of its own."""
    background = tuple(int(value) for value in random.integers(0, 60, size=3))
    image = Image.new("RGB", (SIZE, SIZE), background)
    radius = int(random.integers(5, 8))
    low, high = {"left": (radius, 8), "right": (SIZE - 9, SIZE - radius - 1), None: (radius, SIZE - radius - 1)}[place]
    x, y = int(random.integers(low, high + 1)), int(random.integers(radius, SIZE - radius))
    pen, fill = ImageDraw.Draw(image), COLOURS[colour]
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        pen.ellipse(box, fill=fill)
    elif shape == "square":
        pen.rectangle(box, fill=fill)
    elif shape == "triangle":
        pen.polygon([(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], fill=fill)
    else:
        pen.rectangle((x - radius, y - 1, x + radius, y + 1), fill=fill)
        pen.rectangle((x - 1, y - radius, x + 1, y + radius), fill=fill)
    return image


def write_classes(path: Path, each: int, seed: int = 0) -> Path:
    """A zip with a folder for each shape, in any colour."""
    random = np.random.default_rng(seed)
    with zipfile.ZipFile(path, "w") as archive:
        for shape in SHAPES:
            for number in range(each):
                colour = str(random.choice(list(COLOURS)))
                archive.writestr(f"{shape}/{number:04}.png", _png(drawn(shape, colour, random)))
    return path


def write_captions(folder: Path, train: int, valid: int, seed: int = 0) -> Path:
    """captions.jsonl and images.zip; an image of every shape, colour and place in turn, each with two captions."""
    random = np.random.default_rng(seed)
    things = [(shape, colour, place) for shape in SHAPES for colour in COLOURS for place in PLACES]
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    with zipfile.ZipFile(folder / "images.zip", "w") as archive:
        for number in range(train + valid):
            shape, colour, place = things[number % len(things)]
            name = f"{number:04}.png"
            archive.writestr(name, _png(drawn(shape, colour, random, place)))
            captions = [f"A {colour} {shape} on the {place}.", f"on the {place} there is a {shape}, {colour}"]
            part = "train" if number < train else "valid"
            lines.append(json.dumps({"file": name, "split": part, "captions": captions}))
    (folder / "captions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _png(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "png")
    return stream.getvalue()
