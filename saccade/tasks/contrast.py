"""Images and texts in one space: captioned images in, the right text for an image and the right image for a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.config import Recipe
from saccade.config.images import ClipSettings, ContrastSettings
from saccade.data.captioned import CaptionedImages
from saccade.data.images import Pixels
from saccade.data.lexicon import Lexicon
from saccade.data.pictures import labelled_parts, read_labelled, told
from saccade.data.readers import warn_of_broken
from saccade.data.vocab import Pieces
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.record import record
from saccade.maps.render import AttentionMap, Tokens
from saccade.maps.text import LABEL
from saccade.metrics import Score, accuracy, recalls
from saccade.metrics.score import exchanged
from saccade.modality.image import Augment
from saccade.models import CONTRASTIVE_MODELS
from saccade.models.clip import contrastive_loss, limit_scale
from saccade.models.shapes import DualEncoder
from saccade.tasks.answers import at_rest, wanted_answers
from saccade.tasks.base import Loss, Prediction, Scores, Term
from saccade.tasks.sights import look_at_image
from saccade.tasks.space import (
    TEMPLATE,
    Space,
    Words,
    as_batch,
    chance_of,
    looked_once,
    names_image,
    tokens_of,
    words_in,
)
from saccade.tasks.starting import NOT_OWN, adopt_all
from saccade.tasks.written import padded

AT = (10, 5, 1)  # places within which the right answer counts as found; the first decides
WAYS = ("text to image", "image to text")
EMPTY = "the text is empty: there is nothing to compare images with"
COMPARED = 8  # pairs of the validation part that `look` puts beside a text


@dataclass(frozen=True)
class Captioned:
    """An image, as pixels or as what a frozen encoder saw in it, and all that is said of it."""

    name: str
    image: Pixels | Tensor  # (size, size, 3), or cells (S, C)
    captions: tuple[str, ...]
    tokens: tuple[list[int], ...]
    augment: bool = False


@dataclass(frozen=True)
class ContrastBatch:
    """Different images with one caption each."""

    images: Tensor  # (B, 3, size, size), or cells (B, S, C)
    tokens: Tensor  # (B, T)
    mask: Tensor  # (B, T)
    numbers: tuple[int, ...]
    counts: dict[str, int]


class Contrast:
    """See saccade.tasks.base.Task for what each method is for."""

    indivisible = True  # the loss compares everything in a batch with everything else: no part of a batch has its loss

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, ContrastSettings)
        if recipe.model.kind not in CONTRASTIVE_MODELS:
            raise SaccadeError(
                f"model.kind {recipe.model.kind!r} cannot contrast images and texts; "
                f"there are {', '.join(CONTRASTIVE_MODELS)}"
            )
        assert isinstance(recipe.model, ClipSettings)
        self.recipe, self.settings = recipe, recipe.task
        settings, augment = self.settings, self.settings.augment
        self.data = CaptionedImages.of(settings)
        self._augment = Augment(augment.flip, augment.shift) if augment.flip or augment.shift else None
        self._pieces: Words | None = None
        self._examples: dict[str, list[Captioned]] = {}
        self._broken: list[str] = []

    @property
    def pieces(self) -> Words:
        if self._pieces is None:
            raise SaccadeError("the vocabulary has not been learned yet")
        return self._pieces

    def start(self, vocabulary: Path, recipe: Recipe) -> None:
        """The other run's vocabulary, its model and what it reads: it goes on learning from other pairs."""
        if not isinstance(recipe.task, ContrastSettings):
            raise SaccadeError(f"train.start: a model for {recipe.task.kind} cannot contrast images and texts")
        same = {"size": recipe.task.size, "fit": recipe.task.fit, "longest": recipe.task.longest}
        self.settings = self.settings.model_copy(update=same)
        self.recipe = self.recipe.model_copy(update={"model": recipe.model, "task": self.settings})
        self.data = replace(self.data, size=recipe.task.size, fit=recipe.task.fit)
        self._pieces = words_in(vocabulary)

    def adopt(self, model: DualEncoder, tensors: Mapping[str, Tensor]) -> Sequence[str]:
        return adopt_all(model, tensors, str(self.recipe.train.start), ())

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        return self.recipe, [*self.data.counted(), *([NOT_OWN] if self.recipe.train.start else [])]

    def prepare(self, directory: Path) -> Sequence[str]:
        train = self.data.parts["train"]
        if self.settings.vocabulary is not None and self._pieces is None:
            self._pieces = Lexicon.published("clip", self.settings.vocabulary)
        if self._pieces is None:  # and no other run had one
            captions = (text.lower() for each in train for text in each.captions)
            self._pieces = Pieces.learn(captions, self.settings.pieces)
        self._pieces.save(directory)
        self.examples("train")
        return told(self._broken, len(train), "images")

    def load(self, directory: Path) -> None:
        self._pieces = words_in(directory)

    def examples(self, split: str) -> Sequence[Captioned]:
        if split not in self._examples:
            self._examples[split] = self._captioned(split)
        return self._examples[split]

    def place(self, number: int) -> str:
        return f"{self.settings.data}: {self.examples('train')[number].name}"

    def length(self, example: Captioned) -> int:  # noqa: ARG002 - batches are of so many images
        return 1

    def collate(self, examples: Sequence[Captioned], numbers: Sequence[int]) -> ContrastBatch:
        """One caption of each image, drawn anew each time from the training's own random stream."""
        chosen = [each.tokens[int(torch.randint(len(each.tokens), ()))] for each in examples]
        tokens, mask = padded(chosen)
        images = as_batch([each.image for each in examples])
        if self._augment is not None and examples[0].augment:
            images = self._augment(images)
        count = len(examples)
        return ContrastBatch(images, tokens, mask, tuple(numbers), {"loss": count, "accuracy": count})

    def model(self) -> DualEncoder:
        make, settings = CONTRASTIVE_MODELS[self.recipe.model.kind], self.settings
        return make(self.recipe.model, len(self.pieces), settings.size, settings.longest)

    def loss(self, model: DualEncoder, batch: ContrastBatch) -> Loss:
        limit_scale(model)
        similarity = model(model.embed_left(batch.images), model.embed_right(batch.tokens, batch.mask))
        loss, right = contrastive_loss(similarity)
        return {"loss": Term(loss), "accuracy": Term(right, weight=0.0)}

    def predict(self, model: DualEncoder, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """For each image file, the texts that fit it best, those among the inputs or else the captions of the
        validation part; for each text, the images among the inputs that do. The score is the cosine."""
        names = list(dict.fromkeys(each for each in inputs if names_image(each)))
        texts = list(dict.fromkeys(each for each in inputs if each.strip() and each not in names))
        found = list(zip(names, self.data.pixels(names), strict=True))
        refusals = {name: each for name, each in found if isinstance(each, str)}
        pixels = {name: each for name, each in found if not isinstance(each, str)}
        if not pixels:
            alone = "there is no image among the inputs that {!r} could be compared with"
            return [Prediction(each, refusal=refusals.get(each, alone.format(each))) for each in inputs]
        answers = self.space(model).matched(texts or self._captions(), pixels, wanted_answers(method))
        return [
            Prediction(each, answers.get(each, ()), refusal=None if each in answers else refusals.get(each, EMPTY))
            for each in inputs
        ]

    def score(self, model: DualEncoder) -> Scores:
        """How often the right one is found, of the whole validation part."""
        examples = self.examples("valid")
        similarity, right = self._compared(model, examples)
        scores = recalls(similarity, right, at=AT, ways=WAYS)
        firsts = np.cumsum([0, *(len(each.captions) for each in examples)])[:-1]  # one caption of each image
        nearest = similarity[firsts].argmax(1)
        samples = [
            (each.captions[0], examples[place].name, each.name) for each, place in zip(examples, nearest, strict=True)
        ]
        return Scores(scores[0].name, {score.name: score.value for score in scores}, samples)

    def evaluate(self, model: DualEncoder, split: str) -> Sequence[Score]:
        """Recall both ways, each with its chance level; the baseline and the control; and zero-shot where asked for."""
        similarity, right = self._compared(model, self.examples(split))
        order = exchanged(range(right.shape[1]))
        found = recalls(similarity, right, at=AT, ways=WAYS)
        chances = [chance_of(correct.sum(1), correct.shape[1], k) for correct in (right, right.T) for k in AT]
        controls = recalls(similarity, right[:, order], at=AT, ways=WAYS)
        size = f"{right.shape[0]:,} texts, {right.shape[1]:,} images"
        return [
            *(
                Score(score.name, score.value, score.interval, f"chance {chance:.1f}; {size}")
                for score, chance in zip(found, chances, strict=True)
            ),
            Score(f"baseline {found[0].name}", chances[0], None, "chance"),
            *(
                Score(f"control {score.name}", score.value, score.interval, "captions shuffled against images")
                for score in controls
            ),
            *self._zero_shot_scores(model),
        ]

    def zero_shot(
        self, model: DualEncoder, images: Sequence[Pixels], labels: Sequence[str], template: str = TEMPLATE
    ) -> Tensor:
        """Probabilities (images, labels) of labels that the model was never trained to give."""
        return self.space(model).zero_shot(images, labels, template)

    def space(self, model: DualEncoder) -> Space:
        """To put other images and texts into, and to search in."""
        return Space(model, self.pieces, self.settings.size, self.settings.longest, self.settings.fit)

    def look(
        self, model: DualEncoder, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        """Which image a text would choose among some of the validation part, and `target`, an image file, if given;
        beside it what their own captions would choose. Then how the text was read, and where the image was looked at.
        """
        space, given = self.space(model), None
        # a model is used where its data is not, too
        held = self.examples("valid") if Path(self.settings.data).exists() else ()
        own = [each for each in held if text in each.captions][:1]
        others = [each for each in held if text not in each.captions][:COMPARED]
        texts = (text, *(each.captions[0] for each in others))
        names = [each.name for each in (*own, *others)]
        looked = [space.images([each.image for each in (*own, *others)])] if names else []
        if target is not None:
            given = self.data.pixels([target])[0]
            if isinstance(given, str):
                raise SaccadeError(given)
            names, looked = [target, *names], [space.images([given]), *looked]
        maps = []
        if len(names) > 1:
            chosen = space.chances(space.texts(texts), torch.cat(looked))
            shown = tuple(each for each in self.data.pixels(names) if not isinstance(each, str))
            images = Tokens(tuple(_end_of(Path(name).name) for name in names), shown)
            maps += [AttentionMap("which image each text chooses", chosen[None], Tokens(texts), images)]
        maps += self._reading(model, text, pieces)
        if given is not None:
            maps += look_at_image(model.left, given, "what the image is known by")  # type: ignore[arg-type]
        return maps

    def _captions(self) -> list[str]:
        try:
            return list(dict.fromkeys(text for each in self.examples("valid") for text in each.captions))
        except SaccadeError as error:
            raise SaccadeError(f"{error}; give texts beside the images, to choose among these") from error

    def _captioned(self, part: str) -> list[Captioned]:
        there, self._broken = self.data.read(part)
        images = self._seen([pixels for _, pixels in there])
        tokens = (tokens_of(self.pieces, each.captions, self.settings.longest) for each, _ in there)
        return [
            Captioned(each.image, image, each.captions, tuple(ids), augment=part == "train")
            for (each, _), image, ids in zip(there, images, tokens, strict=True)
        ]

    def _seen(self, images: Sequence[Pixels]) -> Sequence[Pixels | Tensor]:
        """What a frozen encoder sees in each image, in half precision; the images themselves where there is none."""
        # an encoder that learns nothing sees the same in the same image: it need look only once
        model = self.recipe.model
        frozen = isinstance(model, ClipSettings) and model.image.kind == "efficientnet" and self._augment is None
        return looked_once(images) if frozen else images

    def _compared(self, model: DualEncoder, examples: Sequence[Captioned]) -> tuple[np.ndarray, np.ndarray]:
        """Cosines of all captions with all images, (texts, images), and which belong together."""
        owner = np.repeat(np.arange(len(examples)), [len(each.captions) for each in examples])
        texts = self.space(model).texts([text for each in examples for text in each.captions])
        images = self.space(model).images([each.image for each in examples])
        return (texts @ images.T).numpy(), owner[:, None] == np.arange(len(examples))

    def _zero_shot_scores(self, model: DualEncoder) -> list[Score]:
        if self.settings.zero_shot is None:
            return []
        settings, given = self.settings, labelled_parts(self.settings.zero_shot)
        source = given.get("test", given["train"])
        data = read_labelled(source, size=settings.size, fit=settings.fit, broken=settings.broken)
        warn_of_broken(data.broken, "zero-shot", self.settings.zero_shot)
        labels = sorted(set(data.labels))
        answers = [labels[place] for place in self.zero_shot(model, list(data.pixels), labels).argmax(1).tolist()]
        usual = max(labels, key=data.labels.count)
        scores = {
            f"of {len(data):,} images": ("zero-shot accuracy", accuracy(answers, data.labels)),
            f"always {usual}": ("zero-shot baseline", accuracy([usual] * len(data), data.labels)),
            "images shuffled against labels": ("zero-shot control", accuracy(exchanged(answers), data.labels)),
        }
        return [Score(name, score.value, score.interval, how) for how, (name, score) in scores.items()]

    def _reading(self, model: DualEncoder, text: str, pieces: bool) -> list[AttentionMap]:
        """What each word of the text looked at."""
        ids = self.space(model).tokens([text])[0]
        axis, words = Tokens(tuple(self.pieces.pieces(ids))), self.pieces.words(ids)
        encoder: Any = model.right
        with at_rest(model), record(encoder) as recording:
            encoder(torch.tensor([ids]))
        layers = enumerate(recording, start=1)
        maps = [AttentionMap(f"text block {n}, self-attention", seen.weights[0], axis, axis) for n, seen in layers]
        return maps if pieces else [each.grouped(words, words) for each in maps]


def _end_of(name: str) -> str:
    """Of a long file name, where files of one place differ."""
    return name if len(name) <= LABEL else f"…{name[1 - LABEL :]}"
