"""A frozen linear map with a small learned one beside it (LoRA; Hu et al. 2022).

    y = W x + b + (1 / r) B A x,     A (r, in),  B (out, r)

Initial law: A Kaiming uniform, B zero, so that learning begins where the frozen map is.
"""

from __future__ import annotations

import math

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
    model.requires_grad_(False)
    for module in list(model.modules()):
        if isinstance(module, Attention):
            for name in ("query", "value"):
                linear = getattr(module, name)
                if isinstance(linear, nn.Linear):
                    setattr(module, name, LowRank(linear, rank))
