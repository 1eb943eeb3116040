"""Image encoders by their settings, for every model that begins with an image; and classifiers made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from saccade.config.images import ImageEncoderSettings
from saccade.models.cnn import cnn_encoder, efficientnet_encoder
from saccade.models.shapes import Encoder, EncoderOnly
from saccade.models.vit import vit_encoder
from saccade.nn.layers import Output

Size = int | tuple[int, int]  # pixels of a square's side, or height and width


class ImageEncoder(Encoder, Protocol):
    """A module from images (B, 3, H, W), numbers from -1 to 1, to a Memory: a vector for each cell in reading order,
    after one for the class where there is a class token."""

    cells: tuple[int, int]  # rows and columns
    class_token: bool


# name in a recipe -> function from its settings and the height and width of the images to an encoder
IMAGE_ENCODERS: dict[str, Callable[[Any, tuple[int, int]], Any]] = {
    "vit": vit_encoder,
    "cnn": cnn_encoder,
    "efficientnet": efficientnet_encoder,
}


def image_encoder(settings: ImageEncoderSettings, *, size: Size) -> tuple[ImageEncoder, int]:
    """An encoder of images of that size, and the width of its vectors."""
    encoder = IMAGE_ENCODERS[settings.kind](settings, (size, size) if isinstance(size, int) else size)
    return encoder, encoder.width


def image_classifier(settings: ImageEncoderSettings, classes: int, size: Size) -> EncoderOnly:
    """Images of that size -> logits (B, classes), from the class token or else from the mean of all cells.

    Initial law of the head: Xavier uniform, bias zero.
    """
    encoder, width = image_encoder(settings, size=size)
    return EncoderOnly(encoder, Output(width, classes, bias=True), pool="first" if encoder.class_token else "mean")
