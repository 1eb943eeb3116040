"""The Vision Transformer: an image cut into squares of pixels, which are read like the words of a sentence.

    x = [class; W p_1; ...; W p_N] + positions;  x <- blocks(x);  answer = head(x_class)

Dosovitskiy et al. (2021), "An image is worth 16x16 words". Blocks are pre-norm with GELU, as in the paper. That of CLIP
(Radford et al. 2021) has one more norm before the blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.config.images import ViTSettings
from saccade.config.models import TransformerSettings
from saccade.errors import SaccadeError
from saccade.models.shapes import Memory
from saccade.models.transformer import make_stack
from saccade.nn.grid import Patches
from saccade.nn.layers import Dropout, make_norm
from saccade.nn.positions import Grid2d, Learned, Sinusoidal
from saccade.nn.stack import Stack

DEVIATION = 0.02  # of learned positions and of the class vector at the beginning


class LearnedGrid(nn.Module):
    """A learned vector for each cell of a grid; where `Grid2d` knows rows and columns, this knows cells only."""

    def __init__(self, width: int, *, rows: int, columns: int):
        super().__init__()
        self.shape = rows, columns
        self.cells = Learned(width, longest=rows * columns, deviation=DEVIATION)

    def forward(self, grid: Tensor) -> Tensor:
        """Where the cells of a grid (B, H, W, D) stand -> (H, W, D)."""
        height, width = grid.shape[1:3]
        if (height, width) != self.shape:
            raise ValueError(
                f"positions were learned for {self.shape[0]} x {self.shape[1]} cells, and there are {height} x {width};"
                " resize the images, or use grid positions"
            )
        return self.cells(torch.arange(height * width, device=grid.device), height * width).unflatten(0, (height, -1))


@dataclass(frozen=True)
class Colours:
    """Pixels from -1 to 1 as a model wants them that was trained with another middle: (pixel - mean) / deviation, for
    each channel, of pixels from 0 to 1."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        mean, deviation = (images.new_tensor(each)[:, None, None] for each in (self.mean, self.deviation))
        return ((images + 1) / 2 - mean) / deviation  # (B, C, H, W)


class ViTEncoder(nn.Module):
    """Images (B, 3, H, W) -> Memory of a vector per square, row by row, after that of the class where there is one.

    Initial law of the class vector and of its position: normal with deviation 0.02.
    """

    def __init__(
        self,
        patches: Patches,
        stack: Stack,
        *,
        positions: nn.Module,
        cells: tuple[int, int],
        class_token: bool = True,
        class_position: bool = False,
        colours: Colours | None = None,
        first_norm: nn.Module | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.colours, self.first_norm = colours, first_norm
        self.cells, self.class_token, self.width = cells, class_token, patches.width
        self.patches, self.positions, self.stack = patches, positions, stack
        self.gather = nn.Parameter(torch.empty(patches.width)) if class_token else None
        self.gather_at = nn.Parameter(torch.empty(patches.width)) if class_position else None
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for vector in (self.gather, self.gather_at):
            if vector is not None:
                nn.init.normal_(vector, std=DEVIATION)

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Memory:  # noqa: ARG002 - images have no padding
        cells = self.patches(images if self.colours is None else self.colours(images))  # (B, N, D)
        grid = cells.unflatten(1, (images.shape[2] // self.patches.size, -1))  # (B, H, W, D)
        cells = (grid + self.positions(grid)).flatten(1, 2)
        if self.gather is not None:
            gather = self.gather if self.gather_at is None else self.gather + self.gather_at
            cells = torch.cat([gather.expand(len(cells), 1, -1), cells], dim=1)  # (B, 1 + N, D)
        cells = cells if self.first_norm is None else self.first_norm(cells)
        return Memory(self.stack(self.dropout(cells)))


def vit_encoder(settings: ViTSettings, size: tuple[int, int]) -> ViTEncoder:
    """The encoder of images of that height and width."""
    (height, width), patch = size, settings.patch
    if height % patch or width % patch:
        near = [max(round(side / patch), 1) * patch for side in size]
        nearest = f"task.size that can is {near[0]}" if height == width else f"that can are {near[0]} x {near[1]}"
        raise SaccadeError(
            f"images of {height} x {width} pixels cannot be cut into squares of model.patch {patch}; "
            f"the nearest {nearest}"
        )
    rows, columns = height // patch, width // patch
    half, usual = settings.width // 2, {*settings.mean, *settings.deviation} == {0.5}
    blocks = TransformerSettings(
        width=settings.width,
        heads=settings.heads,
        hidden=settings.hidden,
        activation=settings.activation,
        positions="none",
        epsilon=settings.epsilon,
        dropout=settings.dropout,
    )
    return ViTEncoder(
        Patches(3, settings.width, size=patch, bias=not settings.first_norm),
        make_stack(blocks, settings.layers),
        positions=LearnedGrid(settings.width, rows=rows, columns=columns)
        if settings.positions == "learned"
        else Grid2d(Sinusoidal(half), across=Sinusoidal(half)),
        cells=(rows, columns),
        class_token=settings.class_token,
        class_position=settings.class_position,
        colours=None if usual else Colours(settings.mean, settings.deviation),
        first_norm=make_norm("layer", settings.width, epsilon=settings.epsilon) if settings.first_norm else None,
        dropout=settings.dropout,
    )
