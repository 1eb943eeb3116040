"""Grids of vectors: convolutions that make them from images, attention inside them, images cut into patches.

    encoder:         x <- halve(x);  x <- x + W2 * relu(W1 * norm(x)),  * a 3x3 convolution    (He et al. 2016)
    self-attention:  x <- x + gate (softmax over s of (q_t . k_s)) v_s W_O,  q, k, v 1x1 maps of x  (Zhang et al. 2019)
    patches:         x_n = W [pixels of square n] + b                                        (Dosovitskiy et al. 2021)

Images are (B, C, H, W), channels first; grids are (B, H, W, D), a vector per cell, as all that attends wants them.
Norms are over the vector of one cell, never over the batch: what is seen of an image does not depend on the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.attention import Attention, Projections
from saccade.nn.layers import Residual, make_norm, xavier
from saccade.nn.scores import Dot


class GridConvolution(nn.Module):
    """A 3x3 convolution of a grid (B, H, W, C) -> (B, H, W, D); with stride 2 only every second row and column.

    Initial law: normal with variance gain / (9 C), biases zero. A gain of one keeps the variance, a gain of two does
    so after a relu, which takes half of it (He et al. 2015).
    """

    def __init__(self, inputs: int, width: int, *, stride: int = 1, gain: float = 1.0):
        super().__init__()
        self.gain = gain
        self.convolution = nn.Conv2d(inputs, width, 3, stride=stride, padding=1)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.convolution.weight, std=math.sqrt(self.gain / (9 * self.convolution.in_channels)))
        assert self.convolution.bias is not None
        nn.init.zeros_(self.convolution.bias)

    def forward(self, x: Tensor) -> Tensor:
        # no copy is made: the kernels take channels that lie last as they are
        return self.convolution(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class GridStage(nn.Module):
    """Half the rows and columns, then residual blocks: (B, H, W, C) -> (B, ceil(H / 2), ceil(W / 2), D)."""

    def __init__(self, inputs: int, width: int, *, blocks: int = 1, dropout: float = 0.0):
        super().__init__()
        self.halve = GridConvolution(inputs, width, stride=2)
        self.blocks = nn.ModuleList(
            nn.Sequential(GridConvolution(width, width), nn.ReLU(), GridConvolution(width, width, gain=2.0))
            for _ in range(blocks)
        )
        self.residuals = nn.ModuleList(Residual(width, dropout=dropout) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        x = self.halve(x)
        for residual, block in zip(self.residuals, self.blocks, strict=True):
            x = residual(x, block)
        return x


class GridEncoder(nn.Module):
    """Images (B, C, H, W) -> grid (B, H', W', D): a stage for each of `widths`, each of which halves the grid.

    H' = ceil(H / 2^stages), and D is the last of the widths. The cells are normalised in the end.
    """

    def __init__(self, channels: int, widths: Sequence[int], *, blocks: int = 1, dropout: float = 0.0):
        super().__init__()
        if not widths:
            raise ValueError("a grid encoder needs the width of one stage at least; got none")
        self.channels, self.width = channels, widths[-1]
        self.stages = nn.Sequential(
            *(
                GridStage(inputs, width, blocks=blocks, dropout=dropout)
                for inputs, width in zip((channels, *widths), widths, strict=False)
            )
        )
        self.norm = make_norm("layer", self.width)

    def forward(self, images: Tensor) -> Tensor:
        _check_images(images, self.channels)
        return self.norm(self.stages(images.permute(0, 2, 3, 1)))


class GridSelfAttention(nn.Module):
    """Every cell looks at all others: a module inside a convolutional network, (B, H, W, D) -> (B, H, W, D).

    Zhang et al. (2019): one head, dot products that are not scaled, and D / 8 columns inside unless told otherwise.
    Initial law: the gate zero, so the module begins as the identity; projections as those of `Attention`.
    """

    def __init__(self, width: int, *, inner: int | None = None):
        super().__init__()
        inner = max(width // 8, 1) if inner is None else inner
        self.attention = Attention(width, score=Dot(), project=Projections(key_width=inner, value_width=inner))
        self.gate = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.gate)

    def forward(self, x: Tensor) -> Tensor:
        cells = x.flatten(1, 2)  # (B, H W, D)
        seen = self.attention(cells, self.attention.remember(cells))
        return x + self.gate * seen.unflatten(1, x.shape[1:3])


class Patches(nn.Module):
    """Squares of `size` pixels as vectors, row by row: images (B, C, H, W) -> (B, N, D), N = H W / size^2.

    The linear map is a convolution whose stride is its size. Initial law: Xavier uniform, variance 2 / (in + out);
    biases zero.
    """

    def __init__(self, channels: int, width: int, *, size: int, bias: bool = True):
        super().__init__()
        self.channels, self.width, self.size = channels, width, size
        self.project = nn.Linear(channels * size * size, width, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        xavier(self.project)

    def forward(self, images: Tensor) -> Tensor:
        _check_images(images, self.channels)
        height, width = images.shape[2:]
        if height % self.size or width % self.size:
            nearest = " x ".join(str(max(round(side / self.size), 1) * self.size) for side in (height, width))
            raise ValueError(
                f"images of {height} x {width} pixels cannot be cut into squares of {self.size}; resize them, "
                f"for example to {nearest}"
            )
        squares = F.pixel_unshuffle(images, self.size)  # (B, C size^2, H / size, W / size)
        return self.project(squares.flatten(2).transpose(1, 2))


def _check_images(images: Tensor, channels: int) -> None:
    if images.dim() != 4 or images.shape[1] != channels or 0 in images.shape[2:]:
        raise ValueError(f"images must have shape (batch, {channels}, height, width); got {tuple(images.shape)}")
