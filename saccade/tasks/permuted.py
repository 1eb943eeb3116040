"""Permutation language modelling: every token from those before it, in any order (XLNet, Yang et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.config import Recipe
from saccade.config.language import PermutedSettings, XLNetSettings
from saccade.data.cloze import framed, permuted, plain_places
from saccade.data.stream import Ids, Windows
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.record import record
from saccade.maps.render import AttentionMap
from saccade.metrics import Score
from saccade.models.xlnet import PermutedLanguageModel, xlnet
from saccade.tasks.answers import at_rest, method_of
from saccade.tasks.base import Loss, Prediction, Scores
from saccade.tasks.filling import asked, filled_in, maps_over, read_to_look, samples
from saccade.tasks.gaps import (
    Draws,
    Found,
    GapBatch,
    drawn_anew,
    evaluated,
    framed_windows,
    gap_batch,
    gap_loss,
    held_batches,
)
from saccade.tasks.running_text import RunningText, TextTask

MARKS = 2  # start and end


class Permuted(TextTask):
    """See saccade.tasks.base.Task for what each method is for."""

    def _take(self, recipe: Recipe) -> None:
        assert isinstance(recipe.task, PermutedSettings)
        if not isinstance(recipe.model, XLNetSettings):
            raise SaccadeError(f"model.kind {recipe.model.kind!r} predicts in no order but its own; there is xlnet")
        self.recipe, self.settings, self.xlnet = recipe, recipe.task, recipe.model
        self.text = RunningText(recipe.task)

    def examples(self, split: str) -> Windows:
        return framed_windows(self.text, self.settings, split, marks=MARKS, seed=self.recipe.train.seed)

    def length(self, example: Ids) -> int:
        return len(example) + MARKS

    def collate(self, examples: Sequence[Ids], numbers: Sequence[int]) -> GapBatch:
        return self._batch(examples, numbers, drawn_anew(len(examples)))

    def model(self) -> PermutedLanguageModel:
        return xlnet(self.xlnet, len(self.lexicon), self.settings.window)

    def loss(self, model: PermutedLanguageModel, batch: GapBatch) -> Loss:
        assert batch.rank is not None
        states = model(batch.tokens, batch.mask, batch.rank)[batch.chosen]  # (N, D)
        return gap_loss(states, batch, model.output, smoothing=self.recipe.train.smoothing)

    def predict(
        self, model: PermutedLanguageModel, inputs: Sequence[str], method: Method | None = None
    ) -> list[Prediction]:
        """The texts with what stands in place of [MASK], the most probable first."""
        method = method or method_of(self.recipe.decode)
        return filled_in(inputs, self.lexicon, self.settings.window, method, lambda batch: self._ask(model, batch))

    def score(self, model: PermutedLanguageModel) -> Scores:
        """How well the last tokens of an order are found in the validation part, in the same orders each time."""
        batches = held_batches(
            self.examples("valid"), self._batch, max(1, self.settings.valid_tokens // self.settings.window)
        )
        values = Found.by(lambda batch: self._ask(model, batch), batches).values
        return Scores("log_likelihood", values, samples(batches[0], self._ask(model, batches[0]), self.lexicon))

    def evaluate(self, model: PermutedLanguageModel, split: str) -> Sequence[Score]:
        """Of the last tokens of an order, given those before them."""
        batches = held_batches(self.examples(split), self._batch)
        return evaluated(lambda batch: self._ask(model, batch), batches, self.text)

    def look(
        self, model: PermutedLanguageModel, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        """Where each token looks, and in a gap where what is asked for it looks."""
        cloze = read_to_look(text, target, self.lexicon, self.settings.window)
        batch, length = asked(cloze.tokens, cloze.gaps), cloze.tokens.shape[1]
        assert batch.rank is not None
        with at_rest(model), record(model) as recording:
            model(cloze.tokens, None, batch.rank)
        weights = {}
        for seen in recording:  # both streams of a block ask the same attention, the content first
            content, query = seen.weights[0].split(length, dim=1)  # (H, T, T)
            weights[seen.title] = torch.where(batch.chosen[0, :, None], query, content)
        return maps_over(weights, cloze.tokens[0].tolist(), self.lexicon, pieces=pieces)

    def _ask(self, model: PermutedLanguageModel, batch: GapBatch) -> Tensor:
        assert batch.rank is not None
        with at_rest(model):
            states = model(batch.tokens, batch.mask, batch.rank)[batch.chosen]
            return model.output(states).log_softmax(-1)

    def _batch(self, windows: Sequence[Ids], numbers: Sequence[int], draws: Draws) -> GapBatch:
        marks = self.lexicon.marks
        texts = [framed([window], marks)[0] for window in windows]
        rows = [
            permuted(ids, plain_places(ids, marks), self.settings.one_in, draw)
            for ids, draw in zip(texts, draws, strict=True)
        ]
        return gap_batch(rows, numbers)
