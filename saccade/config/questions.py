"""Settings of questions about images: the task, and the models that answer them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.base import Broken, Positive, Settings, Share, require_divisor
from saccade.config.images import CNNSettings, Fit, ImageEncoderSettings, Part

Sees = Literal["both", "question", "image"]


class AnswerSettings(Settings):
    """From an image and a question about it to one of the answers of the training part."""

    kind: Literal["answer"] = "answer"
    data: str  # a .tsv with image, question, answer and perhaps split and type; or a folder: easy-VQA, COCO-QA
    images: str | None = None  # a folder or archive; none: images.zip or images/ beside the data, else its folder
    size: Positive = 64  # images are made so many pixels wide and high
    fit: Fit = "stretch"  # crop: the largest square in the middle of each image
    broken: Broken = "skip"  # images that cannot be read; refuse: the first of them is an error
    valid: Part = 0.05  # images held out by a hash of their names, where the data names no validation part
    pieces: Annotated[int, Field(ge=300, le=1_000_000)] = 2000  # size of the vocabulary of questions, at most
    longest: Positive = 40  # pieces of a question that are read in training; the rest is cut off


class StackedAttentionSettings(Settings):
    """A recurrent reader whose words look at the image, and then the whole question, several times."""

    kind: Literal["stacked_attention"] = "stacked_attention"
    image: ImageEncoderSettings = CNNSettings()
    sees: Sees = "both"  # only one of them: what looking, or reading, is compared with
    width: Positive = 128  # of words, states and cells
    cell: Literal["gru", "lstm"] = "lstm"
    hops: Positive = 2  # times that the question looks
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fits(self) -> StackedAttentionSettings:
        require_four(self.width)
        return self


class VQATransformerSettings(Settings):
    """One Transformer encoder over the words of the question and the cells of the image together."""

    kind: Literal["vqa_transformer"] = "vqa_transformer"
    image: ImageEncoderSettings = CNNSettings()
    sees: Sees = "both"  # only one of them: what looking, or reading, is compared with
    width: Positive = 128
    heads: Positive = 4
    hidden: Positive = 256  # of the feed-forward layers
    layers: Positive = 3
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fits(self) -> VQATransformerSettings:
        require_divisor("heads", self.heads, "width", self.width)
        require_four(self.width)
        return self


def require_four(width: int) -> None:
    """Sines of row and column, each with its cosine, share the width of a cell."""
    if width % 4:
        raise ValueError(f"cells that know their row and column need a width that 4 divides; got {width}")
