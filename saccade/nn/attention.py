"""The one attention: remember (what may be looked at), weigh (where to look), read (what is seen there).

    weights = softmax over s of score(x_t W_Q, y_s W_K)         context_t = (sum_s weights_ts  y_s W_V) W_O

Bahdanau et al. (2015), Luong et al. (2015), Xu et al. (2015) and Vaswani et al. (2017) differ in the score, in who
asks and in what is remembered. Letters: B sentences, T asking positions, S remembered positions, H heads, K key width
of a head, E value width of a head, D model width, M memory width, W hypotheses of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.cache import KeyValues
from saccade.nn.layers import xavier
from saccade.nn.positions import AttentionPositions
from saccade.nn.scores import Place, ScaledDot, Score
from saccade.nn.short_attention import attend_short

Tap = Callable[[Tensor], None]


@dataclass(frozen=True)
class Projections:
    """Which of the four linear maps there are, and how wide one head's keys and values come out (None: D / H)."""

    query: bool = True
    key: bool = True
    value: bool = True
    output: bool = True
    bias: bool = True
    key_width: int | None = None
    value_width: int | None = None


class Attention(nn.Module):
    """Attention of any score, many heads, self or cross.

    Initial law: every projection Xavier uniform, variance 2 / (in + out); biases zero.
    """

    tap: Tap | None = None  # set from outside to see the weights; while it is None the fused kernel may run

    def __init__(
        self,
        width: int,
        *,
        heads: int = 1,
        memory_width: int | None = None,
        kv_heads: int | None = None,
        score: Score | None = None,
        causal: bool = False,
        positions: AttentionPositions | None = None,
        project: Projections | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        project = project or Projections()
        memory_width = width if memory_width is None else memory_width
        kv_heads = heads if kv_heads is None else kv_heads
        if heads < 1 or width % heads:
            raise ValueError(
                f"{heads} heads do not divide the width {width}; try {_nearest_divisor(width, heads)} heads"
            )
        if kv_heads < 1 or heads % kv_heads:
            raise ValueError(f"kv_heads={kv_heads} must divide heads={heads}; try {_nearest_divisor(heads, kv_heads)}")
        if not (project.key and project.value) and memory_width % kv_heads:
            raise ValueError(
                f"kv_heads={kv_heads} must divide the memory width {memory_width} where it is not projected"
            )
        key_width = (project.key_width or width // heads) if project.key else memory_width // kv_heads
        value_width = (project.value_width or width // heads) if project.value else memory_width // kv_heads
        query_width = key_width if project.query else width // heads
        if positions is not None:
            positions.require(heads, key_width)
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1; got {dropout}")

        self.width, self.memory_width = width, memory_width
        self.heads, self.kv_heads = heads, kv_heads
        self.key_width, self.value_width = key_width, value_width
        self.context_width = width if project.output else heads * value_width
        self.score = ScaledDot() if score is None else score
        self.causal = causal
        self.positions = positions
        self.dropout = dropout

        def linear(wanted: bool, inputs: int, outputs: int) -> nn.Module:
            return nn.Linear(inputs, outputs, bias=project.bias) if wanted else nn.Identity()

        self.query = linear(project.query, width, heads * query_width)
        self.key = linear(project.key, memory_width, kv_heads * key_width)
        self.value = linear(project.value, memory_width, kv_heads * value_width)
        self.output = linear(project.output, heads * value_width, width)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for projection in (self.query, self.key, self.value, self.output):
            if isinstance(projection, nn.Linear):
                xavier(projection)

    def remember(self, y: Tensor, mask: Tensor | None = None, at: Tensor | None = None) -> KeyValues:
        """Project what may be looked at, once: (B, S, M) with real cells `mask` (B, S), standing at `at` (S,) or (B,
        S)."""
        _check_vectors("the memory", y, self.memory_width)
        if mask is not None:
            check_mask("the memory's mask", mask, y.shape[:2])
        key, value = self._split(self.key(y), self.kv_heads), self._split(self.value(y), self.kv_heads)
        if self.positions is not None:
            key = self.positions.turn(key, _places(y.shape[1], y.device) if at is None else at)
        return KeyValues(key, value, mask)

    def weigh(self, x: Tensor, kv: KeyValues, allowed: Tensor | None = None) -> Tensor:
        """Where each asking vector looks: (B, T, D) -> (B, H, T, S), rows summing to one, hidden rows all zero."""
        query, place, fold = self._ask(x, kv)
        scores = self.score(query, self._per_head(kv.key), place)  # (B, H, T, S)
        if self.positions is not None:
            bias = self.positions.bias(place.query_at, place.key_at)
            scores = scores if bias is None else scores + bias
        seen = visible(kv, query.shape[2], heads=self.heads, causal=self.causal, allowed=allowed).mask_of(
            query.shape[2], len(kv), x.device
        )
        if seen is None:
            weights = scores.softmax(-1)
        else:
            # a finite floor, then zeros: a row with nothing to see gives zeros in value and in gradient, never NaN
            weights = scores.masked_fill(~seen, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~seen, 0.0)
        weights = _unfold_weights(weights, fold)
        if (tap := self.tap) is not None:
            tap(weights)
        return weights

    def read(self, weights: Tensor, kv: KeyValues) -> Tensor:
        """What is seen there: (B, H, T, S) -> (B, T, D). Dropout on the weights happens here, after any look at
        them."""
        fold = _fold_of(weights.shape[0], kv)
        weights = F.dropout(_fold_weights(weights, fold), self.dropout, self.training)
        return self._join(weights @ self._per_head(kv.value), fold)

    def forward(self, x: Tensor, kv: KeyValues, allowed: Tensor | None = None) -> Tensor:
        """read(weigh(x)), through the fused kernel where the score allows it and nobody is looking."""
        scale = self.score.scale(self.key_width)
        if self.tap is not None or scale is None:
            return self.read(self.weigh(x, kv, allowed), kv)
        query, place, fold = self._ask(x, kv)
        seen = visible(kv, query.shape[2], heads=self.heads, causal=self.causal, allowed=allowed)
        bias = None if self.positions is None else self.positions.bias(place.query_at, place.key_at)
        mask, causal = seen.mask, seen.causal
        if bias is not None:
            mask, causal = seen.mask_of(query.shape[2], len(kv), x.device), False
            mask = bias if mask is None else bias.masked_fill(~mask, -torch.inf)
        context = fused(
            query,
            kv.key,
            kv.value,
            mask=mask,
            causal=causal,
            scale=scale,
            dropout=self.dropout if self.training else 0.0,
        )
        return self._join(context, fold)

    def cache(self, rows: int, capacity: int, like: Tensor) -> KeyValues:
        """An empty cache for self-attention step by step."""
        return KeyValues.empty(rows, self.kv_heads, (self.key_width, self.value_width), like, capacity)

    def _ask(self, x: Tensor, kv: KeyValues) -> tuple[Tensor, Place, int]:
        """Queries (B, H, W T, K), where they stand, and how many hypotheses are folded into each sentence's row."""
        _check_vectors("the asking vectors", x, self.width)
        fold = _fold_of(x.shape[0], kv)
        if fold > 1 and (self.causal or self.score.placed or self.positions is not None):
            raise ValueError(f"{x.shape[0]} rows cannot share a memory of {kv.rows} rows where order matters")
        folded = x.reshape(kv.rows, fold * x.shape[1], x.shape[2])
        place = Place(_asking_places(kv, folded.shape[1]), _places(len(kv), x.device))
        query = self._split(self.query(folded), self.heads)
        if self.positions is not None:
            query = self.positions.turn(query, place.query_at)
        return query, place, fold

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)  # (B, S, H K) -> (B, H, S, K)

    def _join(self, context: Tensor, fold: int) -> Tensor:
        joined = self.output(context.transpose(1, 2).flatten(2))  # (B, H, W T, E) -> (B, W T, D)
        return joined.reshape(joined.shape[0] * fold, -1, joined.shape[2])  # (B W, T, D)

    def _per_head(self, x: Tensor) -> Tensor:
        return x if self.kv_heads == self.heads else x.repeat_interleave(self.heads // self.kv_heads, dim=1)


def fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float,
    dropout: float = 0.0,
) -> Tensor:
    """softmax(scale q k^T) v without weights that could be looked at: (B, H, T, K) -> (B, H, T, E)."""
    # the processor's fused kernel has a backward in bfloat16 ten times slower than in float32
    slow = query.device.type == "cpu" and query.dtype == torch.bfloat16 and torch.is_grad_enabled()
    if slow:
        query, key, value = query.float(), key.float(), value.float()
    if not dropout:
        seen = attend_short(query, key, value, mask=mask, causal=causal, scale=scale)
        if seen is not None:
            return seen
    with torch.autocast("cpu", enabled=False) if slow else nullcontext():
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=causal,
            dropout_p=dropout,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )


@dataclass(frozen=True)
class Visible:
    """What may be seen, in the cheapest form a kernel takes: everything, the causal triangle, or a mask."""

    mask: Tensor | None = None  # broadcastable to (B, H, T, S)
    causal: bool = False

    def mask_of(self, asking: int, cells: int, device: torch.device) -> Tensor | None:
        """The same as a mask, for paths that need the triangle written out."""
        if self.causal:
            return torch.ones(asking, cells, dtype=torch.bool, device=device).tril()
        return self.mask


def visible(
    kv: KeyValues, asking: int, *, heads: int = 1, causal: bool = False, allowed: Tensor | None = None
) -> Visible:
    """Combine real cells, causality and `allowed`; the only place that does."""
    mask = None if kv.mask is None else kv.mask[:, None, None, :]  # (B, 1, 1, S)
    if causal:
        # the kernel's own triangle starts at the upper left corner: right for a fresh square, wrong with a cache
        if mask is None and allowed is None and kv.position is None and asking == len(kv):
            return Visible(causal=True)
        query_at, key_at = _asking_places(kv, asking), _places(len(kv), kv.key.device)
        earlier = key_at <= query_at[..., None]  # (T, S) or (B, T, S)
        earlier = earlier if earlier.dim() == 2 else earlier[:, None]  # (B, 1, T, S)
        mask = earlier if mask is None else mask & earlier
    if allowed is not None:
        if allowed.dtype != torch.bool:
            raise ValueError(f"allowed must be bool, True = may be seen; got {allowed.dtype}")
        try:
            allowed.expand(kv.rows, heads, asking, len(kv))
        except RuntimeError as error:
            raise ValueError(
                f"allowed has shape {tuple(allowed.shape)}, which does not broadcast to (B, H, T, S) with "
                f"B={kv.rows}, H={heads}, T={asking}, S={len(kv)}"
            ) from error
        mask = allowed if mask is None else mask & allowed
    return Visible(mask)


def _places(cells: int, device: torch.device) -> Tensor:
    return torch.arange(cells, device=device)


def _asking_places(kv: KeyValues, asking: int) -> Tensor:
    places = _places(asking, kv.key.device)
    return places if kv.position is None else kv.position[:, None] + places  # (B, T)


def _fold_of(rows: int, kv: KeyValues) -> int:
    fold, rest = divmod(rows, kv.rows)
    if rest or not fold:
        raise ValueError(f"{rows} asking rows do not fit a memory of {kv.rows} rows (must be a multiple of it)")
    return fold


def _unfold_weights(weights: Tensor, fold: int) -> Tensor:
    if fold == 1:
        return weights
    return weights.unflatten(2, (fold, -1)).transpose(1, 2).flatten(0, 1)  # (B, H, W T, S) -> (B W, H, T, S)


def _fold_weights(weights: Tensor, fold: int) -> Tensor:
    if fold == 1:
        return weights
    return weights.unflatten(0, (-1, fold)).transpose(1, 2).flatten(2, 3)  # (B W, H, T, S) -> (B, H, W T, S)


def _check_vectors(what: str, x: Tensor, width: int) -> None:
    if x.dim() != 3 or x.shape[2] != width:
        raise ValueError(f"{what} must have shape (batch, positions, {width}); got {tuple(x.shape)}")
    if x.shape[1] == 0:
        raise ValueError(f"{what} has no positions: an empty sequence cannot be attended, shape {tuple(x.shape)}")


def check_mask(what: str, mask: Tensor, shape: torch.Size) -> None:
    if mask.dtype != torch.bool:
        raise ValueError(f"{what} must be bool, True = may be seen; got {mask.dtype}")
    if mask.shape != shape:
        raise ValueError(f"{what} must have shape {tuple(shape)}; got {tuple(mask.shape)}")


def _nearest_divisor(number: int, wish: int) -> int:
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: (abs(d - wish), d))
