"""Settings of language models and of their task."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.base import Count, Epsilon, Positive, Settings, Share, require_divisor

Activation = Literal[
    "relu",
    "sigmoid",
    "tanh",
    "leaky_relu",
    "elu",
    "gelu",
    "gelu_tanh",
    "quick_gelu",
    "silu",
    "glu",
    "reglu",
    "geglu",
    "swiglu",
]


class GPTSettings(Settings):
    """Causal blocks alone. The defaults are those of GPT-2 at the size of a processor."""

    kind: Literal["gpt"] = "gpt"
    width: Positive = 128
    heads: Positive = 4
    kv_heads: Positive | None = None  # fewer key-value heads than heads: grouped attention
    hidden: Positive | None = None  # of the feed-forward layers; none: four times the width
    layers: Positive = 4
    norm: Literal["layer", "rms"] = "layer"
    epsilon: Epsilon | None = None  # of the norms; none: 1e-5, and 1e-6 of rms
    activation: Activation = "gelu_tanh"
    # relative adds a number per head and distance to the score, distances a learned map of its sinusoids
    positions: Literal["learned", "sinusoidal", "rotary", "relative", "distances", "none"] = "learned"
    layout: Literal["halves", "interleaved"] = "halves"  # of sinusoidal and rotary columns
    tie: bool = True  # the output is the table of tokens
    dropout: Share = 0.0

    @model_validator(mode="after")
    def _fits(self) -> GPTSettings:
        require_divisor("heads", self.heads, "width", self.width)
        if self.kv_heads is not None:
            require_divisor("kv_heads", self.kv_heads, "heads", self.heads)
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise ValueError(f"rotary positions need an even width / heads; got {self.width // self.heads}")
        if self.positions in ("sinusoidal", "distances") and self.width % 2:
            raise ValueError(f"positions {self.positions} need an even width; got {self.width}")
        return self


class RecurrentLanguageSettings(Settings):
    """A recurrent language model, alone or with attention to its own earlier states."""

    kind: Literal["recurrent"] = "recurrent"
    width: Positive = 128  # of token vectors
    hidden: Positive = 256
    layers: Positive = 1
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    attend: bool = False
    heads: Positive = 1  # of that attention
    tie: bool = True
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fits(self) -> RecurrentLanguageSettings:
        require_divisor("heads", self.heads, "hidden", self.hidden)
        return self


class BERTSettings(Settings):
    """Blocks that see both sides. The defaults are those of BERT at the size of a processor."""

    kind: Literal["bert"] = "bert"
    width: Positive = 128
    heads: Positive = 4
    hidden: Positive | None = None  # of the feed-forward layers; none: four times the width
    layers: Positive = 4
    segments: Positive = 2  # texts that can be told apart in one input
    order: Literal["post", "pre"] = "post"  # where the norm stands in a residual; pre trains more stably
    norm: Literal["layer", "rms"] = "layer"
    epsilon: Epsilon = 1e-12  # of the norms, as published; RoBERTa has 1e-5
    first_position: Count = 0  # that the table of positions begins to be used at; RoBERTa's is 2
    activation: Literal["gelu", "gelu_tanh", "quick_gelu", "relu", "silu"] = "gelu"
    next_sentence: bool = False  # a head on the first position that says whether the second text follows the first
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fits(self) -> BERTSettings:
        require_divisor("heads", self.heads, "width", self.width)
        return self


class XLNetSettings(Settings):
    """Blocks with relative positions that predict in any order. The defaults are XLNet's at the size of a processor."""

    kind: Literal["xlnet"] = "xlnet"
    width: Positive = 128
    heads: Positive = 4
    hidden: Positive | None = None  # of the feed-forward layers; none: four times the width
    layers: Positive = 4
    epsilon: Epsilon = 1e-12  # of the norms, as published
    activation: Activation = "gelu"
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fits(self) -> XLNetSettings:
        require_divisor("heads", self.heads, "width", self.width)
        if self.width % 2:
            raise ValueError(f"sinusoids of distances need an even width; got {self.width}")
        return self


class VocabularySettings(Settings):
    """What a text is cut into: learned from it, or as published."""

    unit: Literal["characters", "words", "pieces", "gpt2", "clip", "bert"] = "pieces"
    pieces: Annotated[int, Field(ge=300, le=1_000_000)] = 8000  # how many of them, of words at most so many
    vocabulary: str | None = None  # the folder of a published vocabulary (gpt2, clip, bert)

    @model_validator(mode="after")
    def _published(self) -> VocabularySettings:
        published = self.unit in ("gpt2", "clip", "bert")
        if published != (self.vocabulary is not None):
            raise ValueError(
                f"unit {self.unit} {'needs its files: say where, in vocabulary' if published else 'has no files'}"
            )
        return self


class TextSettings(VocabularySettings):
    """Running text and the vocabulary it is cut into: what all tasks that are pre-trained on text share."""

    data: str  # a text file, plain, .gz or .xz
    valid: str | None = None  # none: the end of the text is held out ...
    valid_share: Annotated[Share, Field(gt=0)] = 0.1  # ... and how much of it
    test: str | None = None  # read by `evaluate --split test` only
    extend: Count = 0  # with train.start: so many frequent words of this text, in pieces so far, become one piece each
    window: Annotated[int, Field(ge=2)] = 128  # tokens that are read at a time
    valid_tokens: Positive = 50_000  # of the validation part, that are scored at each evaluation


class LanguageSettings(TextSettings):
    """What comes next, given all before it."""

    kind: Literal["language"] = "language"
    windows: Literal["sequential", "random"] = "random"  # one after the other, or beginning anywhere
    stride: Count = 0  # tokens by which `evaluate` moves its window; 0: half a window

    @model_validator(mode="after")
    def _check_stride(self) -> LanguageSettings:
        if self.stride > self.window:
            raise ValueError(f"a stride of {self.stride} leaves out text between windows of {self.window}")
        return self


class FramedSettings(TextSettings):
    """Windows of text between start and end marks."""

    window: Annotated[int, Field(ge=8)] = 128  # tokens that are read at a time, start and end marks among them
    windows: Literal["sequential", "random"] = "random"  # one after the other, or beginning anywhere


class MaskedSettings(FramedSettings):
    """What stood where a text is hidden: 15 tokens of 100 are chosen, and of these 80 of 100 masked, 10 exchanged for
    others and 10 left as they are."""

    kind: Literal["masked"] = "masked"
    share: Annotated[Share, Field(gt=0)] = 0.15  # of the tokens, that are to be found
    masking: Literal["fresh", "static"] = "fresh"  # drawn each time a window is read, or once for all
    whole_words: bool = False  # choose words, not pieces of them
    next_sentence: bool = False  # two texts in a window; say whether the second follows the first

    @model_validator(mode="after")
    def _maskable(self) -> MaskedSettings:
        if self.unit in ("gpt2", "clip"):
            raise ValueError(f"the vocabulary {self.unit} has no mask; there are bert, pieces, words and characters")
        return self


class PermutedSettings(FramedSettings):
    """What stood at a place, given those that come before it in an order drawn for each window."""

    kind: Literal["permuted"] = "permuted"
    one_in: Annotated[int, Field(ge=2)] = 6  # the last one in so many tokens of the order are predicted
