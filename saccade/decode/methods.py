"""How continuations are chosen: greedy, beam, sampling.

ranking in a beam = log p(y) / ((5 + length) / 6)^alpha                                            (Wu et al. 2016)
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.nn.native import largest


@dataclass(frozen=True)
class Live:
    """The hypotheses that go on, W rows per sentence; a row of score -inf is only there to fill its sentence up."""

    sentence: Tensor  # (R,) which of the caller's sentences
    answer: Tensor  # (R,) which of the first step's choices it came from
    tokens: Tensor  # (R, t)
    token_scores: Tensor  # (R, t)
    score: Tensor  # (R,) sum of token_scores


class Method(Protocol):
    """How continuations are chosen: up to `width` live hypotheses per sentence, the `best` of them returned."""

    @property
    def width(self) -> int: ...

    @property
    def best(self) -> int: ...

    def candidates(self, live: Live, log_p: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """From log_p (R, V), forbidden ones -inf, to parent rows within the sentence and tokens, both (B, k), best
        first."""

    def rank(self, score: float, length: int) -> float: ...


@dataclass(frozen=True)
class Greedy:
    """Always the most probable token."""

    width: int = field(default=1, init=False)
    best: int = field(default=1, init=False)

    def candidates(self, live: Live, log_p: Tensor, width: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        _, token = largest(log_p, 1)  # (B, 1)
        return torch.zeros_like(token), token

    def rank(self, score: float, length: int) -> float:  # noqa: ARG002
        return score


@dataclass(frozen=True)
class Beam:
    """The `width` best prefixes side by side.

    A sentence is done when no live hypothesis can still overtake the `best` ended ones, and no sooner:
    log-probabilities only fall, so s / penalty(limit) bounds whatever a live sum s may become.
    """

    width: int = 4
    best: int = 1
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.width < 1 or not 1 <= self.best <= self.width:
            raise SaccadeError(f"a beam needs 1 <= best <= width; got best={self.best}, width={self.width}")

    def candidates(self, live: Live, log_p: Tensor, width: int) -> tuple[Tensor, Tensor]:
        # each hypothesis can end in one way only, so twice the width leaves enough that go on
        own, token = largest(log_p, min(2 * self.width, log_p.shape[1]))  # (R, k), the best of each hypothesis
        total = (live.score[:, None] + own).view(-1, width * own.shape[1])  # (B, W k)
        chosen = total.topk(min(2 * self.width, total.shape[1])).indices
        return chosen // own.shape[1], token.view_as(total).gather(1, chosen)

    def rank(self, score: float, length: int) -> float:
        return score / ((5 + length) / 6) ** self.length_penalty


@dataclass(frozen=True)
class Sample:
    """Draw from the model, sharpened by temperature and cut to the top k or the top p of the probability.

    Every answer has a random stream of its own, made of (seed, sentence, answer): what else is in the batch changes
    nothing.
    """

    answers: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    numbers: Sequence[int] | None = None  # of the sentences, where a caller works through a longer list in batches

    def __post_init__(self) -> None:
        if self.answers < 1:
            raise SaccadeError(f"the number of answers must be 1 or more; got {self.answers}")
        if not 0 < self.temperature < math.inf:
            raise SaccadeError(
                f"the temperature must be finite and above 0, got {self.temperature}; greedy is its limit"
            )
        if self.top_k is not None and self.top_k < 1:
            raise SaccadeError(f"top_k must be 1 or more; got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise SaccadeError(f"top_p must be above 0 and at most 1; got {self.top_p}")

    @property
    def width(self) -> int:
        return self.answers

    @property
    def best(self) -> int:
        return self.answers

    def candidates(self, live: Live, log_p: Tensor, width: int) -> tuple[Tensor, Tensor]:
        sentences, steps = len(live.score) // width, live.tokens.shape[1]
        if steps == 0:  # one row per sentence, from which every answer starts
            parent = torch.zeros(sentences, self.answers, dtype=torch.long, device=log_p.device)
            answer = torch.arange(self.answers).expand(sentences, -1)
        else:
            parent = torch.arange(width, device=log_p.device).expand(sentences, -1)
            answer = live.answer.view(sentences, width)
        rows = rows_of(parent, width).flatten()
        streams = list(zip(live.sentence[rows].tolist(), answer.flatten().tolist(), strict=True))
        return parent, self.drawn(log_p[rows], streams, steps).view(parent.shape)

    def drawn(self, log_p: Tensor, streams: Sequence[tuple[int, int]], step: int) -> Tensor:
        """One token for each row of log_p (R, V), from the streams (sentence, answer) of the rows."""
        draws = [self._draw(sentence, answer, step) for sentence, answer in streams]
        return self._choose(log_p, torch.tensor(draws, dtype=log_p.dtype, device=log_p.device))

    def rank(self, score: float, length: int) -> float:  # noqa: ARG002
        return score

    def _choose(self, log_p: Tensor, draw: Tensor) -> Tensor:
        ordered, token = log_p.sort(-1, descending=True)  # (R, V)
        ordered = (ordered - ordered[:, :1]).nan_to_num(nan=-math.inf, neginf=-math.inf) / self.temperature
        share = ordered.softmax(-1)
        if self.top_k is not None:
            share[:, self.top_k :] = 0
        if self.top_p is not None:
            before = share.cumsum(-1) - share
            share = share.masked_fill(before >= self.top_p * share.sum(-1, keepdim=True), 0)
        reached = share.cumsum(-1)
        place = torch.searchsorted(reached, (draw * reached[:, -1])[:, None], right=True)
        last = (share > 0).sum(-1, keepdim=True) - 1  # rounding must not reach beyond what may be drawn
        return token.gather(1, torch.minimum(place, last.clamp(min=0))).squeeze(1)

    def _draw(self, sentence: int, answer: int, step: int) -> float:
        """A number in [0, 1) that depends on these four and nothing else."""
        number = sentence if self.numbers is None else self.numbers[sentence]
        digest = hashlib.blake2b(f"{self.seed}/{number}/{answer}/{step}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def rows_of(parent: Tensor, width: int) -> Tensor:
    """Parents within a sentence (B, k) -> rows of the batch (B, k)."""
    return parent + torch.arange(0, width * len(parent), width, device=parent.device)[:, None]
