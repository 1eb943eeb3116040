"""Recurrent layers of ours as RNN, GRU and LSTM of ONNX, which stop at the length of each row as packed sequences do.

Their gates stand in another order, and a GRU resets its state after the product with it (linear_before_reset).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from saccade.nn.recurrent import RecurrentEncoder

OPSET = 18
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN_TANH": (0,)}  # ours, in the order of theirs


class Recurrent(nn.Module):
    """A recurrent layer (B, T, D) of ours as nodes of ONNX; called as it is, and with the lengths of rows."""

    def __init__(self, layer: nn.RNNBase):
        super().__init__()
        self.mode, self.num_layers, self.hidden_size = layer.mode, layer.num_layers, layer.hidden_size
        self.directions = 2 if layer.bidirectional else 1
        order = GATES[layer.mode]
        for number in range(layer.num_layers):
            sides = [f"l{number}", f"l{number}_reverse"][: self.directions]

            def both(name: str, sides: Sequence[str] = sides) -> Tensor:
                parts = (getattr(layer, f"{name}_{side}").unflatten(0, (-1, layer.hidden_size)) for side in sides)
                return torch.stack([part[list(order)].flatten(0, 1) for part in parts])

            self.register_buffer(f"input_{number}", both("weight_ih"))
            self.register_buffer(f"state_{number}", both("weight_hh"))
            self.register_buffer(f"bias_{number}", torch.cat([both("bias_ih"), both("bias_hh")], dim=-1))

    def forward(self, x: Tensor, first: Any = None, lengths: Tensor | None = None) -> tuple[Tensor, Any]:
        count = 2 if self.mode == "LSTM" else 1
        given = () if first is None else first if isinstance(first, tuple) else (first,)  # (layers, B, hidden) each
        lasts: list[list[Tensor]] = []
        for number in range(self.num_layers):
            at = slice(number * self.directions, (number + 1) * self.directions)
            rows, length = x.shape[:2]
            last = (self.directions, rows, self.hidden_size)
            states, *own = torch.onnx.ops.symbolic_multi_out(
                self.mode.removesuffix("_TANH"),
                [
                    x.transpose(0, 1),
                    getattr(self, f"input_{number}"),
                    getattr(self, f"state_{number}"),
                    getattr(self, f"bias_{number}"),
                    lengths,
                    *(part[at] for part in given),
                ],
                attrs={
                    "hidden_size": self.hidden_size,
                    "direction": "bidirectional" if self.directions == 2 else "forward",
                    **({"linear_before_reset": 1} if self.mode == "GRU" else {}),
                },
                dtypes=[x.dtype] * (1 + count),
                shapes=[(length, *last), *[last] * count],
                version=OPSET,
            )
            x = states.permute(2, 0, 1, 3).flatten(2)  # (T, directions, B, hidden) -> (B, T, directions x hidden)
            lasts.append(own)
        ends = tuple(torch.cat([own[part] for own in lasts]) for part in range(count))
        return x, ends if count > 1 else ends[0]


class RecurrentReader(nn.Module):
    """A `RecurrentEncoder` that hands on lengths where the original packs."""

    def __init__(self, encoder: RecurrentEncoder):
        super().__init__()
        self.width, self.layers = encoder.width, nn.ModuleList(Recurrent(layer) for layer in encoder.layers)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        lengths = None if mask is None else mask.sum(1).clamp(min=1).int()
        summaries = []
        for layer in self.layers:
            x, last = layer(x, lengths=lengths)
            last = last[0] if isinstance(last, tuple) else last  # (directions, B, hidden)
            summaries.append(last.transpose(0, 1).flatten(1))
        summary = torch.stack(summaries, dim=1)
        return (x, summary) if mask is None else (x * mask[..., None], summary * mask.any(1)[:, None, None])


def for_tracing(model: nn.Module) -> Any:
    """A copy at rest, with recurrent layers that can be traced."""
    torch.compiler.allow_in_graph(torch.onnx.ops.symbolic_multi_out)  # as a node, and not its inside
    twin = deepcopy(model).eval().requires_grad_(False)
    for name, module in list(twin.named_modules()):
        if isinstance(module, RecurrentEncoder):
            _put(twin, name, RecurrentReader(module))
    for name, module in list(twin.named_modules()):
        if isinstance(module, nn.RNNBase):
            _put(twin, name, Recurrent(module))
    return twin


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)
