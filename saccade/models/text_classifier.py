"""A head on any model that reads text: states of a text -> one vector -> a label (Devlin et al. 2019, Radford et al.
2018).

    label = argmax W pool(body(text)) + b
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from saccade.config.classification import ClassifySettings
from saccade.models.shapes import Decoder, Memory, pooled
from saccade.nn.attention import Attention
from saccade.nn.layers import Dropout, xavier
from saccade.nn.low_rank import adapt
from saccade.nn.stack import Block

Pool = Literal["first", "last", "mean", "attention", "summary"]


class CausalBody(nn.Module):
    """A language model's decoder as an encoder: padding comes after the text, where causality hides it."""

    def __init__(self, decoder: Decoder):
        super().__init__()
        self.decoder = decoder

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        nothing = Memory.nothing(len(source), next(self.parameters()))
        return Memory(self.decoder(source, nothing), mask)


class TextClassifier(nn.Module):
    """Tokens (B, S) with their mask -> logits (B, labels). Initial law: head Xavier uniform, the asking vector of an
    attention pool normal with variance 1 / D."""

    def __init__(self, body: nn.Module, *, width: int, labels: int, pool: Pool = "mean", dropout: float = 0.0):
        super().__init__()
        self.body, self.pool = body, pool
        self.question = nn.Parameter(torch.empty(width)) if pool == "attention" else None
        self.attention = Attention(width) if pool == "attention" else None
        self.dropout, self.head = Dropout(dropout), nn.Linear(width, labels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        xavier(self.head)
        if self.question is not None:
            nn.init.normal_(self.question, std=len(self.question) ** -0.5)

    def forward(self, source: Tensor, mask: Tensor) -> Tensor:
        return self.head(self.dropout(self._pooled(self.body(source, mask))))

    def _pooled(self, memory: Memory) -> Tensor:
        if self.pool == "attention":
            assert self.attention is not None and self.question is not None
            asking = self.question.expand(memory.rows, 1, -1)  # (B, 1, D)
            return self.attention(asking, self.attention.remember(memory.states, memory.mask))[:, 0]
        if self.pool == "summary":
            if memory.summary is None:
                raise ValueError("pool 'summary' needs a body with a pooler, as next_sentence gives it")
            return memory.summary[:, 0]
        return pooled(memory, self.pool)


def freeze(body: nn.Module, settings: ClassifySettings) -> None:
    """What of a body stays as it is: parts of it, its lowest blocks, or all but what is learned beside it."""
    if settings.low_rank:
        adapt(body, settings.low_rank)
    if "body" in settings.freeze:
        body.requires_grad_(False)
    if "embedding" in settings.freeze:
        for name, parameter in body.named_parameters():
            parameter.requires_grad_(parameter.requires_grad and "embedding." not in f".{name}")
    blocks = [module for module in body.modules() if isinstance(module, Block)]
    if settings.freeze_blocks > len(blocks):
        raise ValueError(f"task.freeze_blocks {settings.freeze_blocks}: this body has {len(blocks)} blocks")
    for block in blocks[: settings.freeze_blocks]:
        block.requires_grad_(False)
    if settings.low_rank and not any(parameter.requires_grad for parameter in body.parameters()):
        raise ValueError(f"task.low_rank {settings.low_rank} learns nothing where all of the body is frozen")
