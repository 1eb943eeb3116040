"""A data set of images with captions: its parts, and the images of each, made one size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from saccade.config.base import Broken
from saccade.config.captions import CaptionSettings
from saccade.config.images import ContrastSettings, Fit
from saccade.data.listed import ListedImages, parted
from saccade.data.pictures import Caption, caption_list, images_beside, read_captions
from saccade.errors import SaccadeError


@dataclass(frozen=True)
class CaptionedImages(ListedImages[Caption]):
    """A list of captions and the images that it names."""

    data: str  # the list, or the folder of one
    images: str | None = None  # a folder or archive; none: beside the list
    test: str | None = None  # another list, for the test part
    valid: float = 0.05  # share or number held out where the list names no validation part
    size: int = 64
    fit: Fit = "stretch"
    broken: Broken = "skip"

    @classmethod
    def of(cls, task: CaptionSettings | ContrastSettings) -> Self:
        return cls(task.data, task.images, task.test, task.valid, task.size, task.fit, task.broken)

    @cached_property
    def parts(self) -> dict[str, list[Caption]]:
        parts = parted(read_captions(caption_list(self.data)), valid=self.valid, data=self.data)
        if self.test is not None:
            given = read_captions(caption_list(self.test))
            parts["test"] = [each for each in given if each.part in (None, "test")]
            if not parts["test"]:
                there = ", ".join(sorted({str(each.part) for each in given}))
                raise SaccadeError(f"{self.test}: no line is of the part test; its parts: {there or 'none'}")
        return parts

    def counted(self) -> list[str]:
        """How much there is of each part, in words."""
        return [
            f"{part}: {len(found):,} images, {sum(len(each.captions) for each in found):,} captions"
            for part, found in self.parts.items()
        ]

    def place(self, part: str) -> Path:
        if self.images is not None:
            return Path(self.images)
        told_by = self.test if part == "test" and self.test is not None else self.data
        return images_beside(caption_list(told_by), self.parts[part][0].image)
