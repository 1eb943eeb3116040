"""From text to ids and back. Every vocabulary begins with the same three special ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from saccade.errors import SaccadeError, did_you_mean

PAD, START, END = 0, 1, 2
SPECIALS = ("<pad>", "<start>", "<end>")


class Vocabulary(Protocol):
    """What tasks ask of a vocabulary, whatever its pieces are."""

    def __len__(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def pieces(self, ids: Sequence[int]) -> list[str]: ...

    def save(self, directory: Path) -> None: ...


class Symbols:
    """Words between spaces, from a closed list; a symbol that is not in it is an error, not an unknown."""

    FILE = "symbols.json"

    def __init__(self, symbols: Sequence[str]):
        self.symbols = tuple(symbols)
        self._ids = {symbol: number for number, symbol in enumerate(self.symbols, start=len(SPECIALS))}

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.symbols)

    def encode(self, text: str) -> list[int]:
        words = text.split()
        for place, word in enumerate(words, start=1):
            if word not in self._ids:
                near = (
                    did_you_mean(word, self.symbols)
                    or f"; the symbols are {_shortened(self.symbols)}, with spaces between"
                )
                raise SaccadeError(
                    f"symbol {place} of {_shortened([text])!r} is {word!r}, which is not in the vocabulary{near}"
                )
        return [self._ids[word] for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.pieces([number for number in ids if number >= len(SPECIALS)]))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [(*SPECIALS, *self.symbols)[number] for number in ids]

    def save(self, directory: Path) -> None:
        (directory / self.FILE).write_text(json.dumps(self.symbols, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> Symbols:
        path = directory / cls.FILE
        try:
            return cls(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise SaccadeError(f"{path}: cannot read the vocabulary: {error}") from error


def _shortened(words: Sequence[str], most: int = 60) -> str:
    text = " ".join(words)
    return text if len(text) <= most else f"{text[:most]}..."
