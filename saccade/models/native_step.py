"""A step of a Transformer by the processor's own code (`nn/cpp`): one call for all blocks."""

from __future__ import annotations

import ctypes
import math
import sys
from array import array
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn import native
from saccade.nn.cache import KeyValues, capacity_for
from saccade.nn.choice import Asked, Notebook, Stretch
from saccade.nn.layers import ACTIVATIONS, Embedding, Residual
from saccade.nn.native import NativeLinear, pointer
from saccade.nn.packed import PackedLinear
from saccade.nn.pages import AGAIN
from saccade.nn.positions import Learned, Rotary, Sinusoidal
from saccade.nn.screen import Screen
from saccade.nn.structures import Block, Norm, Step

if TYPE_CHECKING:
    from saccade.models.cells import Cells
    from saccade.models.swift import SwiftBlock


NUMBERS = {ACTIVATIONS[name]: n for n, name in enumerate(("relu", "gelu", "gelu_tanh", "silu", "sigmoid"), start=1)}


class SwiftEmbedding:
    """Vectors of tokens at their places, from tables where it can be: our own code reads them itself."""

    def __init__(self, embedding: Embedding):
        self.embedding, self.positions = embedding, embedding.positions
        plain = embedding.combine == "add" and isinstance(self.positions, Sinusoidal | Learned | None)
        self.plain = plain and embedding.weight.dtype == torch.float32 and embedding.weight.device.type == "cpu"
        self.scale = math.sqrt(embedding.weight.shape[1]) if embedding.scaled else 1.0
        self.waves = torch.empty(0)  # of places, as far as they were needed

    def __call__(self, tokens: Tensor, at: Tensor, longest: int) -> Tensor:
        """Tokens (R, t) that stand at `at`, before `longest`."""
        if not self.plain or isinstance(self.positions, Learned):
            return self.embedding(tokens, at)
        try:
            places, x = self.places(longest), F.embedding(tokens, self.embedding.weight)
        except IndexError:
            return self.embedding(tokens, at)  # which says what is wrong with them
        x = x * self.scale if self.embedding.scaled else x
        return x if places is None else x + F.embedding(at, places)

    def places(self, longest: int) -> Tensor | None:
        """A row for each place before `longest` at least."""
        if isinstance(self.positions, Learned):
            return self.positions.table.detach().contiguous()[self.positions.first :]
        if self.positions is not None and len(self.waves) < longest:
            room = torch.arange(capacity_for(longest))
            self.waves = self.positions(room, len(room)).to(self.embedding.weight.dtype)
        return None if self.positions is None else self.waves

    def reaches(self, longest: int) -> bool:
        """Whether tables know all places before `longest`."""
        return self.plain and not (isinstance(self.positions, Learned) and longest > self.positions.longest)


class NativeStep:
    """Embedding, all blocks and the last norm. Everything it points to, it also holds."""

    def __init__(self, embedding: SwiftEmbedding, blocks: list[SwiftBlock], norm: nn.Module | None):
        made = native.library()
        assert made is not None
        modules = [*(block.ready for block in blocks), *([] if norm is None else [norm])]
        self.held = (blocks, [each.detach() for module in modules for each in module.parameters()])
        self.embedding, self.table = embedding, embedding.embedding.weight.detach().contiguous()
        self.places: Tensor | None = None
        self.reach = 0  # as far as these places are known; none are needed: without an end
        self.step, self.steps = made.transformer_step, made.transformer_stretch
        self.blocks = (Block * len(blocks))(*map(_block, blocks))
        self.last = None if norm is None else _norm(norm)
        first = blocks[0]
        cross, attention = first.ready.cross, first.ready.attention
        assert isinstance(attention.positions, Rotary | None)
        self.positions: Rotary | None = attention.positions
        self.common = Step(
            layers=len(blocks),
            width=attention.width,
            heads=attention.heads,
            groups=attention.kv_heads,
            head_width=attention.key_width,
            hidden=_native(first.ready.feed_forward.expand).outputs,
            scale=first.scale,
            cross_scale=0.0 if cross is None else cross.score.scale(cross.key_width),
            table=self.table.data_ptr(),
            table_scale=embedding.scale,
            words=len(self.table),
            interleaved=self.positions is not None and self.positions.layout == "interleaved",
            last=None if self.last is None else ctypes.addressof(self.last),
        )

    def __call__(
        self,
        tokens: Tensor,
        memory: KeyValues | None,
        cells: Cells,
        longest: int,
        predict: NativeLinear | None = None,
    ) -> Tensor:
        """Tokens (R, t), all before `longest`, each a row of the step -> states (R, t, D), or (R, 1) -> what `predict`
        makes of them: log-probabilities (R, V)."""
        at = cells.position
        if tokens.numel() != len(at) or not tokens.is_cpu:
            told = f"{tuple(tokens.shape)} tokens on {tokens.device}"
            raise ValueError(f"{told} do not fit a past of {len(at)} rows on the processor")
        known, x = longest <= self.reach or self._reaches(longest), None
        step = self._step(memory, cells, at)
        if known:
            tokens = tokens.long().contiguous()
            step.tokens = tokens.data_ptr()
        else:
            x = self.embedding(tokens, at.view(tokens.shape), longest).float().contiguous()
        if predict is None:
            y = x = torch.empty(*tokens.shape, step.width) if x is None else x
        else:
            y = AGAIN.room(step.rows, predict.outputs)
            step.predict, step.log_p = predict.address, y.data_ptr()
        step.x = pointer(x)
        if not self.step(self.blocks, ctypes.byref(step), torch.get_num_threads()):
            self.embedding.embedding(tokens, at.view(tokens.shape))  # which says what is wrong with them
        return y

    def stretch(
        self,
        memory: KeyValues | None,
        cells: Cells,
        longest: int,
        predict: NativeLinear,
        asked: Asked,
        screen: Screen | None = None,
    ) -> Stretch | None:
        """Steps of a search, all before `longest`, with a screen for words that are not scored; None where tables do
        not know their places, or a word that may be written."""
        at, steps, words = cells.position, asked.steps, predict.outputs
        known = words <= len(self.table) and (longest <= self.reach or self._reaches(longest))
        if not known or len(asked.token) != len(at) or not all(0 <= word < words for word in asked.forbidden):
            return None
        step = self._step(memory, cells, at if self.positions is None else at + torch.arange(steps)[:, None])
        notebook = Notebook(asked, predict.outputs, None if cells.seen is None else cells.filled, screen)
        tokens, log_p = array("q", asked.token), AGAIN.room(step.rows, predict.outputs)
        step.tokens, step.predict, step.log_p = tokens.buffer_info()[0], predict.address, log_p.data_ptr()
        given = ctypes.byref(step), ctypes.byref(notebook.given)
        taken = self.steps(self.blocks, *given, torch.get_num_threads())
        return notebook.read(taken) if taken else None

    def _step(self, memory: KeyValues | None, cells: Cells, at: Tensor) -> Step:
        """A step over these cells that turns queries and keys by the angles of `at`; it holds what it points to."""
        kept, step = cells.kept, Step.from_buffer_copy(self.common)
        step.rows, step.sentences, step.at = len(cells.position), kept.rows, cells.position.data_ptr()
        step.keys, step.values = kept.key.data_ptr(), kept.value.data_ptr()
        step.capacity, step.filled = len(kept), cells.filled
        step.cell, step.sees = cells.cell.data_ptr(), pointer(cells.seen)
        if self.positions is not None:
            step.waves = [wave.float().contiguous() for wave in self.positions.waves(at)]
            step.sine, step.cosine = map(pointer, step.waves)
        if memory is not None:
            step.mask = None if memory.mask is None else memory.mask.contiguous()
            step.memory_keys, step.memory_values = memory.key.data_ptr(), memory.value.data_ptr()
            step.cells = len(memory)
            step.sentence_stride, step.head_stride, step.cell_stride, _ = memory.key.stride()
            step.real = pointer(step.mask)
        return step

    def _reaches(self, longest: int) -> bool:
        """Whether tables know all places before `longest`, which steps are then told."""
        if not self.embedding.reaches(longest):
            return False
        self.places = self.embedding.places(longest)
        self.common.places = pointer(self.places)
        self.reach = sys.maxsize if self.places is None else len(self.places)
        return True


def has_native_step(blocks: list[SwiftBlock], norm: nn.Module | None) -> bool:
    """Whether these blocks are of the kinds that the processor's own code knows."""
    known = native.library() is not None and all(map(_is_known, blocks)) and (norm is None or _is_known_norm(norm))
    return known and len({block.ready.around_attention.order for block in blocks}) == 1


def _is_known(block: SwiftBlock) -> bool:
    ready, cross = block.ready, block.ready.cross
    maps = [block.joint, ready.attention.output, ready.feed_forward.expand, ready.feed_forward.contract]
    if ready.feed_forward.gate is not None:
        maps.append(ready.feed_forward.gate)
    if cross is not None:
        maps += [cross.query, cross.output]
    residuals = [each for each in (ready.around_attention, ready.around_cross, ready.around_feed_forward) if each]
    return (
        all(isinstance(each, PackedLinear) and each.native is not None for each in maps)
        and all(_is_known_norm(each.norm) and each.order == ready.around_attention.order for each in residuals)
        and ready.feed_forward.activation in NUMBERS
        and (cross is None or _asks_alike(block))
    )


def _asks_alike(block: SwiftBlock) -> bool:
    """Heads that ask the memory are as wide as those that ask what was written, and each has keys of its own."""
    attention, cross = block.ready.attention, block.ready.cross
    assert cross is not None
    widths = {attention.key_width, cross.key_width, cross.value_width}
    return len(widths) == 1 and cross.heads == cross.kv_heads == attention.heads and cross.positions is None


def _is_known_norm(norm: nn.Module) -> bool:
    known = isinstance(norm, nn.LayerNorm | nn.RMSNorm) and norm.weight is not None
    return known and norm.weight.dtype == torch.float32


def _block(block: SwiftBlock) -> Block:
    ready, cross = block.ready, block.ready.cross
    return Block(
        project=_address(block.joint),
        output=_address(ready.attention.output),
        ask=None if cross is None else _address(cross.query),
        answer=None if cross is None else _address(cross.output),
        expand=_address(ready.feed_forward.expand),
        gate=None if ready.feed_forward.gate is None else _address(ready.feed_forward.gate),
        contract=_address(ready.feed_forward.contract),
        around_attention=_norm_of(ready.around_attention),
        around_cross=_norm_of(ready.around_cross),
        around_feed_forward=_norm_of(ready.around_feed_forward),
        pre=ready.around_attention.order == "pre",
        activation=NUMBERS[ready.feed_forward.activation],
    )


def _norm_of(residual: Residual | None) -> Norm:
    return Norm() if residual is None else _norm(residual.norm)


def _norm(norm: nn.Module) -> Norm:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    bias = norm.bias if isinstance(norm, nn.LayerNorm) else None
    return Norm(pointer(norm.weight), pointer(bias), norm.eps, isinstance(norm, nn.LayerNorm))


def _native(packed: nn.Module) -> NativeLinear:
    assert isinstance(packed, PackedLinear) and packed.native is not None
    return packed.native


def _address(packed: nn.Module) -> int:
    return _native(packed).address
