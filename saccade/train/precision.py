"""In which precision a training multiplies, where its recipe leaves that to the machine.

Matrix products in bfloat16 are up to twice as fast as in float32 on processors that have instructions for them, and
several times slower on all others. What counts is what the processor can do, not a measurement: the same command on
the same machine is to be the same training, whatever else runs there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from saccade.config import Recipe

INSTRUCTIONS = ("avx512_bf16", "amx_bf16")  # of which one is enough


def settled(recipe: Recipe) -> tuple[Recipe, list[str]]:
    """The recipe with a precision where it says `auto`, as its run keeps it, and why; any other recipe as it is."""
    if recipe.train.precision != "auto":
        return recipe, []
    precision, reason = chosen(torch.cpu.get_capabilities())
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"precision": precision})}), [reason]


def chosen(capabilities: Mapping[str, Any]) -> tuple[str, str]:
    """The faster precision on a processor with these abilities, and why."""
    if any(capabilities.get(name) for name in INSTRUCTIONS):
        return "bfloat16", "products in bfloat16, for which this processor has instructions"
    return "float32", "products in float32: this processor has no instructions for bfloat16"


def multiplying(precision: str, device: str = "cpu") -> torch.autocast:
    """In its context matrix products are made in this precision, and everything else as it is."""
    return torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bfloat16")
