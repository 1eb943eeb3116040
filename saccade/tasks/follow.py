"""Commands carried out: words in, actions out, right only if all of them are (SCAN, Lake and Baroni 2018)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from saccade.config import Recipe
from saccade.config.commands import FollowSettings
from saccade.data.commands import read_commands
from saccade.data.readers import TextPair, hash_of
from saccade.data.vocab import Symbols
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.metrics import Score, accuracy
from saccade.metrics.score import exchanged
from saccade.models import MODELS
from saccade.models.shapes import EncoderDecoder
from saccade.tasks.answers import best_tokens
from saccade.tasks.base import Loss, Prediction, Scores
from saccade.tasks.pairs import Pair, answer_pairs, collate_pairs, look_at_pair, predict_pairs
from saccade.tasks.written import WrittenBatch, written_loss

SIDES = ("commands", "actions")


class Follow:
    """See saccade.tasks.base.Task for what each method is for."""

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, FollowSettings)
        if recipe.model.kind not in MODELS:
            raise SaccadeError(
                f"model.kind {recipe.model.kind!r} cannot follow commands; there are {', '.join(MODELS)}"
            )
        self.recipe, self.settings = recipe, recipe.task
        self._vocabularies: tuple[Symbols, Symbols] | None = None

    @property
    def vocabularies(self) -> tuple[Symbols, Symbols]:
        if self._vocabularies is None:
            raise SaccadeError("the words have not been collected yet")
        return self._vocabularies

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        train, valid = self._held
        if not train or not valid:
            raise SaccadeError(
                f"{self.settings.data}: {len(train)} commands are left for training and {len(valid)} for validation; "
                f"give more, or another task.valid_examples than {self.settings.valid_examples}"
            )
        return self.recipe, [f"{len(train):,} commands to train on, {len(valid):,} to validate on"]

    def prepare(self, directory: Path) -> None:
        known = read_commands(self.settings.data)
        sides = ([pair.source for pair in known], [pair.target for pair in known])
        left, right = (Symbols(sorted({word for text in texts for word in text.split()})) for texts in sides)
        self._vocabularies = left, right
        for name, vocabulary in zip(SIDES, self._vocabularies, strict=True):
            (directory / name).mkdir(exist_ok=True)
            vocabulary.save(directory / name)

    def load(self, directory: Path) -> None:
        left, right = (Symbols.load(directory / name) for name in SIDES)
        self._vocabularies = left, right

    @cached_property
    def _held(self) -> tuple[list[TextPair], list[TextPair]]:
        """Commands to train on and to validate on."""
        pairs = read_commands(self.settings.data)
        held = {
            pair.source for pair in sorted(pairs, key=lambda pair: hash_of(pair.source))[: self.settings.valid_examples]
        }
        return [pair for pair in pairs if pair.source not in held], [pair for pair in pairs if pair.source in held]

    def pairs(self, split: str) -> list[TextPair]:
        if split != "test":
            return self._held[0 if split == "train" else 1]
        if self.settings.test is None:
            raise SaccadeError("there is no test part: say where it is with --set task.test=FILE")
        return read_commands(self.settings.test)

    def examples(self, split: str) -> Sequence[Pair]:
        commands, actions = self.vocabularies
        return [(commands.encode(pair.source), actions.encode(pair.target)) for pair in self.pairs(split)]

    def place(self, number: int) -> str:
        return f"{self.settings.data}:{self._held[0][number].line}"

    def length(self, example: Pair) -> int:
        return max(len(example[0]), len(example[1]) + 1)

    def collate(self, examples: Sequence[Pair], numbers: Sequence[int]) -> WrittenBatch:
        return collate_pairs(examples, numbers)

    def model(self) -> EncoderDecoder:
        return MODELS[self.recipe.model.kind](self.recipe.model, *map(len, self.vocabularies))

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        return written_loss(model, batch, smoothing=self.recipe.train.smoothing)

    def predict(self, model: EncoderDecoder, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        return predict_pairs(model, inputs, self.vocabularies, self.recipe.decode, method)

    def score(self, model: EncoderDecoder) -> Scores:
        samples = self._answered(model, "valid")
        right = sum(answer == truth for _, answer, truth in samples)
        return Scores("exact", {"exact": right / len(samples)}, samples)

    def evaluate(self, model: EncoderDecoder, split: str) -> Sequence[Score]:
        """Exact match; that of the most frequent answer; that with commands and answers shuffled; and by length."""
        samples = self._answered(model, split)
        answers, truths = [answer for _, answer, _ in samples], [truth for _, _, truth in samples]
        usual = Counter(pair.target for pair in self.pairs("train")).most_common(1)[0][0]

        def exact(name: str, given: Sequence[str], wanted: Sequence[str]) -> Score:
            found = accuracy(given, wanted)
            return Score(name, found.value, found.interval, f"of {len(given):,} commands")

        return [
            exact("exact", answers, truths),
            exact(f"exact of always {usual!r} (baseline)", [usual] * len(truths), truths),
            exact("exact with commands shuffled (control)", exchanged(answers), truths),
            *(
                exact(f"exact, {name}", [answers[n] for n in chosen], [truths[n] for n in chosen])
                for name, chosen in _by_length(truths)
            ),
        ]

    def look(
        self, model: EncoderDecoder, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        commands, actions = self.vocabularies
        written = best_tokens(self.predict(model, [text])[0]) if target is None else actions.encode(target)
        return look_at_pair(model, commands.encode(text), written, self.vocabularies, pieces=pieces)

    def _answered(self, model: EncoderDecoder, split: str) -> list[tuple[str, str, str]]:
        """Command, answer and truth."""
        commands, actions = self.vocabularies
        pairs = self.pairs(split)
        found = answer_pairs(model, [commands.encode(pair.source) for pair in pairs], self.recipe.decode, actions)
        return [
            (pair.source, actions.decode(best[0].tokens), pair.target) for pair, best in zip(pairs, found, strict=True)
        ]


def _by_length(truths: Sequence[str]) -> list[tuple[str, list[int]]]:
    """The answers in three parts, from short to long, where they differ in length."""
    lengths = np.array([len(truth.split()) for truth in truths])
    edges = np.unique(np.quantile(lengths, [0, 1 / 3, 2 / 3, 1]).round().astype(int))
    parts = []
    for low, high in pairwise(edges.tolist()):
        chosen = np.flatnonzero((lengths >= low) & ((lengths < high) | (high == edges[-1])))
        if len(chosen):
            parts.append((f"{low} to {high - (high != edges[-1])} actions", chosen.tolist()))
    return parts if len(parts) > 1 else []
