"""Attention rollout: what a class token has of each cell of the image, through all layers of a Vision Transformer.

A position keeps half of itself at each layer, which stands for the residual connection, and takes the other half from
where it looks, the mean over heads:

    R = (0.5 A_N + 0.5 I) ... (0.5 A_2 + 0.5 I) (0.5 A_1 + 0.5 I),   A_n = mean over heads of layer n, (S, S)

Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.maps.axes import AttentionMap, Grid, Tokens


def rollout(layers: Sequence[Tensor], grid: Grid, *, name: str = "attention rollout") -> AttentionMap:
    """Self-attention weights (H, S, S) of all layers, the first one first -> a map with one row over the image.

    With one position more than the grid has cells, the first is the class token and the row is its own; what it has of
    itself is left out, and the rest divided by its sum. Otherwise the row is the mean of all cells' rows.
    """
    if not layers:
        raise SaccadeError("there is nothing to roll out: no layer has self-attention")
    cells = len(grid)
    positions = layers[0].shape[-1]
    if positions not in (cells, cells + 1):
        raise SaccadeError(
            f"weights over {positions} positions do not fit {grid.height} x {grid.width} cells, "
            f"{cells} without a class token or {cells + 1} with one"
        )
    flow = torch.eye(positions, dtype=torch.float64)
    for number, layer in enumerate(layers, start=1):
        if layer.dim() != 3 or tuple(layer.shape[1:]) != (positions, positions):
            raise SaccadeError(
                f"layer {number}: self-attention has shape (heads, {positions}, {positions}); got {tuple(layer.shape)}"
            )
        attention = layer.double().cpu().mean(0)  # (S, S)
        flow = 0.5 * (attention @ flow + flow)
    has_class = positions == cells + 1
    row = flow[0, 1:] if has_class else flow.mean(0)  # (cells,)
    row = row / row.sum().clamp(min=torch.finfo(row.dtype).tiny)  # a token that saw nothing but itself has zeros
    label = "class token" if has_class else "mean of all cells"
    return AttentionMap(name, row.float()[None, None], Tokens((label,)), grid)
