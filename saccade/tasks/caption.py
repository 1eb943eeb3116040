"""Captioning: an image in, a sentence that describes it out; scored by real decoding against several references.

loss = token loss + weight x mean over images of  sum_i (1 - sum_t a_ti)^2,  a the mean of all cross-attentions

The second term wants every cell of the image to be looked at once in a caption (Xu et al. 2015). CIDEr-D decides: it
counts what tells an image from others, where BLEU is content with "a man on a" for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.config import Recipe
from saccade.config.captions import CaptionSettings, CaptionTransformerSettings, ShowAttendTellSettings
from saccade.data.captioned import CaptionedImages
from saccade.data.images import Pixels
from saccade.data.pictures import told
from saccade.data.readers import hash_of
from saccade.data.vocab import END, START, Pieces
from saccade.decode import Hypothesis, Method
from saccade.errors import SaccadeError
from saccade.maps.record import watched
from saccade.maps.render import AttentionMap
from saccade.metrics import Score, caption_bleu, cider_d, rouge_l
from saccade.metrics.score import exchanged
from saccade.modality.image import Augment
from saccade.models import CAPTIONERS
from saccade.models.shapes import EncoderDecoder
from saccade.nn.losses import doubly_stochastic
from saccade.tasks.alignment import cross_attentions
from saccade.tasks.answers import Plan, validation_method
from saccade.tasks.base import Loss, Prediction, Scores, Term
from saccade.tasks.sights import look_while_describing, predictions_of, search_descriptions
from saccade.tasks.space import as_batch, looked_once
from saccade.tasks.written import WrittenBatch, load_most_frequent, save_most_frequent, written_batch, written_loss

EVEN = "doubly_stochastic"  # name of the second term of the loss


@dataclass(frozen=True, eq=False)
class Picture:
    """An image, as pixels or as what a frozen encoder saw in it, and all that is said of it."""

    name: str
    image: Pixels | Tensor  # (size, size, 3), or cells (S, C) in half precision
    captions: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Example:
    """One caption of an image; the others are examples with the same image."""

    picture: Picture
    target: list[int]


class CaptionImages:
    """See saccade.tasks.base.Task for what each method is for."""

    FILE = "captions.json"

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, CaptionSettings)
        if not isinstance(recipe.model, ShowAttendTellSettings | CaptionTransformerSettings):
            raise SaccadeError(
                f"model.kind {recipe.model.kind!r} cannot describe images; there are {', '.join(CAPTIONERS)}"
            )
        if recipe.decode.coverage_penalty:
            raise SaccadeError("decode.coverage_penalty is for words of a source, and images have none: set it to 0")
        self.recipe, self.settings = recipe, recipe.task
        settings, augment = self.settings, self.settings.augment
        self.data = CaptionedImages.of(settings)
        self._augment = Augment(augment.flip, augment.shift) if augment.flip or augment.shift else None
        # an encoder that learns nothing sees the same in the same image: it need look only once
        self._looks_once = recipe.model.image.kind == "efficientnet" and self._augment is None
        self._attends = getattr(recipe.model, "attend", True)
        self._pieces: Pieces | None = None
        self._frequent = ""
        self._pictures: dict[str, list[Picture]] = {}
        self._examples: dict[str, list[Example]] = {}

    @property
    def vocabulary(self) -> Pieces:
        if self._pieces is None:
            raise SaccadeError("the vocabulary has not been learned yet")
        return self._pieces

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        return self.recipe, self.data.counted()

    def prepare(self, directory: Path) -> Sequence[str]:
        texts = [text.lower() for each in self.data.parts["train"] for text in each.captions]
        self._pieces = Pieces.learn(texts, self.settings.pieces)
        self._pieces.save(directory)
        self._frequent = save_most_frequent(directory / self.FILE, texts)
        there, broken = self.data.read("train")
        self._pictures["train"] = self._seen(there)
        notes = told(broken, len(there) + len(broken), "images")
        written = sum(len(each.captions) for each in self._pictures["train"])
        if long := written - len(self.examples("train")):
            notes.append(f"captions of more than {self.settings.longest} pieces are left out, {long:,} of {written:,}")
        if self._looks_once:
            notes.append("the frozen encoder looked at every image once; what it saw is kept in half precision")
        return notes

    def load(self, directory: Path) -> None:
        self._pieces = Pieces.load(directory)
        self._frequent = load_most_frequent(directory / self.FILE)

    def place(self, number: int) -> str:
        return f"{self.settings.data}: {self.examples('train')[number].picture.name}"

    def pictures(self, split: str) -> Sequence[Picture]:
        """Every image of a part once."""
        if split not in self._pictures:
            self._pictures[split] = self._seen(self.data.read(split)[0])
        return self._pictures[split]

    def examples(self, split: str) -> Sequence[Example]:
        if split not in self._examples:
            pictures = self.pictures(split)
            targets = iter(self.vocabulary.encode_all([text.lower() for each in pictures for text in each.captions]))
            found = [Example(each, next(targets)) for each in pictures for _ in each.captions]
            self._examples[split] = [each for each in found if len(each.target) <= self.settings.longest]
            if not self._examples[split]:
                raise SaccadeError(
                    f"{self.settings.data}: every caption of the part {split} has more than task.longest="
                    f"{self.settings.longest} pieces"
                )
        return self._examples[split]

    def length(self, example: Example) -> int:
        return len(example.target) + 1

    def collate(self, examples: Sequence[Example], numbers: Sequence[int]) -> WrittenBatch:
        images = as_batch([each.picture.image for each in examples])
        batch = written_batch(images, None, [each.target for each in examples], numbers)
        return replace(batch, counts=batch.counts | {EVEN: len(examples)}) if self._evens else batch

    def model(self) -> EncoderDecoder:
        return CAPTIONERS[self.recipe.model.kind](self.recipe.model, len(self.vocabulary), self.settings.size)

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        if self._augment is not None and model.training:
            batch = replace(batch, source=self._augment(batch.source))
        smoothing = self.recipe.train.smoothing
        if not self._evens:
            return written_loss(model, batch, smoothing=smoothing)
        with watched([attention for _, attention in cross_attentions(model)]) as seen:
            loss = written_loss(model, batch, smoothing=smoothing)
        looked = torch.stack([torch.cat(steps, dim=2).mean(1) for steps in seen]).mean(0)  # (B, T, S)
        uneven = doubly_stochastic(looked.float(), batch.target_mask)
        return {**loss, EVEN: Term(uneven, self.settings.doubly_stochastic)}

    def predict(self, model: EncoderDecoder, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """Of image files, or of images of the validation part by name."""
        read = self.data.pixels(inputs)
        found = self._answers(model, [pixels for pixels in read if not isinstance(pixels, str)], method)
        return predictions_of(inputs, read, found, self.vocabulary)

    def score(self, model: EncoderDecoder) -> Scores:
        """Of some validation images, chosen by hash."""
        chosen = sorted(self.pictures("valid"), key=lambda each: hash_of(each.name))[: self.settings.valid_examples]
        found = self._answers(model, [each.image for each in chosen], validation_method(self.recipe.decode))
        answers = [self.vocabulary.decode(hypotheses[0].tokens) for hypotheses in found]
        references = [each.captions for each in chosen]
        values = {
            "cider_d": cider_d(answers, references).value,
            "bleu_4": caption_bleu(answers, references)[-1].value,
            "different": len(set(answers)) / len(answers),  # a captioner that is blind says the same of all
            "cut": sum(hypotheses[0].stopped != "eos" for hypotheses in found) / len(found),
        }
        samples = [(each.name, answer, each.captions[0]) for each, answer in zip(chosen, answers, strict=True)]
        return Scores("cider_d", values, samples)

    def evaluate(self, model: EncoderDecoder, split: str) -> Sequence[Score]:
        """Of the whole part, by the recipe's search."""
        pictures = self.pictures(split)
        found = self._answers(model, [each.image for each in pictures])
        answers = [self.vocabulary.decode(hypotheses[0].tokens) for hypotheses in found]
        references = [each.captions for each in pictures]
        frequent = [self._frequent] * len(answers)
        return [
            cider_d(answers, references, interval=True),
            *caption_bleu(answers, references, interval=True),
            rouge_l(answers, references, interval=True),
            *_compared(frequent, references, f"of always {self._frequent!r}"),
            *_compared(exchanged(answers), references, "with captions shuffled against images"),
        ]

    def look(
        self, model: EncoderDecoder, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        """Words against cells of the image in the file `text`, or of a validation image of that name; then how the
        image encoder looked at it, where it attends."""
        pixels = self.data.pixels([text])[0]
        if isinstance(pixels, str):
            raise SaccadeError(pixels)
        if target is None:
            ((hypothesis, *_),) = self._answers(model, [pixels])
            ids = list(hypothesis.tokens)
        else:
            ids = self.vocabulary.encode(target.lower())
        groups = None if pieces else (self.vocabulary.words([*ids, END]), self.vocabulary.words([START, *ids]))
        return look_while_describing(model, pixels, ids, self.vocabulary, groups)

    @property
    def _evens(self) -> bool:
        return self._attends and self.settings.doubly_stochastic > 0

    def _answers(
        self, model: EncoderDecoder, images: Sequence[Pixels | Tensor], method: Method | None = None
    ) -> list[list[Hypothesis]]:
        """Hypotheses for each image, best first."""
        plan = Plan.of(self.recipe.decode, self.vocabulary, method)
        return search_descriptions(model, images, self.settings.longest + 1, plan)

    def _seen(self, there: Sequence[tuple[Any, Pixels]]) -> list[Picture]:
        """With what a frozen encoder sees in place of the pixels; with these where there is none."""
        pixels = [pixels for _, pixels in there]
        images: Sequence[Pixels | Tensor] = looked_once(pixels) if self._looks_once else pixels
        return [Picture(each.image, image, each.captions) for (each, _), image in zip(there, images, strict=True)]


def _compared(answers: Sequence[str], references: Sequence[Sequence[str]], whose: str) -> list[Score]:
    """CIDEr-D, BLEU-4 and ROUGE-L of what is only there to be compared with."""
    bleu_4 = caption_bleu(answers, references, interval=True)[-1]
    scores = cider_d(answers, references, interval=True), bleu_4, rouge_l(answers, references, interval=True)
    return [replace(score, name=f"{score.name} {whose}") for score in scores]
