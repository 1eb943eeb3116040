"""Optimizer, learning-rate schedule and clipping, with a state that is saved by parameter name.

warm-up:       rate x step / warmup
inverse_sqrt:  rate x sqrt(warmup / step)        (Vaswani et al. 2017)
cosine:        rate x (floor + (1 - floor) (1 + cos(pi progress)) / 2)        (Loshchilov and Hutter 2017)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config.training import OptimizerSettings, ScheduleSettings
from saccade.train.tensors import require_match


def make_optimizer(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    """Adam over all parameters; weight decay on matrices only: scales and biases are not made smaller.

    With a `layer_decay` d, block n of N has d^(N - n) of the rate, what stands below the blocks (embeddings) d^(N + 1),
    and what stands above them all of it (Howard and Ruder 2018).
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decay = settings.weight_decay if settings.kind == "adamw" else 0.0
    shares = _rate_shares(model, settings.layer_decay)
    groups: list[dict[str, Any]] = []
    for share in sorted(set(shares.values()), reverse=True) or [1.0]:
        same = [parameter for parameter in trained if shares[parameter] == share]
        matrices, others = ([p for p in same if (p.dim() >= 2) == whole] for whole in (True, False))
        groups.append({"params": matrices, "weight_decay": decay, "share": share})
        groups.append({"params": others, "weight_decay": 0.0, "share": share})
    betas = (settings.beta1, settings.beta2)
    fused = all(parameter.is_floating_point() for parameter in trained)
    return torch.optim.AdamW(groups, lr=settings.rate, betas=betas, eps=settings.epsilon, fused=fused)


def _rate_shares(model: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """What share of the rate each parameter has: 1 for all where nothing decays."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if decay == 1:
        return {parameter: 1.0 for _, parameter in named}
    places = {name: re.search(r"\bblocks\.(\d+)\.", name) for name, _ in named}
    blocks = max((int(place[1]) for place in places.values() if place is not None), default=-1) + 1

    def below(name: str) -> int:
        place = places[name]
        if place is not None:
            return blocks - int(place[1])
        return blocks + 1 if re.search(r"\b(embedding|segments)\b", name) else 0

    return {parameter: decay ** below(name) for name, parameter in named}


class Average:
    """A running average of the weights (Polyak and Juditsky 1992): a <- d a + (1 - d) w after each update.

    The decay d starts low, min(d, (1 + t) / (10 + t)), so that the first, bad weights are soon forgotten.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def update(self, model: nn.Module, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        weights = [parameter.detach() for parameter in model.parameters()]
        torch._foreach_lerp_(list(self.tensors.values()), weights, 1 - decay)

    @contextmanager
    def in_place(self, model: nn.Module) -> Iterator[None]:
        """While inside, the model has the averaged weights."""
        own = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        self._copy(self.tensors, model)
        try:
            yield
        finally:
            self._copy(own, model)

    @staticmethod
    @torch.no_grad()
    def _copy(tensors: Mapping[str, Tensor], model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])


def rate_at(step: int, steps: int, settings: ScheduleSettings) -> float:
    """The share of the highest rate that the update number `step` (from 1) is made with, of `steps` in all."""
    if step <= settings.warmup:
        return step / settings.warmup
    if settings.kind == "constant":
        return 1.0
    if settings.kind == "inverse_sqrt":
        return math.sqrt(max(settings.warmup, 1) / step)
    begun, ends = settings.warmup, steps
    if settings.restart is not None and settings.restart < steps:  # once more from the top (Loshchilov and Hutter 2017)
        begun, ends = (begun, settings.restart) if step <= settings.restart else (settings.restart, steps)
    progress = min(1.0, (step - begun) / max(ends - begun, 1))
    return settings.floor + (1 - settings.floor) * (1 + math.cos(math.pi * progress)) / 2


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state under the names of the parameters it belongs to."""
    tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"{name}/{key}"] = torch.as_tensor(value)
    return tensors


def load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Take over a saved state; one that belongs to another model is refused whole.

    A parameter that never had a gradient (a head that is not asked for) has no state, and needs none.
    """
    moved = {name.rpartition("/")[0] for name in tensors}
    parameters = {name: each for name, each in model.named_parameters() if each.requires_grad and name in moved}
    expected: dict[str, torch.Size] = {}
    for name, parameter in parameters.items():
        shapes = {"step": (), "exp_avg": parameter.shape, "exp_avg_sq": parameter.shape}
        expected |= {f"{name}/{key}": torch.Size(shape) for key, shape in shapes.items()}
    require_match(tensors, expected, "optimizer state")
    for name, parameter in parameters.items():
        keys = ("step", "exp_avg", "exp_avg_sq")
        optimizer.state[parameter] = {key: tensors[f"{name}/{key}"].clone() for key in keys}
