"""Text from files, line by line: plain, gzip or xz; what cannot be read is named by file, line and byte."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from saccade.config.base import Broken
from saccade.errors import RunWarning, SaccadeError

HELD_OUT = 0.02  # share of the sentences that are held out where no validation files are given ...
HELD_OUT_LEAST = 50  # ... how many at least, if that is no more than a tenth ...
HELD_OUT_MOST = 2000  # ... and how many at most
MOST_LOST = 0.1  # share of the pairs that may be in neither part, to keep the targets of both apart
NAMED = 5  # files that cannot be read, of which people are told one by one


@dataclass(frozen=True)
class TextPair:
    """A sentence and its translation."""

    source: str
    target: str
    line: int = field(default=0, compare=False)  # of its file, from one: for messages


@dataclass
class Encoding:
    """What is done with lines that are not UTF-8, and how many there were in each file."""

    errors: Literal["refuse", "replace", "skip"] = "refuse"
    touched: Counter[str] = field(default_factory=Counter)

    def decode(self, line: bytes, path: str, number: int) -> str | None:
        """A line without its end; None when it is to be left out."""
        try:
            return line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            if self.errors == "refuse":
                raise SaccadeError(
                    f"{path}:{number}: byte {error.start + 1} of the line is not UTF-8 "
                    f"(0x{line[error.start]:02x}); convert the file, for example with iconv"
                ) from None
        self.touched[path] += 1
        return line.decode("utf-8", "replace").rstrip("\r\n") if self.errors == "replace" else None

    def notes(self) -> list[str]:
        """How many lines of each file were touched, and how."""
        done = "the bytes became U+FFFD" if self.errors == "replace" else "left out on both sides"
        return [f"{path}: lines that are not UTF-8, {done}: {count:,}" for path, count in self.touched.items()]


def read_lines(path: str | Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, without their ends and without a byte-order mark."""
    return (line for line in _lines(path, Encoding()) if line is not None)


def read_stdin() -> Iterator[str]:
    """The lines of standard input, by the same rules."""
    if sys.stdin is None:
        raise SaccadeError("standard input is closed")
    try:  # not Python's own: whoever waits there for a line would keep it from being closed at the end of a program
        file: Iterable[bytes] = os.fdopen(sys.stdin.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:  # it is no file
        file = sys.stdin.buffer
    return (line for line in _decoded(file, "standard input", Encoding()) if line is not None)


def _lines(path: str | Path, encoding: Encoding) -> Iterator[str | None]:
    with _opened(Path(path)) as file:
        yield from _decoded(file, str(path), encoding)


def _decoded(file: Iterable[bytes], path: str, encoding: Encoding) -> Iterator[str | None]:
    try:
        for number, line in enumerate(file, start=1):
            yield encoding.decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line, path, number)
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise SaccadeError(f"{path}: cannot read: {error}") from error


def read_pairs(
    source: str | Path,
    target: str | Path | None,
    *,
    columns: tuple[int, int] = (1, 2),
    encoding: Encoding | None = None,
    otherwise: str = "give a second file for the other side, or other columns",
) -> Iterator[TextPair]:
    """Aligned sentences from two files, or from two columns (counted from one) of a tab-separated one; `otherwise` is
    said to who has fewer."""
    encoding = encoding or Encoding()
    if target is None:
        for number, line in enumerate(_lines(source, encoding), start=1):
            if line is None:
                continue
            cells = line.split("\t")
            if len(cells) < max(columns):
                raise SaccadeError(
                    f"{source}:{number}: {len(cells)} columns between tabs, and column {max(columns)} is asked for; "
                    f"{otherwise}"
                )
            yield TextPair(cells[columns[0] - 1].strip(), cells[columns[1] - 1].strip(), number)
        return
    left, right = list(_lines(source, encoding)), list(_lines(target, encoding))
    if len(left) != len(right):
        raise SaccadeError(
            f"{source} has {len(left):,} lines and {target} has {len(right):,}: line n of one must translate line n "
            "of the other"
        )
    for number, (one, other) in enumerate(zip(left, right, strict=True), start=1):
        if one is not None and other is not None:
            yield TextPair(one.strip(), other.strip(), number)


def hold_out(pairs: list[TextPair]) -> tuple[list[TextPair], list[TextPair]]:
    """Train and validation parts by a hash of the source: no source is in both. Nor is any target, unless so many pairs
    share theirs that much would be lost: the pairs to train on whose target is held out are in neither part."""
    count = max(len(pairs), 1)
    share = min(max(HELD_OUT, HELD_OUT_LEAST / count), HELD_OUT_MOST / count, 0.1)

    def held(pair: TextPair) -> bool:
        return hash_of(pair.source) < share * (1 << 64)

    valid = [pair for pair in pairs if held(pair)]
    known = {pair.target for pair in valid}
    train = [pair for pair in pairs if not held(pair)]
    apart = [pair for pair in train if pair.target not in known]
    return apart if len(apart) >= (1 - MOST_LOST) * len(train) else train, valid


def is_file(name: str | Path) -> bool:
    """Whether a file has that name; a text that is too long for a name is none."""
    try:
        return Path(name).is_file()
    except OSError:
        return False


def hash_of(text: str) -> int:
    """A number below 2^64 that depends on the text alone: the same choice on every machine and in every order."""
    digest = hashlib.md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big")


def references_of(pairs: list[TextPair]) -> dict[str, list[str]]:
    """Every source sentence once, with all its translations."""
    references: dict[str, list[str]] = {}
    for pair in pairs:
        known = references.setdefault(pair.source, [])
        if pair.target not in known:
            known.append(pair.target)
    return references


def refuse_broken(reasons: Sequence[str], broken: Broken, data: str) -> None:
    """Where what cannot be read is not to be left out, an error with the first of the reasons."""
    if reasons and broken == "refuse":
        raise SaccadeError(f"{data}: {reasons[0]}; task.broken=skip would leave it out")


def warn_of_broken(reasons: Sequence[str], part: str, data: str) -> None:
    """What of another part than training, of which notes tell, cannot be read and is not scored."""
    if reasons and part != "train":
        told = f"{data}: {len(reasons):,} of the part {part} are left out of its scores: {first_of(reasons)}"
        warnings.warn(told, RunWarning, stacklevel=2)


def first_of(reasons: Sequence[str], most: int = NAMED) -> str:
    """The first few in one line, and that there are more."""
    return "; ".join(reasons[:most]) + ("; ..." if len(reasons) > most else "")


def _opened(path: Path) -> IO[bytes] | gzip.GzipFile:
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rb")
        if path.suffix == ".xz":
            return lzma.open(path, "rb")
        return path.open("rb")
    except OSError as error:
        raise SaccadeError(f"{path}: cannot read: {error.strerror}") from error
