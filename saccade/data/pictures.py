"""Images with their labels, and images with their captions, from folders, archives and lists, all of one size.

Labels are names of folders, or numbers in an IDX file beside the images. Captions stand in a list that names the
images: a line of JSON for each, or a line with a tab between image and caption. A part that the data names itself
(train, valid, test) is kept; an image that cannot be read is left out, by name.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from saccade.config.base import Broken
from saccade.config.images import Fit
from saccade.data.archives import FileStore, open_files
from saccade.data.images import Pixels, read_idx, read_image, resized
from saccade.data.readers import NAMED, first_of, hash_of, read_lines, refuse_broken
from saccade.errors import SaccadeError

IMAGE_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
PARTS = {  # what data sets call their parts
    "train": "train",
    "training": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
    "t10k": "test",
}
IDX_IMAGES = re.compile(r"(?:[\w-]*?(\w+)-)?images[-.]idx3-ubyte(\.gz)?")
CAPTION_LISTS = ("captions.jsonl", "captions.jsonl.gz", "captions.jsonl.xz", "captions.tsv", "captions.tsv.gz")
IMAGE_PLACES = ("images.zip", "images")  # where the images of a list are looked for beside it
PEEKED = 32  # images that are looked at to see how large they usually are


@dataclass(frozen=True)
class Source:
    """Labelled images: a folder, an archive or an IDX file; of an archive perhaps one folder only."""

    path: Path
    inside: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.inside}" if self.inside else str(self.path)


@dataclass(frozen=True, eq=False)
class Labelled:
    """Images with a label each."""

    pixels: Pixels  # (N, size, size, 3)
    labels: tuple[str, ...]
    names: tuple[str, ...]  # of the images
    broken: tuple[str, ...] = ()  # what could not be read, and why

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Caption:
    """What is said of one image, and where it is said."""

    image: str
    captions: tuple[str, ...]
    part: str | None  # train, valid or test, where the list says so
    line: int  # of the list


def labelled_parts(path: str | Path) -> dict[str, Source]:
    """The parts that a data set names itself, train among them; or all of it as train."""
    path = Path(path)
    if path.is_dir():
        entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
        folders = [entry for entry in entries if entry.is_dir()]
        if not all(_part_of(entry) for entry in folders):  # classes, one of which may be called train
            entries = [entry for entry in entries if entry not in folders]
        found = {part: Source(entry) for entry in entries if (part := _part_of(entry))}
        return found if "train" in found else {"train": Source(path)}
    if IDX_IMAGES.fullmatch(path.name):
        return {"train": Source(path)}
    with open_files(path) as files:
        names = [PurePosixPath(name).parts for name in files.names() if is_image(name)]
    roots = {name[0] for name in names}
    depth = 1 if len(roots) == 1 and all(len(name) > 3 for name in names) else 0  # a folder around everything
    tops = {name[:-2][depth : depth + 1] for name in names}
    if not all(top and top[0].lower() in PARTS for top in tops):
        return {"train": Source(path)}
    root = [*roots][:depth]
    found = {PARTS[top.lower()]: Source(path, "/".join([*root, top])) for (top,) in sorted(tops)}
    return found if "train" in found else {"train": Source(path)}


def usual_side(source: Source) -> int:
    """How many pixels the shorter side of an image has: the median of some that are looked at."""
    if IDX_IMAGES.fullmatch(source.path.name):
        return min(read_idx(source.path).shape[1:])
    with open_files(source.path) as files:
        names = [name for name in files.names() if _belongs(name, source)]
        sides = []
        for name in names[:: max(len(names) // PEEKED, 1)]:
            try:
                sides.append(min(read_image(files.read(name), name, first_frame=True).shape[:2]))
            except SaccadeError:
                continue  # it is named when it is read to be used
    if not sides:
        raise SaccadeError(f"{source}: no image in a folder of its class was found")
    return int(statistics.median(sides))


def read_labelled(
    source: Source, *, size: int, fit: Fit = "stretch", names: Sequence[str] = (), broken: Broken = "skip"
) -> Labelled:
    """All images, made `size` x `size`; `names` are what the numbers of an IDX file stand for."""
    if IDX_IMAGES.fullmatch(source.path.name):
        return _read_idx_pair(source.path, size, fit, names)
    with open_files(source.path) as files:
        inner = [name for name in files.names() if _belongs(name, source)]
        found = list(zip(inner, read_named(files, inner, size=size, fit=fit), strict=True))
    read = [(name, pixels) for name, pixels in found if not isinstance(pixels, str)]
    unread = tuple(why for _, why in found if isinstance(why, str))
    refuse_broken(unread, broken, str(source))
    if not read:
        why = f": {unread[0]}" if unread else "; classes are folders with images in them"
        raise SaccadeError(f"{source}: no image that can be read{why}")
    labels = tuple(PurePosixPath(name).parent.name for name, _ in read)
    return Labelled(np.stack([each for _, each in read]), labels, tuple(name for name, _ in read), unread)


def held_out(keys: Iterable[str], part: float) -> tuple[list[int], list[int]]:
    """The numbers to train on and those to validate on, by a hash of their keys: like keys are on one side.

    `part` below one is a share, from one on about so many.
    """
    hashes = [hash_of(key) for key in keys]
    share = part if part < 1 else part / max(len(hashes), 1)
    held = [number < share * (1 << 64) for number in hashes]
    train, valid = ([n for n, each in enumerate(held) if each is wanted] for wanted in (False, True))
    return train, valid


def caption_list(path: str | Path) -> Path:
    """The list of captions that a user means: a file, or the one in a folder."""
    path = Path(path)
    if not path.is_dir():
        return path
    for name in CAPTION_LISTS:
        if (path / name).exists():
            return path / name
    raise SaccadeError(f"{path}: no list of captions in this folder; it would be called {', '.join(CAPTION_LISTS)}")


def read_captions(path: Path) -> list[Caption]:
    """Every image once, with all its captions: .jsonl with file, captions and perhaps split, or .tsv with image and
    caption; each may be .gz or .xz."""
    read = _caption_of_json if ".jsonl" in path.suffixes else _caption_of_tsv
    found: dict[str, Caption] = {}
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        new = read(line, f"{path}:{number}", number)
        if not new.captions:
            continue
        known = found.get(new.image)
        if known is not None and known.part != new.part:
            raise SaccadeError(
                f"{path}:{number}: {new.image} is in the part {new.part}, and in line {known.line} in {known.part}"
            )
        found[new.image] = new if known is None else replace(known, captions=known.captions + new.captions)
    if not found:
        raise SaccadeError(f"{path}: no captions in it")
    return list(found.values())


def images_beside(listed: Path, image: str, called: Sequence[str] = IMAGE_PLACES) -> Path:
    """Where the images are that a list names, `image` among them: in the first archive or folder beside the list that
    is `called` so; in the list's own folder where there is none, or where `image` is not in it but is beside the list.
    """
    beside = listed.parent
    place = next((path for name in called if (path := beside / name).exists()), beside)
    if place != beside and (beside / image).is_file():  # perhaps the name of the folder is a part of the image's name
        with open_files(place) as files:
            return place if image in files.names() else beside
    return place


def read_named(files: FileStore, names: Iterable[str], *, size: int, fit: Fit = "stretch") -> list[Pixels | str]:
    """The images of these names in a folder or archive, (size, size, 3) each; for one that cannot be read, why."""

    def read(name: str) -> Pixels:
        return read_image(files.read(name), name, first_frame=True)

    return [_attempt(read, name, size, fit) for name in names]


def read_files(paths: Iterable[str | Path], *, size: int, fit: Fit = "stretch") -> list[Pixels | str]:
    """Likewise the images in these files."""

    def read(path: str) -> Pixels:
        return read_image(Path(path), first_frame=True)

    return [_attempt(read, str(path), size, fit) for path in paths]


def is_image(name: str) -> bool:
    """By its name, and not one of the files that systems leave behind."""
    hidden = any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)
    return not hidden and name.lower().endswith(IMAGE_ENDINGS)


def told(broken: Sequence[str], whole: int, what: str, most: int = NAMED) -> list[str]:
    """In words, how many could not be read, and the first of them."""
    if not broken:
        return []
    return [f"{what} that cannot be read are left out, {len(broken):,} of {whole:,}: {first_of(broken, most)}"]


def _attempt(read: Callable[[str], Pixels], name: str, size: int, fit: Fit) -> Pixels | str:
    try:
        return resized(read(name), size, fit)
    except SaccadeError as error:
        return str(error)


def _part_of(entry: Path) -> str | None:
    """train for train/, train.zip or train-images-idx3-ubyte.gz"""
    idx = IDX_IMAGES.fullmatch(entry.name)
    if idx is not None:
        return PARTS.get(idx[1] or "train")
    archive = entry.name.lower().endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz"))
    return PARTS.get(entry.name.lower().split(".")[0]) if archive or entry.is_dir() else None


def _belongs(name: str, source: Source) -> bool:
    return is_image(name) and "/" in name and (not source.inside or name.startswith(f"{source.inside}/"))


def _read_idx_pair(path: Path, size: int, fit: Fit, names: Sequence[str]) -> Labelled:
    images, numbers = (
        read_idx(path),
        read_idx(path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))),
    )
    if images.ndim != 3 or numbers.ndim != 1 or len(images) != len(numbers):
        raise SaccadeError(f"{path}: images {images.shape} do not fit their labels {numbers.shape}")
    known = names or [str(number) for number in range(256)]
    if len(numbers) and int(numbers.max()) >= len(known):
        raise SaccadeError(f"{path}: label {numbers.max()} has no name among the {len(known)} of task.names")
    if images.shape[1:] != (size, size):
        images = np.stack([resized(image, size, fit) for image in images])
    grey = np.broadcast_to(images[..., None], (*images.shape, 3))  # no copy: three times the same bytes
    labels = tuple(known[number] for number in numbers)
    return Labelled(grey, labels, tuple(f"{path.name} {number}" for number in range(len(labels))))


def _caption_of_json(line: str, place: str, number: int) -> Caption:
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SaccadeError(f"{place}: not JSON: {error}") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
        raise SaccadeError(f"{place}: a line is an object with file and captions; got {line[:60]}")
    texts = entry.get("captions", entry.get("caption"))
    texts = [texts] if isinstance(texts, str) else texts
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise SaccadeError(f"{place}: captions are a list of texts; got {texts!r}")
    split = entry.get("split")
    if split is not None and (not isinstance(split, str) or split not in PARTS):
        raise SaccadeError(f"{place}: split {split!r} is not one of {', '.join(PARTS)}")
    captions = tuple(text.strip() for text in texts if text.strip())
    return Caption(PurePosixPath(entry["file"]).as_posix(), captions, None if split is None else PARTS[split], number)


def _caption_of_tsv(line: str, place: str, number: int) -> Caption:
    image, tab, text = line.partition("\t")
    if not tab or not image.strip():
        raise SaccadeError(f"{place}: a line is an image, a tab and its caption; got {line[:60]!r}")
    return Caption(PurePosixPath(image.strip()).as_posix(), (text.strip(),) if text.strip() else (), None, number)
