"""Images that a list names, by part, all of one size: what lists of captions and lists of questions share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from saccade.config.base import Broken
from saccade.config.images import Fit
from saccade.data.archives import open_files
from saccade.data.images import Pixels
from saccade.data.pictures import held_out, read_files, read_named
from saccade.data.readers import is_file, refuse_broken, warn_of_broken
from saccade.errors import SaccadeError


class Listed(Protocol):
    """An image by its name, and the part it belongs to where the list says so."""

    @property
    def image(self) -> str: ...

    @property
    def part(self) -> str | None: ...


Entry = TypeVar("Entry", bound=Listed)


class ListedImages(Generic[Entry]):
    """Interface: `parts` says what is listed, `place` where the images of a part are."""

    data: str
    size: int
    fit: Fit
    broken: Broken

    @property
    def parts(self) -> dict[str, list[Entry]]:
        """What is listed, by part; a part that the list names itself is used as it is."""
        raise NotImplementedError

    def place(self, part: str) -> Path:
        """A folder or an archive."""
        raise NotImplementedError

    def read(self, part: str) -> tuple[list[tuple[Entry, Pixels]], list[str]]:
        """All images of a part that can be read, (size, size, 3) each, and why the others cannot, if these are not
        refused."""
        if part not in self.parts:
            raise SaccadeError(f"{self.data}: no part called {part}, only {', '.join(self.parts)}")
        listed = self.parts[part]
        read = self._named([each.image for each in listed], part)
        there = [(each, pixels) for each, pixels in zip(listed, read, strict=True) if not isinstance(pixels, str)]
        broken = [why for why in read if isinstance(why, str)]
        refuse_broken(broken, self.broken, self.data)
        if not there:
            raise SaccadeError(f"{self.data}: no image of the part {part} can be read: {broken[0]}")
        warn_of_broken(broken, part, self.data)
        return there, broken

    def pixels(self, names: Sequence[str]) -> list[Pixels | str]:
        """Image files, or images of the validation part by their names in the list; for one that is neither, why."""
        return [self._of_file(name) if is_file(name) else self._of_list(name) for name in names]

    def _of_file(self, name: str) -> Pixels | str:
        return read_files([name], size=self.size, fit=self.fit)[0]

    def _of_list(self, name: str) -> Pixels | str:
        try:
            known = {each.image for each in self.parts["valid"]}
        except SaccadeError:  # a model is used where its data is not
            known = set()
        return self._named([name], "valid")[0] if name in known else self._of_file(name)

    def _named(self, names: Sequence[str], part: str) -> list[Pixels | str]:
        with open_files(self.place(part)) as files:
            return read_named(files, names, size=self.size, fit=self.fit)


def parted(found: Sequence[Entry], *, valid: float, data: str) -> dict[str, list[Entry]]:
    """By part; where the list names no validation part, a share or number `valid` is held out by a hash of the image's
    name."""
    parts = {part: [each for each in found if (each.part or "train") == part] for part in ("train", "valid", "test")}
    if not parts["valid"]:
        train, held = held_out((each.image for each in parts["train"]), valid)
        parts["train"], parts["valid"] = ([parts["train"][n] for n in numbers] for numbers in (train, held))
    for part in ("train", "valid"):
        if not parts[part]:
            raise SaccadeError(f"{data}: no image is left for the part {part}")
    return {part: listed for part, listed in parts.items() if listed}
