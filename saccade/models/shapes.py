"""The four shapes of a model: encoder-decoder, decoder only, encoder only, two encoders; and the memory between
them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.nn.cache import Past
from saccade.nn.choice import Asked, Stretch
from saccade.nn.layers import Output, xavier
from saccade.nn.native import log_probabilities


@dataclass(frozen=True)
class Memory:
    """What an encoder hands on: a vector per position, which of them are real, and a summary of the whole if it has
    one."""

    states: Tensor  # (B, S, D)
    mask: Tensor | None = None  # (B, S), True = real
    summary: Tensor | None = None  # (B, layers, D)

    @staticmethod
    def nothing(rows: int, like: Tensor) -> Memory:
        """The memory of a decoder that stands alone."""
        return Memory(like.new_zeros(rows, 0, 0))

    @property
    def rows(self) -> int:
        return self.states.shape[0]


pytree.register_dataclass(Memory)


Pool = Literal["none", "first", "last", "mean"]


class Encoder(Protocol):
    """X -> Memory."""

    def __call__(self, source: Any, mask: Tensor | None = None) -> Memory: ...


class Decoder(Protocol):
    """Tokens, with a memory behind them -> states. Law: `step` fed piece by piece equals the call on the whole."""

    def __call__(self, tokens: Tensor, memory: Memory) -> Tensor: ...  # (B, T) -> (B, T, D)

    def begin(self, memory: Memory, limit: int) -> Past: ...

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]: ...  # (R, t) -> (R, t, D)


def _predicted(decoder: Any, output: nn.Module, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
    """Log-probabilities (R, V) of what follows the new tokens (R, t)."""
    if hasattr(decoder, "predict") and (found := decoder.predict(output, tokens, past)) is not None:
        return found
    states, past = decoder.step(tokens, past)
    return log_probabilities(output(states[:, -1])), past


def _stretched(decoder: Any, output: nn.Module, past: Past, asked: Asked) -> tuple[Stretch, Past] | None:
    """Steps of a search that need nobody to choose; None where the decoder has no way to take several at once."""
    return decoder.stretch(output, past, asked) if hasattr(decoder, "stretch") else None


class EncoderDecoder(nn.Module):
    """p(y | x) = prod_t p(y_t | y_<t, memory of x): translation, captioning, transcription."""

    def __init__(self, encoder: Encoder, decoder: Decoder, output: Output):
        super().__init__()
        self.encoder, self.decoder, self.output = encoder, decoder, output

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        return self.encoder(source, mask)

    def forward(self, source: Tensor, mask: Tensor | None, target: Tensor) -> Tensor:
        """States (B, T, D) that predict what follows each target token; `output` turns them into logits."""
        return self.decoder(target, self.encode(source, mask))

    def begin(self, memory: Memory, limit: int) -> Past:
        return self.decoder.begin(memory, limit)

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Log-probabilities (R, V) of what follows the new tokens (R, t)."""
        return _predicted(self.decoder, self.output, tokens, past)

    def stretch(self, past: Past, asked: Asked) -> tuple[Stretch, Past] | None:
        return _stretched(self.decoder, self.output, past, asked)


class Ensemble(nn.Module):
    """Several models with one vocabulary as one: p(y_t | y_<t, x) = the mean of their probabilities."""

    members: Sequence[EncoderDecoder]

    def __init__(self, members: Iterable[EncoderDecoder]):
        super().__init__()
        self.members = nn.ModuleList(members)  # type: ignore[assignment]

    def encode(self, source: Tensor, mask: Tensor | None = None) -> tuple[Memory, ...]:
        return tuple(member.encode(source, mask) for member in self.members)

    def forward(self, *_: Tensor | None) -> Tensor:
        raise ValueError("several models together have no one attention; look at each of them alone")

    def begin(self, memory: tuple[Memory, ...], limit: int) -> Past:
        return self._joined([member.begin(own, limit) for member, own in zip(self.members, memory, strict=True)])

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Log-probabilities (R, V) of what follows the new tokens (R, t)."""
        parts = [replace(past, state=state, memory=own) for state, own in zip(past.state, past.memory, strict=True)]
        found = [member.step(tokens, part) for member, part in zip(self.members, parts, strict=True)]
        log_p = torch.stack([its for its, _ in found])  # (members, R, V)
        return log_p.logsumexp(0) - math.log(len(found)), self._joined([part for _, part in found])

    def stretch(self, past: Past, asked: Asked) -> None:
        """They have to agree at every step."""

    @staticmethod
    def _joined(pasts: list[Past]) -> Past:
        return replace(pasts[0], state=tuple(p.state for p in pasts), memory=tuple(p.memory for p in pasts))


class LanguageModel(nn.Module):
    """p(y) = prod_t p(y_t | y_<t): a decoder that stands alone."""

    def __init__(self, decoder: Decoder, output: Output):
        super().__init__()
        self.decoder, self.output = decoder, output

    def forward(self, tokens: Tensor) -> Tensor:
        return self.decoder(tokens, self._nothing(len(tokens)))

    def begin(self, rows: int, limit: int) -> Past:
        return self.decoder.begin(self._nothing(rows), limit)

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        """Log-probabilities (R, V) of what follows the new tokens (R, t)."""
        return _predicted(self.decoder, self.output, tokens, past)

    def stretch(self, past: Past, asked: Asked) -> tuple[Stretch, Past] | None:
        return _stretched(self.decoder, self.output, past, asked)

    def _nothing(self, rows: int) -> Memory:
        return Memory.nothing(rows, self.output.weight)


class EncoderOnly(nn.Module):
    """One answer for each position or, pooled, for the whole: masked language models, classifiers."""

    def __init__(self, encoder: Encoder, head: nn.Module, *, pool: Pool = "none"):
        super().__init__()
        self.encoder, self.head, self.pool = encoder, head, pool

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.head(pooled(self.encoder(source, mask), self.pool))


class DualEncoder(nn.Module):
    """Two encoders into one space, compared by the cosine (Radford et al. 2021).

    Initial law: projections Xavier uniform; the learned scale starts at 1 / 0.07.
    """

    def __init__(
        self,
        left: Encoder,
        right: Encoder,
        *,
        widths: tuple[int, int],
        width: int,
        pools: tuple[Pool, Pool] = ("mean", "mean"),
    ):
        super().__init__()
        self.left, self.right, self.pools = left, right, pools
        self.project_left, self.project_right = (
            nn.Linear(widths[0], width, bias=False),
            nn.Linear(widths[1], width, bias=False),
        )
        self.log_scale = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        xavier(self.project_left)
        xavier(self.project_right)
        nn.init.constant_(self.log_scale, math.log(1 / 0.07))

    def embed_left(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.normalize(self.project_left(pooled(self.left(source, mask), self.pools[0])), dim=-1)  # (B, D)

    def embed_right(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.normalize(self.project_right(pooled(self.right(source, mask), self.pools[1])), dim=-1)  # (B, D)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Similarity of every left embedding with every right one: (B, D), (C, D) -> (B, C)."""
        return self.log_scale.exp() * left @ right.T


def pooled(memory: Memory, how: Pool) -> Tensor:
    """One vector for the whole, from real positions only: (B, S, D) -> (B, D), or all of them for "none"."""
    if how == "none":
        return memory.states
    if how == "first":
        return memory.states[:, 0]
    if how == "last":
        last = -1 if memory.mask is None else memory.mask.sum(1) - 1  # real positions come first
        return memory.states[torch.arange(memory.rows, device=memory.states.device), last]
    if memory.mask is None:
        return memory.states.mean(1)
    return (memory.states * memory.mask[..., None]).sum(1) / memory.mask.sum(1, keepdim=True).clamp(min=1)


def parameter_count(model: nn.Module, *, trained_only: bool = False) -> int:
    """How many numbers a model has, shared ones once; or how many of them are learned: frozen ones are not."""
    return sum(each.numel() for each in model.parameters() if each.requires_grad or not trained_only)
