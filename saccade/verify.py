"""The laws, on a user's own model: what must be equal is computed both ways, and the difference shown."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from saccade.data.vocab import END, PAD, START
from saccade.decode import Beam, Greedy, never, search
from saccade.made_up import some_examples
from saccade.maps.record import record
from saccade.models.shapes import EncoderDecoder, LanguageModel
from saccade.predictor import Predictor
from saccade.tasks.base import Task
from saccade.tasks.language import Language
from saccade.tasks.written import WrittenBatch
from saccade.train.run import Run
from saccade.train.trainer import load_tensors, named_tensors

SEED = 12345  # of what a task draws while it makes a batch
LOSS_TOLERANCE = 1e-7  # of a sum over examples
TOLERANCE = 1e-9  # of float64; the model is checked in double precision, where a difference is a mistake, not rounding


@dataclass(frozen=True)
class Law:
    """One law: the largest difference found, and what may be at most."""

    name: str
    difference: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.difference <= self.tolerance


@torch.no_grad()
def verify(predictor: Predictor) -> list[Law]:
    """Check the laws on the first validation examples of the model's own task, or on made-up ones where the data is
    gone, or was never here."""
    task: Any = predictor.task
    single = named_tensors(predictor.model)
    model: Any = task.model().double().eval()
    load_tensors(model, single, "the model")
    examples = some_examples(task, "valid")
    if isinstance(task, Language):
        return [*_language_laws(model, task.collate(examples, range(len(examples))).tokens), _saved(single)]
    batch = _double(task.collate(examples, range(len(examples))))
    if isinstance(batch, WrittenBatch):
        return [*_laws(model, batch), _saved(single)]
    return [*_loss_laws(task, model, examples), _saved(single)]


def _double(batch: Any) -> Any:
    """Frames and images as precise as the model."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    floats = {name: value for name, value in values.items() if isinstance(value, Tensor) and value.is_floating_point()}
    return replace(batch, **{name: value.double() for name, value in floats.items()})


def _loss_laws(task: Task, model: nn.Module, examples: Sequence[Any]) -> Iterator[Law]:
    """Of a model that writes nothing, by the sums of its loss: where the task draws nothing, they are sums of parts."""

    def total(numbers: Sequence[int]) -> float:
        batch = _double(task.collate([examples[number] for number in numbers], numbers))
        return sum(float(term.sum) for term in task.loss(model, batch).values() if term.weight)

    everyone = range(len(examples))
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        whole = total(everyone)
        again = total(everyone)
        torch.manual_seed(SEED)
        with record(model):
            yield Law("looking changes nothing (fused equals explicit)", abs(total(everyone) - whole), LOSS_TOLERANCE)
        if again != whole or getattr(task, "indivisible", False):
            return
        yield Law("the order of the batch changes nothing", abs(total(everyone[::-1]) - whole), LOSS_TOLERANCE)
        alone = sum(total([number]) for number in everyone)
        yield Law("batch size and padding change nothing", abs(alone - whole), LOSS_TOLERANCE)


def _laws(model: EncoderDecoder, batch: WrittenBatch) -> Iterator[Law]:
    given = batch.target[:, :-1]
    whole = model(batch.source, batch.source_mask, given)
    real = batch.target_mask[..., None]

    def law(name: str, other: Tensor) -> Law:
        return Law(name, float(((whole - other) * real).abs().max()), TOLERANCE)

    past = model.begin(model.encode(batch.source, batch.source_mask), given.shape[1])
    steps = []
    for tokens in given.split(1, dim=1):
        state, past = model.decoder.step(tokens, past)
        steps.append(state)
    yield law("step by step equals all at once", torch.cat(steps, dim=1))

    with record(model):
        yield law("looking changes nothing (fused equals explicit)", model(batch.source, batch.source_mask, given))

    order = torch.arange(len(given)).flip(0)
    turned_mask = None if batch.source_mask is None else batch.source_mask[order]
    turned = model(batch.source[order], turned_mask, given[order])
    yield law("the order of the batch changes nothing", turned[order])

    alone = [model(_real(batch, n), None, given[n : n + 1]) for n in range(len(given))]
    yield law("batch size and padding change nothing", torch.cat(alone))

    changed = given.clone()
    changed[:, -1] = torch.where(given[:, -1] == END, START, END)
    future = model(batch.source, batch.source_mask, changed)
    yield Law("the future changes nothing", float((whole - future)[:, :-1].abs().max()), TOLERANCE)

    yield _beam(model, batch)


def _language_laws(model: LanguageModel, text: Tensor) -> Iterator[Law]:
    given = text[:, :-1]
    whole = model(given)

    def law(name: str, other: Tensor) -> Law:
        return Law(name, float((whole - other).abs().max()), TOLERANCE)

    past = model.begin(len(given), given.shape[1])
    steps = []
    for tokens in given.split(1, dim=1):
        state, past = model.decoder.step(tokens, past)
        steps.append(state)
    yield law("step by step equals all at once", torch.cat(steps, dim=1))
    with record(model):
        yield law("looking changes nothing (fused equals explicit)", model(given))
    yield law("batch size changes nothing", torch.cat([model(row[None]) for row in given]))
    changed = given.clone()
    changed[:, -1] = (given[:, -1] + 1) % len(model.output.weight)
    yield Law("the future changes nothing", float((whole - model(changed))[:, :-1].abs().max()), TOLERANCE)


def _real(batch: WrittenBatch, number: int) -> Tensor:
    """One source as if it were alone in the world: without padding."""
    source = batch.source[number : number + 1]
    return source if batch.source_mask is None else source[:, : int(batch.source_mask[number].sum())]


def _beam(model: EncoderDecoder, batch: WrittenBatch) -> Law:
    """A beam of one finds what greedy search finds: the number of sentences in which it does not."""
    limits = [2 * batch.target.shape[1] + 10] * len(batch.target)

    def found(method: Greedy | Beam) -> list[tuple[int, ...]]:
        past = model.begin(model.encode(batch.source, batch.source_mask), max(limits))
        rules = [never([PAD, START])]
        answers = search(model.step, past, start=START, end=END, limits=limits, method=method, rules=rules)
        return [hypotheses[0].tokens for hypotheses in answers]

    different = sum(
        one != other for one, other in zip(found(Greedy()), found(Beam(1, length_penalty=0.0)), strict=True)
    )
    return Law("a beam of one is greedy search", float(different), 0.0)


def _saved(tensors: dict[str, Tensor]) -> Law:
    """Weights come back from the disk bit for bit: the number of tensors that do not."""
    with tempfile.TemporaryDirectory() as directory:
        run = Run.create(Path(directory) / "run", "format: 1\n")
        run.save_final(tensors, {})
        again, _ = run.weights()
        different = sum(not torch.equal(tensors[name], again[name]) for name in tensors)
    return Law("saved and loaded bit for bit", float(different), 0.0)
