"""The contract between a task and everything else: data, model, loss, prediction, score.

The trainer, the commands and the maps know a task only through this. A loss is a set of named sums; each is divided
once, by the count of its own name over the whole update, so accumulation and unequal lengths are exact. Counts belong
to the batch: they are known before any forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from saccade.config import Recipe
from saccade.decode import Hypothesis, Method
from saccade.maps.render import AttentionMap
from saccade.metrics import Score


class Batch(Protocol):
    """Tensors of some examples; what is in it is between a task's collate and its loss."""

    @property
    def numbers(self) -> Sequence[int]:
        """Which examples these are, for messages."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What each named sum of the loss is divided by."""


@dataclass(frozen=True)
class Term:
    """One named sum. Weight 0: reported, not learned."""

    sum: Tensor
    weight: float = 1.0


Loss = Mapping[str, Term]


@dataclass(frozen=True)
class Answer:
    """One answer to an input, how good the model thinks it is, and how a search came to it where there was one."""

    text: str
    score: float  # higher is better; NaN of a search that was not asked for it
    hypothesis: Hypothesis | None = None

    @property
    def stopped(self) -> str:
        """Why the search ended there; nothing where the answer was not written token by token."""
        return "" if self.hypothesis is None else self.hypothesis.stopped


@dataclass(frozen=True)
class Prediction:
    """The answers to one input, best first; none for one that was refused, as `refusal` says."""

    input: str
    answers: tuple[Answer, ...] = ()
    refusal: str | None = None

    @property
    def text(self) -> str:
        return self.answers[0].text if self.answers else ""


@dataclass(frozen=True)
class Scores:
    """Numbers by name; `main` is the one that decides, higher is better."""

    main: str
    values: Mapping[str, float]
    samples: Sequence[tuple[str, str, str]] = field(default=())  # input, answer, reference; all that was scored
    references: Sequence[Sequence[str]] = field(default=())  # all references of each, where there may be several

    @property
    def decisive(self) -> float:
        return self.values[self.main]


class Task(Protocol):
    """Everything that is special about one kind of data and question."""

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        """The recipe with all that it left open decided from the data, and the reasons in words."""

    def prepare(self, directory: Path) -> Sequence[str] | None:
        """Write what the model needs beside its weights (a vocabulary) into a new run; what was noticed, in words."""

    def load(self, directory: Path) -> None:
        """Read back what `prepare` wrote."""

    def examples(self, split: str) -> Sequence[Any]: ...

    def length(self, example: Any) -> int:
        """What the example costs in a batch, in tokens."""

    def collate(self, examples: Sequence[Any], numbers: Sequence[int]) -> Batch: ...

    def model(self) -> nn.Module: ...

    def loss(self, model: Any, batch: Any) -> Loss: ...

    def predict(self, model: Any, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]: ...

    def score(self, model: Any) -> Scores:
        """On the validation part, by real prediction."""

    def evaluate(self, model: Any, split: str) -> Sequence[Score]:
        """Everything there is to say about a part of the data ("valid" or "test"), with intervals: the score that
        counts first, then others, trivial baselines, and the score with inputs and answers shuffled."""

    def look(self, model: Any, text: str, target: str | None = None, *, pieces: bool = False) -> list[AttentionMap]:
        """Every attention while the answer to `text` (or the given `target`) is written, the clearest summary first;
        over words, or over the pieces that the model sees."""


@runtime_checkable
class Traceable(Protocol):
    """A task that can say where an example of its training part comes from."""

    def place(self, number: int) -> str:
        """For messages: a file and a line."""


@runtime_checkable
class Starting(Protocol):
    """A task whose model may begin with the vocabulary and the weights of another run."""

    def start(self, vocabulary: Path, recipe: Recipe) -> None:
        """Take over the other run's vocabulary; before `fitted`, which may take over its model."""

    def adopt(self, model: Any, tensors: Mapping[str, Tensor]) -> Sequence[str]:
        """Copy into a new model what fits of the other run's weights; in words, what was taken and what was not."""


@runtime_checkable
class Concluding(Protocol):
    """A task that learns something about a trained model, which is then kept with the final weights."""

    def conclude(self, model: Any) -> dict[str, Any]:
        """From the validation part, as JSON."""

    def recall(self, conclusions: Mapping[str, Any]) -> None:
        """What `conclude` found, given back when the model is loaded."""
