"""How large a translator so many pairs can teach."""

from __future__ import annotations

import math

from saccade.config.models import TransformerSettings


def fitting_model(pairs: int) -> tuple[TransformerSettings, str]:
    """The size that so many pairs can fill; small data wants few layers and much dropout (Araabi and Monz 2020)."""
    sizes = (  # up to so many pairs: width, heads, hidden, layers of each side, dropout
        (5_000, 96, 4, 192, 2, 0.3),
        (50_000, 128, 4, 256, 3, 0.3),
        (250_000, 192, 4, 768, 3, 0.1),
        (1_000_000, 256, 4, 1024, 4, 0.1),
        (math.inf, 512, 8, 2048, 6, 0.1),
    )
    width, heads, hidden, layers, dropout = next(size[1:] for size in sizes if pairs <= size[0])
    model = TransformerSettings(
        width=width,
        heads=heads,
        hidden=hidden,
        encoder_layers=layers,
        decoder_layers=layers,
        dropout=dropout,
        tie="all",
    )
    return model, f"{layers}+{layers} layers, {width} wide, dropout {dropout}: a size that {pairs:,} pairs can fill"


def fitting_pieces(pairs: int) -> int:
    """How many pieces so many pairs can teach: 2,000 for ten thousand, growing with the square root, within bounds."""
    return max(500, min(32_000, round(2000 * (pairs / 10_000) ** 0.5 / 100) * 100))
