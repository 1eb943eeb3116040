"""Encoders that shorten time, so that a decoder looks at hundreds of states instead of thousands of frames.

    pyramid:    h^0 = LSTM(x),  h^j = LSTM of [h^{j-1}_{2i}; h^{j-1}_{2i+1}], in both directions    (Chan et al. 2016)
    subsample:  h^j_i = relu(W [h^{j-1}_{2i-1}; h^{j-1}_{2i}; h^{j-1}_{2i+1}] + b)

Each halving turns n real positions into ceil(n / 2). Padding is zero wherever it could be read, so the partner that an
odd length lacks is a zero alone and in a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.layers import Dropout
from saccade.nn.recurrent import Cell, RecurrentEncoder


class Pyramid(nn.Module):
    """(B, T, F) -> (B, T / 2^halvings, 2 hidden) and the mask of that; lengths are rounded up.

    A bottom layer reads every frame; each layer above reads the one below in pairs of neighbours.
    """

    layers: Sequence[RecurrentEncoder]

    def __init__(self, features: int, hidden: int, *, cell: Cell = "lstm", halvings: int = 3, dropout: float = 0.0):
        super().__init__()
        self.width = 2 * hidden
        widths = [features] + [2 * self.width] * halvings
        self.layers = nn.ModuleList(RecurrentEncoder(each, hidden, cell=cell) for each in widths)  # type: ignore[assignment]
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        bottom, *above = self.layers
        x, _ = bottom(x, mask)  # zeros at padding
        for layer in above:
            x, mask = paired(self.dropout(x)), _halved(mask)
            x, _ = layer(x, mask)
        return x, mask


class Subsample(nn.Module):
    """(B, T, F) -> (B, T / 4, D) and the mask of that: two convolutions over time that take every second step.

    Initial law: normal with variance 2 / fan-in, as rectified layers need (He et al. 2015); biases zero.
    """

    layers: Sequence[nn.Conv1d]

    def __init__(self, features: int, width: int):
        super().__init__()
        self.width = width
        convolutions = (nn.Conv1d(each, width, 3, stride=2, padding=1) for each in (features, width))
        self.layers = nn.ModuleList(convolutions)  # type: ignore[assignment]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=math.sqrt(2 / (3 * layer.in_channels)))
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        x = _masked(x, mask)
        for layer in self.layers:
            mask = _halved(mask)
            x = _masked(F.relu(layer(x.transpose(1, 2)).transpose(1, 2)), mask)
        return x, mask


def paired(x: Tensor) -> Tensor:
    """Neighbours side by side: (B, T, D) -> (B, ceil(T / 2), 2 D), with zeros for a missing last one."""
    x = F.pad(x, (0, 0, 0, x.shape[1] % 2))
    return x.unflatten(1, (-1, 2)).flatten(2)


def _masked(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask[..., None]


def _halved(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask[:, ::2]  # real cells come first: ceil(n / 2) of them are at even places
