"""Recurrent encoders, and a recurrent decoder that gets its context once, at each step, or by attention.

    once:            s_0 = bridge(h_S),  s_t = g(y_{t-1}, s_{t-1})                              (Sutskever et al. 2014)
    each:            s_t = g(y_{t-1}, c, s_{t-1}),  c = h_S                                     (Cho et al. 2014)
    look-then-move:  c_t = attend(s_{t-1}, h),  s_t = g(y_{t-1}, c_t, s_{t-1})                  (Bahdanau et al. 2015)
    move-then-look:  s_t = g(y_{t-1}, s_{t-1}),  c_t = attend(s_t, h)                           (Luong et al. 2015)
    gate:            c_t <- sigmoid(w . s_{t-1} + b) c_t, of look-then-move                     (Xu et al. 2015)

The readout sees all there is: W [y_{t-1}; s_t; c_t] (Xu et al. 2015); with move-then-look, its tanh (Luong et al.
2015). With thousands of words a bounded readout learns later: it waits for the output's weights to grow, and until then
words that are usual drown what was read or seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils import _pytree as pytree

from saccade.nn.attention import Attention
from saccade.nn.cache import KeyValues
from saccade.nn.layers import Dropout, choose, xavier

Cell = Literal["rnn", "gru", "lstm"]
Context = Literal["once", "each", "look-then-move", "move-then-look"]
CELLS: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def make_cell(cell: Cell, inputs: int, hidden: int, *, layers: int = 1, bidirectional: bool = False) -> nn.RNNBase:
    """A recurrent layer over (B, T, D). Initial law: Xavier uniform from the input, orthogonal from the state (per
    gate), biases zero, but one for the forget gate of an LSTM so that it starts by remembering."""
    layer = choose("cell", cell, CELLS)(
        inputs, hidden, num_layers=layers, bidirectional=bidirectional, batch_first=True
    )
    reset_cell(layer)
    return layer


def reset_cell(layer: nn.RNNBase) -> None:
    """Draw the weights of a recurrent layer anew."""
    for name, parameter in layer.named_parameters():
        if name.startswith("weight"):
            for gate in parameter.data.split(layer.hidden_size):
                (nn.init.xavier_uniform_ if name.startswith("weight_ih") else nn.init.orthogonal_)(gate)
        else:
            nn.init.zeros_(parameter)
            if layer.mode == "LSTM" and name.startswith("bias_ih"):
                parameter.data[layer.hidden_size : 2 * layer.hidden_size] = 1.0


class RecurrentEncoder(nn.Module):
    """(B, S, D) -> states (B, S, D') with zeros at padding, and the last state of each layer (B, layers, D').

    Padding is never read: sequences are packed. With two directions D' = 2 x hidden, forward beside backward.
    """

    layers: Sequence[nn.RNNBase]

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        cell: Cell = "gru",
        layers: int = 1,
        bidirectional: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        directions = 2 if bidirectional else 1
        self.width = directions * hidden
        widths = [width] + [self.width] * (layers - 1)
        # one module per layer, so that our dropout stands between them
        cells = (make_cell(cell, each, hidden, bidirectional=bidirectional) for each in widths)
        self.layers = nn.ModuleList(cells)  # type: ignore[assignment]
        self.dropout = Dropout(dropout)

    def reset_parameters(self) -> None:
        for layer in self.layers:
            reset_cell(layer)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        length = x.shape[1]
        if mask is not None and (mask[:, 1:] & ~mask[:, :-1]).any():
            raise ValueError("the mask must have all real cells of a row first: a recurrent layer reads without gaps")
        # a row with no real cell is read as one cell, then masked: it gives zeros like everywhere else
        lengths = None if mask is None else mask.sum(1).clamp(min=1).cpu()
        summaries = []
        for number, layer in enumerate(self.layers):
            x = x if number == 0 else self.dropout(x)
            if lengths is None:
                x, last = layer(x)
            else:
                packed, last = layer(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
                x, _ = pad_packed_sequence(packed, batch_first=True, total_length=length)
            last = last[0] if isinstance(last, tuple) else last  # (directions, B, hidden)
            summaries.append(last.transpose(0, 1).flatten(1))
        summary = torch.stack(summaries, dim=1)
        return (x, summary) if mask is None else (x * mask[..., None], summary * mask.any(1)[:, None, None])


@dataclass(frozen=True)
class RecurrentState:
    """What a recurrent decoder carries from step to step, one row per hypothesis."""

    hidden: tuple[Tensor, ...]  # (R, layers, hidden), two of them for an LSTM
    readout: Tensor  # (R, 1, D), fed back where the decoder feeds


@dataclass(frozen=True)
class RecurrentMemory:
    """What a recurrent decoder looks at, one row per sentence."""

    kv: KeyValues | None
    summary: Tensor  # (B, 1, D')


class RecurrentDecoder(nn.Module):
    """A recurrent layer that writes, (R, T, D) embedded tokens -> (R, T, D) readouts.

    Initial law: recurrent weights as `make_cell` says, bridge, readout and gate Xavier uniform with zero biases.
    """

    def __init__(
        self,
        width: int,
        hidden: int,
        *,
        memory_width: int,
        cell: Cell = "gru",
        layers: int = 1,
        context: Context = "look-then-move",
        attention: Attention | None = None,
        feed: bool = False,
        gate: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        attends = context in ("look-then-move", "move-then-look")
        if context not in ("once", "each") and not attends:
            raise ValueError(f"unknown context {context!r}; there are once, each, look-then-move, move-then-look")
        if attends != (attention is not None):
            raise ValueError(f"context {context!r} {'needs an' if attends else 'has no use for an'} attention")
        if gate and context != "look-then-move":
            raise ValueError(f"a gate is for what is seen before the move; got context {context!r}")
        self.context, self.feed, self.attention = context, feed, attention
        self.gate = nn.Linear(hidden, 1) if gate else None
        context_width = {"once": 0, "each": memory_width}.get(context) if attention is None else attention.context_width
        assert context_width is not None
        inputs = width + (context_width if context in ("each", "look-then-move") else 0) + (width if feed else 0)
        self.width = width
        self.cell = make_cell(cell, inputs, hidden, layers=layers)
        states = 2 if cell == "lstm" else 1
        self.bridge = nn.Linear(memory_width, states * layers * hidden)
        self.readout = nn.Linear(width + hidden + context_width, width)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        reset_cell(self.cell)
        xavier(self.bridge)
        xavier(self.readout)
        if self.gate is not None:
            xavier(self.gate)

    def remember(self, states: Tensor, mask: Tensor | None, summary: Tensor) -> RecurrentMemory:
        kv = None if self.attention is None else self.attention.remember(states, mask)
        return RecurrentMemory(kv, summary[:, -1:])

    def begin(self, memory: RecurrentMemory) -> RecurrentState:
        """s_0 = tanh(W h_S + b), for every layer."""
        first = torch.tanh(self.bridge(memory.summary[:, 0]))
        parts = first.unflatten(1, (-1, self.cell.num_layers, self.cell.hidden_size)).unbind(1)
        return RecurrentState(parts, first.new_zeros(len(first), 1, self.width))

    def forward(self, x: Tensor, memory: RecurrentMemory, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """All positions of x after `state`. One call of the recurrent layer does where no step waits for a look."""
        if self.context == "look-then-move" or self.feed:
            outputs = []
            for step in x.split(1, dim=1):
                output, state = self._write(step, memory, state)
                outputs.append(output)
            return torch.cat(outputs, dim=1), state
        return self._write(x, memory, state)

    def _write(self, x: Tensor, memory: RecurrentMemory, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        hidden = state.hidden
        inputs = [x]
        context = None
        if self.context == "look-then-move":
            before = hidden[0][:, -1:]  # s_{t-1} of the top layer asks
            context = self._look(before, memory)
            context = context if self.gate is None else torch.sigmoid(self.gate(before)) * context
            inputs.append(context)
        elif self.context == "each":
            hypotheses = len(x) // len(memory.summary)
            context = memory.summary.repeat_interleave(hypotheses, dim=0).expand(-1, x.shape[1], -1)
            inputs.append(context)
        if self.feed:
            inputs.append(state.readout)
        moved, hidden = self._move(torch.cat(inputs, dim=-1), hidden)
        if self.context == "move-then-look":
            context = self._look(moved, memory)
        seen = [x, moved] if context is None else [x, moved, context]
        readout = self.readout(self.dropout(torch.cat(seen, dim=-1)))
        readout = torch.tanh(readout) if self.context == "move-then-look" else readout
        return self.dropout(readout), RecurrentState(hidden, readout[:, -1:])

    def _look(self, query: Tensor, memory: RecurrentMemory) -> Tensor:
        assert self.attention is not None and memory.kv is not None
        return self.attention(query, memory.kv)

    def _move(self, x: Tensor, hidden: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        layers_first = tuple(part.transpose(0, 1).contiguous() for part in hidden)  # (layers, R, hidden)
        moved, last = self.cell(x, layers_first if len(layers_first) > 1 else layers_first[0])
        parts = last if isinstance(last, tuple) else (last,)
        return moved, tuple(part.transpose(0, 1) for part in parts)


for _tree in (RecurrentState, RecurrentMemory):
    pytree.register_dataclass(_tree)
