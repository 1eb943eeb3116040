"""Looking into an image encoder: how the cells of an image come together, and what every layer looks at."""

from __future__ import annotations

from typing import Any

import numpy as np

from saccade.data.images import Pixels
from saccade.maps.record import record
from saccade.maps.render import AttentionMap, Grid, Tokens
from saccade.maps.rollout import rollout
from saccade.modality.image import to_tensor
from saccade.models.images import ImageEncoder
from saccade.tasks.answers import at_rest


def look_at_image(encoder: ImageEncoder, pixels: Pixels, title: str) -> list[AttentionMap]:
    """Maps over an image (size, size, 3): of several layers their rollout first, called `title`, then each of them.

    Where there is a class token, what it looks at is shown: the answer is made of it. Without attention there is none.
    """
    module: Any = encoder
    with at_rest(module), record(module) as recording:
        module(to_tensor(np.stack([pixels])))
    grid = Grid(encoder.side, encoder.side, pixels)
    layers = [seen.weights[0] for seen in recording]  # (H, S, S) each
    maps = [rollout(layers, grid, name=title)] if len(layers) > 1 else []
    for number, weights in enumerate(layers, start=1):
        name = f"image block {number}, self-attention" if len(layers) > 1 else f"{title}: self-attention"
        if encoder.class_token:
            maps.append(AttentionMap(name, weights[:, :1, 1:], Tokens(("class token",)), grid))
        else:
            maps.append(AttentionMap(name, weights, grid, grid))
    return maps
