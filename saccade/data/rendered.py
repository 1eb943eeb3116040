"""Words that are drawn: an endless source of images with known texts, each a function of a seed and a number alone.

    letters in a font -> bent -> seen from aside -> colours, shadow, light -> few pixels, blur, noise -> stretched

After Jaderberg et al. (2014), "Synthetic data and artificial neural networks for natural scene text recognition".
How much of all this is done is `roughness`, from 0, upright black letters on white, to 1: for each word something up
to it, so that there are always easy ones to learn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from saccade.data.images import Pixels
from saccade.data.words import framed
from saccade.errors import SaccadeError

Random: TypeAlias = np.random.Generator
Floats: TypeAlias = NDArray[np.float32]

POINTS = 32  # size of the letters as they are drawn, before anything is done to them
RANDOM_STRINGS = 0.4  # share of what is drawn where there are words, too: not every text is a word
RANDOM_LONGEST = 8  # letters of a random string
UNKNOWN = "\U0010ffff"  # a character that no font has


class Renderer:
    """Texts as images (height, width, 3), in one of some fonts."""

    def __init__(self, fonts: Sequence[Path], *, size: tuple[int, int] = (32, 100), roughness: float = 1.0):
        self.size, self.roughness = size, roughness
        self.fonts = [_font(path) for path in fonts]
        self._able: dict[str, list[ImageFont.FreeTypeFont]] = {}  # fonts that have a letter

    def draw(self, text: str, random: Random) -> Pixels:
        """One of many images of a text."""
        rough = self.roughness * random.uniform()
        letters = _bent(self._letters(text, random, rough), rough * random.normal(0, 0.12))
        ink = _seen_from_aside(letters, random, rough)
        picture = Image.fromarray(_bytes(_coloured(ink, random, rough)))
        scale = 1 - rough * random.uniform(0, 0.75)  # words in the street are small
        few = max(round(picture.width * scale), 8), max(round(picture.height * scale), 8)
        picture = picture.resize(few, Image.Resampling.BICUBIC)
        return framed(_photographed(picture, random, rough), self.size)

    def changed(self, pixels: Pixels, random: Random) -> Pixels:
        """A photo of a word as if it had been taken once more: another edge, another light."""
        height, width = pixels.shape[:2]
        margin = height // 4
        around = Image.fromarray(np.pad(pixels, ((margin, margin), (margin, margin), (0, 0)), mode="edge"))
        corners = np.array([[0, 0], [0, height], [width, height], [width, 0]]) + margin
        corners = corners + random.normal(0, 0.06, size=(4, 2)) * [height, height]
        seen = around.transform(
            (width, height), Image.Transform.QUAD, tuple(corners.ravel().tolist()), Image.Resampling.BILINEAR
        )
        gain, offset = random.uniform(0.7, 1.3), random.uniform(-30, 30)
        lit = gain * (np.asarray(seen, np.float32) - 128) + 128 + offset
        lit = 255 - lit if random.random() < 0.15 else lit  # dark letters and light ones are the same letters
        return _photographed(Image.fromarray(_bytes(lit)), random, self.roughness * random.uniform())

    def _letters(self, text: str, random: Random, rough: float) -> Image.Image:
        """White on black, without any edge."""
        fonts = self._fonts_for(text)
        font = fonts[random.integers(len(fonts))]
        apart = rough * random.uniform(-0.03, 0.2) * POINTS
        advances = [font.getlength(letter) + apart for letter in text]
        page = Image.new("L", (math.ceil(sum(advances)) + 2 * POINTS, 3 * POINTS))
        pen = ImageDraw.Draw(page)
        place = float(POINTS)
        for letter, advance in zip(text, advances, strict=True):
            pen.text((place, 2 * POINTS), letter, fill=255, font=font, anchor="ls")
            place += advance
        return page.crop(page.getbbox() or (0, 0, POINTS, POINTS))

    def able(self, text: str) -> bool:
        """Whether a font has all letters of a text."""
        return bool(self._with_all(text))

    def _fonts_for(self, text: str) -> list[ImageFont.FreeTypeFont]:
        fonts = self._with_all(text)
        if not fonts:
            raise SaccadeError(f"no font has all letters of {text!r}; name one that does in task.fonts")
        return fonts

    def _with_all(self, text: str) -> list[ImageFont.FreeTypeFont]:
        fonts = self.fonts
        for letter in set(text) - {" "}:
            if letter not in self._able:
                self._able[letter] = [font for font in self.fonts if _has(font, letter)]
            fonts = [font for font in fonts if font in self._able[letter]]
        return fonts


@dataclass(frozen=True, eq=False)
class DrawnWord:
    """A word that is drawn each time its image is asked for, and always the same."""

    name: str
    text: str
    seed: tuple[int, ...]
    draw: Callable[[Random], Pixels]

    @property
    def image(self) -> Pixels:
        return self.draw(np.random.default_rng(self.seed))


@dataclass(frozen=True, eq=False)
class RenderedWords:
    """The first `total` of an endless row of words: some of `words`, in small or capital letters, and random strings
    of `letters`. What stands at a number depends on the seed alone, however many there are."""

    renderer: Renderer
    total: int
    letters: str
    words: tuple[str, ...] = ()
    lengths: tuple[int, int] = (1, RANDOM_LONGEST)  # of random strings
    seed: tuple[int, ...] = (1,)

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[DrawnWord]:
        return (self[number] for number in range(self.total))

    def __getitem__(self, number: int) -> DrawnWord:
        if not 0 <= number < self.total:
            raise IndexError(f"word {number} of {self.total}")
        seed = (*self.seed, number)
        text = self._text(np.random.default_rng(seed))
        return DrawnWord(f"rendered {number}", text, (*seed, 0), partial(self.renderer.draw, text))

    def _text(self, random: Random) -> str:
        if not self.words or random.random() < RANDOM_STRINGS:
            shortest, longest = self.lengths
            # short ones most often: they teach what letters look like, longer ones where to look
            length = shortest + int((longest + 1 - shortest) * random.random() ** 2)
            return "".join(self._letters[random.integers(len(self._letters), size=length)])
        word = self.words[random.integers(len(self.words))]
        case = random.random()
        return word.upper() if case < 0.25 else word.capitalize() if case < 0.4 else word

    @cached_property
    def _letters(self) -> NDArray[np.str_]:
        return np.array(list(self.letters))


def _seen_from_aside(ink: Image.Image, random: Random, rough: float) -> Floats:
    """Turned, sheared and in perspective, whole, with some room around it: (H, W), from 0 to 1."""
    width, height = ink.size
    angle = math.atan2(rough * random.normal(0, 0.35) * height, width)  # long words are rarely steep
    shear = rough * random.normal(0, 0.25)
    left, right, top, bottom = random.uniform(0.02, 0.02 + 0.3 * rough, size=4) * height
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    turn = turn @ np.array([[1, shear], [0, 1]])
    half = np.abs(np.linalg.inv(turn)) @ [width / 2, height / 2]  # of the frame that holds all of it
    frame = np.array(
        [
            [-half[0] - left, -half[1] - top],
            [-half[0] - left, half[1] + bottom],
            [half[0] + right, half[1] + bottom],
            [half[0] + right, -half[1] - top],
        ]
    )
    frame[:, 1] *= 1 + rough * np.array([1, 1, -1, -1]) * abs(random.normal(0, 0.1)) * random.choice([-1, 1])
    corners = frame @ turn.T + [width / 2, height / 2]
    size = max(round(2 * half[0] + left + right), 4), max(round(2 * half[1] + top + bottom), 4)
    seen = ink.transform(size, Image.Transform.QUAD, tuple(corners.ravel().tolist()), Image.Resampling.BILINEAR)
    return np.asarray(seen, np.float32) / np.float32(255)


def _coloured(ink: Floats, random: Random, rough: float) -> Floats:
    """(H, W, 3), from 0 to 255 and perhaps beyond."""
    height, width = ink.shape
    back, front = _levels(random, rough)
    tint = 30 * rough
    paper, letters, other = (level + random.normal(0, tint, size=3) for level in (back, front, (back + front) / 2))
    page = np.broadcast_to(paper, (height, width, 3)).astype(np.float32)
    if random.random() < 0.25 * rough:  # the edge of a sign
        edge = round(random.uniform(0, 0.3) * height)
        page[slice(height - edge, None) if random.random() < 0.5 else slice(0, edge)] = other
    if random.random() < 0.2 * rough:  # a shadow
        down, across = random.integers(1, 4, size=2)
        page = _laid(np.roll(ink, (down, across), (0, 1)), other, page)
    page = _laid(ink, letters, page)
    slopes = random.normal(0, 40, size=2) * rough  # light from one side
    light = slopes[0] * np.linspace(-1, 1, height)[:, None] + slopes[1] * np.linspace(-1, 1, width)
    return page + light[..., None].astype(np.float32)


def _levels(random: Random, rough: float) -> tuple[float, float]:
    """How light background and letters are: the rougher, the oftener anything, but not alike; else dark on light."""
    if random.random() >= rough:
        return 255 - rough * random.uniform(0, 80), rough * random.uniform(0, 80)
    back, apart = random.uniform(0, 255), random.uniform(50, 200)
    lighter = back + apart <= 255 and (back - apart < 0 or random.random() < 0.5)
    return back, back + apart if lighter else max(back - apart, 0.0)


def _photographed(picture: Image.Image, random: Random, rough: float) -> Pixels:
    """Out of focus, and with noise."""
    blur, noise = rough * random.uniform(0, 0.08), rough * random.uniform(0, 15)
    pixels = np.asarray(picture.filter(ImageFilter.GaussianBlur(blur * picture.height)), np.float32)
    return _bytes(pixels + noise * random.standard_normal(pixels.shape, dtype=np.float32))


def _laid(ink: Floats, colour: NDArray[np.float64], page: Floats) -> Floats:
    return (page + ink[..., None] * (colour.astype(np.float32) - page)).astype(np.float32)


def _bent(ink: Image.Image, height: float) -> Image.Image:
    """As an arch that is so many times as high as the letters."""
    rise = round(abs(height) * ink.height)
    if not rise:
        return ink
    pixels = np.pad(np.asarray(ink), ((0, rise), (0, 0)))
    arch = np.linspace(-1, 1, ink.width) ** 2
    down = np.rint(rise * (arch if height > 0 else 1 - arch)).astype(int)
    rows = (np.arange(len(pixels))[:, None] - down) % len(pixels)
    return Image.fromarray(pixels[rows, np.arange(ink.width)])


def _bytes(values: Floats) -> Pixels:
    return values.clip(0, 255).astype(np.uint8)


def _has(font: ImageFont.FreeTypeFont, letter: str) -> bool:
    """Whether a font draws more for a letter than what it draws for one that does not exist."""
    drawn, nothing = font.getmask(letter), font.getmask(UNKNOWN)
    return (drawn.size, bytes(drawn)) != (nothing.size, bytes(nothing))


def _font(path: Path) -> ImageFont.FreeTypeFont:
    try:
        return ImageFont.truetype(str(path), POINTS)
    except OSError as error:
        raise SaccadeError(f"{path}: not a font that can be read: {error}") from error
