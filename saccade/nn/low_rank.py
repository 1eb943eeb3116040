"""A frozen linear map with a small learned one beside it (LoRA; Hu et al. 2022).

    y = W x + b + (1 / r) B A x,     A (r, in),  B (out, r)

Initial law: A Kaiming uniform, B zero, so that learning begins where the frozen map is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.attention import Attention


class LowRank(nn.Module):
    """In the place of a linear map."""

    def __init__(self, base: nn.Linear, rank: int):
        super().__init__()
        if not 1 <= rank <= min(base.in_features, base.out_features):
            raise ValueError(
                f"the rank must be at least 1 and at most {min(base.in_features, base.out_features)}; got {rank}"
            )
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.empty(rank, base.in_features))
        self.up = nn.Parameter(torch.empty(base.out_features, rank))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))
        nn.init.zeros_(self.up)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + F.linear(F.linear(x, self.down), self.up) / len(self.down)


def adapt(model: nn.Module, rank: int) -> None:
    """Freeze a model but for what is learned beside the queries and values of its attentions."""
    attentions = [module for module in model.modules() if isinstance(module, Attention)]
    maps = [(each, name) for each in attentions for name in ("query", "value")]
    maps = [(each, name) for each, name in maps if isinstance(getattr(each, name), nn.Linear)]
    if not maps:
        raise ValueError("a low rank is learned beside the queries and values of attentions, and this model has none")
    model.requires_grad_(False)
    for attention, name in maps:
        setattr(attention, name, LowRank(getattr(attention, name), rank))


def merged(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of an adapted model as those of a plain one that computes the same."""
    plain = {n.replace(".base.", "."): tensor for n, tensor in tensors.items() if not n.endswith((".down", ".up"))}
    for name in [name.removesuffix(".down") for name in tensors if name.endswith(".down")]:
        down, up = tensors[f"{name}.down"], tensors[f"{name}.up"]
        plain[f"{name}.weight"] = plain[f"{name}.weight"] + up @ down / len(down)
    return plain
