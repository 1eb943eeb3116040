"""Rules of a search: each says which tokens may not follow. Rules only forbid; they never change a score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from saccade.decode.methods import Live
from saccade.errors import SaccadeError


class Rule(Protocol):
    """Sets the log-probability (R, V) of what may not follow each live hypothesis to -inf, in place."""

    def __call__(self, live: Live, log_p: Tensor) -> None: ...


@dataclass(frozen=True)
class Never:
    """Some tokens are not written, by no hypothesis: or not before there are so many."""

    tokens: Sequence[int]
    before: float = math.inf

    def __call__(self, live: Live, log_p: Tensor) -> None:
        if live.written < self.before:
            table = _table(log_p)
            for token in self.tokens:
                table[:, token] = -torch.inf

    def lasts(self, written: int) -> float:
        """For how many more steps it says the same."""
        return self.before - written if written < self.before else math.inf


def never(forbidden: Sequence[int]) -> Rule:
    """Some tokens are never written: padding, the start."""
    return Never(forbidden)


def minimum_length(tokens: int, end: int) -> Rule:
    """No end before so many tokens."""
    return Never([end], before=tokens)


def prefix(beginnings: Sequence[Sequence[int]]) -> Rule:
    """Each sentence's answer begins with the given tokens."""

    def rule(live: Live, log_p: Tensor) -> None:
        step, table = live.written, _table(log_p)
        for row, sentence in enumerate(live.sentence):
            if step < len(beginnings[sentence]):
                token = beginnings[sentence][step]
                kept = table[row, token].item()
                table[row] = -torch.inf
                table[row, token] = kept

    return rule


def no_repeat(size: int, before: Sequence[int] = ()) -> Rule:
    """No run of so many tokens occurs twice in an answer (Paulus et al. 2018), `before` being its beginning."""
    if size < 1:
        raise SaccadeError(f"the run that may not repeat must have 1 token or more; got {size}")

    def rule(live: Live, log_p: Tensor) -> None:
        table = _table(log_p)
        for row, new in enumerate(live.tokens):
            tokens = [*before, *new]
            recent = tokens[len(tokens) - size + 1 :] if size > 1 else []
            for begin in range(len(tokens) - size + 1):
                if tokens[begin : begin + size - 1] == recent:
                    table[row, tokens[begin + size - 1]] = -torch.inf

    return rule


def _table(log_p: Tensor) -> Any:
    """The same numbers as an array, where there is one: writing a few of them takes a third of the time."""
    return log_p.numpy() if log_p.device.type == "cpu" and log_p.dtype == torch.float32 else log_p
