"""A Transformer's encoder made ready to read: all positions of some sentences by one call of the processor's own code.

It is the step of `swift.py` in which every position is new: the positions of a sentence are the rows that share its
cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.models.cells import LONGEST, Cells, places
from saccade.models.native_step import NativeStep, SwiftEmbedding, has_native_step
from saccade.models.shapes import Memory
from saccade.models.swift import SwiftBlock, is_plain
from saccade.nn.attention import check_mask
from saccade.nn.cache import KeyValues
from saccade.nn.packed import Precision
from saccade.nn.pages import AGAIN

if TYPE_CHECKING:
    from saccade.models.transformer import TransformerEncoder

AT_ONCE = 1024  # positions of a call: what lies between two layers stays in the caches


def swift_encoder(plain: TransformerEncoder, ready: TransformerEncoder, precision: Precision) -> nn.Module:
    """The faster form of an encoder, or its packed copy where there is none."""
    if not all(is_plain(block, causal=False) for block in plain.stack.blocks):
        return ready
    pairs = zip(plain.stack.blocks, ready.stack.blocks, strict=True)
    blocks = [SwiftBlock(number, block, its, precision) for number, (block, its) in enumerate(pairs)]
    return SwiftEncoder(ready, blocks) if has_native_step(blocks, ready.stack.norm) else ready


class SwiftEncoder(nn.Module):
    """Tokens (B, S) -> Memory."""

    def __init__(self, ready: TransformerEncoder, blocks: list[SwiftBlock]):
        super().__init__()
        self.ready, self.blocks = ready, blocks
        self.native = NativeStep(SwiftEmbedding(ready.embedding), blocks, ready.stack.norm)

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        length = source.shape[1]
        if not 0 < length <= LONGEST:
            return self.ready(source, mask)
        if mask is not None:
            check_mask("the source's mask", mask, source.shape)
        sentences = max(1, AT_ONCE // length)
        masks = [None] * len(source) if mask is None else mask.split(sentences)
        states = [self._states(*part) for part in zip(source.split(sentences), masks, strict=False)]
        return Memory(states[0] if len(states) == 1 else torch.cat(states), mask)

    def _states(self, source: Tensor, mask: Tensor | None) -> Tensor:
        """What lies behind the last real position of all these sentences is not read, and 0."""
        length = real = source.shape[1]
        if mask is not None:
            real = max(1, int((mask.any(0) * torch.arange(1, length + 1)).max()))
            source, mask = source[:, :real].contiguous(), mask[:, :real]
        states = self.native(source, None, WholeCells(self.blocks, source, mask), real)
        return states if real == length else F.pad(states, (0, 0, 0, length - real))


class WholeCells(Cells):
    """Those of sentences that are read at once: each position looks at all that are real."""

    def __init__(self, blocks: list[SwiftBlock], source: Tensor, mask: Tensor | None):
        sentences, self.filled = source.shape
        first = blocks[0]
        shape = (sentences, len(blocks) * first.heads[1], self.filled, first.width)
        self.kept = KeyValues(AGAIN.room(*shape), AGAIN.room(*shape))
        self.position = self.cell = places(sentences, self.filled)
        self.seen = None if mask is None else mask.repeat_interleave(self.filled, 0)
