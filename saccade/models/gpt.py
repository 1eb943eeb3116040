"""GPT (Radford et al. 2018, 2019): causal blocks without a memory, pre-norm, learned positions.

    x = token + position;  x <- x + Attention(norm(x));  x <- x + FeedForward(norm(x));  logits = E norm(x)

With rotary positions, RMS norms, gated feed-forward layers and grouped heads the same page is what came after it.
"""

from __future__ import annotations

import math

from torch import nn

from saccade.config.language import GPTSettings
from saccade.models.shapes import LanguageModel
from saccade.models.transformer import TransformerDecoder
from saccade.nn.attention import Attention
from saccade.nn.layers import Embedding, FeedForward, Output, Residual, draw_normal, make_norm
from saccade.nn.positions import AttentionPositions, Learned, Positions, RelativeBias, Rotary, Sinusoidal
from saccade.nn.scores import RelativeDot, Score
from saccade.nn.stack import Block, Stack

PUBLISHED_DEVIATION, PUBLISHED_WIDTH = 0.02, 768  # of the initial weights of GPT-2 and BERT


def gpt(settings: GPTSettings, size: int, longest: int) -> LanguageModel:
    """A language model over `size` ids; learned positions reach `longest`.

    Initial law: matrices normal with deviation 0.02 sqrt(768 / D), as published at its width of 768; those that write
    into the residual path divided by sqrt(2 N), so that their sum does not grow with depth; biases zero.
    """
    width, deviation = settings.width, published_deviation(settings.width)
    positions: Positions | None = None
    if settings.positions == "learned":
        positions = Learned(width, longest=longest, deviation=deviation)
    elif settings.positions == "sinusoidal":
        positions = Sinusoidal(width, layout=settings.layout)
    embedding = Embedding(size, width, positions=positions, scaled=False, dropout=settings.dropout)
    stack = Stack((_block(settings) for _ in range(settings.layers)), norm=_norm(settings))
    output = Output(width, size, tied=embedding if settings.tie else None)
    model = LanguageModel(TransformerDecoder(embedding, stack, cross=False), output)
    _draw(model, stack, deviation)
    return model


def published_deviation(width: int) -> float:
    """Of initial weights: as published at its width, and at any other so that sums have the same variance."""
    return PUBLISHED_DEVIATION * math.sqrt(PUBLISHED_WIDTH / width)


def _block(settings: GPTSettings) -> Block:
    inside: AttentionPositions | None = None
    score: Score | None = None
    key_width = settings.width // settings.heads
    if settings.positions == "rotary":
        inside = Rotary(key_width, layout=settings.layout)
    elif settings.positions == "relative":
        inside = RelativeBias(settings.heads)
    elif settings.positions == "distances":
        score = RelativeDot(key_width, heads=settings.heads, width=settings.width)
    return Block(
        Attention(
            settings.width,
            heads=settings.heads,
            kv_heads=settings.kv_heads,
            causal=True,
            score=score,
            positions=inside,
        ),
        FeedForward(settings.width, settings.hidden or 4 * settings.width, activation=settings.activation),
        residual=lambda: Residual(
            settings.width, norm=settings.norm, epsilon=settings.epsilon, dropout=settings.dropout
        ),
    )


def _norm(settings: GPTSettings) -> nn.Module:
    return make_norm(settings.norm, settings.width, epsilon=settings.epsilon)


def _draw(model: LanguageModel, stack: Stack, deviation: float) -> None:
    draw_normal(model, deviation)
    for block in stack.blocks:
        for last in (block.attention.output, block.feed_forward.contract):
            assert isinstance(last, nn.Linear)
            nn.init.normal_(last.weight, std=deviation / math.sqrt(2 * len(stack.blocks)))
