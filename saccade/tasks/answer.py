"""Answering questions about images: an image and a question in, one of the answers of the training part out.

An example is an image with all that is asked about it, which is therefore seen once. How much a model owes to its eyes
is told by what is right without them: the answer that is usual after the same words, a model that only reads
(`model.sees: question`), and the model itself when it is shown other images.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import Recipe
from saccade.config.questions import AnswerSettings, StackedAttentionSettings, VQATransformerSettings
from saccade.data.images import Pixels
from saccade.data.pictures import told
from saccade.data.questions import Asked, AskedImages, Prior, Question, image_and_question, plain
from saccade.data.vocab import Pieces
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.metrics import Score, accuracy, macro_f1
from saccade.metrics.score import exchanged
from saccade.models import ANSWERERS
from saccade.models.ask_attend_answer import Answerer
from saccade.tasks.answers import at_rest, refuse_target, wanted_answers
from saccade.tasks.asking import look_while_answering
from saccade.tasks.base import Answer, Loss, Prediction, Scores, Term
from saccade.tasks.sights import look_at_image
from saccade.tasks.space import as_batch, in_parts, looked_once
from saccade.tasks.written import padded

UNKNOWN = -1  # number of an answer that is in no training question
SORTS = 12  # sorts of questions that `evaluate` speaks of one by one

Look = tuple[Pixels | Tensor, Sequence[int]]  # an image, and the pieces of a question about it


@dataclass(frozen=True, eq=False)
class Picture:
    """An image, as pixels or as what a frozen encoder saw in it, and all that is asked about it."""

    name: str
    image: Pixels | Tensor  # (size, size, 3), or cells (S, C) in half precision
    questions: tuple[Question, ...]
    tokens: tuple[list[int], ...]
    answers: tuple[int, ...]


@dataclass(frozen=True)
class QuestionBatch:
    """Images, questions about them, and the numbers of the right answers."""

    images: Tensor  # (B, 3, size, size), or cells (B, S, C)
    about: Tensor  # (Q,): which of the images
    tokens: Tensor  # (Q, T)
    mask: Tensor  # (Q, T)
    answers: Tensor  # (Q,)
    numbers: tuple[int, ...]
    counts: dict[str, int]


class AnswerQuestions:
    """See saccade.tasks.base.Task for what each method is for."""

    FILE = "answers.json"

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, AnswerSettings)
        if not isinstance(recipe.model, StackedAttentionSettings | VQATransformerSettings):
            raise SaccadeError(
                f"model.kind {recipe.model.kind!r} cannot answer questions about images; "
                f"there are {', '.join(ANSWERERS)}"
            )
        self.recipe, self.settings, self._sees = recipe, recipe.task, recipe.model.sees
        settings = self.settings
        self.data = AskedImages(
            settings.data, settings.images, settings.valid, settings.size, settings.fit, settings.broken
        )
        # an encoder that learns nothing sees the same in the same image: it need look only once
        self._looks_once = recipe.model.image.kind == "efficientnet" and self._sees != "question"
        self._pieces: Pieces | None = None
        self.answers: tuple[str, ...] = ()
        self._pictures: dict[str, list[Picture]] = {}

    @property
    def vocabulary(self) -> Pieces:
        if self._pieces is None:
            raise SaccadeError("the vocabulary has not been learned yet")
        return self._pieces

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        return self.recipe, [
            f"{part}: {len(found):,} images, {len(_all(found)):,} questions" for part, found in self.data.parts.items()
        ]

    def prepare(self, directory: Path) -> Sequence[str]:
        asked = _all(self.data.parts["train"])
        self.answers = tuple(sorted({each.answer for each in asked}))
        if len(self.answers) < 2:
            raise SaccadeError(f"{self.settings.data}: one answer only, {self.answers[0]!r}: there is nothing to ask")
        self._pieces = Pieces.learn((plain(each.text) for each in asked), self.settings.pieces)
        self._pieces.save(directory)
        content = json.dumps(self.answers, ensure_ascii=False)
        (directory / self.FILE).write_text(f"{content}\n", encoding="utf-8")
        there, broken = self.data.read("train")
        self._pictures["train"] = self._seen(there)
        notes = [f"{len(self.answers):,} different answers", *told(broken, len(there) + len(broken), "images")]
        tokens = self._tokens(asked)
        if long := sum(len(ids) > self.settings.longest for ids in tokens):
            notes.append(f"questions are cut after {self.settings.longest} pieces, {long:,} of {len(tokens):,}")
        if self._looks_once:
            notes.append("the frozen encoder looked at every image once; what it saw is kept in half precision")
        return notes

    def load(self, directory: Path) -> None:
        self._pieces = Pieces.load(directory)
        path = directory / self.FILE
        try:
            self.answers = tuple(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise SaccadeError(f"{path}: cannot read the answers: {error}") from error

    def examples(self, split: str) -> Sequence[Picture]:
        if split not in self._pictures:
            self._pictures[split] = self._seen(self.data.read(split)[0])
        return self._pictures[split]

    def place(self, number: int) -> str:
        return f"{self.settings.data}: {self.examples('train')[number].name}"

    def length(self, example: Picture) -> int:
        return len(example.questions)

    def collate(self, examples: Sequence[Picture], numbers: Sequence[int]) -> QuestionBatch:
        tokens, mask = padded([ids for each in examples for ids in each.tokens])
        about = [row for row, each in enumerate(examples) for _ in each.questions]
        answers = torch.tensor([answer for each in examples for answer in each.answers])
        counts = {"loss": len(about), "accuracy": len(about)}
        images = as_batch([each.image for each in examples])
        return QuestionBatch(images, torch.tensor(about), tokens, mask, answers, tuple(numbers), counts)

    def model(self) -> Answerer:
        make = ANSWERERS[self.recipe.model.kind]
        return make(self.recipe.model, len(self.vocabulary), len(self.answers), self.settings.size)

    def loss(self, model: Answerer, batch: QuestionBatch) -> Loss:
        logits = model(batch.images, batch.about, batch.tokens, batch.mask)
        smoothing = self.recipe.train.smoothing
        return {
            "loss": Term(
                F.cross_entropy(logits, batch.answers, reduction="sum", label_smoothing=smoothing, ignore_index=UNKNOWN)
            ),
            "accuracy": Term((logits.argmax(-1) == batch.answers).sum(), weight=0.0),
        }

    def predict(self, model: Answerer, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """Answers to "photo.jpg: a question", the most probable first; the score is the probability. The image may be
        one of the validation part by its name."""
        read = [self._read(text) for text in inputs]
        found = iter(self._ranked(model, [look for look in read if not isinstance(look, str)], method))
        return [
            Prediction(text, refusal=look) if isinstance(look, str) else Prediction(text, next(found))
            for text, look in zip(inputs, read, strict=True)
        ]

    def score(self, model: Answerer) -> Scores:
        pictures = self.examples("valid")
        answers, references = self._answered(model, _looks(pictures)), _references(pictures)
        right = sum(answer == truth for answer, truth in zip(answers, references, strict=True))
        inputs = [f"{each.name}: {question.text}" for each in pictures for question in each.questions]
        samples = list(zip(inputs, answers, references, strict=True))
        return Scores("accuracy", {"accuracy": right / len(answers)}, samples)

    def evaluate(self, model: Answerer, split: str) -> Sequence[Score]:
        """Accuracy; what is right without looking, from the questions of the training part; the model's own accuracy
        when it is shown other images, or asked other questions; then by sort of question."""
        pictures = self.examples(split)
        references, looks = _references(pictures), _looks(pictures)
        answers = self._answered(model, looks)
        prior, asked = Prior(_all(self.data.parts["train"])), _all(pictures)
        strange = 100 * sum(truth not in self.answers for truth in references) / len(references)

        def compared(answers: Sequence[str], name: str, signature: str) -> Score:
            return replace(accuracy(answers, references), name=name, signature=signature)

        size = f"of {len(references):,} questions about {len(pictures):,} images"
        size += f"; {strange:.1f} have an answer that no training question has" if strange else ""
        scores = [
            compared(answers, "accuracy", size),
            macro_f1(answers, references, interval=True),
            compared([prior.most_frequent] * len(answers), "baseline accuracy", f"always {prior.most_frequent}"),
            compared(
                [prior.answer(each.text) for each in asked],
                "question-only baseline accuracy",
                "what is usual after the same words",
            ),
        ]
        if self._sees != "question":
            images = exchanged([each.image for each in pictures])
            shown = [(image, ids) for image, each in zip(images, pictures, strict=True) for ids in each.tokens]
            scores.append(compared(self._answered(model, shown), "control accuracy", "shown other images"))
        if self._sees != "image":
            questions = exchanged([ids for _, ids in looks])
            heard = [(image, ids) for (image, _), ids in zip(looks, questions, strict=True)]
            scores.append(compared(self._answered(model, heard), "control accuracy", "asked other questions"))
        return [*scores, *_by_sort(asked, answers)]

    def look(
        self, model: Answerer, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        """Each word of the question over the image; then how the image encoder looked at it, where it attends."""
        refuse_target(target)
        read = self._read(text)
        if isinstance(read, str):
            raise SaccadeError(read)
        pixels, ids = read
        best = self._ranked(model, [read])[0][0]
        title = f"{best.text} ({100 * best.score:.0f}%): where each word of the question looked"
        maps = look_while_answering(model, pixels, ids, self.vocabulary, title, pieces=pieces)
        seen = [] if model.sight is None else look_at_image(model.sight.image, pixels, "how the image was seen")
        return maps + seen

    def _read(self, text: str) -> tuple[Pixels, list[int]] | str:
        """An image and the pieces of a question; or why there are none."""
        try:
            name, question = image_and_question(text)
        except SaccadeError as error:
            return str(error)
        pixels, ids = self.data.pixels([name])[0], self.vocabulary.encode(plain(question))
        if isinstance(pixels, str):
            return pixels
        if len(ids) > self.settings.longest:
            return f"{text!r}: the question has {len(ids)} pieces, and task.longest is {self.settings.longest}"
        return pixels, ids

    def _ranked(self, model: Answerer, looks: Sequence[Look], method: Method | None = None) -> list[tuple[Answer, ...]]:
        """The most probable answers; an image that several of the questions are about is seen once."""
        best = min(wanted_answers(method), len(self.answers))
        ranked = []
        with at_rest(model):
            for part in in_parts(looks):
                images = {id(image): image for image, _ in part}
                row = {key: number for number, key in enumerate(images)}
                about = torch.tensor([row[id(image)] for image, _ in part])
                logits = model(as_batch(list(images.values())), about, *padded([list(ids) for _, ids in part]))
                top = logits.softmax(-1).topk(best)
                for shares, places in zip(top.values.tolist(), top.indices.tolist(), strict=True):
                    pairs = zip(shares, places, strict=True)
                    ranked.append(tuple(Answer(self.answers[place], share) for share, place in pairs))
        return ranked

    def _answered(self, model: Answerer, looks: Sequence[Look]) -> list[str]:
        return [answers[0].text for answers in self._ranked(model, looks)]

    def _tokens(self, questions: Sequence[Question]) -> list[list[int]]:
        return self.vocabulary.encode_all([plain(each.text) for each in questions])

    def _seen(self, there: Sequence[tuple[Asked, Pixels]]) -> list[Picture]:
        """With what a frozen encoder sees in place of the pixels; with these where there is none."""
        pixels = [pixels for _, pixels in there]
        images: Sequence[Pixels | Tensor] = looked_once(pixels) if self._looks_once else pixels
        number = {answer: place for place, answer in enumerate(self.answers)}
        tokens = iter(self._tokens(_all(each for each, _ in there)))
        return [
            Picture(
                each.image,
                image,
                each.questions,
                tuple(next(tokens)[: self.settings.longest] for _ in each.questions),
                tuple(number.get(question.answer, UNKNOWN) for question in each.questions),
            )
            for (each, _), image in zip(there, images, strict=True)
        ]


def _all(asked: Iterable[Asked | Picture]) -> list[Question]:
    return [question for each in asked for question in each.questions]


def _references(pictures: Sequence[Picture]) -> list[str]:
    return [question.answer for question in _all(pictures)]


def _looks(pictures: Sequence[Picture]) -> list[Look]:
    return [(each.image, ids) for each in pictures for ids in each.tokens]


def _by_sort(asked: Sequence[Question], answers: Sequence[str]) -> list[Score]:
    """Accuracy for each sort of question, as the data says or else by its first word; the most frequent first."""
    sorts: dict[str, list[int]] = {}
    for number, each in enumerate(asked):
        sorts.setdefault(each.sort or f"{(plain(each.text).split() or [each.text])[0]} ...", []).append(number)
    scores = []
    for sort, numbers in sorted(sorts.items(), key=lambda item: -len(item[1]))[:SORTS]:
        score = accuracy([answers[n] for n in numbers], [asked[n].answer for n in numbers])
        scores.append(replace(score, name=f"accuracy, {sort}", signature=f"of {len(numbers):,} questions"))
    return scores
