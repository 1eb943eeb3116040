"""Classification of images: folders of classes or IDX files in, a label with its probability out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import Recipe
from saccade.config.images import ClassifyImagesSettings
from saccade.data.images import Pixels
from saccade.data.pictures import (
    Labelled,
    Source,
    held_out,
    labelled_parts,
    read_files,
    read_labelled,
    told,
    usual_side,
)
from saccade.data.readers import warn_of_broken
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.metrics import Confusion, Score, confusion
from saccade.modality.image import Augment, to_tensor
from saccade.models import IMAGE_CLASSIFIERS
from saccade.models.shapes import EncoderOnly
from saccade.tasks.answers import at_rest, refuse_target, wanted_answers
from saccade.tasks.base import Answer, Loss, Prediction, Scores, Term
from saccade.tasks.labels import label_scores, read_labels, write_labels
from saccade.tasks.sights import look_at_image

LARGEST = 64  # pixels of a side where nobody says how large images are to be
AT_ONCE = 256  # images that are classified together


@dataclass(frozen=True)
class Picture:
    """An image, the number of its label, and whether it is changed a little each time."""

    pixels: Pixels  # (size, size, 3)
    label: int
    name: str
    augment: bool = False


@dataclass(frozen=True)
class ImageBatch:
    """Images with their labels."""

    images: Tensor  # (B, 3, size, size)
    labels: Tensor  # (B,)
    numbers: tuple[int, ...]
    counts: dict[str, int]


class ClassifyImages:
    """See saccade.tasks.base.Task for what each method is for."""

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, ClassifyImagesSettings)
        self.recipe, self.settings = recipe, recipe.task
        if recipe.model.kind not in IMAGE_CLASSIFIERS:
            raise SaccadeError(
                f"model.kind {recipe.model.kind!r} cannot classify images; there are {', '.join(IMAGE_CLASSIFIERS)}"
            )
        self.labels: tuple[str, ...] = ()
        self._known: dict[str, Labelled] = {}  # parts of the data that were read

    @property
    def size(self) -> int:
        if self.settings.size is None:
            raise SaccadeError("task.size has not been decided yet")
        return self.settings.size

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        reasons = []
        if self.settings.size is None:
            usual, step = usual_side(self._parts["train"]), getattr(self.recipe.model, "patch", 1)
            size = max(min(usual, LARGEST) // step, 1) * step
            reasons.append(f"images are made {size} x {size}: most have {usual} pixels on their shorter side")
            self.settings = self.settings.model_copy(update={"size": size})
            self.recipe = self.recipe.model_copy(update={"task": self.settings})
        train, valid = (len(numbers) for numbers in self._held)
        if "valid" in self._parts:
            valid = len(self._data("valid"))
        if not train or not valid:
            raise SaccadeError(
                f"{self.settings.data}: {train} images are left for training and {valid} for validation; "
                "give more images, or another task.valid"
            )
        classes = len(set(self._data("train").labels))
        counted = f"{train:,} images of {classes} classes to train on, {valid:,} to validate on"
        return self.recipe, [counted, *reasons]

    def prepare(self, directory: Path) -> Sequence[str]:
        data = self._data("train")
        self.labels = tuple(sorted(set(data.labels)))
        if len(self.labels) < 2:
            raise SaccadeError(
                f"{self._parts['train']}: one class only, {self.labels[0]!r}: there is nothing to choose"
            )
        write_labels(directory, self.labels)
        self.examples("valid")  # a label that is in no training image is refused now, not after a thousand updates
        return told(data.broken, len(data) + len(data.broken), "images")

    def load(self, directory: Path) -> None:
        self.labels = read_labels(directory)

    def examples(self, split: str) -> Sequence[Picture]:
        known = {label: number for number, label in enumerate(self.labels)}
        part = "valid" if split == "valid" and "valid" in self._parts else "test" if split == "test" else "train"
        data = self._data(part)
        if strange := sorted(set(data.labels) - known.keys()):
            raise SaccadeError(f"{self._parts[part]}: label {strange[0]!r} is in no training image")
        numbers: Sequence[int] = range(len(data))
        if part == "train":
            numbers = self._held[0 if split == "train" else 1]
        fresh = split == "train"
        return [Picture(data.pixels[n], known[data.labels[n]], data.names[n], augment=fresh) for n in numbers]

    def place(self, number: int) -> str:
        return f"{self._parts['train']}: {self._data('train').names[self._held[0][number]]}"

    def length(self, example: Picture) -> int:  # noqa: ARG002 - all images cost the same
        return 1

    def collate(self, examples: Sequence[Picture], numbers: Sequence[int]) -> ImageBatch:
        images = to_tensor(np.stack([example.pixels for example in examples]))
        augment = self.settings.augment
        if examples[0].augment and (augment.flip or augment.shift):
            images = Augment(augment.flip, augment.shift)(images)
        count = len(examples)
        labels = torch.tensor([example.label for example in examples])
        return ImageBatch(images, labels, tuple(numbers), {"loss": count, "accuracy": count})

    def model(self) -> EncoderOnly:
        return IMAGE_CLASSIFIERS[self.recipe.model.kind](self.recipe.model, len(self.labels), self.size)

    def loss(self, model: EncoderOnly, batch: ImageBatch) -> Loss:
        logits = model(batch.images)
        smoothing = self.recipe.train.smoothing
        return {
            "loss": Term(F.cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=smoothing)),
            "accuracy": Term((logits.argmax(-1) == batch.labels).sum(), weight=0.0),
        }

    def predict(self, model: EncoderOnly, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """Labels of image files, or of images of the validation part by name, the most probable first; the score is the
        probability."""
        found = self._read(inputs)
        readable = [pixels for pixels in found if not isinstance(pixels, str)]
        ranked = iter(self._ranked(model, readable, wanted_answers(method)))
        return [
            Prediction(name, refusal=seen) if isinstance(seen, str) else Prediction(name, next(ranked))
            for name, seen in zip(inputs, found, strict=True)
        ]

    def score(self, model: EncoderOnly) -> Scores:
        answers, references = self._answered(model, "valid")
        names = [picture.name for picture in self.examples("valid")]
        right = sum(answer == truth for answer, truth in zip(answers, references, strict=True))
        samples = list(zip(names, answers, references, strict=True))
        return Scores("accuracy", {"accuracy": right / len(answers)}, samples)

    def evaluate(self, model: EncoderOnly, split: str) -> Sequence[Score]:
        """Accuracy, macro F1, the trivial baseline, the control; then label by label, the worst first."""
        answers, references = self._answered(model, split)
        usual = Counter(picture.label for picture in self.examples("train")).most_common(1)[0][0]
        return label_scores(answers, references, self.labels, usual=self.labels[usual], what="images")

    def confusion(self, model: EncoderOnly, split: str) -> Confusion:
        """How often each label (row) was answered with each label (column)."""
        return confusion(*self._answered(model, split), self.labels)

    def look(
        self,
        model: EncoderOnly,
        text: str,
        target: str | None = None,
        *,
        pieces: bool = False,  # noqa: ARG002
    ) -> list[AttentionMap]:
        """Where the model looks in an image file: how the image comes to the answer, then every layer."""
        refuse_target(target)
        pixels = self._read([text])[0]
        if isinstance(pixels, str):
            raise SaccadeError(pixels)
        answer = self._ranked(model, [pixels], 1)[0][0].text
        return look_at_image(model.encoder, pixels, f"what made it {answer}")  # type: ignore[arg-type]

    @cached_property
    def _parts(self) -> dict[str, Source]:
        """Where each part is; a validation part only if the data names one."""
        parts = labelled_parts(self.settings.data)
        if self.settings.test is not None:
            given = labelled_parts(self.settings.test)
            parts["test"] = given.get("test", given["train"])
        return parts

    @cached_property
    def _held(self) -> tuple[list[int], list[int]]:
        """Numbers of the training images to train on and to validate on: images that are the same are on one side."""
        data = self._data("train")
        if "valid" in self._parts:
            return list(range(len(data))), []
        return held_out((image.tobytes().decode("latin-1") for image in data.pixels), self.settings.valid)

    def _data(self, part: str) -> Labelled:
        """Read once, when it is first asked for."""
        if part not in self._parts:
            there = ", ".join(self._parts)
            raise SaccadeError(
                f"{self.settings.data}: no part called {part}, only {there}; task.test may name a test part"
            )
        if part not in self._known:
            settings = self.settings
            self._known[part] = read_labelled(
                self._parts[part], size=self.size, fit=settings.fit, names=settings.names, broken=settings.broken
            )
            warn_of_broken(self._known[part].broken, part, settings.data)
        return self._known[part]

    def _read(self, inputs: Sequence[str]) -> list[Pixels | str]:
        """Pixels of files, or of images of the validation part by name; or why there are none."""
        files = read_files(inputs, size=self.size, fit=self.settings.fit)
        known = self._named() if any(isinstance(seen, str) for seen in files) else {}
        return [
            known.get(name, seen) if isinstance(seen, str) else seen for name, seen in zip(inputs, files, strict=True)
        ]

    def _named(self) -> dict[str, Pixels]:
        try:
            return {picture.name: picture.pixels for picture in self.examples("valid")}
        except SaccadeError:  # a model is used where its data is not
            return {}

    def _ranked(self, model: EncoderOnly, pixels: Sequence[Pixels], best: int) -> list[tuple[Answer, ...]]:
        """The most probable labels of each image."""
        ranked = []
        with at_rest(model):
            for first in range(0, len(pixels), AT_ONCE):
                share = model(to_tensor(np.stack(pixels[first : first + AT_ONCE]))).softmax(-1)  # (B, labels)
                top = share.topk(min(best, len(self.labels)))
                for probabilities, places in zip(top.values.tolist(), top.indices.tolist(), strict=True):
                    pairs = zip(probabilities, places, strict=True)
                    ranked.append(tuple(Answer(self.labels[place], probability) for probability, place in pairs))
        return ranked

    def _answered(self, model: EncoderOnly, split: str) -> tuple[list[str], list[str]]:
        """The model's answers for a part of the data, and the truth."""
        pictures = self.examples(split)
        ranked = self._ranked(model, [picture.pixels for picture in pictures], 1)
        return [best.text for (best,) in ranked], [self.labels[picture.label] for picture in pictures]
