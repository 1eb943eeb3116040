"""Attention over few cells in training, by our own code: torch's fused kernel is made for long sequences, and takes up
to twice as long for sentences."""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from saccade.nn import native
from saccade.nn.structures import ShortAttention, Strided

MOST = 64  # positions on either side: with more, torch's kernel is as fast


def attend_short(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None, causal: bool, scale: float
) -> Tensor | None:
    """What `attention.fused` says of (B, H, T, K), (B, G, S, K) and (B, G, S, E), with its gradients, or None where
    torch has to do it. A query that may see nothing sees zeros."""
    given = query, key, value
    wanted = torch.is_grad_enabled() and any(each.requires_grad for each in given)
    alike = query.shape[0] == key.shape[0]
    short = max(query.shape[2], key.shape[2]) <= MOST
    usual = all(each.dtype == torch.float32 and each.device.type == "cpu" for each in given)
    if not (wanted and alike and short and usual) or (mask is not None and mask.dtype != torch.bool):
        return None
    made = native.library()
    if made is None or any(each.shape[-1] % made.lanes() for each in given) or query.numel() == 0:
        return None
    if mask is not None:
        mask = mask.expand(*query.shape[:3], key.shape[2])
        mask = mask if mask.stride(-1) == 1 or mask.shape[-1] == 1 else mask.contiguous()
    seen: Tensor = _ShortAttention.apply(query, key, value, mask, causal, scale)
    return seen


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        query, key, value = map(_dense, (query, key, value))
        made = native.library()
        assert made is not None
        across = -(-key.shape[2] // made.lanes()) * made.lanes()
        weights = query.new_empty(*query.shape[:3], across)
        seen = _room(query, value.shape[-1])
        of = _described(query, key, value, mask, causal, scale, weights)
        of.seen = _strided(seen)
        made.short_attention(ctypes.addressof(of), False, torch.get_num_threads())
        ctx.save_for_backward(query, key, value, weights)
        ctx.scale = scale
        return seen

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights = ctx.saved_tensors
        made = native.library()
        assert made is not None
        slope, found = _dense(gradients[0]), [_room(each, each.shape[-1]) for each in (query, key, value)]
        of = _described(query, key, value, None, False, ctx.scale, weights)
        of.seen = _strided(slope)
        of.query_gradient, of.key_gradient, of.value_gradient = map(_strided, found)
        made.short_attention(ctypes.addressof(of), True, torch.get_num_threads())
        return (*found, None, None, None)


def _described(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float, weights: Tensor
) -> ShortAttention:
    sizes = (*query.shape[:2], key.shape[1], query.shape[2], key.shape[2], query.shape[3], value.shape[3])
    sees = (None, 0, 0, 0) if mask is None else (mask.data_ptr(), *mask.stride()[:3])
    return ShortAttention(*sizes, causal, scale, *sees, *map(_strided, (query, key, value)), weights.data_ptr())


def _strided(x: Tensor) -> Strided:
    return Strided(x.data_ptr(), *x.stride()[:3])


def _dense(x: Tensor) -> Tensor:
    """With the numbers of a vector one after the other."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _room(like: Tensor, width: int) -> Tensor:
    """(B, H, T, width), where the heads of a position lie side by side: as what comes next would have it."""
    batch, heads, positions, _ = like.shape
    return like.new_empty(batch, positions, heads, width).transpose(1, 2)
