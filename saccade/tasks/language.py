"""Language modelling: what comes next, given all before it (GPT; Radford et al. 2018)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from saccade.config import Recipe
from saccade.config.language import LanguageSettings
from saccade.data.stream import Ids, Windows
from saccade.decode import Method, Sample
from saccade.errors import RunWarning, SaccadeError
from saccade.maps.record import record
from saccade.maps.render import AttentionMap, Tokens
from saccade.metrics import Score
from saccade.metrics.perplexity import perplexities
from saccade.models import LANGUAGE_MODELS
from saccade.models.shapes import LanguageModel
from saccade.nn.losses import token_loss
from saccade.tasks.answers import at_rest, method_of
from saccade.tasks.base import Answer, Loss, Prediction, Scores, Term
from saccade.tasks.continuing import Continuation, continue_texts, cut_at, without_beginning
from saccade.tasks.running_text import RunningText, TextTask, WindowBatch, average_first, window_batch

AT_ONCE = 32  # windows scored together ...
MOST_LOGITS = 1 << 27  # ... and what is made of them at most, half a gigabyte
SHUFFLE = 12345  # seed of the control
SAMPLES = 5
BEGINNING = "\n"  # what an empty prompt continues


class Language(TextTask):
    """See saccade.tasks.base.Task for what each method is for."""

    def _take(self, recipe: Recipe) -> None:
        assert isinstance(recipe.task, LanguageSettings)
        if recipe.model.kind not in LANGUAGE_MODELS:
            raise SaccadeError(
                f"model.kind {recipe.model.kind!r} is no language model; there are {', '.join(LANGUAGE_MODELS)}"
            )
        self.recipe, self.settings = recipe, recipe.task
        self.text = RunningText(recipe.task)

    def examples(self, split: str) -> Sequence[Ids]:
        tokens = self.text.part(split)
        if split == "train" and self.settings.windows == "random":
            return Windows.anywhere(tokens, self.settings.window, seed=self.recipe.train.seed)
        return Windows.sequential(tokens, self.settings.window)

    def length(self, example: Ids) -> int:
        return len(example) - 1

    def collate(self, examples: Sequence[Ids], numbers: Sequence[int]) -> WindowBatch:
        return window_batch(examples, numbers)

    def model(self) -> LanguageModel:
        return LANGUAGE_MODELS[self.recipe.model.kind](self.recipe.model, len(self.lexicon), self.settings.window)

    def loss(self, model: LanguageModel, batch: WindowBatch) -> Loss:
        states = model(batch.tokens[:, :-1])
        found = token_loss(states, batch.tokens[:, 1:], batch.mask, model.output, smoothing=self.recipe.train.smoothing)
        return {"loss": Term(found.smoothed), "accuracy": Term(found.correct, weight=0.0)}

    def predict(self, model: LanguageModel, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """The texts go on, each for a length by the recipe's decode settings and its own."""
        decode = self.recipe.decode
        by_limit: dict[int, list[int]] = {}
        for number, text in enumerate(inputs):
            limit = max(1, int(decode.limit_factor * len(self.lexicon.encode(text))) + decode.limit_extra)
            by_limit.setdefault(limit, []).append(number)
        found: dict[int, Prediction] = {}
        for limit, numbers in by_limit.items():
            its = replace(method, numbers=numbers) if isinstance(method, Sample) else method
            how = self._asked(limit, its)
            found |= zip(numbers, self.continued(model, [inputs[number] for number in numbers], how), strict=True)
        return [found[number] for number in range(len(inputs))]

    def continued(
        self,
        model: LanguageModel,
        prompts: Sequence[str],
        how: Continuation,
        tell: Callable[[str], None] | None = None,
    ) -> list[Prediction]:
        """Continuations as text, without their prompts; `tell` hears one as it grows, in whole characters."""
        read = [self.lexicon.encode(text or BEGINNING) for text in prompts]

        def heard(tokens: Sequence[int]) -> None:
            assert tell is not None
            tell(without_beginning(self._new_text(read[0], tokens, how.stop).rstrip("\ufffd"), how.stop))

        found = continue_texts(model, self.lexicon, read, how, None if tell is None else heard)
        return [
            Prediction(
                text, tuple(Answer(self._new_text(prompt, each.tokens, how.stop), each.score, each) for each in best)
            )
            for text, prompt, best in zip(prompts, read, found, strict=True)
        ]

    def score(self, model: LanguageModel) -> Scores:
        """How probable the validation text is, and a few continuations of it."""
        windows = self.examples("valid")
        few = [windows[n] for n in range(max(1, min(len(windows), self.settings.valid_tokens // self.settings.window)))]
        surprise = sum(float(each.sum()) for each in self._scored(model, few))
        loss = surprise / sum(len(window) - 1 for window in few)
        return Scores("log_likelihood", {"log_likelihood": -loss, "loss": loss}, self._samples(model, few))

    def evaluate(self, model: LanguageModel, split: str) -> Sequence[Score]:
        """Perplexities, every token after a window less a stride at least; of single frequencies; and with shuffled
        contexts."""
        tokens = self.text.part(split)
        size, stride = self.settings.window, self.settings.stride or max(1, self.settings.window // 2)
        again = size - stride  # tokens of a window that the one before has scored already
        windows = list(Windows(tokens, np.arange(0, max(1, len(tokens) - 1 - again), stride), size))
        counts = [len(window) - 1 - (again if number else 0) for number, window in enumerate(windows)]
        scored = list(self._scored(model, windows))
        surprise = [float(each[-count:].sum()) for count, each in zip(counts, scored, strict=True)]
        text = self.lexicon.decode(tokens[1:].tolist())
        sizes = {"words": max(1, len(text.split())), "text_bytes": len(text.encode("utf-8", "replace"))}
        read = f"window {size}, stride {stride}"
        found = [
            replace(score, signature=f"{score.signature}; {read}") for score in perplexities(surprise, counts, **sizes)
        ]
        draw = np.random.default_rng(SHUFFLE)
        turned = [np.concatenate([draw.permutation(window[:-1]), window[-1:]]) for window in windows]
        last = [float(each[-1]) for each in self._scored(model, turned)]
        frequencies = float(-self.text.log_frequencies()[tokens[1:]].mean())

        def of_last(name: str, values: Sequence[float]) -> Score:
            score = perplexities(values, [1] * len(values), words=1, text_bytes=1)[0]
            return Score(name, score.value, score.interval, f"last token of {len(values):,} windows", 4)

        return [
            *found,
            Score("loss per token of single frequencies (baseline)", frequencies, None, "", 4),
            of_last("loss of the last token of a window", [float(each[-1]) for each in scored]),
            of_last("loss of the last token, its context shuffled (control)", last),
        ]

    def look(
        self, model: LanguageModel, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        """Where each new word looked: rows are what is written, columns what stood before it."""
        prompt = self.lexicon.encode(text or BEGINNING)
        if target is None:
            new = self._found(model, prompt)
        else:
            new = self.lexicon.encode(target)
        ids = [*prompt, *new]
        if (left := len(ids) - self.settings.window - 1) > 0:
            told = f"the model sees {self.settings.window} tokens at once: the map leaves out the first {left:,}"
            warnings.warn(told, RunWarning, stacklevel=2)
            ids = ids[left:]
        with at_rest(model), record(model) as recording:
            model(torch.tensor([ids[:-1]]))
        rows, columns = (Tokens(tuple(self.lexicon.pieces(part))) for part in (ids[1:], ids[:-1]))
        maps = [AttentionMap(seen.title, seen.weights[0], rows, columns) for seen in recording]
        maps = average_first(maps)
        if pieces:
            return maps
        return [each.grouped(self.lexicon.words(ids[1:]), self.lexicon.words(ids[:-1])) for each in maps]

    def _found(self, model: LanguageModel, prompt: Sequence[int]) -> Sequence[int]:
        how = self._asked(self.recipe.decode.limit_extra or 1)
        return continue_texts(model, self.lexicon, [prompt], how)[0][0].tokens

    def _asked(self, tokens: int, method: Method | None = None) -> Continuation:
        """As the recipe's decode settings say; those that a text without an end cannot follow are refused."""
        decode = self.recipe.decode
        for name in ("prefix", "must_include", "must_not_include", "minimum_length", "coverage_penalty"):
            if getattr(decode, name):
                raise SaccadeError(f"decode.{name} is for tasks whose answers end; a language model only goes on")
        return Continuation(
            tokens, self.settings.window, method=method or method_of(decode), no_repeat=decode.no_repeat
        )

    def _new_text(self, prompt: Sequence[int], tokens: Sequence[int], stop: Sequence[str]) -> str:
        """What is new: a word of its own begins with a space that only the whole shows."""
        before = self.lexicon.decode(prompt)
        return cut_at(self.lexicon.decode([*prompt, *tokens])[len(before) :], stop)

    def _scored(self, model: LanguageModel, windows: Sequence[Ids]) -> Iterator[Tensor]:
        """-log p of every token of each window but the first."""
        with at_rest(model):
            together = max(1, min(AT_ONCE, MOST_LOGITS // (self.settings.window * len(self.lexicon))))
            for first in range(0, len(windows), together):
                some = windows[first : first + together]
                batch = window_batch(some, range(len(some)))
                log_p = model.output(model(batch.tokens[:, :-1])).log_softmax(-1)
                of_next = -log_p.gather(-1, batch.tokens[:, 1:, None])[..., 0].double()
                for row, window in enumerate(some):
                    yield of_next[row, : len(window) - 1]

    def _samples(self, model: LanguageModel, windows: Sequence[Ids]) -> list[tuple[str, str, str]]:
        half = max(1, self.settings.window // 2)
        begun = [window.tolist() for window in windows[:SAMPLES] if len(window) > half]
        how = Continuation(min(half, 40), self.settings.window)
        found = continue_texts(model, self.lexicon, [window[:half] for window in begun], how)
        decode = self.lexicon.decode
        return [
            (decode(window[:half]), decode(best[0].tokens), decode(window[half:]))
            for window, best in zip(begun, found, strict=True)
        ]
