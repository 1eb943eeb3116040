"""A Transformer's decoder made ready to write: its step, without all that only training and looking need.

The step computes what `TransformerDecoder.step` computes, with fewer and larger operations: queries, keys and values by
one product, the cells of all layers in one tensor, and only filled ones are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from saccade.models.cells import Cells, OwnCells, PromptCells, SharedCells, standing
from saccade.models.native_step import NativeStep, SwiftEmbedding, has_native_step
from saccade.models.shapes import Memory
from saccade.nn import native
from saccade.nn.attention import Attention, check_mask, fused
from saccade.nn.cache import KeyValues, Past
from saccade.nn.choice import Asked, Stretch
from saccade.nn.layers import FeedForward, Residual
from saccade.nn.packed import PackedOutput, Precision, joint
from saccade.nn.pages import room
from saccade.nn.positions import Rotary
from saccade.nn.scores import ScaledDot
from saccade.nn.stack import Block

if TYPE_CHECKING:
    from saccade.models.transformer import TransformerDecoder

MOST_ROOM = 256  # cells that a text's cache begins with; more are made when they are needed


def is_plain(block: Block, *, causal: bool = True) -> bool:
    """Whether its attentions are what the fused kernel does, with no more than rotary positions."""
    attention, cross = block.attention, block.cross
    projected = all(isinstance(map_, nn.Linear) for map_ in (attention.query, attention.key, attention.value))
    same = attention.key_width == attention.value_width
    return (
        projected
        and same
        and isinstance(attention.score, ScaledDot)
        and isinstance(attention.positions, Rotary | None)
        and attention.causal == causal
        and (cross is None or _asks_plainly(cross))
    )


def _asks_plainly(cross: Attention) -> bool:
    projected = all(type(map_) is nn.Linear for map_ in (cross.key, cross.value))
    same = cross.key_width == cross.value_width
    return projected and same and cross.positions is None and cross.score.scale(cross.key_width) is not None


def swift_decoder(plain: TransformerDecoder, ready: TransformerDecoder, precision: Precision) -> nn.Module:
    """The faster form of a decoder, or its packed copy where there is none."""
    blocks = plain.stack.blocks
    crosses = (block.cross for block in blocks if block.cross is not None)
    alike = len({(each.heads, each.kv_heads, each.key_width) for each in crosses}) <= 1
    return SwiftDecoder(plain, ready, precision) if alike and all(map(is_plain, blocks)) else ready


class SwiftBlock:
    """One block over (R, t) new positions, `ready` with packed maps; no module, which would only cost calls."""

    def __init__(self, number: int, plain: Block, ready: Block, precision: Precision):
        attention = plain.attention
        self.number, self.ready = number, ready
        maps = [attention.query, attention.key, attention.value]
        self.joint = joint(cast(Sequence[nn.Linear], maps), precision)
        self.project = self.joint.forward
        self.heads = (attention.heads, attention.kv_heads, attention.kv_heads)
        self.width = attention.key_width
        self.scale = _scale(attention)
        self.positions = attention.positions
        self.output = ready.attention.output.forward
        self.feed_forward = _feed_forward(ready.feed_forward)
        self.around = tuple(
            _around(each) for each in (ready.around_attention, ready.around_cross, ready.around_feed_forward)
        )
        self.cross = None if ready.cross is None else _asking(ready.cross)

    def __call__(self, x: Tensor, memory: KeyValues | None, cells: Cells, at: Tensor) -> Tensor:
        around_attention, around_cross, around_feed_forward = self.around
        x = around_attention(x, lambda h: self._attend_self(h, cells, at))
        if self.cross is not None and memory is not None:
            ask = self.cross
            x = around_cross(x, lambda h: ask(h, memory))
        return around_feed_forward(x, self.feed_forward)

    def _attend_self(self, x: Tensor, cells: Cells, at: Tensor) -> Tensor:
        projected = self.project(x).unflatten(-1, (-1, self.width)).transpose(1, 2)  # (R, H + 2 G, t, K)
        query, key, value = projected.split(self.heads, 1)
        if self.positions is not None:
            query, key = self.positions.turn(query, at), self.positions.turn(key, at)
        keys, values = cells.write(self.number, key, value)
        seen = fused(cells.fold(query), keys, values, mask=cells.mask, causal=cells.causal, scale=self.scale)
        return self.output(cells.unfold(seen).transpose(1, 2).flatten(2))  # (R, H, t, K) -> (R, t, D)


def _around(residual: Residual | None) -> Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor]:
    """The residual without dropout."""
    if residual is None:
        return lambda x, sublayer: sublayer(x)
    norm = _norm(residual.norm)
    if residual.order == "pre":
        return lambda x, sublayer: x + sublayer(norm(x))
    return lambda x, sublayer: norm(sublayer(x).add_(x))


def _norm(norm: nn.Module) -> Callable[[Tensor], Tensor]:
    if isinstance(norm, nn.LayerNorm):
        shape, weight, bias, epsilon = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)
    return norm.forward


def _feed_forward(layer: FeedForward) -> Callable[[Tensor], Tensor]:
    expand, contract, activation = layer.expand.forward, layer.contract.forward, layer.activation
    if layer.gate is not None:
        return layer.forward
    return lambda x: contract(activation(expand(x)))


def _asking(cross: Attention) -> Callable[[Tensor, KeyValues], Tensor]:
    """What `cross(x, memory)` says: the hypotheses of a sentence ask side by side."""
    ask, output, heads, width = cross.query.forward, cross.output.forward, cross.heads, cross.key_width
    scale = _scale(cross)

    def asked(x: Tensor, memory: KeyValues) -> Tensor:
        rows, steps, _ = x.shape
        query = ask(x).view(memory.rows, -1, heads, width).transpose(1, 2)  # (B, H, W t, K)
        mask = None if memory.mask is None else memory.mask[:, None, None, :]
        seen = fused(query, memory.key, memory.value, mask=mask, scale=scale)
        return output(seen.transpose(1, 2).reshape(rows, steps, -1))

    return asked


class SwiftMemory:
    """What all layers remember of a memory, by one product: their cells lie side by side as if they were heads of
    one."""

    def __init__(self, crosses: Sequence[Attention], precision: Precision):
        self.heads, self.width = crosses[0].kv_heads, crosses[0].key_width
        maps = [*(each.key for each in crosses), *(each.value for each in crosses)]
        self.project = joint(cast(Sequence[nn.Linear], maps), precision)

    def __call__(self, memory: Memory) -> KeyValues:
        if memory.mask is not None:
            check_mask("the memory's mask", memory.mask, memory.states.shape[:2])
        states, its = memory.states, self.project.native
        if its is not None and native.is_plain(states):
            heads = its.outputs // (2 * self.width)
            key, value = room(states, 2, len(states), heads, states.shape[1], self.width)
            native.remember(its, states, memory.mask, key, value)
        else:
            found = self.project(states).unflatten(-1, (2, -1, self.width))  # (B, S, 2, layers H, K)
            key, value = found.permute(2, 0, 3, 1, 4).contiguous()  # (B, layers H, S, K) each
        return KeyValues(key, value, memory.mask)

    def of_layer(self, number: int, all_layers: KeyValues) -> KeyValues:
        heads = slice(number * self.heads, (number + 1) * self.heads)
        return KeyValues(all_layers.key[:, heads], all_layers.value[:, heads], all_layers.mask)


def _scale(attention: Attention) -> float:
    scale = attention.score.scale(attention.key_width)
    assert scale is not None
    return scale


class SwiftDecoder(nn.Module):
    """A Transformer's decoder, step by step."""

    def __init__(self, plain: TransformerDecoder, ready: TransformerDecoder, precision: Precision):
        super().__init__()
        self.ready = ready
        pairs = zip(plain.stack.blocks, ready.stack.blocks, strict=True)
        self.blocks = [SwiftBlock(number, block, its, precision) for number, (block, its) in enumerate(pairs)]
        crosses = [block.cross for block in plain.stack.blocks if block.cross is not None]
        self.remember = SwiftMemory(crosses, precision) if crosses else None
        self.embedded, norm = SwiftEmbedding(ready.embedding), ready.stack.norm
        self.native = NativeStep(self.embedded, self.blocks, norm) if has_native_step(self.blocks, norm) else None

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        return self.ready(tokens, memory)

    @torch.no_grad()
    def begin(self, memory: Memory, limit: int) -> Past:
        like, first = self.ready.embedding.weight, self.blocks[0]
        heads = len(self.blocks) * first.heads[1]
        position = standing(memory.rows, 0)
        if self.remember is None:
            widths = first.width, first.width
            return Past(KeyValues.empty(memory.rows, heads, widths, like, min(limit, MOST_ROOM)), None, position)
        cells = SharedCells.begun(memory.rows, heads, first.width, like, limit)
        return Past(None, (self.remember(memory), cells), position)

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        steps = tokens.shape[1]
        cells, others = self._cells(past, steps)
        if self.native is not None and steps == 1:
            return self.native(tokens, others, cells, past.used + 1), cells.advanced(past, 1)
        if self.native is not None and cells.reads_at_once:
            return self.native(tokens, None, PromptCells(cells), steps), cells.advanced(past, steps)
        with torch.no_grad():
            x = self.embedded(tokens, cells.at, past.used + steps)
            for number, block in enumerate(self.blocks):
                its = None if self.remember is None or others is None else self.remember.of_layer(number, others)
                x = block(x, its, cells, cells.at)
            norm = self.ready.stack.norm
            return x if norm is None else norm(x), cells.advanced(past, steps)

    def predict(self, output: nn.Module, tokens: Tensor, past: Past) -> tuple[Tensor, Past] | None:
        """Log-probabilities (R, V) of what follows single tokens (R, 1), where that takes one call."""
        its = output.linear.native if isinstance(output, PackedOutput) else None
        if self.native is None or its is None or tokens.shape[1] > 1:
            return None
        cells, others = self._cells(past, 1)
        return self.native(tokens, others, cells, past.used + 1, its), cells.advanced(past, 1)

    def stretch(self, output: nn.Module, past: Past, asked: Asked) -> tuple[Stretch, Past] | None:
        """Steps of a search, where they take one call; what is over afterwards has left the past."""
        if self.native is None or not isinstance(output, PackedOutput) or (its := output.linear.native) is None:
            return None
        apart = past.memory is None and len(past.position) != asked.sentences  # cells are copied after each step
        if apart:
            return None
        cells, others = self._cells(past, 1)
        asked = replace(asked, factor=asked.factor[: cells.steps_ahead])
        unscored = None if asked.scored else output.screening
        screen = None if unscored is None else unscored.of(len(asked.score) * asked.steps)
        found = self.native.stretch(others, cells, past.used + asked.steps, its, asked, screen)
        return None if found is None else (found, cells.after(past, found))

    def _cells(self, past: Past, steps: int) -> tuple[OwnCells | SharedCells, KeyValues | None]:
        if past.memory is None:
            return OwnCells(past, steps), None
        cells = SharedCells(past, steps)
        return cells, cells.others
