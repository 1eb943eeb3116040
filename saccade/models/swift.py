"""A Transformer's decoder made ready to write: its step, without all that only training and looking need.

The step computes what `TransformerDecoder.step` computes, with fewer and larger operations: queries, keys and values by
one product, the cells of all layers in one tensor, and only filled ones are looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from saccade.models.native_step import NativeStep, SwiftEmbedding, has_native_step
from saccade.models.shapes import Memory
from saccade.nn.attention import Attention, check_mask, fused
from saccade.nn.cache import KeyValues, Past
from saccade.nn.layers import FeedForward, Residual
from saccade.nn.packed import PackedOutput, Precision, joint
from saccade.nn.positions import Rotary
from saccade.nn.scores import ScaledDot
from saccade.nn.stack import Block

if TYPE_CHECKING:
    from saccade.models.transformer import TransformerDecoder

ROOM, MOST_ROOM = 16, 256  # cells that a cache begins with: more are made when they are needed
LONGEST = 256  # positions of a text that our own code reads at once; torch reads longer ones, without a table of S x S
AT_MOST = 4096  # positions of several prompts: with more, what lies between two layers would take much memory


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
        self.project = joint(cast(Sequence[nn.Linear], maps), precision).forward

    def __call__(self, memory: Memory) -> KeyValues:
        if memory.mask is not None:
            check_mask("the memory's mask", memory.mask, memory.states.shape[:2])
        found = self.project(memory.states).unflatten(-1, (2, -1, self.width))  # (B, S, 2, layers H, K)
        key, value = found.permute(2, 0, 3, 1, 4).contiguous()  # (B, layers H, S, K) each
        return KeyValues(key, value, memory.mask)

    def of_layer(self, number: int, all_layers: KeyValues) -> KeyValues:
        heads = slice(number * self.heads, (number + 1) * self.heads)
        return KeyValues(all_layers.key[:, heads], all_layers.value[:, heads], all_layers.mask)


def _scale(attention: Attention) -> float:
    scale = attention.score.scale(attention.key_width)
    assert scale is not None
    return scale


class Cells:
    """Where a step writes its keys and values, and which it may look at: the same for all layers, whose cells lie side
    by side as if they were heads of one."""

    kept: KeyValues  # (N, layers G, S, K), N rows or sentences
    first: int  # cells filled before this step ...
    filled: int  # ... and after it
    position: Tensor  # (R,), where the first new one of each row stands
    steps: int  # new ones of each row
    causal: bool = False  # whether all are new, and each sees those before
    cell: Tensor  # (R,), of a single new position, where it is written ...
    seen: Tensor | None = None  # ... and (R, S) what it may look at, none: all up to there

    @functools.cached_property
    def at(self) -> Tensor:
        """Where all new ones stand, (R, t)."""
        return self.position[:, None] + torch.arange(self.steps)

    @functools.cached_property
    def mask(self) -> Tensor | None:
        """What the new ones may look at, as torch asks for it; our own code does not."""
        return None

    @property
    def reads_at_once(self) -> bool:
        """Whether the new ones are prompts that our own code reads faster than torch."""
        return False

    def make_room(self, cells: KeyValues, by: int) -> None:
        """What a beam or a longer text needs is made in growing steps: little is copied, and little lies idle."""
        if self.filled > len(cells):
            enough = max(self.filled, len(cells) + len(cells) // 2)
            cells = cells.grown(-(-enough // by) * by)
        self.kept = cells

    def write(self, number: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The filled cells of one layer, the new ones (R, G, t, K) among them."""
        groups = slice(number * key.shape[1], (number + 1) * key.shape[1])
        keys, values = self.kept.key[:, groups], self.kept.value[:, groups]
        self.put(keys, key)
        self.put(values, value)
        return keys[:, :, : self.filled], values[:, :, : self.filled]

    def put(self, cells: Tensor, new: Tensor) -> None:
        cells[:, :, self.first : self.filled] = self.fold(new)

    def fold(self, x: Tensor) -> Tensor:
        return x

    def unfold(self, x: Tensor) -> Tensor:
        return x


@functools.lru_cache(maxsize=256)
def _own_cells(sentences: int, width: int, steps: int, first: int) -> tuple[Tensor, Tensor]:
    """Of `width` hypotheses of each sentence, which take `steps` new cells each from `first` on: where each begins (R,)
    and which of the new ones it sees (R, W t)."""
    own = torch.eye(width, dtype=torch.bool).repeat_interleave(steps, 1)
    return first + steps * torch.arange(width).repeat(sentences), own.repeat(sentences, 1)


@functools.lru_cache(maxsize=256)
def _standing(rows: int, at: int) -> Tensor:
    """The position (R,) of rows that all stand at the same place."""
    return torch.full((rows,), at)


class OwnCells(Cells):
    """Every row has its own: those of a language model, whose prompts may have several lengths."""

    def __init__(self, past: Past, steps: int):
        self.position, self.steps = past.position, steps
        self.first, self.filled = past.used, past.used + steps
        self.make_room(past.state, ROOM)
        self.causal = steps > 1 and past.used == 0
        self.cell = past.position

    @property
    def reads_at_once(self) -> bool:
        """Not where their tables would be large."""
        return self.causal and self.steps <= LONGEST and self.steps * len(self.position) <= AT_MOST

    @functools.cached_property
    def even(self) -> bool:
        """Whether all rows stand at the same place."""
        return bool((self.position == self.first).all())

    @functools.cached_property
    def mask(self) -> Tensor | None:
        """(R, 1, t, S)."""
        if self.causal or (self.steps == 1 and self.even):
            return None
        return (torch.arange(self.filled) <= self.at[..., None])[:, None]

    def put(self, cells: Tensor, new: Tensor) -> None:
        if self.even:
            super().put(cells, new)
        else:
            cells.scatter_(2, self.at[:, None, :, None].expand_as(new), new)

    def advanced(self, past: Past, steps: int) -> Past:
        rows, used = len(past.position), past.used + steps
        together = past.position is _standing(rows, past.used)  # a sum of tensors would take ten times as long
        return Past(self.kept, past.memory, _standing(rows, used) if together else past.position + steps, used)


@functools.lru_cache(maxsize=64)
def places(sentences: int, length: int) -> Tensor:
    """Where each position of these sentences stands, (B S,): to make it takes a tenth of the time of a single one."""
    return torch.arange(length).repeat(sentences)


class PromptCells(Cells):
    """Those of prompts that are read at once: every position is a row, and looks at those up to it."""

    def __init__(self, own: Cells):
        rows, self.filled, self.kept = len(own.position), own.filled, own.kept
        self.position = self.cell = places(rows, self.filled)
        self.seen = torch.ones(self.filled, self.filled, dtype=torch.bool).tril().repeat(rows, 1)


class SharedCells(Cells):
    """A sentence's hypotheses share theirs like a memory: a beam copies none.

    Every step adds cells for each live hypothesis; `seen` says which of them each has behind it: all, as long as each
    sentence has one hypothesis.
    """

    def __init__(self, past: Past, steps: int):
        self.others, cells = past.memory  # what the encoder says, and cells of each sentence
        self.position, self.steps = past.position, steps
        self.width = len(self.position) // max(cells.rows, 1)
        self.first = past.used if past.state is None else past.state.shape[1]
        self.filled = self.first + self.width * steps
        self.make_room(cells, ROOM * self.width)
        if past.state is None and self.width == 1:
            self.cell, self.causal = past.position, steps > 1 and self.first == 0
        else:
            self.cell, own = _own_cells(cells.rows, self.width, steps, self.first)
            before = torch.ones(len(own), self.first, dtype=torch.bool) if past.state is None else past.state
            self.seen = torch.cat([before, own], 1)

    @functools.cached_property
    def mask(self) -> Tensor | None:
        """(B, 1, W t, S)."""
        if self.causal or (self.steps == 1 and self.seen is None):
            return None
        sentences = self.kept.rows
        seen = torch.ones(sentences, self.filled, dtype=torch.bool) if self.seen is None else self.seen
        asked = seen.view(sentences, self.width, 1, -1).repeat(1, 1, self.steps, 1)
        asked[..., self.first :] &= torch.ones(self.steps, self.steps, dtype=torch.bool).tril().repeat(1, self.width)
        return asked.flatten(1, 2)[:, None]

    def fold(self, x: Tensor) -> Tensor:
        """(B W, H, t, K) -> (B, H, W t, K)."""
        return x if self.width == 1 else x.unflatten(0, (-1, self.width)).transpose(1, 2).flatten(2, 3)

    def unfold(self, x: Tensor) -> Tensor:
        """(B, H, W t, K) -> (B W, H, t, K)."""
        return x if self.width == 1 else x.unflatten(2, (self.width, self.steps)).transpose(1, 2).flatten(0, 1)

    def advanced(self, past: Past, steps: int) -> Past:
        used = past.used + steps
        return Past(self.seen, (self.others, self.kept), _standing(len(past.position), used), used)


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
        # most answers end long before their limit; a text that goes on does not
        room = ROOM if self.remember is not None else min(limit, MOST_ROOM)
        cells = KeyValues.empty(memory.rows, heads, (first.width, first.width), like, room)
        position = _standing(memory.rows, 0)
        if self.remember is None:
            return Past(cells, None, position)
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

    def _cells(self, past: Past, steps: int) -> tuple[OwnCells | SharedCells, KeyValues | None]:
        if past.memory is None:
            return OwnCells(past, steps), None
        cells = SharedCells(past, steps)
        return cells, cells.others
