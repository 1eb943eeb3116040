"""Labels of texts: any model that reads text, new or trained before, with a head on it."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import Recipe
from saccade.config.classification import ClassifySettings
from saccade.data.labelled import LabelledText, read_labelled_texts
from saccade.data.lexicon import Lexicon
from saccade.data.readers import first_of, hash_of
from saccade.decode import Method
from saccade.errors import RunWarning, SaccadeError
from saccade.maps.record import record
from saccade.maps.render import AttentionMap, Tokens
from saccade.metrics import Confusion, Score, confusion, share_score
from saccade.models import LANGUAGE_MODELS, TEXT_ENCODERS
from saccade.models.text_classifier import CausalBody, TextClassifier, freeze
from saccade.nn.low_rank import merged
from saccade.tasks.answers import at_rest, refuse_target, wanted_answers
from saccade.tasks.base import Answer, Loss, Prediction, Scores, Term
from saccade.tasks.labels import always, label_scores, read_labels, write_labels
from saccade.tasks.running_text import average_first
from saccade.tasks.starting import NOT_OWN, adopt_fitting
from saccade.tasks.written import padded

STARTS = ("language", "masked", "permuted", "classify")  # tasks whose models have a body to go on from
EMPTY = "is empty: there is nothing to label"
AT_ONCE = 64  # texts that are labelled together
HELD_OUT = 0.1  # share of the texts that are held out where no validation file is given

Example = tuple[list[int], int]  # framed ids, number of the label


@dataclass(frozen=True)
class LabelledBatch:
    """Texts, which of their tokens are real, and their labels."""

    tokens: Tensor  # (B, S)
    mask: Tensor  # (B, S)
    labels: Tensor  # (B,)
    numbers: tuple[int, ...]
    counts: dict[str, int]


class Classify:
    """See saccade.tasks.base.Task for what each method is for."""

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, ClassifySettings)
        self.recipe, self.settings = recipe, recipe.task
        self.labels: tuple[str, ...] = ()
        self.threshold = recipe.task.threshold or 0.0  # below it a text is said to be outside all classes
        self._lexicon: Lexicon | None = None
        self._taught: tuple[str, ...] | None = None  # labels of the classifier that this one begins with
        kinds = LANGUAGE_MODELS | TEXT_ENCODERS
        if recipe.train.start is None and recipe.model.kind not in kinds:
            raise SaccadeError(f"model.kind {recipe.model.kind!r} reads no text; there are {', '.join(kinds)}")

    @property
    def lexicon(self) -> Lexicon:
        if self._lexicon is None:
            raise SaccadeError("the vocabulary has not been learned yet")
        return self._lexicon

    def start(self, vocabulary: Path, recipe: Recipe) -> None:
        """The other run's vocabulary, its model, and no longer texts than it has learned to read."""
        if recipe.task.kind not in STARTS:
            raise SaccadeError(
                f"train.start: a run of the task {recipe.task.kind} gives no text body to start from; "
                f"runs of {', '.join(STARTS)} do"
            )
        self._lexicon = Lexicon.load(vocabulary)
        if recipe.task.kind == "classify":
            self._taught = read_labels(vocabulary)
        own = self.settings.longest
        longest: int = getattr(recipe.task, "window", None) or getattr(recipe.task, "longest", own) or own
        settings = self.settings.model_copy(update={"longest": min(self.settings.longest, longest)})
        self.recipe = self.recipe.model_copy(update={"model": recipe.model, "task": settings})
        self.settings = settings

    def adopt(self, model: TextClassifier, tensors: Mapping[str, Tensor]) -> Sequence[str]:
        """The body, by name; a head only from a classifier with the same labels."""
        own = {name.replace(".base.", "."): tensor for name, tensor in model.named_parameters()}
        if self._taught is None:
            tensors = {f"body.{name.removeprefix('encoder.')}": tensor for name, tensor in tensors.items()}
        elif self._taught != self.labels:
            own = {name: tensor for name, tensor in own.items() if not name.startswith("head.")}
        return adopt_fitting(own, merged(tensors), str(self.recipe.train.start))

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        kind = self.recipe.model.kind
        if self.settings.pool == "first" and kind in LANGUAGE_MODELS:
            raise SaccadeError(
                f"task.pool 'first': the first state of a {kind} sees only the start mark; use last, mean or attention"
            )
        train, valid = self._held
        if not train or not valid:
            texts = [each.text for each in (*train, *valid)]
            raise SaccadeError(
                f"{self.settings.data[0]}: of {len(texts):,} texts {len(set(texts)):,} are different, too few to train "
                "on some and validate on others; is task.text_column the right one?"
            )
        counted = f"{len(train):,} texts to train on, {len(valid):,} to validate on"
        return self.recipe, [counted, *([NOT_OWN] if self.recipe.train.start else [])]

    def prepare(self, directory: Path) -> Sequence[str]:
        settings = self.settings
        train, valid = self._held
        self.labels = tuple(sorted({each.label for each in train} - {settings.outside}))
        if len(self.labels) < 2:
            there = repr(self.labels[0]) if self.labels else "none"
            raise SaccadeError(f"{settings.data[0]}: a choice needs two labels at least; there is {there}")
        if all(each.label == settings.outside for each in valid):
            raise SaccadeError(f"all texts to validate on are {settings.outside!r}, task.outside: none could be right")
        if self._lexicon is None and settings.vocabulary is not None:
            self._lexicon = Lexicon.published(settings.unit, settings.vocabulary)
        elif self._lexicon is None:
            self._lexicon = Lexicon.learn([each.text for each in train], settings.unit, size=settings.pieces)
        self._lexicon.save(directory)
        write_labels(directory, self.labels)
        cut = sum(len(ids) > settings.longest - 2 for ids in self._lexicon.encode_all([each.text for each in train]))
        notes = [f"{len(self.labels)} labels, {len(self._lexicon):,} {self._lexicon.unit}"]
        if strange := self._strange(valid):
            notes.append(strange)
        if cut:
            notes.append(f"{cut:,} texts are longer than {settings.longest} tokens and are cut")
        if settings.outside and settings.threshold is None and not self._outside_seen:
            notes.append(
                f"no validation text is {settings.outside!r}: how unsure the model is of such texts cannot be learned, "
                "and the label is never given; set task.threshold to give it"
            )
        return notes

    def load(self, directory: Path) -> None:
        self._lexicon = Lexicon.load(directory)
        self.labels = read_labels(directory)

    def examples(self, split: str) -> Sequence[Example]:
        numbers = {label: number for number, label in enumerate(self.labels)}
        texts = [each for each in self.texts(split) if each.label in numbers]
        framed = self._framed([each.text for each in texts])
        return [(ids, numbers[each.label]) for ids, each in zip(framed, texts, strict=True)]

    def texts(self, split: str) -> list[LabelledText]:
        if split != "test":
            return self._held[0 if split == "train" else 1]
        if not self.settings.test:
            raise SaccadeError("there is no test part: say where it is with --set task.test=FILE")
        return self._read(self.settings.test)

    def place(self, number: int) -> str:
        return [each for each in self.texts("train") if each.label in self.labels][number].place

    def length(self, example: Example) -> int:
        return len(example[0])

    def collate(self, examples: Sequence[Example], numbers: Sequence[int]) -> LabelledBatch:
        tokens, mask = padded([ids for ids, _ in examples])
        labels = torch.tensor([label for _, label in examples])
        return LabelledBatch(tokens, mask, labels, tuple(numbers), {"loss": len(labels), "accuracy": len(labels)})

    def model(self) -> TextClassifier:
        settings = self.settings
        chosen: Any = self.recipe.model
        whole: Any = (LANGUAGE_MODELS | TEXT_ENCODERS)[chosen.kind](chosen, len(self.lexicon), settings.longest)
        body = whole.encoder if chosen.kind in TEXT_ENCODERS else CausalBody(whole.decoder)
        model = TextClassifier(
            body, width=chosen.width, labels=len(self.labels), pool=settings.pool, dropout=settings.dropout
        )
        freeze(model.body, settings)
        return model

    def loss(self, model: TextClassifier, batch: LabelledBatch) -> Loss:
        logits = model(batch.tokens, batch.mask)
        smoothing = self.recipe.train.smoothing
        return {
            "loss": Term(F.cross_entropy(logits, batch.labels, reduction="sum", label_smoothing=smoothing)),
            "accuracy": Term((logits.argmax(-1) == batch.labels).sum(), weight=0.0),
        }

    def predict(self, model: TextClassifier, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """The most probable labels; the score is the probability, and of outside the threshold that none reached."""
        empty = [not text.strip() for text in inputs]
        shares = iter(self._shares(model, [text for text, blank in zip(inputs, empty, strict=True) if not blank]))
        best = wanted_answers(method)
        found = []
        for number, (text, blank) in enumerate(zip(inputs, empty, strict=True), start=1):
            if blank:
                found.append(Prediction(text, refusal=f"input {number} {EMPTY}"))
                continue
            share = next(shares)
            top = share.topk(min(best, len(self.labels)))
            ranked = zip(top.values.tolist(), top.indices.tolist(), strict=True)
            answers = [Answer(self.labels[place], value) for value, place in ranked]
            if (label := self._label(share)) == self.settings.outside:
                answers.insert(0, Answer(label, self.threshold))
            found.append(Prediction(text, tuple(answers[:best])))
        return found

    def score(self, model: TextClassifier) -> Scores:
        texts = [each for each in self.texts("valid") if each.label != self.settings.outside]
        shares = self._shares(model, [each.text for each in texts])
        answers = [self.labels[int(share.argmax())] for share in shares]
        right = sum(answer == each.label for answer, each in zip(answers, texts, strict=True))
        samples = [(each.text, answer, each.label) for each, answer in zip(texts, answers, strict=True)]
        return Scores("accuracy", {"accuracy": right / len(texts)}, samples)

    def evaluate(self, model: TextClassifier, split: str) -> Sequence[Score]:
        """Accuracy, macro F1, baseline, control, the worst labels; and of texts outside all classes how many are
        found."""
        answers, references = self._answered(model, split)
        outside = self.settings.outside
        usual = Counter(each.label for each in self.texts("train") if each.label in self.labels).most_common(1)[0][0]
        found = label_scores(answers, references, self._all(references), usual=usual, what="texts")
        if outside is None or outside not in references:
            return found
        inside = np.array([a == r for a, r in zip(answers, references, strict=True) if r != outside])
        apart = np.array([a == r for a, r in zip(answers, references, strict=True) if r == outside])
        more = [share_score("accuracy inside", inside), share_score("recall outside", apart)]
        trivial = always(outside, references, "baseline accuracy outside")
        return [found[0], *more, *found[1:3], trivial, *found[3:]]

    def confusion(self, model: TextClassifier, split: str) -> Confusion:
        """How often each label (row) was answered with each label (column)."""
        answers, references = self._answered(model, split)
        return confusion(answers, references, self._all(references))

    def conclude(self, model: TextClassifier) -> dict[str, Any]:
        """How unsure the model is of texts outside all classes: the threshold that is right most often on the
        validation part."""
        outside, texts = self.settings.outside, self.texts("valid")
        if self.settings.threshold is not None or not self._outside_seen:
            return {}
        shares = torch.stack(self._shares(model, [each.text for each in texts]))
        sure, answer = shares.max(-1)
        right = torch.tensor([self.labels[n] == each.label for n, each in zip(answer.tolist(), texts, strict=True)])
        apart = torch.tensor([each.label == outside for each in texts])
        tried = [0.0, *sure.unique().tolist()]
        return {"threshold": max(tried, key=lambda t: int((torch.where(sure >= t, right, apart)).sum()))}

    def recall(self, conclusions: Mapping[str, Any]) -> None:
        if self.settings.threshold is None:
            self.threshold = conclusions.get("threshold", 0.0)

    def look(
        self, model: TextClassifier, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        """Where every attention looked: the pool first, if it is one, else the average of all."""
        refuse_target(target)
        if not text.strip():
            raise SaccadeError(f"the text {EMPTY}")
        ids = self._framed([text])[0]
        with at_rest(model), record(model) as recording:
            share = model(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool)).softmax(-1)[0]
        axis, verdict = Tokens(tuple(self.lexicon.pieces(ids))), Tokens((self._label(share),))
        within = [seen for seen in recording if seen.weights.shape[2] == len(ids)]
        maps = [AttentionMap(seen.title, seen.weights[0], axis, axis) for seen in within]
        maps = [
            *(AttentionMap("what decided", s.weights[0], verdict, axis) for s in recording if s.name == "attention"),
            *average_first(maps),
        ]
        if pieces:
            return maps
        words = self.lexicon.words(ids)
        return [each.grouped(words if each.rows is axis else None, words) for each in maps]

    @property
    def _known(self) -> list[str]:
        """All labels that may be given."""
        return [*self.labels, *([self.settings.outside] if self.settings.outside else [])]

    @property
    def _outside_seen(self) -> bool:
        """Whether there are validation texts that belong to no class."""
        return any(each.label == self.settings.outside for each in self.texts("valid"))

    @cached_property
    def _held(self) -> tuple[list[LabelledText], list[LabelledText]]:
        """Texts to train on and to validate on; a text is on one side only, however often it occurs."""
        texts = self._read(self.settings.data)
        if self.settings.valid:
            return texts, self._read(self.settings.valid)
        held = [hash_of(each.text) < HELD_OUT * (1 << 64) for each in texts]
        parts = ([each for each, out in zip(texts, held, strict=True) if out == wanted] for wanted in (False, True))
        return next(parts), next(parts)

    def _read(self, paths: Sequence[str]) -> list[LabelledText]:
        settings = self.settings
        return read_labelled_texts(
            paths, header=settings.header, text_column=settings.text_column, label_column=settings.label_column
        )

    def _framed(self, texts: Sequence[str]) -> list[list[int]]:
        marks, room = self.lexicon.marks, self.settings.longest - 2
        return [[marks.start, *ids[:room], marks.end] for ids in self.lexicon.encode_all(texts)]

    def _shares(self, model: TextClassifier, texts: Sequence[str]) -> list[Tensor]:
        """Probabilities of the labels, in the order of the texts; like lengths are read together."""
        framed = self._framed(texts)
        order = sorted(range(len(framed)), key=lambda number: len(framed[number]))
        shares: dict[int, Tensor] = {}
        with at_rest(model):
            for first in range(0, len(order), AT_ONCE):
                chosen = order[first : first + AT_ONCE]
                found = model(*padded([framed[number] for number in chosen])).softmax(-1)
                shares |= dict(zip(chosen, found, strict=True))
        return [shares[number] for number in range(len(texts))]

    def _answered(self, model: TextClassifier, split: str) -> tuple[list[str], list[str]]:
        """The model's answers for a part of the data, and the truth."""
        texts = self.texts(split)
        references = [each.label for each in texts]
        if strange := self._strange(texts):
            warnings.warn(strange, RunWarning, stacklevel=2)
        return [self._label(share) for share in self._shares(model, [each.text for each in texts])], references

    def _all(self, references: Sequence[str]) -> list[str]:
        """Labels that may be given, and those that cannot."""
        return [*self._known, *sorted(set(references) - set(self._known))]

    def _strange(self, texts: Sequence[LabelledText]) -> str | None:
        """What is to be said of texts whose label cannot be given, if there are any."""
        if not (strange := Counter(each.label for each in texts if each.label not in self._known)):
            return None
        return (
            f"texts whose label is not trained on, counted as wrong: {strange.total():,} ({first_of(sorted(strange))})"
        )

    def _label(self, share: Tensor) -> str:
        outside = self.settings.outside
        return outside if outside and float(share.max()) < self.threshold else self.labels[int(share.argmax())]
