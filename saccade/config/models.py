"""Settings of the models, one class per name in MODELS; defaults are small enough for a processor."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.base import Epsilon, Positive, Settings, Share, require_divisor
from saccade.config.captions import CaptionTransformerSettings, ShowAttendTellSettings
from saccade.config.images import ClipSettings, CNNSettings, EfficientNetSettings, ViTSettings
from saccade.config.interaction import ShowAttendInteractSettings
from saccade.config.language import Activation, BERTSettings, GPTSettings, RecurrentLanguageSettings, XLNetSettings
from saccade.config.questions import StackedAttentionSettings, VQATransformerSettings
from saccade.config.regression import KernelSettings
from saccade.config.sound import ListenAttendSpellSettings, SpeechTransformerSettings
from saccade.config.walks import ListenAttendWalkSettings

Cell = Literal["rnn", "gru", "lstm"]


class SutskeverSettings(Settings):
    """Recurrent, without attention: the whole source in one vector."""

    kind: Literal["sutskever"] = "sutskever"
    width: Positive = 64  # of token vectors
    hidden: Positive = 128  # of recurrent states
    layers: Positive = 1
    cell: Cell = "gru"
    bidirectional: bool = True
    context: Literal["once", "each"] = "once"  # when the decoder is given that vector
    dropout: Share = 0.1


class BahdanauSettings(Settings):
    """Recurrent with additive attention, looking before each move."""

    kind: Literal["bahdanau"] = "bahdanau"
    width: Positive = 64
    hidden: Positive = 128
    layers: Positive = 1
    cell: Cell = "gru"
    bidirectional: bool = True
    dropout: Share = 0.1


class LuongSettings(Settings):
    """Recurrent with multiplicative attention, looking after each move."""

    kind: Literal["luong"] = "luong"
    width: Positive = 64
    hidden: Positive = 128
    layers: Positive = 1
    cell: Cell = "lstm"
    bidirectional: bool = True
    score: Literal["dot", "bilinear", "additive"] = "bilinear"
    feed: bool = True  # feed what was read out to the next step
    dropout: Share = 0.1


class ConvolutionalSettings(Settings):
    """Gated convolutions with attention."""

    kind: Literal["convolutional"] = "convolutional"
    width: Positive = 128
    layers: Positive = 3
    kernel: Positive = 3
    heads: Positive = 1
    longest: Positive = 256  # positions that can be told apart
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fits(self) -> ConvolutionalSettings:
        require_divisor("heads", self.heads, "width", self.width)
        if self.kernel % 2 == 0:
            raise ValueError(
                f"kernel must be odd, to see as far left as right; got {self.kernel}, try {self.kernel + 1}"
            )
        return self


class TransformerSettings(Settings):
    """The Transformer; the defaults are the tiny size for small data on a processor."""

    kind: Literal["transformer"] = "transformer"
    width: Positive = 128
    heads: Positive = 4
    kv_heads: Positive | None = None  # fewer key-value heads than heads: grouped attention
    hidden: Positive = 256  # of the feed-forward layers
    encoder_layers: Positive = 4
    decoder_layers: Positive = 4
    order: Literal["pre", "post"] = "pre"  # where the norm stands in a residual
    norm: Literal["layer", "rms", "batch"] = "layer"
    epsilon: Epsilon | None = None  # of the norms; none: 1e-5, and 1e-6 of rms
    activation: Activation = "relu"
    positions: Literal["sinusoidal", "learned", "rotary", "relative", "none"] = "sinusoidal"
    layout: Literal["halves", "interleaved"] = "halves"  # of sinusoidal and rotary columns
    combine: Literal["add", "concatenate"] = "add"  # positions to tokens
    longest: Positive = 512  # of learned positions
    tie: Literal["none", "output", "all"] = "output"  # which of the token tables are one
    scaled: bool = True  # token vectors times the square root of the width
    output_bias: bool = False  # a number that is added to each token's logit
    dropout: Share = 0.1
    attention_dropout: Share = 0.0  # on a processor more than 0 rules the fused kernel out

    @model_validator(mode="after")
    def _fits(self) -> TransformerSettings:
        require_divisor("heads", self.heads, "width", self.width)
        if self.kv_heads is not None:
            require_divisor("kv_heads", self.kv_heads, "heads", self.heads)
        if self.combine == "concatenate" and self.tie != "none":
            raise ValueError(
                f"combine 'concatenate' leaves narrower token vectors, which cannot be tied; got tie {self.tie!r}"
            )
        for what, width in (("width", self.width), ("width / heads", self.width // self.heads)):
            needed = {"width": self.positions == "sinusoidal", "width / heads": self.positions == "rotary"}[what]
            if needed and width % 2:
                raise ValueError(f"{self.positions} positions need an even {what}; got {width}")
        return self


class FittedSettings(Settings):
    """A Transformer whose size is decided from the data; a run's own recipe then says what it became."""

    kind: Literal["fitted"] = "fitted"


class OwnModelSettings(Settings):
    """A model that a task of one's own makes itself."""

    kind: Literal["own"] = "own"


ModelSettings = Annotated[
    FittedSettings
    | SutskeverSettings
    | BahdanauSettings
    | LuongSettings
    | ConvolutionalSettings
    | TransformerSettings
    | ListenAttendSpellSettings
    | SpeechTransformerSettings
    | KernelSettings
    | ViTSettings
    | CNNSettings
    | EfficientNetSettings
    | ClipSettings
    | ShowAttendTellSettings
    | CaptionTransformerSettings
    | ListenAttendWalkSettings
    | ShowAttendInteractSettings
    | StackedAttentionSettings
    | VQATransformerSettings
    | GPTSettings
    | RecurrentLanguageSettings
    | BERTSettings
    | XLNetSettings
    | OwnModelSettings,
    Field(discriminator="kind"),
]
