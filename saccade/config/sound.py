"""Settings of what hears: the task of transcribing speech, and the models that do it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.base import Broken, Count, Float, Positive, Settings, Share, require_divisor

Seconds = Annotated[Float, Field(gt=0)]


class TranscribeSettings(Settings):
    """From recorded speech to its text, letter by letter."""

    kind: Literal["transcribe"] = "transcribe"
    # a .tsv with a sound file and its transcript in each line; an archive or folder of single spoken digits; or a
    # folder with train.npz and train.tsv, which are frames that somebody has made
    data: str
    valid: str | None = None  # another .tsv; none: a part of the data is held out
    test: str | None = None
    broken: Broken = "skip"  # recordings that cannot be read; refuse: the first of them is an error
    rate: Annotated[int, Field(ge=4000, le=48000)] | None = None  # samples a second; none: as most of the data has it
    features: Positive | None = None  # numbers in a ready-made frame; none: as the data has it, or it is sound
    mels: Positive = 40  # bands of a frame
    cepstra: Positive | None = None  # coefficients made of the bands, and read in their place with their slopes
    window: Seconds = 0.025
    hop: Seconds = 0.01  # from frame to frame
    longest: Seconds = 20.0  # longer recordings are left out
    augment: Share = 0.0  # share of bands, and of the time, that each of two stripes may hide in training; 0: none
    valid_examples: Positive = 200  # that are transcribed at each evaluation
    strings: Positive = 6000  # of single digits, joined to be trained with ...
    fewest: Positive = 2  # ... with so many digits at least ...
    most: Positive = 5  # ... and at most
    seed: Count = 1  # of the strings

    @model_validator(mode="after")
    def _fits(self) -> TranscribeSettings:
        if self.fewest > self.most:
            raise ValueError(f"fewest {self.fewest} is above most {self.most}")
        if self.cepstra is not None and self.cepstra > self.mels:
            raise ValueError(f"cepstra {self.cepstra} is above mels {self.mels}, of which they are made")
        return self


class ListenAttendSpellSettings(Settings):
    """A pyramid of LSTMs listens, a recurrent decoder attends and spells."""

    kind: Literal["listen_attend_spell"] = "listen_attend_spell"
    listener: Positive = 128  # states of each direction of the pyramid
    halvings: Count = 3  # of time, one above the other
    width: Positive = 64  # of letter vectors
    hidden: Positive = 256  # states of the speller
    layers: Positive = 1  # of the speller
    cell: Literal["gru", "lstm"] = "lstm"  # of the speller
    dropout: Share = 0.1

    @property
    def stride(self) -> int:
        """Frames that a position of the memory stands for."""
        return int(2**self.halvings)


class SpeechTransformerSettings(Settings):
    """Two convolutions that quarter the time, then a Transformer."""

    kind: Literal["speech_transformer"] = "speech_transformer"
    width: Positive = 128
    heads: Positive = 4
    hidden: Positive = 512  # of the feed-forward layers
    encoder_layers: Positive = 4
    decoder_layers: Positive = 2
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fits(self) -> SpeechTransformerSettings:
        require_divisor("heads", self.heads, "width", self.width)
        if self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width; got {self.width}")
        return self

    @property
    def stride(self) -> int:
        """Frames that a position of the memory stands for."""
        return 4
