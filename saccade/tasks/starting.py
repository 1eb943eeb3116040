"""Beginning with the weights of another run: what fits is copied, and new pieces are seeded from their old spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn


def adopt_all(model: nn.Module, tensors: Mapping[str, Tensor], start: str, seeds: Sequence[Sequence[int]]) -> list[str]:
    """All weights of the same model. Where the vocabulary has grown by `seeds`, its tables have the rows of before, and
    each new row is the mean of those that spelled the piece."""
    own = dict(model.named_parameters())
    grown = 0
    with torch.no_grad():
        for name, mine in own.items():
            if name not in tensors:
                raise ValueError(f"{start} has no {name}, which this model needs")
            theirs = tensors[name].to(mine.dtype)
            if mine.shape == theirs.shape:
                mine.copy_(theirs)
            elif seeds and mine.shape[1:] == theirs.shape[1:] and len(mine) == len(theirs) + len(seeds):
                mine[: len(theirs)] = theirs
                mine[len(theirs) :] = torch.stack([theirs[list(spelled)].mean(0) for spelled in seeds])
                grown += 1
            else:
                shapes = f"{tuple(theirs.shape)}, and {tuple(mine.shape)} is needed"
                raise ValueError(f"{name} of {start} has shape {shapes}")
    count = sum(parameter.numel() for parameter in own.values())
    notes = [f"{count:,} parameters come from {start}"]
    return notes + ([f"{len(seeds)} new pieces begin as the mean of what spelled them"] if grown else [])
