"""Blocks of attention and feed-forward layers, and stacks of them: the body of every Transformer.

    block: x <- x + SelfAttention(x);  x <- x + CrossAttention(x, memory), in decoders;  x <- x + FeedForward(x)

with a norm before or after each residual (Vaswani et al. 2017). Attention is the only place where vectors meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor, nn

from saccade.nn.attention import Attention
from saccade.nn.cache import KeyValues
from saccade.nn.layers import FeedForward, Residual


class Block(nn.Module):
    """Self-attention, cross-attention where given, feed-forward; `residual` makes the way around each of them."""

    def __init__(
        self,
        attention: Attention,
        feed_forward: FeedForward,
        *,
        cross: Attention | None = None,
        residual: Callable[[], Residual],
    ):
        super().__init__()
        self.attention, self.around_attention = attention, residual()
        self.cross, self.around_cross = cross, residual() if cross is not None else None
        self.feed_forward, self.around_feed_forward = feed_forward, residual()

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        allowed: Tensor | None = None,
        memory: KeyValues | None = None,
        past: KeyValues | None = None,
    ) -> Tensor:
        """(B, T, D) -> (B, T, D). With a `past`, x are the next positions and are written into it."""

        def attend_self(h: Tensor) -> Tensor:
            if past is None:
                return self.attention(h, self.attention.remember(h, mask), allowed)
            assert past.position is not None
            at = past.position[:, None] + past.position.new_ones(h.shape[1]).cumsum(0) - 1  # (R, t)
            return self.attention(h, past.append(self.attention.remember(h, at=at)), allowed)

        x = self.around_attention(x, attend_self)
        if self.cross is not None and self.around_cross is not None:
            if memory is None:
                raise ValueError("this block attends to a memory, and none was given")
            attend_memory, kv = self.cross, memory
            x = self.around_cross(x, lambda h: attend_memory(h, kv))
        return self.around_feed_forward(x, self.feed_forward)


class Stack(nn.Module):
    """Blocks one after the other, and a last norm where the blocks are pre-norm."""

    blocks: Sequence[Block]

    def __init__(self, blocks: Iterable[Block], *, norm: nn.Module | None = None):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)  # type: ignore[assignment]
        self.norm = norm

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        allowed: Tensor | None = None,
        memory: tuple[KeyValues, ...] | None = None,
        past: tuple[KeyValues, ...] | None = None,
    ) -> Tensor:
        for number, block in enumerate(self.blocks):
            x = block(
                x,
                mask=mask,
                allowed=allowed,
                memory=None if memory is None else memory[number],
                past=None if past is None else past[number],
            )
        return x if self.norm is None else self.norm(x)

    def remember(self, states: Tensor, mask: Tensor | None) -> tuple[KeyValues, ...]:
        """What each block's cross-attention may look at, projected once for a whole decoding."""
        return tuple(block.cross.remember(states, mask) for block in self.blocks if block.cross is not None)

    def cache(self, rows: int, capacity: int, like: Tensor) -> tuple[KeyValues, ...]:
        """Empty caches, one per block."""
        return tuple(block.attention.cache(rows, capacity, like) for block in self.blocks)
