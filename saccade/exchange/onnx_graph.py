"""Our modules as ONNX graphs for any number of rows, any length and any past, traced by torch.export.

    encoder:  what is read -> memory, and the states that a decoder begins with
    decoder:  tokens, memory, states -> logits of what follows, the next states

Caches grow by concatenation here, where ours are written in place.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.errors import SaccadeError
from saccade.exchange.onnx_recurrent import OPSET
from saccade.nn import attention
from saccade.nn.cache import KeyValues, Past
from saccade.train.checkpoint import write_file

Ask = Callable[..., tuple[Tensor, ...]]  # model, inputs -> outputs

LARGEST = 2 * 10**9  # bytes of weights in one file
ROWS, SOURCE, PAST = "rows", "source", "past"  # axes that may have any size


@dataclass(frozen=True)
class Slot:
    """One input of a graph: an example of it, and the names of its axes; a number is a size that never changes."""

    name: str
    example: Tensor
    shape: tuple[str | int, ...]

    @property
    def described(self) -> dict[str, Any]:
        return {"name": self.name, "type": str(self.example.dtype).removeprefix("torch."), "shape": list(self.shape)}


@dataclass(frozen=True)
class Growing(KeyValues):
    """A cache that grows by concatenation, and says what it has become: blocks expect to have written in place."""

    written: list[KeyValues] = field(default_factory=list)

    def append(self, new: KeyValues) -> KeyValues:
        key, value = torch.cat([self.key, new.key], dim=2), torch.cat([self.value, new.value], dim=2)
        self.written.append(KeyValues(key, value, position=self.position))
        return self.written[-1]


@dataclass(frozen=True)
class GrowingPast(Past):
    """A past whose caches need no room."""

    def room_for(self, steps: int) -> Past:  # noqa: ARG002
        return self


class Leaves:
    """The tensors of a tree, each once, in the order of the tree."""

    def __init__(self, tree: Any):
        leaves, self.spec = pytree.tree_flatten(tree)
        kept: dict[int, int] = {}
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                kept.setdefault(id(leaf), len(kept))
        self.places = [kept.get(id(leaf)) for leaf in leaves]
        self.firsts = [self.places.index(place) for place in range(len(kept))]

    def of(self, tree: Any) -> list[Tensor]:
        leaves = pytree.tree_leaves(tree)
        return [leaves[first] for first in self.firsts]

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        return pytree.tree_unflatten([None if place is None else tensors[place] for place in self.places], self.spec)


class AnswerGraph(nn.Module):
    """Inputs -> what `ask` makes of them with the model."""

    def __init__(self, model: nn.Module, ask: Ask):
        super().__init__()
        self.model, self.ask = model, ask

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        return self.ask(self.model, *inputs)


class EncoderGraph(nn.Module):
    """What is read -> memory, and the states that are no caches."""

    def __init__(self, model: Any, memory: Leaves, states: Leaves, given: Sequence[int]):
        super().__init__()
        self.model, self.memory, self.states, self.given = model, memory, states, given

    def forward(self, *read: Tensor) -> tuple[Tensor, ...]:
        past = self.model.begin(self.model.encode(*read), 1)
        states = self.states.of((past.state, past.position))
        return (*self.memory.of(past.memory), *(states[place] for place in self.given))


class DecoderGraph(nn.Module):
    """Tokens, memory and states -> logits (R, V) after the last token, the next states."""

    def __init__(self, model: Any, memory: Leaves, states: Leaves):
        super().__init__()
        self.model, self.memory, self.states = model, memory, states

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        tokens, *behind = given
        count = len(self.memory.firsts)
        state, position = self.states.filled(behind[count:])
        state = _map_caches(lambda cache: Growing(cache.key, cache.value), state)
        past = GrowingPast(state, self.memory.filled(behind[:count]), position)
        states, past = self.model.decoder.step(tokens, past)
        logits = self.model.output(states[:, -1])
        state = _map_caches(lambda cache: KeyValues(cache.written[-1].key, cache.written[-1].value), past.state)
        return (logits, *self.states.of((state, past.position)))


def cut_to(past: Past, cells: int) -> tuple[Any, Tensor]:
    """State and position of a past, with so many cells in each cache."""

    def cut(cache: KeyValues) -> KeyValues:
        return replace(cache, key=cache.key[:, :, :cells], value=cache.value[:, :, :cells])

    return _map_caches(cut, past.state), past.position


def caches_among(tree: Any) -> list[bool]:
    """Of each tensor of a tree, each once, whether it belongs to a cache."""
    found: list[bool] = []
    for leaf in pytree.tree_leaves(tree, is_leaf=lambda leaf: isinstance(leaf, KeyValues)):
        if isinstance(leaf, KeyValues):
            found += [True, True]
        elif isinstance(leaf, Tensor):
            found.append(False)
    return found


def _map_caches(function: Any, tree: Any) -> Any:
    return pytree.tree_map_only(KeyValues, function, tree, is_leaf=lambda leaf: isinstance(leaf, KeyValues))


@torch.no_grad()
def write_graph(
    module: nn.Module,
    inputs: Sequence[Slot],
    outputs: Sequence[str],
    path: Path,
    *,
    multiple: int = 1,
    least: int | None = None,
) -> None:
    """Trace a module, called with *inputs, for all sizes of the named axes, and write it.

    The length of a source is a multiple of `multiple`, and `least` or more where tracing has to be told so.
    """
    size = sum(each.numel() * each.element_size() for each in (*module.parameters(), *module.buffers()))
    if size > LARGEST:
        raise SaccadeError(f"{path.name} would have {size / 1e9:.1f} GB of weights, and a file of ONNX holds two")
    names = {axis for slot in inputs for axis in slot.shape if isinstance(axis, str)}
    sizes: dict[str, Any] = {name: torch.export.Dim(name) for name in names}
    if multiple > 1:
        sizes[SOURCE] = multiple * torch.export.Dim("part")
    elif least is not None:
        sizes[SOURCE] = torch.export.Dim(SOURCE, min=least)
    axes = tuple({n: sizes[axis] for n, axis in enumerate(slot.shape) if isinstance(axis, str)} for slot in inputs)
    examples = tuple(slot.example for slot in inputs)
    try:
        with _quietly(), _rows_apart():
            traced = torch.export.export(module.eval(), examples, dynamic_shapes=(axes,), strict=True)
            program = torch.onnx.export(
                traced,
                dynamo=True,
                verbose=False,
                opset_version=OPSET,
                input_names=[slot.name for slot in inputs],
                output_names=list(outputs),
            )
            assert program is not None
            content = _without_traces(program.model_proto)
    except (RuntimeError, TypeError) as error:
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise SaccadeError(f"the export is refused: {path.name} cannot be traced: {reason}") from error
    write_file(path, [content])


def _without_traces(graph: Any) -> bytes:
    """A model of ONNX without the lines of code that its nodes came from, and the folders these lie in."""
    inside = graph.graph
    for part in ([inside], inside.node, inside.input, inside.output, inside.value_info, inside.initializer):
        for each in part:
            del each.metadata_props[:]
    return graph.SerializeToString()


@contextmanager
def _rows_apart() -> Iterator[None]:
    """While tracing, every asking row has a row of the memory: how many hypotheses share one cannot be divided out."""
    fold = attention._fold_of
    attention._fold_of = lambda rows, kv: 1  # noqa: ARG005
    try:
        yield
    finally:
        attention._fold_of = fold


@contextmanager
def _quietly() -> Iterator[None]:
    """Without what the exporter says to its own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec.*")
            yield
    finally:
        logging.disable(before)
