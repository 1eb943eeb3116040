"""Put a tap on every attention of a model, from outside, for as long as one looks.

With no tap the fused kernel runs; under `record` the same weights are computed in the open. Nothing of the model
changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock, get_ident

import torch
from torch import Tensor, nn

from saccade.nn.attention import Attention, Tap

_looking = RLock()  # one look at a time in a process: an attention has one tap


@dataclass(frozen=True)
class Seen:
    """The weights of one attention: (B, H, T, S)."""

    name: str
    weights: Tensor
    causal: bool

    @property
    def title(self) -> str:
        return title_of(self.name)


def title_of(name: str) -> str:
    """The name of an attention for people: decoder.stack.blocks.0.cross is "decoder block 1, cross-attention", and
    decoder.writer.attention "decoder, attention"."""
    block = re.fullmatch(r"(\w+)\.stack\.blocks\.(\d+)\.(attention|cross)", name)
    if block is not None:
        sort = {"attention": "self-attention", "cross": "cross-attention"}[block[3]]
        return f"{block[1]} block {int(block[2]) + 1}, {sort}"
    words: list[str] = []
    for part in name.split("."):
        if part.isdigit() and words:
            words[-1] = f"{words[-1].removesuffix('s')} {int(part) + 1}"
        elif part != "writer":
            words.append(part)
    return ", ".join(words)


@dataclass
class Recording:
    """What all attentions of a model did, in the order of the model. An attention that is asked step by step (a
    recurrent decoder's) gives one map with all its steps as rows."""

    model: nn.Module
    calls: dict[str, list[Tensor]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Seen]:
        for name, attention in attentions(self.model):
            if name in self.calls:
                yield Seen(name, torch.cat(self.calls[name], dim=2), attention.causal)

    def __getitem__(self, name: str) -> Tensor:
        for seen in self:
            if seen.name == name:
                return seen.weights
        raise KeyError(f"no attention called {name!r} was asked; there are {', '.join(self.calls) or 'none'}")

    def __len__(self) -> int:
        return len(self.calls)


def attentions(model: nn.Module) -> list[tuple[str, Attention]]:
    """Every attention of a model, by name."""
    return [(name, module) for name, module in model.named_modules() if isinstance(module, Attention)]


@contextmanager
def record(model: nn.Module) -> Iterator[Recording]:
    """`with record(model) as recording: model(...)`; afterwards the taps are off, even after an error.

    What other threads ask the same model for meanwhile is not recorded.
    """
    recording, thread = Recording(model), get_ident()

    def tapping(name: str) -> Tap:
        def tap(weights: Tensor) -> None:
            if get_ident() == thread:
                recording.calls.setdefault(name, []).append(weights.detach())

        return tap

    with _looking:
        for name, attention in attentions(model):
            attention.tap = tapping(name)
        try:
            yield recording
        finally:
            for _, attention in attentions(model):
                attention.tap = None


@contextmanager
def watched(chosen: Sequence[Attention]) -> Iterator[list[list[Tensor]]]:
    """The weights of some attentions with their gradients, a list of (B, H, t, S) for each: for losses on them."""
    seen: list[list[Tensor]] = [[] for _ in chosen]
    for attention, calls in zip(chosen, seen, strict=True):
        attention.tap = calls.append
    try:
        yield seen
    finally:
        for attention in chosen:
            attention.tap = None
