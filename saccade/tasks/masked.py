"""Masked language modelling: what stood where the text is hidden (BERT, Devlin et al. 2019; RoBERTa, Liu et al.
2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import Recipe
from saccade.config.language import BERTSettings, MaskedSettings
from saccade.data.cloze import Gapped, chosen_tokens, chosen_words, framed, masked, plain_places
from saccade.data.stream import Ids, Windows
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.record import record
from saccade.maps.render import AttentionMap
from saccade.metrics import Score
from saccade.metrics.score import share_score
from saccade.models.bert import MaskedLanguageModel, bert
from saccade.tasks.answers import at_rest, method_of
from saccade.tasks.base import Loss, Prediction, Scores, Term
from saccade.tasks.filling import filled_in, maps_over, read_to_look, samples
from saccade.tasks.gaps import (
    Draws,
    Found,
    GapBatch,
    drawn_anew,
    drawn_once,
    evaluated,
    framed_windows,
    gap_batch,
    gap_loss,
    held_batches,
)
from saccade.tasks.running_text import RunningText, TextTask


class Masked(TextTask):
    """See saccade.tasks.base.Task for what each method is for."""

    def _take(self, recipe: Recipe) -> None:
        assert isinstance(recipe.task, MaskedSettings)
        if not isinstance(recipe.model, BERTSettings):
            raise SaccadeError(f"model.kind {recipe.model.kind!r} finds no masked tokens; there is bert")
        if recipe.task.next_sentence and recipe.model.segments < 2:
            raise SaccadeError(f"task.next_sentence needs 2 model.segments; there is {recipe.model.segments}")
        # the head is there when the task asks for it
        self.bert = recipe.model.model_copy(update={"next_sentence": recipe.task.next_sentence})
        self.recipe, self.settings = recipe.model_copy(update={"model": self.bert}), recipe.task
        self.text = RunningText(recipe.task)

    def examples(self, split: str) -> Windows:
        return framed_windows(self.text, self.settings, split, marks=self._marks, seed=self.recipe.train.seed)

    def length(self, example: Ids) -> int:
        return len(example) + self._marks

    def collate(self, examples: Sequence[Ids], numbers: Sequence[int]) -> GapBatch:
        fresh = self.settings.masking == "fresh"
        draws = drawn_anew(len(examples)) if fresh else drawn_once(self.recipe.train.seed, numbers)
        return self._batch(examples, numbers, draws, "train")

    def model(self) -> MaskedLanguageModel:
        return bert(self.bert, len(self.lexicon), self.settings.window)

    def loss(self, model: MaskedLanguageModel, batch: GapBatch) -> Loss:
        memory = model.encoder(batch.tokens, batch.mask, batch.segments)
        states = model.transform(memory.states[batch.chosen])  # (N, D): no other state is asked for its token
        found = gap_loss(states, batch, model.output, smoothing=self.recipe.train.smoothing)
        if batch.strange is None:
            return found
        logits = model.follows(memory).float()
        return {
            **found,
            "next_sentence": Term(F.cross_entropy(logits, batch.strange, reduction="sum")),
            "next_sentence_accuracy": Term((logits.argmax(1) == batch.strange).sum(), weight=0.0),
        }

    def predict(
        self, model: MaskedLanguageModel, inputs: Sequence[str], method: Method | None = None
    ) -> list[Prediction]:
        """The texts with what stands in place of [MASK], the most probable first."""
        method = method or method_of(self.recipe.decode)
        return filled_in(inputs, self.lexicon, self.settings.window, method, lambda batch: self._ask(model, batch))

    def score(self, model: MaskedLanguageModel) -> Scores:
        """How well hidden tokens of the validation part are found, the same ones each time."""
        batches = self._held("valid", max(1, self.settings.valid_tokens // self.settings.window))
        values = Found.by(lambda batch: self._ask(model, batch), batches).values
        if self.settings.next_sentence:
            values["next_sentence_accuracy"] = float(self._recognised(model, batches).mean())
        return Scores("log_likelihood", values, samples(batches[0], self._ask(model, batches[0]), self.lexicon))

    def evaluate(self, model: MaskedLanguageModel, split: str) -> Sequence[Score]:
        """Of hidden tokens, and of pairs of texts where the model was trained on them."""
        batches = self._held(split)
        scores = evaluated(lambda batch: self._ask(model, batch), batches, self.text)
        if self.settings.next_sentence:
            coin = Score("next text recognised, by a coin (baseline)", 50.0)
            scores += [share_score("next text recognised", self._recognised(model, batches)), coin]
        return scores

    def look(
        self, model: MaskedLanguageModel, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        """Where each token looks: rows and columns are the text, with its marks."""
        tokens = read_to_look(text, target, self.lexicon, self.settings.window).tokens
        with at_rest(model), record(model) as recording:
            model.encoder(tokens)
        weights = {seen.title: seen.weights[0] for seen in recording}
        return maps_over(weights, tokens[0].tolist(), self.lexicon, pieces=pieces)

    @property
    def _marks(self) -> int:
        return 3 if self.settings.next_sentence else 2

    @cached_property
    def _plain(self) -> Ids:
        """Ids that are text."""
        return plain_places(np.arange(len(self.lexicon)), self.lexicon.marks)

    def _ask(self, model: MaskedLanguageModel, batch: GapBatch) -> Tensor:
        with at_rest(model):
            states = model.encoder(batch.tokens, batch.mask, batch.segments).states[batch.chosen]
            return model.output(model.transform(states)).log_softmax(-1)

    def _recognised(self, model: MaskedLanguageModel, batches: Sequence[GapBatch]) -> np.ndarray:
        """Of each pair, whether it was seen that its second text follows the first, or that it does not."""
        with at_rest(model):
            logits = [model.follows(model.encoder(each.tokens, each.mask, each.segments)) for each in batches]
        strange = torch.cat([each.strange for each in batches if each.strange is not None])
        return (torch.cat(logits).argmax(1) == strange).numpy()

    def _held(self, split: str, most: int | None = None) -> list[GapBatch]:
        def make(windows: Sequence[Ids], numbers: Sequence[int], draws: Draws) -> GapBatch:
            return self._batch(windows, numbers, draws, split)

        return held_batches(self.examples(split), make, most)

    def _batch(self, windows: Sequence[Ids], numbers: Sequence[int], draws: Draws, split: str) -> GapBatch:
        rows = [self._gapped(window, draw, split) for window, draw in zip(windows, draws, strict=True)]
        return gap_batch(rows, numbers)

    def _gapped(self, window: Ids, draw: np.random.Generator, split: str) -> Gapped:
        marks, strange = self.lexicon.marks, None
        parts = [window]
        if self.settings.next_sentence:
            first, second = np.split(window, [len(window) // 2])
            other = second if draw.random() < 0.5 else self._elsewhere(len(second), draw, split)
            parts, strange = [first, other], not np.array_equal(other, second)
        ids, segments = framed(parts, marks)
        if self.settings.whole_words:
            chosen = chosen_words(ids, self.lexicon, self.settings.share, draw)
        else:
            chosen = chosen_tokens(plain_places(ids, marks), self.settings.share, draw)
        assert marks.mask is not None
        gapped = masked(ids, chosen, marks.mask, self._plain, draw)
        return gapped if strange is None else replace(gapped, segments=segments, strange=strange)

    def _elsewhere(self, length: int, draw: np.random.Generator, split: str) -> Ids:
        """As much text from anywhere."""
        tokens = self.text.part(split)
        start = int(draw.integers(max(1, len(tokens) - length + 1)))
        return tokens[start : start + length]
