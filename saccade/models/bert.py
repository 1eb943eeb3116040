"""BERT (Devlin et al. 2019): blocks that see both sides, trained to say what stood where the text is hidden.

    x = dropout(norm(token + position + segment));  x <- norm(x + Attention(x));  x <- norm(x + FeedForward(x))
    logits = E norm(gelu(W x)) + b        follows = U tanh(W' x_first)

RoBERTa (Liu et al. 2019) is the same model without `follows`. With the base size and its 30,522 pieces there are
110,106,428 parameters, both heads included.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saccade.config.language import BERTSettings
from saccade.models.gpt import published_deviation
from saccade.models.shapes import Memory
from saccade.nn.attention import Attention
from saccade.nn.layers import ACTIVATIONS, Dropout, Embedding, FeedForward, Output, Residual, draw_normal, make_norm
from saccade.nn.positions import Learned
from saccade.nn.stack import Block, Stack


class BERTEncoder(nn.Module):
    """Tokens (B, S), and which text each belongs to -> Memory; its summary is the pooled first position, if any."""

    def __init__(
        self,
        embedding: Embedding,
        stack: Stack,
        *,
        segments: Embedding,
        norm: nn.Module,
        pooler: nn.Linear | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding, self.segments, self.norm = embedding, segments, norm
        self.dropout = Dropout(dropout)
        self.stack = stack
        self.pooler = pooler

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Memory:
        """Without `segments` (B, S) all is one text."""
        segments = torch.zeros_like(tokens) if segments is None else segments
        x = self.dropout(self.norm(self.embedding(tokens) + self.segments(segments)))  # (B, S, D)
        states = self.stack(x, mask=mask)
        summary = None if self.pooler is None else self.pooler(states[:, :1]).tanh()  # (B, 1, D)
        return Memory(states, mask, summary)


class Transform(nn.Module):
    """norm(phi(W x)), between the last state of a position and the logits of its token."""

    def __init__(self, width: int, *, activation: str, norm: nn.Module):
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), norm
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(x)))


class MaskedLanguageModel(nn.Module):
    """p(token at i | everything else): an encoder, and what turns its states into those that `output` reads."""

    def __init__(
        self, encoder: BERTEncoder, transform: Transform, output: Output, *, next_sentence: nn.Linear | None = None
    ):
        super().__init__()
        self.encoder, self.transform, self.output, self.next_sentence = encoder, transform, output, next_sentence

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """States (B, S, D); `output` turns them into logits."""
        return self.transform(self.encoder(tokens, mask, segments).states)

    def follows(self, memory: Memory) -> Tensor:
        """Logits (B, 2): the second text follows the first, or it does not."""
        if self.next_sentence is None or memory.summary is None:
            raise ValueError("this model has no next-sentence head")
        return self.next_sentence(memory.summary[:, 0])


def bert(settings: BERTSettings, size: int, longest: int) -> MaskedLanguageModel:
    """BERT over `size` ids and `longest` positions.

    Initial law: matrices and tables normal with deviation 0.02 sqrt(768 / D), as published at its width of 768; biases
    zero. Positions begin as waves of that deviation, with which a small model learns to read in a fraction of the time.
    """
    width, deviation = settings.width, published_deviation(settings.width)
    positions = Learned(width, longest=longest, deviation=deviation, first=settings.first_position, waves=True)
    embedding = Embedding(size, width, positions=positions, scaled=False)

    def norm() -> nn.Module:
        return make_norm(settings.norm, width, epsilon=settings.epsilon)

    stack = Stack((_block(settings) for _ in range(settings.layers)), norm=norm() if settings.order == "pre" else None)
    encoder = BERTEncoder(
        embedding,
        stack,
        segments=Embedding(settings.segments, width, scaled=False),
        norm=norm(),
        pooler=nn.Linear(width, width) if settings.next_sentence else None,
        dropout=settings.dropout,
    )
    model = MaskedLanguageModel(
        encoder,
        Transform(width, activation=settings.activation, norm=norm()),
        Output(width, size, tied=embedding, bias=True),
        next_sentence=nn.Linear(width, 2) if settings.next_sentence else None,
    )
    draw_normal(model, deviation)
    return model


def _block(settings: BERTSettings) -> Block:
    return Block(
        Attention(settings.width, heads=settings.heads),
        FeedForward(settings.width, settings.hidden or 4 * settings.width, activation=settings.activation),
        residual=lambda: Residual(
            settings.width, order=settings.order, norm=settings.norm, epsilon=settings.epsilon, dropout=settings.dropout
        ),
    )
