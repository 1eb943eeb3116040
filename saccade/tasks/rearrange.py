"""Copy, reverse or sort a sequence of symbols: generated data whose answers are exact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from saccade.config import Recipe
from saccade.config.tasks import RearrangeSettings
from saccade.data.toy import ANSWERS, sequences, symbol_names
from saccade.data.vocab import SPECIALS, Symbols
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.metrics import Score, accuracy
from saccade.models import MODELS
from saccade.models.shapes import EncoderDecoder
from saccade.tasks.answers import best_tokens
from saccade.tasks.base import Loss, Prediction, Scores
from saccade.tasks.pairs import Pair, answer_pairs, collate_pairs, look_at_pair, predict_pairs
from saccade.tasks.written import WrittenBatch, written_loss

PARTS = ("train", "valid", "test")
TEST_SEED = 1_000_003  # added to the seed for the test part, which is as large as that for validation


class Rearrange:
    """See saccade.tasks.base.Task for what each method is for."""

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, RearrangeSettings)
        if recipe.model.kind not in MODELS:
            raise SaccadeError(
                f"model.kind {recipe.model.kind!r} cannot {recipe.task.kind}; there are {', '.join(MODELS)}"
            )
        self.recipe, self.settings = recipe, recipe.task
        self.vocabulary = Symbols(symbol_names(self.settings.symbols))

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        return self.recipe, ()

    def prepare(self, directory: Path) -> None:
        self.vocabulary.save(directory)

    def load(self, directory: Path) -> None:
        self.vocabulary = Symbols.load(directory)

    def examples(self, split: str) -> Sequence[Pair]:
        settings = self.settings
        if split not in PARTS:
            raise SaccadeError(f"there is no part called {split!r}; there are {', '.join(PARTS)}")
        numbers = sequences(
            settings.train_examples if split == "train" else settings.valid_examples,
            symbols=settings.symbols,
            shortest=settings.shortest,
            longest=settings.longest,
            seed=settings.seed + (TEST_SEED if split == "test" else 0),
            split="train" if split == "train" else "valid",
        )
        sources = [[number + len(SPECIALS) for number in sequence] for sequence in numbers]
        return [(source, ANSWERS[settings.kind](source)) for source in sources]

    def length(self, example: Pair) -> int:
        return max(len(example[0]), len(example[1]) + 1)

    def collate(self, examples: Sequence[Pair], numbers: Sequence[int]) -> WrittenBatch:
        return collate_pairs(examples, numbers)

    def model(self) -> EncoderDecoder:
        size = len(self.vocabulary)
        return MODELS[self.recipe.model.kind](self.recipe.model, size, size)

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        return written_loss(model, batch, smoothing=self.recipe.train.smoothing)

    def predict(self, model: EncoderDecoder, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        return predict_pairs(model, inputs, (self.vocabulary, self.vocabulary), self.recipe.decode, method)

    def score(self, model: EncoderDecoder) -> Scores:
        """The share of sequences that are right from first to last symbol, and the share of right symbols."""
        return self._scored(model, "valid")

    def evaluate(self, model: EncoderDecoder, split: str) -> Sequence[Score]:
        samples = self._scored(model, split).samples
        return [accuracy([answer for _, answer, _ in samples], [truth for _, _, truth in samples])]

    def look(
        self, model: EncoderDecoder, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        encode = self.vocabulary.encode
        written = best_tokens(self.predict(model, [text])[0]) if target is None else encode(target)
        return look_at_pair(model, encode(text), written, (self.vocabulary, self.vocabulary), pieces=pieces)

    def _scored(self, model: EncoderDecoder, split: str) -> Scores:
        pairs = self.examples(split)
        found = answer_pairs(model, [source for source, _ in pairs], self.recipe.decode, self.vocabulary)
        answers = [hypotheses[0].tokens for hypotheses in found]
        exact = right = total = 0
        for (_, target), answer in zip(pairs, answers, strict=True):
            exact += list(answer) == target
            right += sum(a == b for a, b in zip(answer, target, strict=False))
            total += max(len(target), len(answer))
        decode = self.vocabulary.decode
        samples = [(decode(s), decode(a), decode(t)) for (s, t), a in zip(pairs, answers, strict=True)]
        return Scores("exact", {"exact": exact / len(pairs), "symbols": right / total}, samples)
