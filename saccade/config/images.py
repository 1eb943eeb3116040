"""Settings of image encoders, of the models that are built on them, and of the tasks with images."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from saccade.config.base import Broken, Count, Epsilon, Float, Positive, Settings, Share, Texts, listed, require_divisor

EncoderActivation = Literal["gelu", "quick_gelu", "gelu_tanh", "relu", "silu"]
Channels = Annotated[tuple[Float, Float, Float], BeforeValidator(listed)]  # a number each for red, green and blue

# A share of the images below one, a number of images from one on.
Part = Annotated[Float, Field(gt=0)]
# How an image of another shape is made to fit: all of it is stretched, or its middle is cut out.
Fit = Literal["stretch", "crop"]


class ViTSettings(Settings):
    """A Vision Transformer: squares of pixels as tokens."""

    kind: Literal["vit"] = "vit"
    patch: Positive = 4  # pixels of a square's side; it must divide the size of the images
    width: Positive = 64
    heads: Positive = 4
    hidden: Positive = 128  # of the feed-forward layers
    layers: Positive = 6
    positions: Literal["learned", "grid"] = "learned"  # grid: sines of row and column, nothing to learn
    class_token: bool = True  # one more vector that gathers the image; without it, the mean of all does
    class_position: bool = False  # a learned position for it too, as published models have it
    first_norm: bool = False  # one before the blocks, and squares without a bias, as in CLIP
    activation: EncoderActivation = "gelu"
    mean: Channels = (0.5, 0.5, 0.5)  # of pixels from 0 to 1, that the model wants to be at zero ...
    deviation: Channels = (0.5, 0.5, 0.5)  # ... and how far from it, to be one
    epsilon: Epsilon | None = None  # of the norms; none: 1e-5
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fits(self) -> ViTSettings:
        require_divisor("heads", self.heads, "width", self.width)
        if self.class_position and not self.class_token:
            raise ValueError("class_position is for a class_token, and there is none")
        if min(self.deviation) <= 0:
            raise ValueError(f"deviation must be above 0 in each channel; got {list(self.deviation)}")
        if self.positions == "grid" and self.width % 4:
            raise ValueError(f"grid positions need a width that 4 divides; got {self.width}")
        return self


class CNNSettings(Settings):
    """Residual convolutions, with or without self-attention over the cells of the last grid."""

    kind: Literal["cnn"] = "cnn"
    width: Positive = 32  # of the first stage; every further stage is twice as wide
    stages: Positive = 3  # each halves rows and columns
    blocks: Positive = 1  # residual blocks of a stage
    attention: bool = False  # every cell looks at all others (Zhang et al. 2019)
    dropout: Share = 0.1


class EfficientNetSettings(Settings):
    """EfficientNet-Lite0 as ImageNet taught it, frozen; what it sees is projected, and only that is learned."""

    kind: Literal["efficientnet"] = "efficientnet"
    width: Positive = 128  # that what it sees is projected to
    dropout: Share = 0.1


ImageEncoderSettings = Annotated[ViTSettings | CNNSettings | EfficientNetSettings, Field(discriminator="kind")]


class TextEncoderSettings(Settings):
    """A Transformer that reads a caption."""

    width: Positive = 128
    heads: Positive = 4
    hidden: Positive = 256
    layers: Positive = 2
    causal: bool = False  # each piece sees those before it, and the last one says what the text is; else the mean does
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"  # learned: and token vectors that are not scaled
    activation: EncoderActivation = "gelu"
    epsilon: Epsilon | None = None  # of the norms; none: 1e-5
    dropout: Share = 0.1

    @model_validator(mode="after")
    def _fits(self) -> TextEncoderSettings:
        require_divisor("heads", self.heads, "width", self.width)
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width; got {self.width}")
        return self


class ClipSettings(Settings):
    """CLIP: an image encoder and a text encoder into one space."""

    kind: Literal["clip"] = "clip"
    image: ImageEncoderSettings = CNNSettings()
    text: TextEncoderSettings = TextEncoderSettings()
    pool: Literal["mean", "class"] = "mean"  # what an image is known by: the mean of its cells, or its class token
    width: Positive = 128  # of the common space

    @model_validator(mode="after")
    def _pooled(self) -> ClipSettings:
        if self.pool == "class" and not getattr(self.image, "class_token", False):
            raise ValueError(f"pool class needs an image encoder with a class_token; {self.image.kind} here has none")
        return self


class AugmentSettings(Settings):
    """How an image is changed each time it is trained on."""

    flip: bool = False  # mirrored every second time
    shift: Count = 0  # moved by up to so many pixels


class ClassifyImagesSettings(Settings):
    """From an image to one of some labels."""

    kind: Literal["classify_images"] = "classify_images"
    data: str  # a folder, .zip or .tar of class folders, or images in an IDX file beside their labels
    test: str | None = None  # likewise; none: the test part that the data itself names, if it does
    size: Positive | None = None  # images are made so many pixels wide and high; none: as the data has them
    fit: Fit = "stretch"  # crop: the largest square in the middle of each image
    broken: Broken = "skip"  # images that cannot be read; refuse: the first of them is an error
    augment: AugmentSettings = AugmentSettings()
    valid: Part = 0.05  # held out of the training images by a hash, where the data names no validation part
    names: Texts = ()  # of the labels of an IDX file, which are numbers, in their order


class ContrastSettings(Settings):
    """Which image goes with which text."""

    kind: Literal["contrast"] = "contrast"
    data: str  # a .jsonl with file, captions and split, or a .tsv with image and caption; or the folder of one
    images: str | None = None  # a folder or archive; none: images.zip or images/ beside the data, else its folder
    test: str | None = None  # another such file; none: the test part that the data itself names, if it does
    size: Positive = 64  # images are made so many pixels wide and high
    fit: Fit = "stretch"  # crop: the largest square in the middle of each image
    broken: Broken = "skip"  # images that cannot be read; refuse: the first of them is an error
    augment: AugmentSettings = AugmentSettings()
    valid: Part = 0.05  # held out by a hash of the image's name, where the data names no validation part
    pieces: Annotated[int, Field(ge=300, le=1_000_000)] = 4000  # size of the vocabulary
    vocabulary: str | None = None  # the folder of CLIP's published one, used between a start and an end mark instead
    longest: Positive = 32  # pieces of a caption that are read, marks among them; the rest is cut off
    zero_shot: str | None = None  # labelled images that `evaluate` classifies by "a photo of a LABEL" alone

    @model_validator(mode="after")
    def _readable(self) -> ContrastSettings:
        if self.vocabulary is not None and self.longest < 3:
            raise ValueError(f"longest {self.longest} leaves no place between two marks; 3 is the least")
        return self
