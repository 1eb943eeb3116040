"""The parts between attentions: dropout, norms, residuals, feed-forward layers, token embedding and output layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.nn.positions import Positions

Order = Literal["pre", "post"]
NormName = Literal["layer", "rms", "batch"]
Combine = Literal["add", "concatenate"]
Choice = TypeVar("Choice")

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),  # of CLIP
    "silu": F.silu,
}

# The gated feed-forward layers of Shazeer (2020): what the gate passes through.
GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "glu": torch.sigmoid,
    "reglu": F.relu,
    "geglu": F.gelu,
    "swiglu": F.silu,
}


class Dropout(nn.Module):
    """Set a share of the numbers to zero and scale the others up, in training only (Srivastava et al. 2014).

    On a processor the time of a stock dropout is the time of its random generator, which draws one float per number.
    Here one 64-bit draw serves four numbers with 16 bits each: the same law to 1/65536, from the same generator state.
    """

    LEVELS = 1 << 16

    def __init__(self, share: float = 0.0):
        super().__init__()
        if not 0 <= share < 1:
            raise ValueError(f"dropout must be at least 0 and below 1; got {share}")
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.share)
        draws = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
        bits = draws.view(torch.int16)[: x.numel()].view(x.shape)
        dropped = min(round(self.share * self.LEVELS), self.LEVELS - 1)
        # as a float mask: a product with bools, or the stock backward of dropout, takes ten times as long here
        keep = (bits >= dropped - self.LEVELS // 2).to(x.dtype)
        return x * keep.mul_(self.LEVELS / (self.LEVELS - dropped))

    def extra_repr(self) -> str:
        return f"share={self.share}"


class SequenceBatchNorm(nn.Module):
    """Batch normalisation of (B, T, D) per feature, for comparison only: statistics mix sentences and padding, and
    differ between training and use, which is why sequences are layer-normalised instead (Ioffe and Szegedy 2015)."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, -2)).view(x.shape)


def make_norm(name: NormName, width: int, *, epsilon: float | None = None) -> nn.Module:
    """A norm over the features of each vector; `epsilon` keeps it from dividing by zero. Initial law: scale one, shift
    zero."""
    makers: dict[str, Callable[[int], nn.Module]] = {
        "layer": lambda width: nn.LayerNorm(width, eps=epsilon or 1e-5),
        "rms": lambda width: nn.RMSNorm(width, eps=epsilon or 1e-6),
        "batch": SequenceBatchNorm,
    }
    return choose("norm", name, makers)(width)


class Residual(nn.Module):
    """A sublayer with its norm, dropout and way around it, in one of two orders.

    post: y = norm(x + f(x))  (Vaswani et al. 2017)        pre: y = x + f(norm(x)), which trains more stably
    """

    def __init__(
        self,
        width: int,
        *,
        order: Order = "pre",
        norm: NormName = "layer",
        epsilon: float | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        if order not in ("pre", "post"):
            raise ValueError(f"the norm's order must be 'pre' or 'post'; got {order!r}")
        self.order = order
        self.norm = make_norm(norm, width, epsilon=epsilon)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.order == "pre":
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


class FeedForward(nn.Module):
    """Two linear maps with an activation between, for each vector alone: W2 phi(W1 x); gated: W2 (phi(W3 x) * W1 x).

    Initial law: Xavier uniform, variance 2 / (in + out); biases zero.
    """

    def __init__(self, width: int, hidden: int, *, activation: str = "relu", dropout: float = 0.0):
        super().__init__()
        self.gated = activation in GATES
        self.activation = choose("activation", activation, ACTIVATIONS | GATES)
        self.expand = nn.Linear(width, hidden)
        self.gate = nn.Linear(width, hidden) if self.gated else None
        self.contract = nn.Linear(hidden, width)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for linear in (self.expand, self.gate, self.contract):
            if linear is not None:
                xavier(linear)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.expand(x)
        hidden = self.activation(hidden) if self.gate is None else self.activation(self.gate(x)) * hidden
        return self.contract(self.dropout(hidden))


class Embedding(nn.Module):
    """A learned vector for each token, times sqrt(D) where `scaled`, with positions added or put beside it.

    Initial law: normal with variance 1 / D, so that scaled vectors have variance one and tied logits start small.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        positions: Positions | None = None,
        combine: Combine = "add",
        scaled: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        if combine not in ("add", "concatenate"):
            raise ValueError(f"positions are combined by 'add' or 'concatenate'; got {combine!r}")
        taken = positions.width if positions is not None and combine == "concatenate" else 0
        if positions is not None and combine == "add" and positions.width != width:
            raise ValueError(f"positions of width {positions.width} cannot be added to tokens of width {width}")
        if taken >= width:
            raise ValueError(f"positions of width {taken} leave no room for tokens in a width of {width}")
        self.vocabulary, self.width, self.combine, self.scaled = vocabulary, width, combine, scaled
        self.positions = positions
        self.weight = nn.Parameter(torch.empty(vocabulary, width - taken))
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.weight.shape[1] ** -0.5)

    def forward(self, tokens: Tensor, at: Tensor | None = None) -> Tensor:
        """Tokens (B, T) standing at `at` (B, T), or counted from zero -> (B, T, D)."""
        if tokens.dim() != 2 or tokens.shape[1] == 0:
            raise ValueError(
                f"tokens must have shape (batch, positions) with one position at least; got {tuple(tokens.shape)}"
            )
        try:
            x = F.embedding(tokens, self.weight)
        except IndexError as error:
            wrong = tokens[(tokens < 0) | (tokens >= self.vocabulary)][0]
            raise ValueError(f"token id {int(wrong)} is outside the vocabulary of {self.vocabulary} ids") from error
        x = x * math.sqrt(self.weight.shape[1]) if self.scaled else x
        if self.positions is not None:
            length = tokens.shape[1]
            place = self.positions(torch.arange(length, device=tokens.device) if at is None else at, length).to(x.dtype)
            x = x + place if self.combine == "add" else torch.cat([x, place.expand(*x.shape[:2], -1)], dim=-1)
        return self.dropout(x)


class Output(nn.Module):
    """Logits over the vocabulary: W x (+ b), with W of its own or the embedding's (Press and Wolf 2017).

    A tie is a reference to the embedding module, not to its tensor: it survives construction on the meta device.
    Initial law of a W of its own: Xavier uniform; bias zero.
    """

    def __init__(self, width: int, vocabulary: int, *, tied: Embedding | None = None, bias: bool = False):
        super().__init__()
        if tied is not None and tied.weight.shape != (vocabulary, width):
            raise ValueError(
                f"an output of {vocabulary} x {width} cannot be tied to a table of {tuple(tied.weight.shape)}"
            )
        self.tied = tied
        self.own = nn.Parameter(torch.empty(vocabulary, width)) if tied is None else None
        self.bias = nn.Parameter(torch.empty(vocabulary)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.own is not None:
            nn.init.xavier_uniform_(self.own)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @property
    def weight(self) -> Tensor:
        weight = self.own if self.tied is None else self.tied.weight
        assert weight is not None
        return weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


def xavier(linear: nn.Linear) -> None:
    """Xavier uniform weights, variance 2 / (in + out), and zero biases (Glorot and Bengio 2010)."""
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)


def draw_normal(model: nn.Module, deviation: float) -> None:
    """Every matrix and every table of tokens of a model normal with the given deviation; biases stay as they are."""
    for module in model.modules():
        if isinstance(module, nn.Linear | Embedding):
            nn.init.normal_(module.weight, std=deviation)
        elif isinstance(module, Output) and module.own is not None:
            nn.init.normal_(module.own, std=deviation)


def choose(what: str, name: str, table: dict[str, Choice]) -> Choice:
    """Look a name up in a table, with an error that lists what there is."""
    if name not in table:
        raise ValueError(f"unknown {what} {name!r}; there are {', '.join(sorted(table))}")
    return table[name]
