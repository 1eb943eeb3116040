"""Linear maps packed once, for use: float32 in the layout the processor multiplies fastest, or 8-bit integers.

    int8: W ~ s_o Q_oi,  x ~ (m / n) q_i  with  m = max_i |x_i|      =>      y_o ~ s_o (m / n) sum_i Q_oi q_i + b_o

Every output has a scale s_o of its own and every row x a scale m of its own, so that no row depends on the others of
its batch. Inputs have n = 127 levels on either side of zero, or 63 where sums of pairs of 8-bit products would
overflow: in processors without VNNI instructions, and in torch's operators. They multiply where our own code
(`native.py`) cannot be compiled. Nothing here has a gradient.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeVar, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn import native
from saccade.nn.layers import Output
from saccade.nn.native import NativeLinear
from saccade.nn.screen import Screening

Precision = Literal["float32", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
Model = TypeVar("Model", bound=nn.Module)

LEVELS = 63  # of an input on either side of zero, for torch's operators
# Numbers in a map, below which packing costs more than it saves (measured with 1 to 128 rows), by torch and by our own
# code.
LEAST: dict[Precision, int] = {"float32": 1 << 18, "int8": 1 << 16}
LEAST_NATIVE: dict[Precision, int] = {"float32": 0, "int8": 1 << 12}


class PackedLinear(nn.Module):
    """W x + b of a fixed W, or of several W with the same inputs, put below each other."""

    def __init__(self, weight: Tensor, bias: Tensor | None, precision: Precision):
        super().__init__()
        weight, bias = weight.detach().float(), None if bias is None else bias.detach().float()
        self.bias, self.plain, self.packed, self.quantised, self.native = bias, None, None, None, None
        made = native.library() if weight.device.type == "cpu" else None
        worth = weight.numel() >= (LEAST if made is None else LEAST_NATIVE)[precision]
        if made is not None:
            in_bytes = worth and precision == "int8" and bool(made.has_bytes())
            self.native = NativeLinear(made, weight, bias, in_bytes=in_bytes)
        elif worth and precision == "int8" and "x86" in torch.backends.quantized.supported_engines:
            self.quantised = _quantised(weight)
        elif worth and torch.backends.mkldnn.is_available():
            self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        else:
            self.plain = weight

    def forward(self, x: Tensor) -> Tensor:
        if self.native is not None:
            return self.native(x)
        if self.plain is not None:
            return F.linear(x, self.plain, self.bias)
        if self.packed is not None:
            return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        largest = x.abs().amax(-1, keepdim=True).clamp_(min=1e-30)
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        y = multiply(x / largest, 1 / LEVELS, LEVELS + 1, self.quantised)
        return y.mul_(largest) if self.bias is None else torch.addcmul(self.bias, y, largest)


def multiplier() -> str:
    """Who multiplies packed maps on this processor, for people."""
    return "torch" if native.library() is None else "code compiled for this processor"


class PackedOutput(nn.Module):
    """An output layer whose table is packed; `weight` is still the plain one, for those who ask for its type."""

    def __init__(self, output: Output, precision: Precision):
        super().__init__()
        self.output, self.linear = output, PackedLinear(output.weight, output.bias, precision)
        self.screening = Screening(output.weight, output.bias) if precision == "float32" else None

    @property
    def weight(self) -> Tensor:
        return self.output.weight

    @property
    def bias(self) -> Tensor | None:
        return self.output.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.linear.forward(x)


def joint(linears: Sequence[nn.Linear], precision: Precision) -> PackedLinear:
    """Several maps of the same input as one."""
    weight = torch.cat([each.weight for each in linears])
    biases: list[Tensor] = [each.bias for each in linears if each.bias is not None]
    return PackedLinear(weight, torch.cat(biases) if biases else None, precision)


class Readying(Protocol):
    """A module that has a faster form of itself, made of it and of its packed copy."""

    def ready(self, packed: Any, precision: Precision) -> nn.Module: ...


def packed(model: Model, precision: Precision = "float32") -> Model:
    """A copy for use, which says the same, or nearly the same with int8, and shares all tensors that are not packed:
    of a model that has learned more, another copy has to be made."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    copied = copy.deepcopy(model, shared).eval()
    for module in copied.modules():
        vars(module).pop("tap", None)  # of somebody who is looking at the original just now
    _pack(model, copied, precision)
    return copied


def _pack(plain: nn.Module, copied: nn.Module, precision: Precision) -> None:
    for name, child in plain.named_children():
        if type(child) is nn.Linear:
            setattr(copied, name, PackedLinear(child.weight, child.bias, precision))
        elif isinstance(child, Output):
            setattr(copied, name, PackedOutput(child, precision))
        else:
            its: nn.Module = getattr(copied, name)
            _pack(child, its, precision)
            if hasattr(child, "ready"):
                setattr(copied, name, cast(Readying, child).ready(its, precision))


def _quantised(weight: Tensor) -> object:
    scales = (weight.abs().amax(1) / 127).clamp(min=1e-30).double()
    with warnings.catch_warnings():  # of quantised tensors, that they will go: none leaves this function
        warnings.simplefilter("ignore", UserWarning)
        zeros = torch.zeros(len(weight), dtype=torch.long)
        integers = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(integers, None)
