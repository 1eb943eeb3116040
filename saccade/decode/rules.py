"""Rules of a search: each says which tokens may follow. Rules only forbid; they never change a score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from saccade.decode.methods import Live
from saccade.errors import SaccadeError


class Rule(Protocol):
    """Which tokens may follow each live hypothesis: (R, V) bool."""

    def __call__(self, live: Live, vocabulary: int) -> Tensor: ...


def never(forbidden: Sequence[int]) -> Rule:
    """Some tokens are never written: padding, the start."""

    def rule(live: Live, vocabulary: int) -> Tensor:
        allowed = torch.ones(vocabulary, dtype=torch.bool, device=live.tokens.device)
        allowed[list(forbidden)] = False
        return allowed.expand(len(live.tokens), -1)

    return rule


def prefix(beginnings: Sequence[Sequence[int]]) -> Rule:
    """Each sentence's answer begins with the given tokens."""

    def rule(live: Live, vocabulary: int) -> Tensor:
        allowed = torch.ones(len(live.tokens), vocabulary, dtype=torch.bool, device=live.tokens.device)
        step = live.tokens.shape[1]
        for row, sentence in enumerate(live.sentence.tolist()):
            if step < len(beginnings[sentence]):
                allowed[row] = False
                allowed[row, beginnings[sentence][step]] = True
        return allowed

    return rule


def minimum_length(tokens: int, end: int) -> Rule:
    """No end before so many tokens."""

    def rule(live: Live, vocabulary: int) -> Tensor:
        allowed = torch.ones(len(live.tokens), vocabulary, dtype=torch.bool, device=live.tokens.device)
        allowed[:, end] = live.tokens.shape[1] >= tokens
        return allowed

    return rule


def no_repeat(size: int) -> Rule:
    """No run of so many tokens occurs twice in an answer (Paulus et al. 2018)."""
    if size < 1:
        raise SaccadeError(f"the run that may not repeat must have 1 token or more; got {size}")

    def rule(live: Live, vocabulary: int) -> Tensor:
        allowed = torch.ones(len(live.tokens), vocabulary, dtype=torch.bool, device=live.tokens.device)
        for row, tokens in enumerate(live.tokens.tolist()):
            recent = tokens[len(tokens) - size + 1 :] if size > 1 else []
            for begin in range(len(tokens) - size + 1):
                if tokens[begin : begin + size - 1] == recent:
                    allowed[row, tokens[begin + size - 1]] = False
        return allowed

    return rule
