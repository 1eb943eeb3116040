"""Running text as one long row of token ids in a file that is built once and mapped into memory, and windows on it.

The file's name is a hash of the text file (path, size, time) and of the vocabulary: another of either makes another.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saccade.data.lexicon import Lexicon
from saccade.data.readers import read_lines
from saccade.errors import SaccadeError

CHUNK = 1 << 20  # characters that are encoded at a time
MOST_STARTS = 1 << 20  # windows that begin anywhere are drawn from so many places at most
Ids = NDArray[np.integer]


def chunks(path: str | Path) -> Iterator[str]:
    """A text file in parts that end with a line and begin with something to see, so that pieces are as in the whole."""
    held: list[str] = []
    size = 0
    for line in read_lines(path):
        if size >= CHUNK and line[:1].strip() and held[-1].strip():
            yield "".join(held)
            held, size = [], 0
        held.append(line + "\n")
        size += len(held[-1])
    if held:
        yield "".join(held)


def token_file(path: str | Path, lexicon: Lexicon, *, cache: Path | None = None) -> Ids:
    """The text as ids, from the file that an earlier call made, or from a new one."""
    source = Path(path).resolve()
    try:
        state = source.stat()
    except OSError as error:
        raise SaccadeError(f"{path}: cannot read: {error.strerror}") from error
    name = f"{source}|{state.st_size}|{state.st_mtime_ns}|{fingerprint(lexicon)}"
    place = (cache or cache_folder()) / f"{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}.npy"
    if not place.exists():
        kind = np.uint16 if len(lexicon) <= 1 << 16 else np.uint32
        parts = [np.asarray(lexicon.encode(text), dtype=kind) for text in chunks(path)]
        if not parts:
            raise SaccadeError(f"{path}: there is no text in it")
        place.parent.mkdir(parents=True, exist_ok=True)
        # whole or not at all, whoever else builds the same file at the same time; readable for all whom umask lets read
        new = place.with_name(f"{place.stem}-{uuid.uuid4().hex}.new")
        try:
            with new.open("xb") as file:
                np.save(file, np.concatenate(parts))
            new.replace(place)
        finally:
            new.unlink(missing_ok=True)
    return np.load(place, mmap_mode="r", allow_pickle=False)


def fingerprint(lexicon: Lexicon) -> str:
    """What the ids mean."""
    spelled = "\0".join((lexicon.unit, *lexicon.spellings()))
    return hashlib.blake2b(spelled.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


def cache_folder() -> Path:
    """$SACCADE_CACHE, or where the system keeps what can be made anew."""
    given = os.environ.get("SACCADE_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade"


@dataclass(frozen=True, eq=False)
class Windows(Sequence[Ids]):
    """Runs of `size` + 1 ids, one more than is read: each id is asked for given those before it."""

    tokens: Ids
    starts: NDArray[np.int64]
    size: int

    @staticmethod
    def sequential(tokens: Ids, size: int) -> Windows:
        """One after the other: an epoch asks for every id once."""
        return Windows(tokens, np.arange(0, len(tokens) - 1, size), size)

    @staticmethod
    def anywhere(tokens: Ids, size: int, *, seed: int) -> Windows:
        """Whole windows that begin at places drawn once, with the seed: each place once, or, of more than MOST_STARTS,
        so many drawn with replacement."""
        places = max(len(tokens) - size, 1)
        draw = np.random.default_rng(seed)
        starts = draw.permutation(places) if places <= MOST_STARTS else draw.integers(places, size=MOST_STARTS)
        return Windows(tokens, starts.astype(np.int64), size)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, number: int) -> Ids:  # type: ignore[override]
        start = int(self.starts[number])
        return self.tokens[start : start + self.size + 1]
