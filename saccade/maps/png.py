"""What lies under a map, an image or a spectrogram: small enough, in colours, and as PNG inside an address."""

from __future__ import annotations

import base64
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from saccade.maps.axes import Axis, Frames, Grid, Tokens

LARGEST = 800  # pixels of a side


def array_of(axis: Axis) -> NDArray[Any] | None:
    """The image or spectrogram of an axis, where it has one."""
    if isinstance(axis, Grid):
        return axis.image
    return axis.spectrogram if isinstance(axis, Frames) else None


def images_of(axis: Axis) -> tuple[NDArray[np.uint8], ...]:
    """The images of an axis of images, or of a grid that was another one for each that looked; mostly none."""
    return axis.images if isinstance(axis, Grid | Tokens) else ()


def png_address(array: NDArray[Any]) -> str:
    """An address that holds the picture itself, so that nothing is fetched: bytes (H, W, 3) as they are, numbers (T, F)
    in colours."""
    content = BytesIO()
    Image.fromarray(reduced(coloured(array) if array.ndim == 2 else array, LARGEST)).save(content, "PNG")
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def reduced(image: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """The same image with no side longer than so many pixels."""
    if max(image.shape[:2]) <= side:
        return image
    smaller = Image.fromarray(image)
    smaller.thumbnail((side, side))
    return np.asarray(smaller)


def coloured(spectrogram: NDArray[Any]) -> NDArray[np.uint8]:
    """(T, F) -> (F, T, 4), low bands at the foot; what is not a number is clear, and infinity as loud as the rest."""
    from matplotlib import colormaps

    loud = np.asarray(spectrogram, dtype=np.float64).T[::-1]
    heard = loud[np.isfinite(loud)]
    low, high = (heard.min(), heard.max()) if heard.size else (0.0, 1.0)
    part = (np.clip(loud, low, high) - low) / ((high - low) or 1.0)
    return colormaps["magma"](part, bytes=True)
