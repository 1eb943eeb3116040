"""Words that are to be read, photographed or drawn, each with its letters as ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, overload

from saccade.data.images import Pixels
from saccade.data.vocab import Characters


class SeenWord(Protocol):
    """A word with its image, be it photographed or drawn when it is asked for."""

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def image(self) -> Pixels: ...


@dataclass(frozen=True, eq=False)
class Example:
    """A word, and its letters as ids."""

    word: SeenWord
    target: list[int]


class Row(Protocol):
    """Words in a row, perhaps made when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> SeenWord: ...


@dataclass(frozen=True, eq=False)
class Examples(Sequence[Example]):
    """The words of some rows, one row after the other."""

    vocabulary: Characters
    rows: tuple[Row, ...]

    def __len__(self) -> int:
        return sum(len(row) for row in self.rows)

    @overload
    def __getitem__(self, number: int) -> Example: ...

    @overload
    def __getitem__(self, number: slice) -> list[Example]: ...

    def __getitem__(self, number: int | slice) -> Example | list[Example]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        for row in self.rows:
            if number < len(row):
                # characters that training never saw have no id, and no answer will match them
                word = row[number]
                return Example(word, self.vocabulary.encode(self.vocabulary.known(word.text)))
            number -= len(row)
        raise IndexError("there are fewer words")
