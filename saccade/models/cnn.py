"""Convolutional image encoders: a small residual one, with self-attention if wanted, and a large frozen one.

    cnn:           grid = convolutions(image);  grid <- grid + gate SelfAttention(grid)
    efficientnet:  cells = norm(W (frozen(image) - usual) + b),  `usual` what it saw of ImageNet on the average

He et al. (2016), residual learning; Zhang et al. (2019), self-attention inside a convolutional network; Tan and Le
(2019), EfficientNet.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from saccade.config.images import CNNSettings, EfficientNetSettings
from saccade.models.efficientnet import DEVIATION, HEAD, MEAN, EfficientNetLite0
from saccade.models.shapes import Memory
from saccade.nn.grid import GridEncoder, GridSelfAttention
from saccade.nn.layers import Dropout, make_norm, xavier

SQUEEZE = 32  # pixels of a side that a cell of EfficientNet stands for


class CNNEncoder(nn.Module):
    """Images (B, 3, H, W) -> Memory of a vector per cell, row by row."""

    class_token = False

    def __init__(self, grid: GridEncoder, *, cells: tuple[int, int], attention: GridSelfAttention | None = None):
        super().__init__()
        self.cells, self.width = cells, grid.width
        self.grid, self.attention = grid, attention

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Memory:  # noqa: ARG002 - images have no padding
        grid = self.grid(images)
        grid = grid if self.attention is None else self.attention(grid)
        return Memory(grid.flatten(1, 2))  # (B, H W, D)


class FrozenEye(nn.Module):
    """What EfficientNet sees in images (B, 3, H, W) from -1 to 1: cells (B, S, 1280), row by row. Nothing is learned,
    so that each image need be looked at only once."""

    def __init__(self) -> None:
        super().__init__()
        self.network = EfficientNetLite0(HEAD)

    def forward(self, images: Tensor) -> Tensor:
        normal = ((images + 1) / 2 - MEAN) / DEVIATION  # from the usual numbers to those of its own training
        return self.network(normal).flatten(1, 2)


class FrozenEncoder(nn.Module):
    """Images (B, 3, H, W), or the cells (B, S, 1280) that a `FrozenEye` saw in them -> Memory of a vector per cell."""

    class_token = False

    def __init__(self, width: int, *, cells: tuple[int, int], dropout: float = 0.0):
        super().__init__()
        self.cells, self.width = cells, width
        self.eye = FrozenEye()
        self.project = nn.Linear(HEAD, width)
        self.norm = make_norm("layer", width)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        xavier(self.project)

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Memory:  # noqa: ARG002 - images have no padding
        cells = images if images.dim() == 3 else self.eye(images)
        # relu6 leaves a large part that all images share; with it a recurrent decoder takes long to see any difference
        return Memory(self.dropout(self.norm(self.project(cells - self.eye.network.usual))))


def cnn_encoder(settings: CNNSettings, size: tuple[int, int]) -> CNNEncoder:
    """The encoder of images of that height and width."""
    widths = [settings.width * 2**stage for stage in range(settings.stages)]
    grid = GridEncoder(3, widths, blocks=settings.blocks, dropout=settings.dropout)
    attention = GridSelfAttention(grid.width) if settings.attention else None
    return CNNEncoder(grid, cells=_cells(size, 2**settings.stages), attention=attention)


def efficientnet_encoder(settings: EfficientNetSettings, size: tuple[int, int]) -> FrozenEncoder:
    """The encoder of images of that height and width."""
    return FrozenEncoder(settings.width, cells=_cells(size, SQUEEZE), dropout=settings.dropout)


def _cells(size: tuple[int, int], pixels: int) -> tuple[int, int]:
    """Rows and columns of cells that stand for a square of so many pixels of a side each."""
    return math.ceil(size[0] / pixels), math.ceil(size[1] / pixels)
