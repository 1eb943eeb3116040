"""Speech and what was said: one's own recordings, strings of spoken digits, or frames that somebody has made.

What cannot be used is left out by name. Who is held out depends on names alone, so that no run ever trains with what
another one is tested with.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np

from saccade.config.sound import TranscribeSettings
from saccade.data.archives import MOST_BYTES, FileStore, open_files, plain_file
from saccade.data.readers import hash_of, read_lines, read_pairs, refuse_broken
from saccade.data.sound import Sound, read_sound
from saccade.errors import SaccadeError

Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
HELD_OUT = 0.05  # share of one's own recordings that are held out where no validation list is given ...
HELD_OUT_MOST = 500  # ... and how many at most
HELD_OUT_SPEAKERS = 0.1  # share of the speakers of ready-made frames
ASKED_FOR_RATE = 20  # recordings that tell which rate is usual
NAMED = 3  # recordings that were left out and are named where nothing is left
HIGHEST_RATE = 16_000  # that is chosen unasked: there is little speech above 8 kHz

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEST_TAKES, VALID_TAKES = range(5), range(5, 8)  # the first is the data set's own choice; the others are trained with
HELD_OUT_STRINGS = 300  # for validation, and for the test
GAP = (0.05, 0.25)  # seconds between two digits, and at both ends
HUSH = 1e-3  # deviation of the noise in a gap: microphones have some


@dataclass(frozen=True, eq=False)
class Utterance:
    """What was said, and its sound; or its frames (T, F) where those are all there is."""

    name: str
    text: str
    heard: Sound | np.ndarray


class Speech:
    """Interface: utterances by part, read when they are asked for; and what of it was left out, with the reasons."""

    features: int | None = None  # numbers in a frame; none: there are sounds

    def __init__(self, settings: TranscribeSettings):
        self.settings = settings
        self.left_out: dict[Part, dict[str, str]] = {part: {} for part in PARTS}

    def read(self, part: Part) -> Iterator[Utterance]:
        """All that can be used, in the same order every time."""
        for utterance in self._utterances(part):
            if not utterance.text:
                self.leave_out(part, utterance.name, "has no transcript")
            elif (length := self.seconds(utterance.heard)) > self.settings.longest:
                reason = f"{length:,.1f} seconds; task.longest is {self.settings.longest:g}"
                self.leave_out(part, utterance.name, reason)
            else:
                yield utterance

    def _utterances(self, part: Part) -> Iterator[Utterance]:
        raise NotImplementedError

    def seconds(self, heard: Sound | np.ndarray) -> float:
        return heard.seconds if isinstance(heard, Sound) else len(heard) * self.settings.hop

    def usual_rate(self) -> int:
        """Samples a second that most of the first recordings have, up to what speech needs."""
        first = islice(self.read("train"), ASKED_FOR_RATE)
        rates = Counter(each.heard.rate for each in first if isinstance(each.heard, Sound))
        if not rates:
            raise self.nothing("train")
        return min(rates.most_common(1)[0][0], HIGHEST_RATE)

    def nothing(self, part: Part) -> SaccadeError:
        """What to say of a part that has no recordings."""
        reasons = "".join(f"\n  {reason}" for reason in islice(self.left_out[part].values(), NAMED))
        return SaccadeError(f"{self.settings.data}: no recording is left for the {part} part{reasons}")

    def leave_out(self, part: Part, name: str, reason: str, *, broken: bool = False) -> None:
        """What is of no use here; what is `broken` is of no use anywhere, and `task.broken` may refuse it."""
        told = reason if reason.startswith(name) else f"{name}: {reason}"
        if broken:
            refuse_broken([told], self.settings.broken, self.settings.data)
        self.left_out[part][name] = told


def open_speech(settings: TranscribeSettings) -> Speech:
    """What `task.data` names, by what it is."""
    path = Path(settings.data)
    if ".tsv" in path.suffixes[-2:]:  # a packed one too
        return Recordings(settings)
    if settings.valid or settings.test:
        raise SaccadeError(f"task.valid and task.test go with a .tsv of recordings; {path} has parts of its own")
    if (path / "train.npz").is_file():
        return ReadyFrames(settings)
    return SpokenDigits(settings, open_files(path))


@dataclass(frozen=True)
class Listed:
    """A line of a list: which file is meant, what is said in it, and how the list calls it."""

    path: Path
    text: str
    name: str


class Recordings(Speech):
    """One's own: lines of a sound file, by its place beside the list, and its transcript, with a tab between."""

    def _utterances(self, part: Part) -> Iterator[Utterance]:
        if part == "test" and self.settings.test is None:
            raise SaccadeError(f"{self.settings.data} has no test part: train with a list of one, --set task.test=FILE")
        elsewhere = {each.path for other in PARTS if other != part for each in self._lines[other]}
        for each in self._lines[part]:
            name = str(each.path)
            if part == "train" and each.path in elsewhere:
                self.leave_out(part, name, "is in the validation or test list as well, and not trained with")
                continue
            try:
                sound = read_sound(each.path)
            except SaccadeError as error:
                self.leave_out(part, name, str(error), broken=True)
                continue
            yield Utterance(name, each.text, sound)

    @cached_property
    def _lines(self) -> dict[Part, list[Listed]]:
        settings = self.settings
        train, test = _listed(settings.data), _listed(settings.test) if settings.test else []
        if settings.valid is not None:
            return {"train": train, "valid": _listed(settings.valid), "test": test}
        # by a hash of the name in the list: the same on every machine and in every order
        by_hash = sorted({each.name for each in train}, key=lambda name: (hash_of(name), name))
        held = set(by_hash[: max(1, min(round(HELD_OUT * len(by_hash)), HELD_OUT_MOST))])
        valid = [each for each in train if each.name in held]
        return {"train": [each for each in train if each.name not in held], "valid": valid, "test": test}


def _listed(path: str) -> list[Listed]:
    folder = Path(path).parent
    pairs = read_pairs(path, None, otherwise="a line is a sound file, a tab and its transcript")
    return [Listed(folder / pair.source, " ".join(pair.target.split()), pair.source) for pair in pairs]


class SpokenDigits(Speech):
    """The Free Spoken Digit Dataset (Jackson et al. 2018): recordings of one digit each, joined to strings of one
    speaker's. Strings of a part are made of recordings of that part alone, and are the same in every run."""

    NAME = re.compile(r"(\d)_([^_/]+)_(\d+)\.wav")

    def __init__(self, settings: TranscribeSettings, files: FileStore):
        super().__init__(settings)
        self.files = files
        self._read: dict[Part, dict[str, list[Utterance]]] = {}

    def _utterances(self, part: Part) -> Iterator[Utterance]:
        spoken = self._recordings(part)
        settings, speakers = self.settings, sorted(spoken)
        random = np.random.default_rng([settings.seed, PARTS.index(part)])
        for _ in range(settings.strings if part == "train" else HELD_OUT_STRINGS):
            own = spoken[speakers[random.integers(len(speakers))]]
            count = random.integers(settings.fewest, settings.most + 1)
            yield _joined([own[number] for number in random.integers(len(own), size=count)], random)

    def _recordings(self, part: Part) -> dict[str, list[Utterance]]:
        """Single digits by speaker."""
        if part not in self._read:
            spoken: dict[str, list[Utterance]] = {}
            self._read[part] = spoken
            rate = None
            for name in self.files.names():
                found = self.NAME.fullmatch(PurePosixPath(name).name)
                if found is None or _part_of(int(found[3])) != part:
                    continue
                try:
                    sound = read_sound(self.files.read(name), f"{self.files.path}: {name}")
                except SaccadeError as error:
                    self.leave_out(part, name, str(error), broken=True)
                    continue
                rate = rate or sound.rate
                if sound.rate != rate:
                    reason = f"{sound.rate:,} samples a second, and those before it have {rate:,}"
                    self.leave_out(part, name, reason)
                    continue
                digit = Utterance(PurePosixPath(name).stem, DIGITS[int(found[1])], sound)
                spoken.setdefault(found[2], []).append(digit)
            if not spoken:
                raise SaccadeError(
                    f"{self.files.path}: no recordings called DIGIT_SPEAKER_TAKE.wav in it for {part}; recordings of "
                    "your own come as a .tsv, with a sound file and its transcript in each line"
                )
        return self._read[part]


def _part_of(take: int) -> Part:
    return "test" if take in TEST_TAKES else "valid" if take in VALID_TAKES else "train"


def _joined(digits: Sequence[Utterance], random: np.random.Generator) -> Utterance:
    """One after the other, with short pauses."""
    sounds = [each.heard for each in digits if isinstance(each.heard, Sound)]
    rate = sounds[0].rate
    gaps = (random.uniform(*GAP, size=len(sounds) + 1) * rate).astype(int)
    parts = [HUSH * random.standard_normal(gaps[0], dtype=np.float32)]
    for sound, gap in zip(sounds, gaps[1:], strict=True):
        parts += [sound.samples, HUSH * random.standard_normal(gap, dtype=np.float32)]
    joined = Sound(np.concatenate(parts).astype(np.float32), rate)
    return Utterance("+".join(each.name for each in digits), " ".join(each.text for each in digits), joined)


class ReadyFrames(Speech):
    """For each part an .npz with `features` (all frames, F) and `lengths`, and beside it a .tsv with a title line and
    then name, number of frames and transcript of each recording. The second part of a name, between dashes, is the
    speaker; some are held out where there is no part for validation."""

    def __init__(self, settings: TranscribeSettings):
        super().__init__(settings)
        self.folder = Path(settings.data)
        self.features = self._frames("train")[0].shape[1]

    def _utterances(self, part: Part) -> Iterator[Utterance]:
        given = (self.folder / "valid.npz").is_file()
        stored: Part = "train" if part == "valid" and not given else part
        frames, lengths = self._frames(stored)
        rows = self._rows(stored, lengths)
        ends = np.cumsum(lengths)
        for (name, text), first, last in zip(rows, ends - lengths, ends, strict=True):
            if not given and part != "test" and (part == "valid") != _held_out_speaker(name):
                continue
            own = frames[first:last].astype(np.float32)
            if len(own) == 0 or not np.isfinite(own).all():
                reason = "has no frames" if len(own) == 0 else "has frames that are not finite"
                self.leave_out(part, name, reason, broken=True)
                continue
            yield Utterance(name, text, own)

    def _frames(self, part: Part) -> tuple[np.ndarray, np.ndarray]:
        path = self.folder / f"{part}.npz"
        try:
            with zipfile.ZipFile(plain_file(path)) as arrays:
                frames, lengths = (_array(arrays, name) for name in ("features", "lengths"))
        except SaccadeError:
            raise
        except Exception as error:  # a header of junk raises all there is, from TokenError to OverflowError
            raise SaccadeError(f"{path}: cannot read: {getattr(error, 'strerror', None) or error}") from error
        fits = frames.ndim == 2 and lengths.ndim == 1 and lengths.dtype.kind in "iu" and frames.dtype.kind == "f"
        if not fits or (lengths < 0).any() or lengths.sum() != len(frames):
            raise SaccadeError(
                f"{path}: features {frames.shape} and lengths {lengths.shape} do not fit; features are real numbers "
                "(frames, width), and lengths sum up to the number of frames"
            )
        return frames, lengths.astype(np.int64)

    def _rows(self, part: Part, lengths: np.ndarray) -> list[tuple[str, str]]:
        path = self.folder / f"{part}.tsv"
        rows = [line.split("\t") for line in read_lines(path)][1:]
        if len(rows) != len(lengths):
            raise SaccadeError(f"{path}: {len(rows):,} recordings, and {len(lengths):,} in {part}.npz")
        for number, (row, length) in enumerate(zip(rows, lengths.tolist(), strict=True), start=2):
            if len(row) != 3 or row[1] != str(length):
                raise SaccadeError(
                    f"{path}:{number}: {' | '.join(row)}: must be a name, {length} as in {part}.npz, and a transcript"
                )
        return [(name, " ".join(text.split())) for name, _, text in rows]


def _array(arrays: zipfile.ZipFile, name: str) -> np.ndarray:
    """One array of an .npz, after a look at its header: memory would be taken for all that it promises."""
    entry = arrays.getinfo(f"{name}.npy")
    with arrays.open(entry) as file:
        first = np.lib.format.read_magic(file) == (1, 0)
        header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, _, kind = header(file)
    promised, most = math.prod(shape) * kind.itemsize, min(entry.file_size, MOST_BYTES)
    if promised > most:
        raise ValueError(f"{name} {shape} would be {promised:,} bytes, and can be {most:,} at most")
    with arrays.open(entry) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def read_frames(path: Path, width: int) -> np.ndarray:
    """Frames (T, width) of one recording, from an .npy file."""
    try:
        found = np.load(plain_file(path), mmap_mode="r", allow_pickle=False)  # a header may promise more than is there
    except SaccadeError:
        raise
    except Exception as error:  # a header of junk raises all there is, from TokenError to OverflowError
        raise SaccadeError(f"{path}: cannot read as frames: {getattr(error, 'strerror', None) or error}") from error
    array = isinstance(found, np.ndarray)
    if not array or found.dtype.kind != "f" or found.ndim != 2 or len(found) == 0 or found.shape[1] != width:
        what = f"{found.dtype} {found.shape}" if array else "several arrays"
        raise SaccadeError(f"{path}: {what}; frames are one array of real numbers (frames, {width})")
    with np.errstate(over="ignore"):  # a number beyond float32 is not finite in it
        frames = np.array(found, dtype=np.float32)
    if not np.isfinite(frames).all():
        place = int(np.isfinite(frames).all(axis=1).argmin())
        raise SaccadeError(f"{path}: frame {place:,} has numbers that are not finite")
    return frames


def _held_out_speaker(name: str) -> bool:
    speaker = name.split("-")[1] if "-" in name else name
    return hash_of(speaker) < HELD_OUT_SPEAKERS * (1 << 64)
