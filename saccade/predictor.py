"""A trained model with its task: predict, look, translate, generate, score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, overload

from torch import nn

from saccade.config import Recipe
from saccade.decode import Method, Sample
from saccade.errors import SaccadeError, did_you_mean
from saccade.maps.render import AttentionMap
from saccade.metrics import Confusion, Score
from saccade.nn.packed import PRECISIONS, Precision, multiplier, packed
from saccade.tasks.base import Prediction, Scores, Task
from saccade.tasks.continuing import Continuation
from saccade.tasks.labels import Labelling
from saccade.tasks.language import Language
from saccade.translation import translate_lines


@dataclass(frozen=True)
class Predictor:
    """A trained model with its task."""

    task: Task
    model: nn.Module
    recipe: Recipe
    precision: Precision = "float32"  # of what it writes; int8 is faster, and nearly the same

    @cached_property
    def writer(self) -> nn.Module:
        """The model made ready to write, if it writes; it is looked at, scored and exported as it was trained."""
        device = next(self.model.parameters()).device.type
        return packed(self.model, self.precision) if hasattr(self.model, "step") and device == "cpu" else self.model

    @property
    def multiplier(self) -> str:
        """Who multiplies while it writes, for people."""
        return multiplier()

    def predict(self, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """Answers to inputs, in their order, by the recipe's search or another method."""
        with for_people():
            return self.task.predict(self.writer, inputs, method)

    def look(self, text: str, target: str | None = None, *, pieces: bool = False) -> list[AttentionMap]:
        """Where the model looked while it wrote its answer, or while it was made to write `target`."""
        with for_people():
            return self.task.look(self.model, text, target, pieces=pieces)

    @overload
    def translate(self, text: str, *, split: bool = True) -> str: ...

    @overload
    def translate(self, text: list[str], *, split: bool = True) -> list[str]: ...

    def translate(self, text: str | list[str], *, split: bool = True) -> str | list[str]:
        """The translation of a text, or of each of several: sentence by sentence, or with `split` off as a whole. One
        with a sentence that is too long is refused."""
        found = list(translate_lines(self, [text] if isinstance(text, str) else text, split=split))
        for each in found:
            if each.refusal is not None:
                raise SaccadeError(each.refusal)
        return found[0].text if isinstance(text, str) else [each.text for each in found]

    def score(self) -> Scores:
        """On the validation part of the task's data."""
        with of_its_data():
            return self.task.score(self.model)

    def evaluate(self, split: str = "valid") -> Sequence[Score]:
        """Scores of a part of the task's data, valid or test, with intervals, baselines and controls."""
        with of_its_data():
            return self.task.evaluate(self.model, require_split(split))

    def confusion(self, split: str = "valid") -> Confusion:
        """How often each label (row) was answered with each label (column)."""
        if not isinstance(self.task, Labelling):
            raise SaccadeError(f"a model for {self.recipe.task.kind} gives no labels that could be confused")
        with of_its_data():
            return self.task.confusion(self.model, require_split(split))

    def generate(
        self,
        prompts: Sequence[str],
        *,
        tokens: int = 200,
        method: Method | None = None,
        beyond: Literal["slide", "stop"] = "slide",
        stop: Sequence[str] = (),
        no_repeat: int | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> list[Prediction]:
        """Texts continued by a language model, by sampling unless another method is given; answers without prompts.

        Beyond the model's window the text slides on, or stops; it ends before the first of the texts in `stop`; no run
        of `no_repeat` tokens is written twice; `tell` hears the one text as it grows.
        """
        if not isinstance(self.task, Language):
            raise SaccadeError(f"a model for {self.recipe.task.kind} continues no text; train a language model")
        how = Continuation(tokens, self.task.settings.window, beyond, tuple(stop), method or Sample(), no_repeat)
        model: Any = self.writer
        with for_people():
            return self.task.continued(model, prompts, how, tell)


def require_split(name: str) -> str:
    if name not in ("valid", "test"):
        raise SaccadeError(f"there is no part {name!r} to be scored; there are valid and test")
    return name


def require_precision(name: str) -> Precision:
    if name not in PRECISIONS:
        raise SaccadeError(f"there is no precision {name!r}{did_you_mean(name, PRECISIONS)}: {' or '.join(PRECISIONS)}")
    return name


@contextmanager
def for_people() -> Iterator[None]:
    """The modules know nothing of saccade and raise ValueError; what they say is meant for people all the same."""
    try:
        yield
    except ValueError as error:
        raise SaccadeError(str(error)) from error


@contextmanager
def of_its_data() -> Iterator[None]:
    """For work on the data that a run's recipe names, which may be elsewhere by now."""
    try:
        with for_people():
            yield
    except SaccadeError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise SaccadeError(f"the data is not where the recipe of this run has it: {error}") from error
        raise
