"""What an architecture of others is to us: its table of rules, its settings both ways, and a way to try it out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Generator, Tensor

from saccade.config import Recipe
from saccade.data.lexicon import Lexicon
from saccade.errors import SaccadeError
from saccade.exchange.folder import Config
from saccade.exchange.rules import Table
from saccade.exchange.tokens import read_lexicon
from saccade.predictor import Predictor
from saccade.tasks.classify import Classify

NO_DATA = "no-data"  # in place of files that an imported model was not trained on here

# names of theirs -> ours
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


@dataclass(frozen=True)
class Sizes:
    """What a run has beside its recipe: ids of its vocabulary, which of them are no text, labels."""

    vocabulary: int = 0
    marks: Mapping[str, int] | None = None  # pad, start, end
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Architecture:
    """One class of theirs, by its name in config.json."""

    name: str
    type: str  # model_type
    table: Callable[[Recipe], Table]
    recipe: Callable[[Config, Collection[str]], Recipe]  # also from the names of the tensors
    probe: Callable[[Any, Recipe, Sizes, Generator], Tensor]  # what a model says to random inputs
    config: Callable[[Recipe, Sizes], dict[str, Any]] | None = (
        None  # none: no run is written as this but one that was it
    )
    vocabulary: Literal["lexicon", "pieces", "none"] = "lexicon"
    lexicon: Callable[[Path, Config], Lexicon] = read_lexicon  # of a folder
    masks: bool = False  # its vocabulary needs a mask
    framed: bool = False  # its tokenizer puts marks around a text
    labelled: bool = False
    bare: bool = False  # its files are without the table's prefix
    files: Callable[[Recipe], dict[str, dict[str, Any]]] = lambda _: {}  # others of a folder, by name
    carried: Collection[str] = ()  # what its files say of the search: names of decode settings
    notes: Callable[[Config], Sequence[str]] = lambda _: ()  # what an import should say


def their_activation(ours: str) -> str | None:
    return next((theirs for theirs, name in ACTIVATIONS.items() if name == ours), None)


def require_plain(name: str, wrong: Mapping[str, bool]) -> None:
    """Refuse settings that an architecture has no place for, all of them at once."""
    if any(wrong.values()):
        raise SaccadeError(f"{name} has no {', no '.join(each for each, is_so in wrong.items() if is_so)}")


def longest_text(recipe: Recipe) -> int:
    """In tokens, with marks."""
    return int(getattr(recipe.task, "window", 0) or getattr(recipe.task, "longest", 64))


def labels_left_out(predictor: Predictor) -> list[str]:
    """Of a model that labels texts: the answer that none of its numbers stands for."""
    task = predictor.task
    if not isinstance(task, Classify) or not task.settings.outside or not task.threshold:
        return []
    given = f"the answer {task.settings.outside!r} where no label has a probability of {task.threshold:.3g}"
    return [f"task.outside does not go along: {given}"]


def random_ids(recipe: Recipe, sizes: Sizes, draw: Generator) -> tuple[Tensor, Tensor]:
    """Three texts of several lengths, and which of their tokens are real."""
    length = min(longest_text(recipe), 9)
    lengths = torch.tensor([length, max(1, length // 2), 1])
    return torch.randint(sizes.vocabulary, (3, length), generator=draw), torch.arange(length) < lengths[:, None]
