"""What a recipe will cost, before anything is trained: parameters, operations, memory, and minutes on this machine.

Everything but the minutes is counted on the meta device, on the code that will run: no formula that could drift from
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from saccade.api import begun_with, make_task
from saccade.config import Recipe
from saccade.data.batching import Cursor
from saccade.data.vocab import SPECIALS
from saccade.made_up import some_examples
from saccade.models import MODELS
from saccade.models.shapes import parameter_count
from saccade.nn.losses import token_loss
from saccade.predictor import for_people
from saccade.train.optim import make_optimizer
from saccade.train.precision import multiplying, settled
from saccade.train.progress import Update
from saccade.train.run import Run
from saccade.train.trainer import Trainer

LENGTH = 32  # tokens of a sentence that operations and memory are counted with
PROBE_STEPS = 3
BYTES = 4  # of a float32 number


@dataclass(frozen=True)
class Plan:
    """The counts of one recipe. Operations are multiplications and additions, of one target token in training, or of
    one of what the loss is divided by (an image, a label)."""

    parts: dict[str, int]
    parameters: int
    forward_flops: float
    training_flops: float
    weight_bytes: int
    optimizer_bytes: int  # gradients, both moments, and the average of the weights where there is one
    activation_bytes: int  # saved for the backward pass of one batch
    tokens_per_update: int
    tokens_per_second: float | None = None

    @property
    def training_bytes(self) -> int:
        return self.weight_bytes + self.optimizer_bytes + self.activation_bytes

    def minutes(self, updates: int) -> float | None:
        """How long so many updates take at the probed speed, evaluations not counted."""
        if self.tokens_per_second is None:
            return None
        return updates * self.tokens_per_update / self.tokens_per_second / 60


def plan(recipe: Recipe, *, vocabulary: Path | None = None, probe: bool = True) -> Plan:
    """Count a recipe; with `probe`, also make a few updates with random tokens to see how fast this machine is.

    With the `vocabulary` of a run its data need not be there.
    """
    with for_people():
        return _plan(recipe, vocabulary, probe)


def named(name: str) -> tuple[str | Path, Path | None]:
    """The recipe that a name means, and where its vocabulary is, if it is that of a run."""
    recipe = Path(name) / "recipe.yaml"
    return (recipe, Run.open(name).vocab) if recipe.is_file() else (name, None)


def _prepared(recipe: Recipe, vocabulary: Path | None) -> tuple[Recipe, Any]:
    task = make_task(recipe)
    if vocabulary is not None:
        task.load(vocabulary)
        return recipe, task
    begun_with(task, recipe)
    recipe, _ = settled(task.fitted()[0])
    with TemporaryDirectory() as directory:
        task.prepare(Path(directory))  # the data may yield a smaller vocabulary than was asked for
    return recipe, task


def _plan(recipe: Recipe, vocabulary: Path | None, probe: bool) -> Plan:
    of_pairs = recipe.model.kind in MODELS or recipe.model.kind == "fitted"
    recipe, task = _prepared(recipe, vocabulary)
    if not of_pairs:
        return _plan_of_a_batch(recipe, task, probe, made_up=vocabulary is not None)
    rows = max(1, recipe.train.batch_tokens // LENGTH)
    with torch.device("meta"):
        model: Any = task.model()
        size = len(model.output.weight)
        counted = FlopCounterMode(display=False)
        with counted:
            source, target = _batch(rows, size)
            model.output(model(source, None, target))
        forward = counted.get_total_flops() / (rows * LENGTH)
        activations = _saved_bytes(model, rows, size)
    parameters = parameter_count(model)
    copies = 3 + (1 if recipe.train.average else 0)
    speed = _probe(recipe, task.model, rows) if probe else None
    return Plan(
        parts=_parts(model),
        parameters=parameters,
        forward_flops=forward,
        training_flops=3 * forward,  # the backward pass has two products for each one of the forward pass
        weight_bytes=BYTES * parameters,
        optimizer_bytes=copies * BYTES * parameter_count(model, trained_only=True),
        activation_bytes=activations,
        tokens_per_update=rows * LENGTH * recipe.train.accumulate,
        tokens_per_second=speed,
    )


def _plan_of_a_batch(recipe: Recipe, task: Any, probe: bool, *, made_up: bool) -> Plan:
    """Of any task: a first batch of its own examples is counted as it goes through the model, on this machine."""
    if made_up:
        few = some_examples(task, "train")
        rows = max(1, recipe.train.batch_tokens // max(map(task.length, few)))
        model, numbers = task.model(), list(range(rows))
        batch = task.collate([few[number % len(few)] for number in numbers], numbers)
        speed = _speed_of(recipe, task, model, batch) if probe else None
    else:
        trainer = Trainer(task, recipe.train, recipe=recipe)
        model, (numbers, _) = trainer.model, next(trainer.batches.stream(Cursor()))
        batch = task.collate([trainer.examples[number] for number in numbers], numbers)
        speed = _speed(trainer) if probe else None
    counted, seen = FlopCounterMode(display=False), _Saved(model)
    # the counter knows products, not the fused kernel; and without gradients the output layer makes none in advance
    with _frozen(model), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counted:
        task.loss(model, batch)
    with seen:
        task.loss(model, batch)
    items = max(batch.counts.get("loss", len(numbers)), 1)
    parameters = parameter_count(model)
    copies = 3 + (1 if recipe.train.average else 0)
    forward = counted.get_total_flops() / items
    return Plan(
        parts=_parts(model),
        parameters=parameters,
        forward_flops=forward,
        training_flops=3 * forward,
        weight_bytes=BYTES * parameters,
        optimizer_bytes=copies * BYTES * parameter_count(model, trained_only=True),
        activation_bytes=seen.total,
        tokens_per_update=items * recipe.train.accumulate,
        tokens_per_second=speed,
    )


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """While inside, no parameter wants a gradient: the counter trips over one that is looked at in another shape."""
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learned:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learned:
            parameter.requires_grad_()


def _speed(trainer: Trainer) -> float | None:
    """Items per second of the first updates; the very first is not counted, and nothing is known without another."""
    begun, made = 0.0, 0
    for step, update in zip(range(1 + PROBE_STEPS), trainer.steps(), strict=False):
        made += update.tokens if step and isinstance(update, Update) else 0
        begun = begun if step else time.monotonic()
    return made / (time.monotonic() - begun) if made else None


def _speed_of(recipe: Recipe, task: Any, model: nn.Module, batch: Any) -> float:
    """Items per second of updates with one and the same batch; the first is not counted."""
    optimizer, items = make_optimizer(model, recipe.train.optimizer), batch.counts["loss"]
    begun = 0.0
    for step in range(1 + PROBE_STEPS):
        begun = time.monotonic() if step == 1 else begun
        with multiplying(recipe.train.precision):
            loss = task.loss(model, batch)["loss"].sum
        (loss / items).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return PROBE_STEPS * items / (time.monotonic() - begun)


def _parts(model: nn.Module) -> dict[str, int]:
    """Parameters by part; what is shared counts where it stands first."""
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        words = name.split(".")
        part = f"{words[0]} {'embedding' if 'embedding' in words else 'layers'}" if words[0] != "output" else "output"
        parts[part] = parts.get(part, 0) + parameter.numel()
    return parts


def _batch(rows: int, size: int) -> tuple[Tensor, Tensor]:
    source, target = (torch.randint(len(SPECIALS), size, (rows, LENGTH)) for _ in range(2))
    return source, target


def _saved_bytes(model: nn.Module, rows: int, size: int) -> int:
    """Bytes of all tensors that the backward pass of one batch needs."""
    source, target = _batch(rows, size)
    seen = _Saved(model)
    with seen:
        model(source, None, target)
    return seen.total


class _Saved(saved_tensors_hooks):
    """What the backward pass needs of what is computed inside, parameters not counted, each storage once."""

    def __init__(self, model: nn.Module):
        own = {id(parameter) for parameter in model.parameters()}
        self._seen: dict[int, Tensor] = {}

        def pack(tensor: Tensor) -> Tensor:
            base = tensor if tensor._base is None else tensor._base
            if id(base) not in own:
                self._seen[id(base)] = base
            return tensor

        super().__init__(pack, lambda tensor: tensor)

    @property
    def total(self) -> int:
        return sum(tensor.numel() * tensor.element_size() for tensor in self._seen.values())


def _probe(recipe: Recipe, build: Callable[[], Any], rows: int) -> float:
    """Target tokens per second of real updates with random tokens; the first is not counted."""
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    model = build()
    optimizer = make_optimizer(model, recipe.train.optimizer)
    source, target = _batch(rows, len(model.output.weight))
    mask = torch.ones(rows, LENGTH, dtype=torch.bool)
    seconds = 0.0
    for step in range(1 + PROBE_STEPS):
        begun = time.monotonic()
        with multiplying(recipe.train.precision):
            states = model(source, mask, target)
            loss = token_loss(states, target, mask, model.output, smoothing=recipe.train.smoothing)
        (loss.smoothed / mask.sum()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds += time.monotonic() - begun if step else 0.0
    return PROBE_STEPS * rows * LENGTH / seconds
