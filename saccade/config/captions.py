"""Settings of captioning: the task, and the models that describe an image."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.base import Broken, Float, Positive, Settings, Share, require_divisor
from saccade.config.images import AugmentSettings, CNNSettings, Fit, ImageEncoderSettings, Part


class CaptionSettings(Settings):
    """From an image to a sentence that describes it."""

    kind: Literal["caption"] = "caption"
    data: str  # a .jsonl with file, captions and split, or a .tsv with image and caption; or the folder of one
    images: str | None = None  # a folder or archive; none: images.zip or images/ beside the data, else its folder
    test: str | None = None  # another such file; none: the test part that the data itself names, if it does
    size: Positive = 64  # images are made so many pixels wide and high
    fit: Fit = "stretch"  # crop: the largest square in the middle of each image
    broken: Broken = "skip"  # images that cannot be read; refuse: the first of them is an error
    augment: AugmentSettings = AugmentSettings()  # beware: a mirrored image has its left and right exchanged
    valid: Part = 0.05  # held out by a hash of the image's name, where the data names no validation part
    valid_examples: Positive = 200  # images that are described at each evaluation
    pieces: Annotated[int, Field(ge=300, le=1_000_000)] = 2000  # size of the vocabulary
    longest: Positive = 32  # longer captions, in pieces, are left out of training; none longer is written
    # weight of a loss that wants every cell to be looked at once in a caption; 0: none. The paper's 1 stands beside the
    # sum over a caption's tokens, of which there are some ten; here it stands beside their mean
    doubly_stochastic: Annotated[Float, Field(ge=0)] = 0.1


class ShowAttendTellSettings(Settings):
    """An image encoder, and a recurrent decoder that looks at a cell or two before each word."""

    kind: Literal["show_attend_tell"] = "show_attend_tell"
    image: ImageEncoderSettings = CNNSettings()
    width: Positive = 128  # of token vectors
    hidden: Positive = 256  # of recurrent states
    layers: Positive = 1  # of the decoder
    cell: Literal["gru", "lstm"] = "lstm"
    attend: bool = True  # without, the mean of all cells is seen at each step: what looking is compared with
    gate: bool = True  # the state decides how much of what is seen counts for the next word
    dropout: Share = 0.2  # of the decoder; with much more it is long before it begins to see


class CaptionTransformerSettings(Settings):
    """An image encoder, and the decoder of a Transformer."""

    kind: Literal["caption_transformer"] = "caption_transformer"
    image: ImageEncoderSettings = CNNSettings()
    width: Positive = 128
    heads: Positive = 4
    hidden: Positive = 256  # of the feed-forward layers
    layers: Positive = 2
    dropout: Share = 0.2  # of the decoder

    @model_validator(mode="after")
    def _fits(self) -> CaptionTransformerSettings:
        require_divisor("heads", self.heads, "width", self.width)
        if self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width; got {self.width}")
        return self
