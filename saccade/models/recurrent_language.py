"""Recurrent language models (Mikolov et al. 2010; Zaremba et al. 2014), alone or looking back at their own states.

s_t = LSTM(y_t, s_{t-1});  c_t = attend(s_t, s_1 ... s_t);  logits = E W [s_t; c_t]          (Cheng et al. 2016)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saccade.config.language import RecurrentLanguageSettings
from saccade.models.shapes import LanguageModel, Memory
from saccade.models.transformer import FIRST_CAPACITY
from saccade.nn.attention import Attention
from saccade.nn.cache import KeyValues, Past, capacity_for
from saccade.nn.layers import Dropout, Embedding, Output, xavier
from saccade.nn.recurrent import make_cell

State = tuple[tuple[Tensor, ...], KeyValues | None]  # (R, layers, hidden) each, and the earlier states


class RecurrentLanguage(nn.Module):
    """Tokens (R, T) -> states (R, T, D). Initial law: recurrent weights as `make_cell` says, the rest Xavier."""

    def __init__(self, embedding: Embedding, cell: nn.RNNBase, attention: Attention | None, *, dropout: float):
        super().__init__()
        self.embedding, self.cell, self.attention = embedding, cell, attention
        self.readout = nn.Linear(cell.hidden_size * (1 if attention is None else 2), embedding.width)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        xavier(self.readout)

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:  # noqa: ARG002 - it stands alone
        states, _ = self.cell(self.embedding(tokens))
        return self._read(states, None)

    def begin(self, memory: Memory, limit: int) -> Past:
        like, rows = self.embedding.weight, memory.rows
        parts = 2 if self.cell.mode == "LSTM" else 1
        hidden = tuple(like.new_zeros(rows, self.cell.num_layers, self.cell.hidden_size) for _ in range(parts))
        room = min(capacity_for(limit), FIRST_CAPACITY)
        cache = None if self.attention is None else self.attention.cache(rows, room, like)
        return Past((hidden, cache), (), like.new_zeros(rows).long())

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        past = past.room_for(tokens.shape[1])
        hidden, cache = past.state
        first = tuple(part.transpose(0, 1).contiguous() for part in hidden)  # (layers, R, hidden)
        states, last = self.cell(self.embedding(tokens), first if len(first) > 1 else first[0])
        moved = tuple(part.transpose(0, 1) for part in (last if isinstance(last, tuple) else (last,)))
        read = self._read(states, None if cache is None else cache.since(past.position))
        return read, past.advanced((moved, cache), tokens.shape[1])

    def _read(self, states: Tensor, past: KeyValues | None) -> Tensor:
        if self.attention is None:
            return self.dropout(self.readout(self.dropout(states)))
        kv = self.attention.remember(states)
        seen = self.attention(states, kv if past is None else past.append(kv))
        return self.dropout(self.readout(self.dropout(torch.cat([states, seen], dim=-1))))


def recurrent_language(settings: RecurrentLanguageSettings, size: int, longest: int) -> LanguageModel:  # noqa: ARG001
    """A recurrent language model over `size` ids; it has no longest text."""
    embedding = Embedding(size, settings.width, dropout=settings.dropout)
    cell = make_cell(settings.cell, settings.width, settings.hidden, layers=settings.layers)
    attention = Attention(settings.hidden, heads=settings.heads, causal=True) if settings.attend else None
    decoder = RecurrentLanguage(embedding, cell, attention, dropout=settings.dropout)
    return LanguageModel(decoder, Output(settings.width, size, tied=embedding if settings.tie else None))
