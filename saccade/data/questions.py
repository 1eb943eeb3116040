"""Questions about images, with their answers, from a table or from lists of JSON; and the images that they are about.

A table is a .tsv whose first line names its columns: image, question, answer, and perhaps split and type. COCO-QA (Ren
et al. 2015) has image_id in place of image. easy-VQA has a list of [question, answer, number of the image] for each
part, and the images of each part in an archive of their own.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from saccade.config.base import Broken
from saccade.config.images import Fit
from saccade.data.listed import ListedImages, parted
from saccade.data.pictures import IMAGE_ENDINGS, PARTS, images_beside
from saccade.data.readers import read_lines
from saccade.errors import SaccadeError

TABLES = ("questions.tsv", "cocoqa.tsv")
PACKED = ("", ".gz", ".xz")
COLUMNS = ("image", "question", "answer")
EXAMPLE = "photo.jpg: what colour is it?"
# the name of an image file, however many colons and spaces are in it, then a colon and the question
_WITH_COLON = re.compile(rf"(.+?(?:{'|'.join(map(re.escape, IMAGE_ENDINGS))}))\s*(?::(.*))?", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class Question:
    """What is asked, what is right, and what sort of question it is where the data says so."""

    text: str
    answer: str
    sort: str | None = None


@dataclass(frozen=True)
class Asked:
    """An image by its name, and all that is asked about it."""

    image: str
    questions: tuple[Question, ...]
    part: str | None  # train, valid or test, where the data says so


@dataclass(frozen=True)
class AskedImages(ListedImages[Asked]):
    """A data set of images with questions."""

    data: str  # a table, or a folder with one, or with lists for each part
    images: str | None = None  # a folder or archive; none: beside the table
    valid: float = 0.05  # share or number of the images held out where the data names no validation part
    size: int = 64
    fit: Fit = "stretch"
    broken: Broken = "skip"

    @cached_property
    def parts(self) -> dict[str, list[Asked]]:
        lists = self._lists
        found = [each for part in lists for each in read_list(lists[part], part)] if lists else read_table(self._table)
        return parted(found, valid=self.valid, data=self.data)

    def place(self, part: str) -> Path:
        if self._lists:
            part = part if part in self._lists else "train"  # what was held out
            return Path(self.images or self.data) / f"{part}_images.zip"
        return images_beside(self._table, self.parts[part][0].image) if self.images is None else Path(self.images)

    @cached_property
    def _lists(self) -> dict[str, Path]:
        """A list of questions for each part, where the data is of that kind."""
        found = {part: _packed(Path(self.data) / f"{part}_questions.json") for part in ("train", "valid", "test")}
        lists = {part: path for part, path in found.items() if path is not None}
        return lists if "train" in lists else {}

    @cached_property
    def _table(self) -> Path:
        path = Path(self.data)
        if not path.is_dir():
            return path
        for name in TABLES:
            if (there := _packed(path / name)) is not None:
                return there
        raise SaccadeError(
            f"{path}: no questions in this folder; they would be called {', '.join(TABLES)} or train_questions.json"
        )


def read_table(path: Path) -> list[Asked]:
    """Every image once, with all questions about it."""
    lines = enumerate(read_lines(path), start=1)
    columns = [name.strip().lower() for name in next(lines, (1, ""))[1].split("\t")]
    coco = "image_id" in columns
    if missing := [name for name in COLUMNS if name not in columns and not (coco and name == "image")]:
        raise SaccadeError(
            f"{path}:1: no column {' and no '.join(missing)}; the first line names the columns, with tabs between: "
            f"{', '.join(COLUMNS)}, and perhaps split and type; got {', '.join(columns)!r}"
        )
    rows: list[tuple[str, str | None, Question]] = []
    known: dict[str, tuple[str | None, int]] = {}  # the part of each image, and the line that said so
    for number, line in lines:
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != len(columns):
            raise SaccadeError(f"{path}:{number}: {len(cells)} columns, and the first line names {len(columns)}")
        row = dict(zip(columns, cells, strict=True))
        image = _coco_name(row["image_id"], f"{path}:{number}") if coco else PurePosixPath(row["image"]).as_posix()
        if empty := [name for name in COLUMNS[1:] if not row[name]]:
            raise SaccadeError(f"{path}:{number}: no {empty[0]}")
        split = row.get("split") or None
        if split is not None and split not in PARTS:
            raise SaccadeError(f"{path}:{number}: split {split!r} is not one of {', '.join(PARTS)}")
        part = None if split is None else PARTS[split]
        before, first = known.setdefault(image, (part, number))
        if before != part:
            raise SaccadeError(f"{path}:{number}: {image} is in the part {part}, and in line {first} in {before}")
        rows.append((image, part, Question(row["question"], row["answer"], row.get("type") or None)))
    return _by_image(rows, path)


def read_list(path: Path, part: str) -> list[Asked]:
    """Likewise, from a list of [question, answer, number of the image]."""
    try:
        entries: Any = json.loads("\n".join(read_lines(path)))
    except (ValueError, RecursionError) as error:
        raise SaccadeError(f"{path}: not JSON: {error}") from error
    if not isinstance(entries, list):
        raise SaccadeError(f"{path}: not a list of [question, answer, number of the image]")
    return _by_image(((image, part, question) for image, question in _listed(entries, path)), path)


def plain(question: str) -> str:
    """A question as models read it: in small letters, without a mark at its end, which not everybody writes."""
    return " ".join(question.lower().split()).rstrip(" ?!.")


def image_and_question(text: str) -> tuple[str, str]:
    """The two halves of an input: an image file, then a colon or a tab, then a question."""
    image, tab, question = text.partition("\t")
    if not tab:
        found = _WITH_COLON.fullmatch(text.strip())
        image, question = ("", text) if found is None else (found[1], found[2] or "")
    image, question = image.strip(), question.strip()
    if not image:
        raise SaccadeError(
            f"{text!r}: an image before the question is missing, as in {EXAMPLE!r}; a name that does not end with "
            f"{', '.join(IMAGE_ENDINGS)} needs a tab after it"
        )
    if not plain(question):
        raise SaccadeError(f"{text!r}: a question after the image is missing, as in {EXAMPLE!r}")
    return image, question


class Prior:
    """What can be answered without looking: the most frequent answer to the training questions that begin with as many
    of the same words as any do."""

    def __init__(self, questions: Iterable[Question]):
        counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for each in questions:
            words = tuple(plain(each.text).split())
            for count in range(len(words) + 1):
                counts[words[:count]][each.answer] += 1
        self._usual = {words: found.most_common(1)[0][0] for words, found in counts.items()}

    @property
    def most_frequent(self) -> str:
        return self._usual[()]

    def answer(self, question: str) -> str:
        words = tuple(plain(question).split())
        return next(self._usual[words[:count]] for count in range(len(words), -1, -1) if words[:count] in self._usual)


def _by_image(rows: Iterable[tuple[str, str | None, Question]], path: Path) -> list[Asked]:
    questions: dict[tuple[str, str | None], list[Question]] = {}
    for image, part, question in rows:
        questions.setdefault((image, part), []).append(question)
    if not questions:
        raise SaccadeError(f"{path}: no questions in it")
    return [Asked(image, tuple(found), part) for (image, part), found in questions.items()]


def _listed(entries: list[Any], path: Path) -> Iterator[tuple[str, Question]]:
    for number, entry in enumerate(entries, start=1):
        match entry:
            case [str(question), str(answer), int(image)] if question.strip() and answer.strip():
                yield f"{image}.png", Question(question.strip(), answer.strip())
            case _:
                raise SaccadeError(
                    f"{path}: entry {number} is {json.dumps(entry)[:60]}, not [question, answer, number of the image]"
                )


def _coco_name(number: str, place: str) -> str:
    if not number.isdecimal():
        raise SaccadeError(f"{place}: image_id {number!r} is not a number; files of any name go into a column image")
    return f"{int(number):012}.jpg"


def _packed(path: Path) -> Path | None:
    """The file itself, or a packed one."""
    return next((there for end in PACKED if (there := path.with_name(path.name + end)).exists()), None)
