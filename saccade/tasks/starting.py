"""Beginning with the weights of another run: what fits is copied, and new pieces are seeded from their old spelling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

NOT_OWN = "model and vocabulary are those of train.start: other settings of them do not count"


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
    count = sum(tensors[name].numel() for name in own)
    notes = [taken_over(count, start, tensors.keys() - model.state_dict().keys())]
    return notes + ([f"{len(seeds)} new pieces begin as the mean of what spelled them"] if grown else [])


def adopt_fitting(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], start: str) -> list[str]:
    """What has a name and a place in this model; the rest is left. A longer table of positions is cut."""
    taken, left = 0, []
    with torch.no_grad():
        for name, theirs in tensors.items():
            mine = own.get(name)
            if mine is None:
                left.append(name.removeprefix("body."))
            elif mine.shape[1:] == theirs.shape[1:] and len(mine) <= len(theirs):
                mine.copy_(theirs[: len(mine)])
                taken += mine.numel()
            else:
                raise ValueError(f"{name} has shape {tuple(theirs.shape)}, and {tuple(mine.shape)} is needed")
    if not taken:
        raise ValueError(f"nothing of {start} fits this model")
    return [taken_over(taken, start, left)]


def taken_over(count: int, start: str, left: Iterable[str]) -> str:
    rest = ", ".join(sorted({name.rpartition(".")[0] or name for name in left}))
    return f"{count:,} parameters come from {start}" + (f"; left were {rest}" if rest else "")
