"""One optimizer update: exact over its batches, and never made with numbers that are not finite.

The loss of an update is, for each named term,

    weight x (sum over all batches of the update) / (count over all batches of the update)

so that accumulating over k batches equals one batch k times as large, and a batch that does not fit into the memory may
be cut into parts without changing the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config.training import TrainSettings
from saccade.errors import SaccadeError
from saccade.tasks.base import Batch, Loss, Task, Traceable
from saccade.train.distributed import World
from saccade.train.optim import set_rate
from saccade.train.precision import multiplying
from saccade.train.progress import Update
from saccade.train.randomness import random_state, restore_random

NAMED = 8  # examples that a message names


class NonFiniteError(SaccadeError):
    """An update that was not made, because its loss or its gradient was not finite."""

    def __init__(self, message: str, examples: Sequence[int]):
        super().__init__(message)
        self.examples = tuple(examples)


class MemoryFullError(SaccadeError):
    """A batch that does not fit."""


class Objective(nn.Module):
    """Model and loss as one module: the one thing that data parallelism or a compiler would wrap."""

    def __init__(self, model: nn.Module, task: Task, *, precision: str = "float32"):
        super().__init__()
        self.model = model
        self._task = task
        self._precision = precision

    def forward(self, batch: Batch) -> Loss:
        device = next(self.model.parameters()).device.type
        with multiplying(self._precision, device):
            return self._task.loss(self.model, batch)


class Updater:
    """Turns batches of example numbers into updates of a model."""

    def __init__(
        self,
        task: Task,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        examples: Sequence[Any],
        settings: TrainSettings,
        *,
        world: World,
    ):
        self.task, self.optimizer, self.examples, self.settings, self.world = task, optimizer, examples, settings, world
        self.objective = Objective(model, task, precision=settings.precision)
        self.parts = 1  # that every batch is cut into, because it did not fit whole
        # a task may say so of a loss that compares all examples of a batch with each other
        self._whole = getattr(task, "indivisible", False)
        for key, wanted in (("accumulate", settings.accumulate > 1), ("split_when_full", settings.split_when_full)):
            if self._whole and wanted:
                raise SaccadeError(
                    f"train.{key}={getattr(settings, key)} would cut a batch into parts, but the loss of this task "
                    "needs batches whole; use a smaller train.batch_tokens instead"
                )
        norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
        self._statistics = [buffer for norm in norms for buffer in norm.buffers()]  # which a forward pass changes

    def make(self, step: int, batches: Sequence[Sequence[int]], rate: float) -> Update:
        """The update number `step`; after any error the weights are what they were."""
        before = random_state() if self.settings.split_when_full else None
        while True:
            try:
                with self._undone_on_error():
                    counts, means = self._gradients(step, [part for each in batches for part in cut(each, self.parts)])
                    norm = self._norm(step, batches)
                break
            except MemoryFullError:
                if before is None or self.parts >= max(map(len, batches)):
                    raise
                self.parts *= 2
                restore_random(before)
        if self.settings.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.objective.model.parameters(), self.settings.clip, norm)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return Update(step, means, rate, float(norm), int(max(counts.values(), default=0)), self.parts)

    @contextmanager
    def _undone_on_error(self) -> Iterator[None]:
        """No gradient is left of an update that was not made, and statistics of batches are as before."""
        before = [buffer.clone() for buffer in self._statistics]
        try:
            yield
        except BaseException:
            self.optimizer.zero_grad(set_to_none=True)
            for buffer, old in zip(self._statistics, before, strict=True):
                buffer.copy_(old)
            raise

    def _norm(self, step: int, batches: Sequence[Sequence[int]]) -> Tensor:
        """The length of the gradient, which is a number."""
        model = self.objective.model
        norm = torch.nn.utils.get_total_norm(p.grad for p in model.parameters() if p.grad is not None)
        if not torch.isfinite(norm):
            # backward goes from the last module to the first
            bad = [name for name, p in model.named_parameters() if p.grad is not None and not p.grad.isfinite().all()]
            place = bad[-1].rpartition(".")[0] if bad else "no single module"
            raise self._not_finite("gradient", step, place, [number for each in batches for number in each])
        return norm

    def _gradients(self, step: int, batches: Sequence[Sequence[int]]) -> tuple[dict[str, float], dict[str, float]]:
        """Count and mean of every term of the loss; the gradients are left in the parameters."""
        collated = [self._collate(numbers) for numbers in batches]
        counts: dict[str, float] = {}
        for batch in collated:
            for name, count in batch.counts.items():
                counts[name] = counts.get(name, 0) + count
        counts = self.world.sum(counts)
        means = dict.fromkeys(counts, 0.0)
        for batch in collated:
            with self._memory(step, batch):
                total = torch.zeros(())
                for name, term in self._loss(batch).items():
                    mean = term.sum / max(counts[name], 1)
                    means[name] += float(mean.detach())
                    total = total + term.weight * mean if term.weight else total
                if not torch.isfinite(total):
                    raise self._not_finite("loss", step, first_nonfinite(self.objective, batch), batch.numbers)
                if total.requires_grad:
                    total.backward()
        return counts, means

    def _collate(self, numbers: Sequence[int]) -> Batch:
        try:
            return self.task.collate([self.examples[number] for number in numbers], numbers)
        except MemoryError:
            raise
        except Exception as error:
            raise self._unusable(numbers, error, lambda one: self.task.collate([self.examples[one]], [one])) from error

    def _loss(self, batch: Batch) -> Loss:
        try:
            return self.objective(batch)
        except ValueError as error:  # so modules say that an input is none of theirs

            def again(one: int) -> None:
                with torch.no_grad():
                    self.objective(self.task.collate([self.examples[one]], [one]))

            raise self._unusable(batch.numbers, error, again) from error

    def _unusable(self, numbers: Sequence[int], error: Exception, attempt: Callable[[int], object]) -> SaccadeError:
        """Name the example that is to blame: the first that fails alone as well."""
        for number in numbers:
            try:
                attempt(number)
            except Exception as again:
                numbers, error = [number], again
                break
        kind = "" if isinstance(error, SaccadeError | ValueError) else f"{type(error).__name__}: "
        return SaccadeError(f"cannot train with {self._named(numbers)}: {kind}{error}")

    @contextmanager
    def _memory(self, step: int, batch: Batch) -> Iterator[None]:
        """Say what did not fit; a torch that runs out of memory says so in one of three ways."""
        try:
            yield
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                raise
            longest = max(self.task.length(self.examples[number]) for number in batch.numbers)
            size = len(batch.numbers)
            shape = f"{size} example{'s' if size > 1 else ''} of up to {longest} tokens, {size} x {longest}"
            remedies = f"train.batch_tokens={max(self.settings.batch_tokens // 2, 1)}"
            if not self._whole:
                remedies += f" with train.accumulate={2 * self.settings.accumulate}, which is the same update"
                remedies += (
                    "" if self.settings.split_when_full else ", train.split_when_full=true, which finds what fits"
                )
            raise MemoryFullError(
                f"out of memory at step {step}, with a batch of {shape}; no update was made. Try {remedies}, or a "
                "smaller model"
            ) from error

    def _not_finite(self, what: str, step: int, place: str, numbers: Sequence[int]) -> NonFiniteError:
        """Before the update, so that the weights and the last checkpoint stay good."""
        return NonFiniteError(
            f"the {what} is not finite at step {step}; first seen in {place}, with {self._named(numbers)}. "
            "No update was made. Try a lower train.optimizer.rate, a longer warm-up or a smaller train.clip",
            numbers,
        )

    def _named(self, numbers: Sequence[int]) -> str:
        """Numbers of examples, and where they come from."""
        first, more = list(numbers)[:NAMED], ", ..." if len(numbers) > NAMED else ""
        listed = f"example{'s' if len(numbers) > 1 else ''} {', '.join(map(str, first))}{more}"
        if isinstance(self.task, Traceable):
            listed += f" ({', '.join(self.task.place(number) for number in first)}{more})"
        return listed


def cut(numbers: Sequence[int], parts: int) -> list[Sequence[int]]:
    """In so many parts of like size and in the same order; no part is empty."""
    parts = min(parts, len(numbers))
    edges = [len(numbers) * part // parts for part in range(parts + 1)]
    return [numbers[first:last] for first, last in pairwise(edges)]


def is_out_of_memory(error: RuntimeError) -> bool:
    """On a processor torch raises a plain RuntimeError when memory ends: "can't allocate memory: you tried ..." """
    return isinstance(error, torch.OutOfMemoryError) or ("allocate" in str(error) and "memory" in str(error))


def first_nonfinite(objective: nn.Module, batch: Batch) -> str:
    """The first module, in the order of computation, whose output is not finite."""
    found: list[str] = []

    def finite(value: Any) -> bool:
        leaves = torch.utils._pytree.tree_leaves(value)
        return all(torch.isfinite(leaf).all() for leaf in leaves if isinstance(leaf, Tensor))

    def hook(name: str) -> Any:
        return lambda _module, _inputs, output: None if found or finite(output) else found.append(name)

    handles = [module.register_forward_hook(hook(name)) for name, module in objective.named_modules() if name]
    try:
        with torch.no_grad():
            objective(batch)
    finally:
        for handle in handles:
            handle.remove()
    return found[0].removeprefix("model.") if found else "the loss itself"
