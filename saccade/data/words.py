"""Images of words with their texts: a list of files with a tab before each text, and the images beside it.

Every image is stretched to one height and width, so that no cell of it is padding, and from black to white, because
words in the shade are words; one that is much higher than wide runs downwards, and is turned first (Li et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from saccade.config.base import Broken
from saccade.data.archives import open_files
from saccade.data.images import Pixels, read_image, resized
from saccade.data.pictures import IMAGE_PLACES, Caption, held_out, images_beside, read_captions
from saccade.data.readers import refuse_broken, warn_of_broken
from saccade.errors import SaccadeError

PARTS = ("train", "valid", "test")
ON_ITS_SIDE = 1.5  # times as high as wide
FLAT = 16  # levels between dark and light; where there are fewer, there is nothing to see
TITLE = ("file", ("text",))  # of the two columns


@dataclass(frozen=True, eq=False)
class Word:
    """The image of a word (H, W, 3), and what stands there."""

    name: str
    text: str
    image: Pixels


@dataclass(frozen=True)
class WordImages:
    """A folder with train.tsv, perhaps valid.tsv and test.tsv; or a .tsv. Images are in the archive or folder that is
    called like the list, else beside it."""

    data: str
    test: str | None = None  # another list, for the test part
    valid: float = 0.05  # share or number held out where there is no list of validation words
    size: tuple[int, int] = (32, 100)
    broken: Broken = "skip"

    @cached_property
    def lists(self) -> dict[str, Path]:
        """Where the words of each part stand."""
        path = Path(self.data)
        found = {part: path / f"{part}.tsv" for part in PARTS} if path.is_dir() else {"train": path}
        found = {part: each for part, each in found.items() if part == "train" or each.exists()}
        return found if self.test is None else found | {"test": Path(self.test)}

    @cached_property
    def parts(self) -> dict[str, list[Caption]]:
        """The words to train on and those to validate on; the test part is not looked at here."""
        train = _listed(self.lists["train"])
        if "valid" in self.lists:
            return {"train": train, "valid": _listed(self.lists["valid"])}
        kept, held = held_out((each.image for each in train), self.valid)
        if not kept or not held:
            raise SaccadeError(
                f"{self.data}: of {len(train):,} words none is left for one part; task.valid says how many"
            )
        return {"train": [train[number] for number in kept], "valid": [train[number] for number in held]}

    def read(self, part: str) -> tuple[list[Word], list[str]]:
        """All words of a part whose image can be read, and why the others cannot."""
        if part not in self.parts and part not in self.lists:
            raise SaccadeError(f"{self.data}: no part called {part}; task.test may name its list")
        listed = self.parts[part] if part in self.parts else _listed(self.lists[part])
        words: list[Word] = []
        broken: list[str] = []
        with open_files(self._images(part, listed[0].image)) as files:
            for each in listed:
                try:
                    pixels = read_image(files.read(each.image), each.image, first_frame=True)
                except SaccadeError as error:
                    broken.append(str(error))
                else:
                    words.append(Word(each.image, each.captions[0], framed(pixels, self.size)))
        refuse_broken(broken, self.broken, self.data)
        if not words:
            raise SaccadeError(f"{self.data}: no image of the part {part} can be read: {broken[0]}")
        warn_of_broken(broken, part, self.data)
        return words, broken

    def _images(self, part: str, image: str) -> Path:
        path = self.lists.get(part, self.lists["train"])
        stem = path.name.split(".")[0]
        return images_beside(path, image, (f"{stem}.zip", f"{stem}.tar", stem, *IMAGE_PLACES))


def framed(pixels: Pixels, size: tuple[int, int]) -> Pixels:
    """An image of a word, (H, W, 3) of any size, stretched to height and width and in its contrast; one that runs
    downwards is turned."""
    height, width = pixels.shape[:2]
    fit = resized(np.rot90(pixels) if height > ON_ITS_SIDE * width else pixels, size)
    dark, light = np.percentile(fit.mean(2), (1, 99))
    return ((fit - dark) * (255 / max(light - dark, FLAT))).clip(0, 255).astype(np.uint8)


def _listed(path: Path) -> list[Caption]:
    if ".tsv" not in path.suffixes[-2:]:
        raise SaccadeError(
            f"{path}: words come as a .tsv, a file and its text in each line, or as a folder with train.tsv"
        )
    found = [each for each in read_captions(path) if each.line > 1 or (each.image, each.captions) != TITLE]
    if not found:
        raise SaccadeError(f"{path}: no words in it")
    for each in found:
        if len(each.captions) > 1:
            raise SaccadeError(f"{path}:{each.line}: {each.image} has several texts: {' and '.join(each.captions)}")
    return found
