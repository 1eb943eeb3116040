"""XLNet (Yang et al. 2019): every token predicted from those before it in an order, and any order will do.

    content stream:  h_i <- block(h_i, {h_j : rank_j <= rank_i})     knows what stands at i
    query stream:    g_i <- block(g_i, {h_j : rank_j <  rank_i})     knows where it is asked, not what stands there
    logits of x_i, given all of lower rank:  E g_i + b

Both streams are the same blocks, with the relative attention of Transformer-XL (Dai et al. 2019). Left out: the memory
of the window before, and relative encodings of segments, which are for pairs of texts.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saccade.config.language import XLNetSettings
from saccade.models.gpt import published_deviation
from saccade.models.shapes import Memory
from saccade.nn.attention import Attention, Projections
from saccade.nn.layers import Embedding, FeedForward, Output, Residual, draw_normal
from saccade.nn.scores import RelativeDot
from saccade.nn.stack import Block, Stack


class XLNetEncoder(nn.Module):
    """Tokens (B, S) -> Memory: the content stream alone, all seeing all."""

    def __init__(self, embedding: Embedding, stack: Stack):
        super().__init__()
        self.embedding, self.stack = embedding, stack

    def forward(self, tokens: Tensor, mask: Tensor | None = None, segments: Tensor | None = None) -> Memory:
        if segments is not None:
            raise ValueError("this model has no segments: two texts are told apart by the mark between them")
        return Memory(self.stack(self.embedding(tokens), mask=mask), mask)


class PermutedLanguageModel(nn.Module):
    """p(x) = prod over i of p(x_i | x_j of lower rank), for ranks (B, S) in any order.

    Tokens of one rank see each other, but do not help to predict each other.
    """

    def __init__(self, encoder: XLNetEncoder, output: Output):
        super().__init__()
        self.encoder, self.output = encoder, output
        self.question = nn.Parameter(torch.empty(encoder.embedding.width))  # where the query stream begins

    def forward(self, tokens: Tensor, mask: Tensor | None, rank: Tensor) -> Tensor:
        """States of the query stream (B, S, D), which `output` turns into logits."""
        return self.streams(tokens, mask, rank)[1]

    def streams(self, tokens: Tensor, mask: Tensor | None, rank: Tensor) -> tuple[Tensor, Tensor]:
        """Content and query, both (B, S, D)."""
        known = rank[:, None, None, :] <= rank[:, None, :, None]  # (B, 1, T, S)
        before = rank[:, None, None, :] < rank[:, None, :, None]
        content = self.encoder.embedding(tokens)
        query = self.encoder.embedding.dropout(self.question.expand_as(content))
        for block in self.encoder.stack.blocks:
            content, query = _both(block, content, query, mask, (known, before))
        return content, query


def _both(
    block: Block, content: Tensor, query: Tensor, mask: Tensor | None, allowed: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """One block for both streams: each asks, and what is remembered is the content."""
    memory = block.attention.remember(content, mask)
    after = (
        block.around_attention(x, lambda h, seen=seen: block.attention(h, memory, seen))
        for x, seen in zip((content, query), allowed, strict=True)
    )
    content, query = (block.around_feed_forward(x, block.feed_forward) for x in after)
    return content, query


def xlnet(settings: XLNetSettings, size: int, longest: int) -> PermutedLanguageModel:  # noqa: ARG001
    """XLNet over `size` ids; distances have no end, so that any length can be read.

    Initial law: matrices and tables normal with deviation 0.02 sqrt(768 / D), as published at a width of 768; biases
    zero.
    """
    deviation = published_deviation(settings.width)
    embedding = Embedding(size, settings.width, scaled=False, dropout=settings.dropout)
    encoder = XLNetEncoder(embedding, Stack(_block(settings) for _ in range(settings.layers)))
    model = PermutedLanguageModel(encoder, Output(settings.width, size, tied=embedding, bias=True))
    draw_normal(model, deviation)
    nn.init.normal_(model.question, std=deviation)
    return model


def _block(settings: XLNetSettings) -> Block:
    width, heads = settings.width, settings.heads
    score = RelativeDot(width // heads, heads=heads, width=width)
    return Block(
        Attention(width, heads=heads, score=score, project=Projections(bias=False)),
        FeedForward(width, settings.hidden or 4 * width, activation=settings.activation),
        residual=lambda: Residual(width, order="post", epsilon=settings.epsilon, dropout=settings.dropout),
    )
