"""From speech to letters: a recurrent listener and speller, and a Transformer that hears.

    listen:  h = pyramid(x),  a position for every 2^halvings frames
    spell:   c_t = attend(s_{t-1}, h),  s_t = LSTM(y_{t-1}, c_t, s_{t-1}),  p(y_t) from [y_{t-1}; s_t; c_t]

Chan et al. 2016, "Listen, attend and spell"; its attention is Bahdanau's, and the speller starts from the mean of what
was heard. The Transformer reads frames that two convolutions have quartered in time, as in Dong et al. 2018,
"Speech-Transformer".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saccade.config.models import TransformerSettings
from saccade.config.sound import ListenAttendSpellSettings, SpeechTransformerSettings
from saccade.models.seq2seq import look_then_move, with_writer
from saccade.models.shapes import EncoderDecoder, Memory, pooled
from saccade.models.transformer import TransformerDecoder, make_embedding, make_stack
from saccade.nn.layers import Dropout, Output
from saccade.nn.positions import Sinusoidal
from saccade.nn.pyramid import Pyramid, Subsample
from saccade.nn.stack import Stack


class Listener(nn.Module):
    """Frames (B, T, F) -> Memory of the shortened time, with the mean of its states as summary."""

    def __init__(self, pyramid: Pyramid):
        super().__init__()
        self.pyramid = pyramid

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        memory = Memory(*self.pyramid(source, mask))
        return Memory(memory.states, memory.mask, pooled(memory, "mean")[:, None])


class HearingEncoder(nn.Module):
    """Frames (B, T, F) -> Memory of a quarter of the time."""

    def __init__(self, subsample: Subsample, stack: Stack, *, dropout: float = 0.0):
        super().__init__()
        self.subsample, self.stack = subsample, stack
        self.positions = Sinusoidal(subsample.width)
        self.dropout = Dropout(dropout)

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        x, mask = self.subsample(source, mask)  # (B, T / 4, D)
        place = self.positions(torch.arange(x.shape[1], device=x.device), x.shape[1]).to(x.dtype)
        return Memory(self.stack(self.dropout(x + place), mask=mask), mask)


def listen_attend_spell(settings: ListenAttendSpellSettings, features: int, target_size: int) -> EncoderDecoder:
    """A pyramid of LSTMs in both directions, and a writer that looks at it before each letter."""
    pyramid = Pyramid(features, settings.listener, halvings=settings.halvings, dropout=settings.dropout)
    return with_writer(
        Listener(pyramid), look_then_move(settings, pyramid.width), target_size, dropout=settings.dropout
    )


def speech_transformer(settings: SpeechTransformerSettings, features: int, target_size: int) -> EncoderDecoder:
    """The Transformer with frames in place of source tokens."""
    shape = TransformerSettings(
        width=settings.width, heads=settings.heads, hidden=settings.hidden, dropout=settings.dropout
    )
    encoder = HearingEncoder(
        Subsample(features, settings.width), make_stack(shape, settings.encoder_layers), dropout=settings.dropout
    )
    embedding = make_embedding(shape, target_size)
    writer = make_stack(shape, settings.decoder_layers, causal=True, cross=True)
    return EncoderDecoder(
        encoder,
        TransformerDecoder(embedding, writer, cross=True),
        Output(settings.width, target_size, tied=embedding),
    )
