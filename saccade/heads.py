"""Do we really need all of them? Each head is removed in turn, and the loss measured again (Michel et al. 2019).

change of a head = loss without it - loss with all,  on the same examples of the validation part
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from saccade.errors import SaccadeError
from saccade.maps.record import attentions, title_of
from saccade.metrics import bootstrap_interval
from saccade.nn.attention import Attention
from saccade.predictor import Predictor, of_its_data
from saccade.tasks.base import Task

EXAMPLES = 256
AT_ONCE = 16  # at most, and fewer where there would be less than LEAST batches to resample
LEAST = 8
SEED = 12345  # of what a task draws while it makes a batch: the same for every head


@dataclass(frozen=True)
class Removal:
    """What is lost without one head: the change of the loss and its 95% interval, resampled over batches."""

    name: str
    head: int
    change: float
    interval: tuple[float, float]

    @property
    def needed(self) -> bool:
        return self.interval[0] > 0


@dataclass(frozen=True)
class Heads:
    """A model's loss, and every head's part in it."""

    loss: float
    examples: int
    removals: Sequence[Removal]

    @property
    def needed(self) -> int:
        return sum(removal.needed for removal in self.removals)


def remove_each(predictor: Predictor, *, examples: int = EXAMPLES) -> Iterator[Heads]:
    """Every head in turn; what is known so far after each of them."""
    found = [(name, attention) for name, attention in attentions(predictor.model) if _removable(attention)]
    if not found:
        raise SaccadeError("the model has no attention with a projection behind it: there is no head to remove")
    task: Any = predictor.task
    with of_its_data():
        chosen = _spread(task.examples("valid"), examples)
    if len(chosen) < 2 * LEAST:
        raise SaccadeError(
            f"{len(chosen)} validation examples are too few to tell a head that is missed from chance; "
            f"{2 * LEAST} will do"
        )
    whole = _losses(task, predictor.model, chosen)
    removals: list[Removal] = []
    for name, attention in found:
        for head in range(attention.heads):
            with without_head(attention, head):
                apart = _losses(task, predictor.model, chosen)
            change = np.concatenate([whole, apart], axis=1)  # (batches, terms + terms, 2)
            removals.append(Removal(title_of(name), head, _change(change), bootstrap_interval(change, _change)))
            yield Heads(_loss(whole), len(chosen), tuple(removals))


@contextmanager
def without_head(attention: Attention, head: int) -> Iterator[None]:
    """While inside, nothing of what this head reads goes on: its columns of the output projection are zero."""
    weight: Tensor = attention.output.weight  # type: ignore[assignment]
    columns = slice(head * attention.value_width, (head + 1) * attention.value_width)
    with torch.no_grad():
        kept = weight[:, columns].clone()
        weight[:, columns] = 0
    try:
        yield
    finally:
        with torch.no_grad():
            weight[:, columns] = kept


def _removable(attention: Attention) -> bool:
    return isinstance(attention.output, nn.Linear)


def _spread(examples: Sequence[Any], count: int) -> list[Any]:
    """So many of them, from beginning to end."""
    places = np.linspace(0, len(examples) - 1, min(count, len(examples))).round().astype(int)
    return [examples[int(place)] for place in places]


@torch.no_grad()
def _losses(task: Task, model: nn.Module, examples: Sequence[Any]) -> np.ndarray:
    """Of each batch, of each learned term: weighted sum and count. (batches, terms, 2)"""
    model.eval()
    rows = []
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        at_once = min(AT_ONCE, len(examples) // LEAST)  # two at least: some losses compare the examples of a batch
        for first in range(0, len(examples), at_once):
            some = examples[first : first + at_once]
            batch = task.collate(some, range(first, first + len(some)))
            terms = {name: term for name, term in task.loss(model, batch).items() if term.weight}
            rows.append([(term.weight * float(term.sum), batch.counts[name]) for name, term in terms.items()])
    return np.array(rows)


def _loss(rows: np.ndarray) -> float:
    sums, counts = rows[..., 0].sum(0), rows[..., 1].sum(0)
    return float((sums / np.maximum(counts, 1)).sum())


def _change(rows: np.ndarray) -> float:
    half = rows.shape[1] // 2
    return _loss(rows[:, half:]) - _loss(rows[:, :half])
