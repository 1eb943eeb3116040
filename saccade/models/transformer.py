"""The Transformer (Vaswani et al. 2017): encoder and decoder stacks of self-attention, cross-attention and
feed-forward.

With 37,000 shared pieces the base model has 63,082,496 parameters and the big one 214,245,376; the paper rounds to 65M
and 213M.
"""

from __future__ import annotations

from torch import Tensor, nn

from saccade.config.models import TransformerSettings
from saccade.models.shapes import EncoderDecoder, Memory
from saccade.models.swift import swift_decoder
from saccade.models.swift_encoder import swift_encoder
from saccade.nn.attention import Attention
from saccade.nn.cache import KeyValues, Past, capacity_for
from saccade.nn.layers import Embedding, FeedForward, Output, Residual, make_norm
from saccade.nn.packed import Precision
from saccade.nn.positions import AttentionPositions, Learned, Positions, RelativeBias, Rotary, Sinusoidal
from saccade.nn.stack import Block, Stack

FIRST_CAPACITY = 64  # cells that a cache starts with at most; it doubles when full


class TransformerEncoder(nn.Module):
    """Tokens (B, S) -> Memory."""

    def __init__(self, embedding: Embedding, stack: Stack):
        super().__init__()
        self.embedding, self.stack = embedding, stack

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        return Memory(self.stack(self.embedding(source), mask=mask), mask)

    def ready(self, packed: TransformerEncoder, precision: Precision) -> nn.Module:
        """The same encoder for reading what is not trained on, with the maps of its packed copy."""
        return swift_encoder(self, packed, precision)


class TransformerDecoder(nn.Module):
    """Tokens (R, T), and a memory where the blocks have cross-attention -> states (R, T, D)."""

    def __init__(self, embedding: Embedding, stack: Stack, *, cross: bool):
        super().__init__()
        self.embedding, self.stack, self.cross = embedding, stack, cross

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        # padding comes after the real tokens, where causality hides it already: no mask, so the kernel's own triangle
        # does
        return self.stack(self.embedding(tokens), memory=self.remember(memory))

    def begin(self, memory: Memory, limit: int) -> Past:
        like = self.embedding.weight
        caches = self.stack.cache(memory.rows, min(capacity_for(limit), FIRST_CAPACITY), like)
        return Past(caches, self.remember(memory), like.new_zeros(memory.rows).long())

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        steps = tokens.shape[1]
        past = past.room_for(steps)
        at = past.position[:, None] + past.position.new_ones(steps).cumsum(0) - 1  # (R, t)
        caches = tuple(cache.since(past.position) for cache in past.state)
        states = self.stack(self.embedding(tokens, at), memory=past.memory, past=caches)
        return states, past.advanced(past.state, steps)

    def ready(self, packed: TransformerDecoder, precision: Precision) -> nn.Module:
        """The same decoder for writing, with the maps of its packed copy."""
        return swift_decoder(self, packed, precision)

    def remember(self, memory: Memory) -> tuple[KeyValues, ...] | None:
        return self.stack.remember(memory.states, memory.mask) if self.cross else None


def transformer(settings: TransformerSettings, source_size: int, target_size: int) -> EncoderDecoder:
    """A Transformer from source to target tokens; tied as the settings say."""
    source = make_embedding(settings, source_size)
    if settings.tie == "all" and source_size != target_size:
        raise ValueError(
            f"tie 'all' needs one vocabulary for both sides, and there are {source_size} and {target_size} pieces; "
            "use tie 'output' instead"
        )
    target = source if settings.tie == "all" else make_embedding(settings, target_size)
    encoder = TransformerEncoder(source, make_stack(settings, settings.encoder_layers))
    decoder = TransformerDecoder(
        target, make_stack(settings, settings.decoder_layers, causal=True, cross=True), cross=True
    )
    tied = None if settings.tie == "none" else target
    return EncoderDecoder(encoder, decoder, Output(settings.width, target_size, tied=tied, bias=settings.output_bias))


def make_embedding(settings: TransformerSettings, size: int) -> Embedding:
    """Token table with the input positions of the settings, if these are of that sort."""
    width = settings.width // 2 if settings.combine == "concatenate" else settings.width
    positions: Positions | None = None
    if settings.positions == "sinusoidal":
        positions = Sinusoidal(width, layout=settings.layout)
    elif settings.positions == "learned":
        positions = Learned(width, longest=settings.longest, deviation=1.0)  # beside token vectors of variance one
    return Embedding(
        size,
        settings.width,
        positions=positions,
        combine=settings.combine,
        scaled=settings.scaled,
        dropout=settings.dropout,
    )


def make_stack(settings: TransformerSettings, layers: int, *, causal: bool = False, cross: bool = False) -> Stack:
    """Blocks of the settings, each with its own draw of initial weights."""

    def residual() -> Residual:
        return Residual(
            settings.width,
            order=settings.order,
            norm=settings.norm,
            epsilon=settings.epsilon,
            dropout=settings.dropout,
        )

    def block() -> Block:
        attention = Attention(
            settings.width,
            heads=settings.heads,
            kv_heads=settings.kv_heads,
            causal=causal,
            positions=_attention_positions(settings),
            dropout=settings.attention_dropout,
        )
        return Block(
            attention,
            FeedForward(settings.width, settings.hidden, activation=settings.activation, dropout=settings.dropout),
            cross=Attention(settings.width, heads=settings.heads, dropout=settings.attention_dropout)
            if cross
            else None,
            residual=residual,
        )

    norm = make_norm(settings.norm, settings.width, epsilon=settings.epsilon) if settings.order == "pre" else None
    return Stack((block() for _ in range(layers)), norm=norm)


def _attention_positions(settings: TransformerSettings) -> AttentionPositions | None:
    if settings.positions == "rotary":
        return Rotary(settings.width // settings.heads, layout=settings.layout)
    if settings.positions == "relative":
        return RelativeBias(settings.heads)
    return None
