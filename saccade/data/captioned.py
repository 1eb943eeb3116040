"""A data set of images with captions: its parts, and the images of each, made one size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from saccade.data.archives import open_files
from saccade.data.images import Pixels
from saccade.data.pictures import (
    Caption,
    caption_list,
    held_out,
    images_beside,
    read_captions,
    read_files,
    read_named,
)
from saccade.errors import SaccadeError


@dataclass(frozen=True)
class CaptionedImages:
    """A list of captions and the images that it names."""

    data: str  # the list, or the folder of one
    images: str | None = None  # a folder or archive; none: beside the list
    test: str | None = None  # another list, for the test part
    valid: float = 0.05  # share or number held out where the list names no validation part
    size: int = 64

    @cached_property
    def parts(self) -> dict[str, list[Caption]]:
        """What is said, by part; a part that the list names itself is used as it is."""
        found = read_captions(caption_list(self.data))
        parts = {
            part: [each for each in found if (each.part or "train") == part] for part in ("train", "valid", "test")
        }
        if not parts["valid"]:
            train, valid = held_out((each.image for each in parts["train"]), self.valid)
            parts["train"], parts["valid"] = ([parts["train"][n] for n in numbers] for numbers in (train, valid))
        if self.test is not None:
            given = read_captions(caption_list(self.test))
            parts["test"] = [each for each in given if each.part in (None, "test")]
        for part in ("train", "valid"):
            if not parts[part]:
                raise SaccadeError(f"{self.data}: no image with a caption is left for the part {part}")
        return {part: captions for part, captions in parts.items() if captions}

    def read(self, part: str) -> tuple[list[tuple[Caption, Pixels]], list[str]]:
        """All images of a part that can be read, (size, size, 3) each, and why the others cannot."""
        if part not in self.parts:
            raise SaccadeError(f"{self.data}: no part called {part}; task.test may name one")
        captions = self.parts[part]
        read = self._named([each.image for each in captions], part)
        there = [(each, pixels) for each, pixels in zip(captions, read, strict=True) if not isinstance(pixels, str)]
        broken = [why for why in read if isinstance(why, str)]
        if not there:
            raise SaccadeError(f"{self.data}: no image of the part {part} can be read: {broken[0]}")
        return there, broken

    def pixels(self, names: Sequence[str]) -> list[Pixels | str]:
        """Image files, or images of the validation part by their names in the list; for one that is neither, why."""
        return [
            read_files([name], size=self.size)[0] if Path(name).is_file() else self._of_list(name) for name in names
        ]

    def _of_list(self, name: str) -> Pixels | str:
        try:
            known = {each.image for each in self.parts["valid"]}
        except SaccadeError:  # a model is used where its data is not
            known = set()
        return self._named([name], "valid")[0] if name in known else read_files([name], size=self.size)[0]

    def _named(self, names: Sequence[str], part: str) -> list[Pixels | str]:
        told_by = self.test if part == "test" and self.test is not None else self.data
        with open_files(images_beside(caption_list(told_by), self.images)) as files:
            return read_named(files, names, size=self.size)
