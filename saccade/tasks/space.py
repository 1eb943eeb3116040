"""One space for images and texts: putting both into it, searching images by text, labels that nobody trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.config.images import Fit
from saccade.data.archives import open_files
from saccade.data.images import Pixels
from saccade.data.lexicon import Lexicon
from saccade.data.pictures import is_image, read_named
from saccade.data.readers import is_file
from saccade.data.vocab import Pieces
from saccade.errors import SaccadeError
from saccade.modality.image import to_tensor
from saccade.models.cnn import FrozenEye
from saccade.models.shapes import DualEncoder
from saccade.tasks.answers import at_rest
from saccade.tasks.base import Answer
from saccade.tasks.written import padded

Words = Pieces | Lexicon  # learned pieces, or a published vocabulary, whose texts have marks around them

AT_ONCE = 64  # images or texts that are embedded together
TEMPLATE = "a photo of a {}"


@dataclass(frozen=True)
class Looked:
    """Images of a folder or archive: how similar each is to a text, which could not be read, how many are to come."""

    images: Sequence[tuple[str, float]]
    refusals: Sequence[str]
    left: int


@dataclass(frozen=True)
class Space:
    """A model with what it needs to read: pieces of `longest` at most, images of `size` x `size` pixels."""

    model: DualEncoder
    pieces: Words
    size: int
    longest: int
    fit: Fit = "stretch"

    def images(self, images: Sequence[Pixels | Tensor]) -> Tensor:
        """Pixels (size, size, 3), or cells that a frozen encoder saw before -> (N, D), of length one."""
        with at_rest(self.model):
            return torch.cat([self.model.embed_left(as_batch(part)) for part in in_parts(images)])

    def texts(self, texts: Sequence[str]) -> Tensor:
        """(N, D), of length one."""
        with at_rest(self.model):
            return torch.cat([self.model.embed_right(*padded(list(part))) for part in in_parts(self.tokens(texts))])

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        return tokens_of(self.pieces, texts, self.longest)

    def chances(self, asking: Tensor, answers: Tensor) -> Tensor:
        """How probable each answer is, (N, D), (M, D) -> (N, M), rows summing to one."""
        with at_rest(self.model):
            return self.model(asking, answers).softmax(-1)

    def zero_shot(self, images: Sequence[Pixels], labels: Sequence[str], template: str = TEMPLATE) -> Tensor:
        """Probabilities (images, labels) of labels that the model was never trained to give (Radford et al. 2021)."""
        return self.chances(self.images(images), self.texts([template.format(label) for label in labels]))

    def matched(self, texts: Sequence[str], images: Mapping[str, Pixels], best: int) -> dict[str, tuple[Answer, ...]]:
        """For each text the images that fit it best, for each image the texts; the score is the cosine."""
        cosines = self.texts(texts) @ self.images(list(images.values())).T  # (texts, images)

        def ranked(row: Tensor, names: Sequence[str]) -> tuple[Answer, ...]:
            found = row.topk(min(best, len(names)))
            pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
            return tuple(Answer(names[place], cosine) for place, cosine in pairs)

        names = list(images)
        of_texts = {text: ranked(row, names) for text, row in zip(texts, cosines, strict=True)}
        return of_texts | {name: ranked(row, texts) for name, row in zip(names, cosines.T, strict=True)}

    def search(self, text: str, path: str | Path) -> Iterator[Looked]:
        """Compare the images of a folder or archive with a text, some at a time."""
        wanted = self.texts([text])[0]
        with open_files(path) as files:
            names = [name for name in files.names() if is_image(name)]
            if not names:
                raise SaccadeError(f"{path}: no image in it")
            left = len(names)
            for part in in_parts(names):
                read = list(zip(part, read_named(files, part, size=self.size, fit=self.fit), strict=True))
                there = {name: pixels for name, pixels in read if not isinstance(pixels, str)}
                cosines = (self.images(list(there.values())) @ wanted).tolist() if there else []
                left -= len(part)
                found = list(zip(there, cosines, strict=True))
                yield Looked(found, [why for _, why in read if isinstance(why, str)], left)


def names_image(text: str) -> bool:
    """Whether an input is the name of an image, and not a text."""
    return is_image(text) or is_file(text)


def words_in(directory: Path) -> Words:
    """The vocabulary that a run has."""
    return Lexicon.load(directory) if (directory / Lexicon.MARKS).is_file() else Pieces.load(directory)


def tokens_of(pieces: Words, texts: Sequence[str], longest: int) -> list[list[int]]:
    """In small letters, as the paper has it, and without what is beyond `longest`, marks counted."""
    if not all(text.strip() for text in texts):
        raise SaccadeError("the text is empty: there is nothing to compare images with")
    found = pieces.encode_all([text.lower() for text in texts])
    if isinstance(pieces, Pieces):
        return [ids[:longest] for ids in found]
    return [[pieces.marks.start, *ids[: max(longest - 2, 0)], pieces.marks.end] for ids in found]


def as_batch(images: Sequence[Pixels | Tensor]) -> Tensor:
    """Pixels as (B, 3, H, W), cells as (B, S, C)."""
    cells = [image for image in images if isinstance(image, Tensor)]
    return torch.stack(cells).float() if cells else to_tensor(np.stack(list(images)))


def looked_once(images: Sequence[Pixels]) -> list[Tensor]:
    """The cells (S, C) that a frozen encoder sees in each image, in half precision: it need never look again."""
    eye = FrozenEye()
    with torch.no_grad():
        return [cells.half() for part in in_parts(images) for cells in eye(as_batch(part))]


def in_parts(items: Sequence) -> Iterator[Sequence]:
    """A few at a time."""
    return (items[first : first + AT_ONCE] for first in range(0, len(items), AT_ONCE))


def chance_of(correct: np.ndarray, answers: int, k: int) -> float:
    """In percent, how often one of the correct answers is among k blindly chosen ones: 1 - C(wrong, k) / C(all, k)."""
    k = min(k, answers)
    misses = [math.comb(answers - int(right), k) / math.comb(answers, k) for right in correct]
    return 100 * (1 - sum(misses) / len(misses))
