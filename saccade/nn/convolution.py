"""Convolutional sequence-to-sequence layers (Gehring et al. 2017): gated 1-D convolutions with residuals.

    x <- (x + glu(conv(x))) r;    in the decoder, after each convolution: x <- (x + attend((x + e) r, memory)) r

with r = sqrt(1/2) and e the vectors that went in: the decoder asks with the word itself, not with its surroundings
alone, and what the encoder gives to be read is (x + e) r of its own. The encoder sees both sides, the decoder only
what came before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.attention import Attention
from saccade.nn.cache import KeyValues
from saccade.nn.layers import Dropout

HALF = math.sqrt(0.5)  # keeps the variance of a sum of two


class GatedConvolution(nn.Module):
    """glu(conv(x)) over (B, T, D), after dropout.

    Initial law: normal with variance 4 (1 - dropout) / (kernel x D), biases zero: the gate halves what passes.
    """

    def __init__(self, width: int, *, kernel: int = 3, dropout: float = 0.0):
        super().__init__()
        self.kernel = kernel
        self.convolution = nn.Conv1d(width, 2 * width, kernel)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        fan_in = self.convolution.in_channels * self.kernel
        nn.init.normal_(self.convolution.weight, std=math.sqrt(4 * (1 - self.dropout.share) / fan_in))
        if self.convolution.bias is not None:
            nn.init.zeros_(self.convolution.bias)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T + kernel - 1, D) -> (B, T, D): the caller has put what stands outside around x."""
        return F.glu(self.convolution(self.dropout(x).transpose(1, 2)).transpose(1, 2), dim=-1)


class ConvolutionEncoder(nn.Module):
    """(B, S, D) -> (B, S, D); padding is zeroed before every convolution, so it never leaks."""

    layers: Sequence[GatedConvolution]

    def __init__(self, width: int, *, layers: int = 4, kernel: int = 3, dropout: float = 0.0):
        super().__init__()
        if kernel % 2 == 0:
            raise ValueError(
                f"the encoder's kernel must be odd, to see as far left as right; got {kernel}, try {kernel + 1}"
            )
        convolutions = (GatedConvolution(width, kernel=kernel, dropout=dropout) for _ in range(layers))
        self.layers = nn.ModuleList(convolutions)  # type: ignore[assignment]

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        embedded = x
        for layer in self.layers:
            x = x if mask is None else x * mask[..., None]
            around = layer.kernel // 2
            x = (x + layer(F.pad(x, (0, 0, around, around)))) * HALF
        x = (x + embedded) * HALF
        return x if mask is None else x * mask[..., None]


class ConvolutionDecoder(nn.Module):
    """(R, T, D) -> (R, T, D), causal, with an attention after each convolution.

    Its state is, per layer, the last kernel - 1 inputs (R, kernel - 1, D): zeros at the beginning.
    """

    attentions: Sequence[Attention]
    layers: Sequence[GatedConvolution]

    def __init__(self, width: int, attentions: Iterable[Attention], *, kernel: int = 3, dropout: float = 0.0):
        super().__init__()
        self.attentions = nn.ModuleList(attentions)  # type: ignore[assignment]
        convolutions = (GatedConvolution(width, kernel=kernel, dropout=dropout) for _ in self.attentions)
        self.layers = nn.ModuleList(convolutions)  # type: ignore[assignment]
        self.width, self.kernel = width, kernel

    def remember(self, states: Tensor, mask: Tensor | None) -> tuple[KeyValues, ...]:
        return tuple(attention.remember(states, mask) for attention in self.attentions)

    def begin(self, rows: int, like: Tensor) -> tuple[Tensor, ...]:
        return tuple(like.new_zeros(rows, self.kernel - 1, self.width) for _ in self.layers)

    def forward(
        self, x: Tensor, memory: tuple[KeyValues, ...], state: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        windows, embedded = [], x
        for layer, attention, kv, before in zip(self.layers, self.attentions, memory, state, strict=True):
            window = torch.cat([before, x], dim=1)  # (R, kernel - 1 + T, D)
            windows.append(window[:, window.shape[1] - (self.kernel - 1) :])
            x = (x + layer(window)) * HALF
            x = (x + attention((x + embedded) * HALF, kv)) * HALF
        return x, tuple(windows)
