"""Maps to draw: words over an image, letters over a sound, an image over itself."""

from __future__ import annotations

import numpy as np
import torch

from saccade.maps.axes import AttentionMap, Frames, Grid, Tokens


def image(height: int = 24, width: int = 32) -> np.ndarray:
    """Left half red, right half blue."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0] = 200
    pixels[:, width // 2 :, 2] = 200
    return pixels


def caption(words: int, grid: Grid, heads: int = 1) -> AttentionMap:
    """Word n looks at cell n alone."""
    weights = torch.eye(len(grid))[:words].expand(heads, -1, -1)
    return AttentionMap("caption", weights, Tokens(tuple(f"w{number}" for number in range(words))), grid)


def spoken(letters: str, count: int, heads: int = 1, spectrogram: np.ndarray | None = None) -> AttentionMap:
    """Letters one after the other, a position of a tenth of a second each, with the same pause between them."""
    places = torch.arange(len(letters)) * (count // len(letters))
    weights = torch.eye(count)[places].expand(heads, -1, -1)
    return AttentionMap("sound", weights, Tokens(tuple(letters)), Frames(count, 0.1, spectrogram))


def self_attention(grid: Grid, heads: int = 1) -> AttentionMap:
    """Every cell looks at itself."""
    return AttentionMap("self", torch.eye(len(grid)).expand(heads, -1, -1), grid, grid)
