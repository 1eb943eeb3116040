"""From an instruction to actions in a world: words are heard once, and read again at each step with what is seen there.

    listen:  x_j = embedding of word j,  h_j = [forward LSTM; backward LSTM] of x
    attend:  z_t = sum_j alpha_tj [x_j; h_j],  alpha_t = softmax over j of v . tanh(W s_{t-1} + U x_j + V h_j)
    walk:    e_t = E o(p_t),  s_t = LSTM(e_t, z_t, s_{t-1}),  p(a_t) from [e_t; s_t; z_t],  p_{t+1} = m(p_t, a_t)

Mei, Bansal and Walter 2016, "Listen, attend, and walk". The world is two tables: o, what is seen from each pose, and m,
where each action leads. The number of the pose p_t is a part of the decoder's state, so a search that follows a
hypothesis follows its walker. A source is the number of the first pose and then words: (B, 1 + S).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from saccade.config.walks import ListenAttendWalkSettings
from saccade.models.seq2seq import look_then_move, without_attention
from saccade.models.shapes import EncoderDecoder, Memory, pooled
from saccade.nn.cache import Past
from saccade.nn.layers import Dropout, Embedding, Output, xavier
from saccade.nn.recurrent import RecurrentDecoder, RecurrentEncoder, RecurrentState


@dataclass(frozen=True)
class Instruction(Memory):
    """What was heard, and where the walk begins."""

    start: Tensor | None = None  # (B,) number of a pose


@dataclass(frozen=True)
class Walk:
    """What a walker carries from step to step, one row per hypothesis."""

    pose: Tensor  # (R,) number of a pose
    state: RecurrentState


class Listener(nn.Module):
    """The number of a pose and words (B, 1 + S) -> Instruction: each word's vector beside its state.

    The summary is the mean of the vectors beside the last states.
    """

    def __init__(self, embedding: Embedding, layers: RecurrentEncoder):
        super().__init__()
        self.embedding, self.layers = embedding, layers

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Instruction:
        start, words = source[:, 0], self.embedding(source[:, 1:])  # (B,), (B, S, D)
        mask = None if mask is None else mask[:, 1:]
        states, last = self.layers(words, mask)
        mean = pooled(Memory(words, mask), "mean")[:, None]  # (B, 1, D)
        return Instruction(
            torch.cat([words, states], dim=-1), mask, torch.cat([mean, last[:, -1:]], dim=-1), start=start
        )


class Walker(nn.Module):
    """Actions (R, T) and an instruction -> readouts (R, T, D), each with what is seen after the action before it.

    `observations` (poses, features) and `moves` (poses, actions) are the world. Initial law: Xavier uniform, bias zero.
    """

    observations: Tensor
    moves: Tensor

    def __init__(self, observations: Tensor, moves: Tensor, writer: RecurrentDecoder, *, dropout: float):
        super().__init__()
        self.register_buffer("observations", observations)
        self.register_buffer("moves", moves)
        self.see = nn.Linear(observations.shape[1], writer.width)
        self.writer, self.dropout = writer, Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        xavier(self.see)

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        states, _ = self.step(tokens, self.begin(memory, tokens.shape[1]))
        return states

    def begin(self, memory: Memory, limit: int) -> Past:  # noqa: ARG002
        start = getattr(memory, "start", None)
        if start is None or memory.summary is None:
            raise ValueError("a walk begins somewhere, and this encoder does not say where")
        remembered = self.writer.remember(memory.states, memory.mask, memory.summary)
        return Past(Walk(start, self.writer.begin(remembered)), remembered, torch.zeros_like(start))

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        pose, poses = past.state.pose, []
        for action in tokens.unbind(1):
            pose = self.moves[pose, action]
            poses.append(pose)
        seen = self.see(self.observations[torch.stack(poses, dim=1)])  # (R, t, D)
        states, state = self.writer(self.dropout(seen), past.memory, past.state.state)
        return states, past.advanced(Walk(pose, state), tokens.shape[1])


def listen_attend_walk(
    settings: ListenAttendWalkSettings, words: int, observations: Tensor, moves: Tensor
) -> EncoderDecoder:
    """A walker in the world of two tables, whose actions are the columns of `moves`."""
    listener = Listener(
        Embedding(words, settings.width, dropout=settings.dropout),
        RecurrentEncoder(
            settings.width,
            settings.hidden,
            cell=settings.cell,
            layers=settings.layers,
            dropout=settings.dropout,
        ),
    )
    memory_width = settings.width + listener.layers.width
    writer = (look_then_move if settings.attend else without_attention)(settings, memory_width)
    walker = Walker(observations, moves, writer, dropout=settings.dropout)
    return EncoderDecoder(listener, walker, Output(settings.width, moves.shape[1]))


for _tree in (Instruction, Walk):
    pytree.register_dataclass(_tree)
