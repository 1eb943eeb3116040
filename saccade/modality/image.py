"""Images as tensors: pixels of a batch made into numbers around zero, and turned into slightly other images.

x = (pixel / 255 - mean) / deviation
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def to_tensor(batch: Any, *, mean: float | Sequence[float] = 0.5, deviation: float | Sequence[float] = 0.5) -> Tensor:
    """Bytes (B, H, W, C), an array or a tensor -> floats (B, C, H, W).

    Mean and deviation are on the scale from 0 to 1, one for all channels or one for each; by default x is from -1 to 1.
    """
    pixels = torch.as_tensor(batch)
    if pixels.dtype != torch.uint8 or pixels.dim() != 4:
        raise ValueError(
            f"images must be bytes of shape (batch, height, width, channels); got {pixels.dtype} {tuple(pixels.shape)}"
        )
    dtype = torch.get_default_dtype()
    centre, scale = (255 * torch.as_tensor(each, dtype=dtype, device=pixels.device) for each in (mean, deviation))
    if any(each.dim() and len(each) != pixels.shape[3] for each in (centre, scale)):
        raise ValueError(f"a mean and a deviation for each of {pixels.shape[3]} channels; got {mean} and {deviation}")
    return ((pixels.to(dtype) - centre) / scale).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Augment:
    """Each image (B, C, H, W) mirrored every second time, and shifted by up to `shift` pixels with zeros moving in.

    Drawn from torch's own random stream, so that a training that is resumed repeats it (Krizhevsky et al. 2012).
    """

    flip: bool = True
    shift: int = 4

    def __post_init__(self) -> None:
        if self.shift < 0:
            raise ValueError(f"images are shifted by 0 pixels or more; got {self.shift}")

    def __call__(self, images: Tensor) -> Tensor:
        batch, _, height, width = images.shape
        rows, columns = torch.arange(height).expand(batch, -1), torch.arange(width).expand(batch, -1)
        if self.flip:
            mirrored = torch.rand(batch, 1) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        if self.shift:
            down, across = torch.randint(2 * self.shift + 1, (2, batch, 1))
            rows, columns = rows + down, columns + across
        padded = F.pad(images, (self.shift,) * 4)
        each = torch.arange(batch)[:, None, None]
        chosen = padded.permute(0, 2, 3, 1)[each, rows[:, :, None], columns[:, None]]  # (B, H, W, C)
        return chosen.permute(0, 3, 1, 2)
