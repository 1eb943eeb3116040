"""Sequence-to-sequence models before the Transformer: recurrent without and with attention, and convolutional.

Sutskever et al. (2014) and Cho et al. (2014) squeeze the source into one vector; Bahdanau et al. (2015) and Luong et
al. (2015) look back at all of it; Gehring et al. (2017) do without recurrence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor, nn

from saccade.config.models import BahdanauSettings, ConvolutionalSettings, LuongSettings, SutskeverSettings
from saccade.models.shapes import Encoder, EncoderDecoder, Memory
from saccade.nn.attention import Attention, Projections
from saccade.nn.cache import Past
from saccade.nn.convolution import ConvolutionDecoder, ConvolutionEncoder
from saccade.nn.layers import Embedding, Output
from saccade.nn.positions import Learned
from saccade.nn.recurrent import Cell, Context, RecurrentDecoder, RecurrentEncoder
from saccade.nn.scores import Additive, Bilinear, Dot, Score

RecurrentSettings = SutskeverSettings | BahdanauSettings | LuongSettings


class WriterSettings(Protocol):
    """What a recurrent decoder that looks before it moves is made of, whatever it looks at."""

    @property
    def width(self) -> int: ...

    @property
    def hidden(self) -> int: ...

    @property
    def layers(self) -> int: ...

    @property
    def cell(self) -> Cell: ...

    @property
    def dropout(self) -> float: ...


class RecurrentTokenEncoder(nn.Module):
    """Tokens (B, S) -> Memory with the last states as summary."""

    def __init__(self, embedding: Embedding, layers: RecurrentEncoder):
        super().__init__()
        self.embedding, self.layers = embedding, layers

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        states, summary = self.layers(self.embedding(source), mask)
        return Memory(states, mask, summary)


class RecurrentTokenDecoder(nn.Module):
    """Tokens (R, T) and a memory -> readouts (R, T, D)."""

    def __init__(self, embedding: Embedding, writer: RecurrentDecoder):
        super().__init__()
        self.embedding, self.writer = embedding, writer

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        states, _ = self.step(tokens, self.begin(memory, tokens.shape[1]))
        return states

    def begin(self, memory: Memory, limit: int) -> Past:  # noqa: ARG002
        if memory.summary is None:
            raise ValueError("a recurrent decoder starts from the encoder's summary, and this encoder gives none")
        remembered = self.writer.remember(memory.states, memory.mask, memory.summary)
        return Past(self.writer.begin(remembered), remembered, memory.states.new_zeros(memory.rows).long())

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        states, state = self.writer(self.embedding(tokens), past.memory, past.state)
        return states, past.advanced(state, tokens.shape[1])


class ConvolutionTokenEncoder(nn.Module):
    """Tokens (B, S) -> Memory."""

    def __init__(self, embedding: Embedding, layers: ConvolutionEncoder):
        super().__init__()
        self.embedding, self.layers = embedding, layers

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        return Memory(self.layers(self.embedding(source), mask), mask)


class ConvolutionTokenDecoder(nn.Module):
    """Tokens (R, T) and a memory -> states (R, T, D)."""

    def __init__(self, embedding: Embedding, layers: ConvolutionDecoder):
        super().__init__()
        self.embedding, self.layers = embedding, layers

    def forward(self, tokens: Tensor, memory: Memory) -> Tensor:
        states, _ = self.step(tokens, self.begin(memory, tokens.shape[1]))
        return states

    def begin(self, memory: Memory, limit: int) -> Past:  # noqa: ARG002
        state = self.layers.begin(memory.rows, memory.states)
        return Past(
            state, self.layers.remember(memory.states, memory.mask), memory.states.new_zeros(memory.rows).long()
        )

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        steps = tokens.shape[1]
        at = past.position[:, None] + past.position.new_ones(steps).cumsum(0) - 1  # (R, t)
        states, state = self.layers(self.embedding(tokens, at), past.memory, past.state)
        return states, past.advanced(state, steps)


def sutskever(settings: SutskeverSettings, source_size: int, target_size: int) -> EncoderDecoder:
    """Encoder and decoder joined by one vector of fixed size, given once or at each step."""
    encoder = _recurrent_encoder(settings, source_size)
    writer = without_attention(settings, encoder.layers.width, context=settings.context)
    return with_writer(encoder, writer, target_size, dropout=settings.dropout)


def bahdanau(settings: BahdanauSettings, source_size: int, target_size: int) -> EncoderDecoder:
    """Look, then move: v . tanh(W s_{t-1} + U h_i) chooses what of the encoder's states is read."""
    encoder = _recurrent_encoder(settings, source_size)
    return with_writer(encoder, look_then_move(settings, encoder.layers.width), target_size, dropout=settings.dropout)


def luong(settings: LuongSettings, source_size: int, target_size: int) -> EncoderDecoder:
    """Move, then look: the new state asks; what was read out may be fed to the next step."""
    encoder = _recurrent_encoder(settings, source_size)
    memory_width = encoder.layers.width
    scores: dict[str, Callable[[], Score]] = {
        "dot": Dot,
        "bilinear": lambda: Bilinear(settings.hidden, memory_width),
        "additive": lambda: Additive(settings.hidden),
    }
    projected = settings.score == "additive"
    # a plain dot product needs keys of the query's width; where the encoder is wider they are projected
    fit = settings.score == "dot" and memory_width != settings.hidden
    attention = Attention(
        settings.hidden,
        memory_width=memory_width,
        score=scores[settings.score](),
        project=Projections(
            query=projected, key=projected or fit, value=False, output=False, bias=projected, key_width=settings.hidden
        ),
    )
    writer = RecurrentDecoder(
        settings.width,
        settings.hidden,
        memory_width=memory_width,
        cell=settings.cell,
        layers=settings.layers,
        context="move-then-look",
        attention=attention,
        feed=settings.feed,
        dropout=settings.dropout,
    )
    return with_writer(encoder, writer, target_size, dropout=settings.dropout)


def convolutional(settings: ConvolutionalSettings, source_size: int, target_size: int) -> EncoderDecoder:
    """Gated convolutions on both sides, an attention after each of the decoder's.

    Places begin as quiet waves: random ones, as loud as the words, have to be unlearned before a convolution sees
    words at all (docs/log.md).
    """

    def embedding(size: int) -> Embedding:
        positions = Learned(settings.width, longest=settings.longest, deviation=0.3, waves=True)
        return Embedding(size, settings.width, positions=positions, dropout=settings.dropout)

    layers = ConvolutionEncoder(
        settings.width, layers=settings.layers, kernel=settings.kernel, dropout=settings.dropout
    )
    attentions = (Attention(settings.width, heads=settings.heads) for _ in range(settings.layers))
    decoder = ConvolutionDecoder(settings.width, attentions, kernel=settings.kernel, dropout=settings.dropout)
    return EncoderDecoder(
        ConvolutionTokenEncoder(embedding(source_size), layers),
        ConvolutionTokenDecoder(embedding(target_size), decoder),
        Output(settings.width, target_size),
    )


def look_then_move(settings: WriterSettings, memory_width: int, *, gate: bool = False) -> RecurrentDecoder:
    """A writer with additive attention to any memory of that width, and perhaps a gate for what it sees."""
    attention = Attention(
        settings.hidden,
        memory_width=memory_width,
        score=Additive(settings.hidden),
        project=Projections(value=False, output=False, key_width=settings.hidden),
    )
    return RecurrentDecoder(
        settings.width,
        settings.hidden,
        memory_width=memory_width,
        cell=settings.cell,
        layers=settings.layers,
        context="look-then-move",
        attention=attention,
        gate=gate,
        dropout=settings.dropout,
    )


def without_attention(settings: WriterSettings, memory_width: int, *, context: Context = "each") -> RecurrentDecoder:
    """A writer that is given the summary of any memory of that width, once or at each step."""
    return RecurrentDecoder(
        settings.width,
        settings.hidden,
        memory_width=memory_width,
        cell=settings.cell,
        layers=settings.layers,
        context=context,
        dropout=settings.dropout,
    )


def with_writer(encoder: Encoder, writer: RecurrentDecoder, target_size: int, *, dropout: float) -> EncoderDecoder:
    """Any encoder that gives a summary, and a recurrent writer of tokens."""
    embedding = Embedding(target_size, writer.width, dropout=dropout)
    return EncoderDecoder(encoder, RecurrentTokenDecoder(embedding, writer), Output(writer.width, target_size))


def _recurrent_encoder(settings: RecurrentSettings, source_size: int) -> RecurrentTokenEncoder:
    layers = RecurrentEncoder(
        settings.width,
        settings.hidden,
        cell=settings.cell,
        layers=settings.layers,
        bidirectional=settings.bidirectional,
        dropout=settings.dropout,
    )
    return RecurrentTokenEncoder(Embedding(source_size, settings.width, dropout=settings.dropout), layers)
