"""Sound from wav and flac files, through libsndfile; what cannot be trusted is refused by file and value.

The header is checked before anything is decoded: a few bytes can promise hours, or a rate that no microphone has.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import soundfile

from saccade.data.archives import plain_file
from saccade.errors import SaccadeError

FORMATS = ("WAV", "WAVEX", "FLAC")  # as libsndfile calls them; WAVEX is a wav with an extended header
RATES = (1_000, 384_000)  # samples per second
LONGEST = 3_600  # seconds
LARGEST = 1 << 30  # bytes, of the file and of its samples as decoded
UNKNOWN = 0xFFFFFFFF  # what a program that writes a wav into a pipe gives as its size


@dataclass(frozen=True, eq=False)
class Sound:
    """One channel of samples, of which full scale is from -1 to 1, and how many there are per second."""

    samples: np.ndarray  # float32 (n,)
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def read_sound(source: Path | bytes, name: str = "") -> Sound:
    """A wav or flac file, or the bytes of one; several channels become one by their mean.

    `name` is what error messages call it: the path unless told, so it matters for bytes.
    """
    data, name = (source, name or "sound") if isinstance(source, bytes) else (_bytes_of(source), name or str(source))
    if len(data) > LARGEST:
        raise SaccadeError(f"{name}: more than {LARGEST:,} bytes; split the sound into shorter files")
    _check_wav(data, name)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            _check_header(file, name)
            promised, rate = file.frames, file.samplerate
            samples = file.read(dtype="float32", always_2d=True)  # (n, channels)
    except soundfile.LibsndfileError as error:
        reason = error.error_string.removeprefix("Error : ").rstrip(".")
        raise SaccadeError(f"{name}: cannot read as sound: {reason}; wav and flac can be read") from error
    if len(samples) < promised:
        raise SaccadeError(f"{name}: cut short: the header promises {promised:,} samples, {len(samples):,} are there")
    if not np.isfinite(samples).all():
        place = int(np.isfinite(samples).all(axis=1).argmin())
        raise SaccadeError(f"{name}: sample {place:,} is {samples[place].tolist()}; samples must be finite")
    return Sound(samples.mean(axis=1, dtype=np.float32), rate)


def _bytes_of(path: Path) -> bytes:
    try:
        with plain_file(path).open("rb") as file:
            return file.read(LARGEST + 1)  # not more, whatever the path leads to
    except (OSError, ValueError) as error:  # no file can have a name with a zero byte or half a character in it
        raise SaccadeError(f"{path}: cannot read: {getattr(error, 'strerror', None) or error}") from error


def _check_header(file: soundfile.SoundFile, name: str) -> None:
    if file.format not in FORMATS:
        raise SaccadeError(f"{name}: a file of format {file.format}; wav and flac can be read")
    _check_rate(file.samplerate, name)
    if file.frames == 0:
        raise SaccadeError(f"{name}: 0 samples")
    if file.frames >= 1 << 62:  # libsndfile's way to say that a flac does not tell
        raise SaccadeError(f"{name}: the header does not say how long the sound is; write the file again")
    if file.frames > LONGEST * file.samplerate:
        seconds = file.frames / file.samplerate
        raise SaccadeError(f"{name}: {seconds:,.0f} seconds by its header; at most {LONGEST:,} are read")
    size = 4 * file.frames * file.channels
    if size > LARGEST:
        raise SaccadeError(f"{name}: {size:,} bytes when decoded ({file.channels} channels); at most {LARGEST:,}")


def _check_wav(data: bytes, name: str) -> None:
    """What libsndfile does not tell: it lowers a promised size to what is there, and calls a wild rate incomplete."""
    for chunk, promised, start in _chunks(data):
        if chunk == b"fmt ":
            _check_rate(int.from_bytes(data[start + 4 : start + 8], _order(data)), name)
        present = len(data) - start
        if chunk == b"data" and present < promised != UNKNOWN:
            raise SaccadeError(
                f"{name}: cut short: the header promises {promised:,} bytes of samples, {present:,} are there"
            )


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Name, size by the header and start of each chunk of a wav file, none of another; chunks start at even places."""
    place = 12 if data[:4] in (b"RIFF", b"RIFX") and data[8:12] == b"WAVE" else len(data)
    while place + 8 <= len(data):
        size = int.from_bytes(data[place + 4 : place + 8], _order(data))
        yield data[place : place + 4], size, place + 8
        place += 8 + size + size % 2


def _order(data: bytes) -> Literal["little", "big"]:
    return "big" if data[:4] == b"RIFX" else "little"


def _check_rate(rate: int, name: str) -> None:
    low, high = RATES
    if not low <= rate <= high:
        raise SaccadeError(f"{name}: {rate:,} samples per second; {low:,} to {high:,} are read")
