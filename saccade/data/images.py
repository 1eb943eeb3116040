"""Images from files to arrays of red, green and blue, 0 to 255, upright and without transparency.

What a file claims is checked before it is decoded, and what cannot be read is named.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from saccade.config.images import Fit
from saccade.data.archives import MOST_BYTES, READ_AT_ONCE, plain_file
from saccade.errors import SaccadeError

Pixels: TypeAlias = NDArray[np.uint8]

MOST_PIXELS = 50_000_000
# Not all that Pillow knows: some of its formats start other programs or read other files.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
IDX_BYTES = 0x08  # the type of an IDX file whose numbers are unsigned bytes


def read_image(source: Path | bytes, name: str = "", *, first_frame: bool = False) -> Pixels:
    """Pixels (H, W, 3) of a file or of its content, which errors then call by `name`.

    Turned upright as its EXIF tag says; what is transparent is laid over white; grey of 16 bits is scaled to 8.
    Several pictures in one file are refused, unless `first_frame` asks for the first of them.
    """
    name = name or (str(source) if isinstance(source, Path) else "image")
    with _named(name), io.BytesIO(source) if isinstance(source, bytes) else plain_file(source).open("rb") as file:
        if not file.read(1):
            raise SaccadeError(f"{name}: an empty file, not an image")
        file.seek(0)
        with Image.open(file, formats=FORMATS) as image:
            _check(image, name, first_frame)
            return np.array(_rgb(ImageOps.exif_transpose(image), name))


def read_idx(path: str | Path) -> Pixels:
    """The array of unsigned bytes in an IDX file, packed by gzip or not, as the MNIST family comes: (N, H, W) or (N,).

    Two zero bytes, the type, the number of axes; then the length of each axis as four bytes; then the numbers.
    """
    path = Path(path)
    try:
        with gzip.open(plain_file(path), "rb") if path.suffix == ".gz" else plain_file(path).open("rb") as file:
            start = file.read(4)
            axes = start[3] if len(start) == 4 else 0
            if start[:3] != bytes((0, 0, IDX_BYTES)) or not axes:
                raise SaccadeError(
                    f"{path}: not an IDX file of unsigned bytes; it begins with {start.hex(' ') or 'nothing'}"
                )
            lengths = file.read(4 * axes)
            if len(lengths) < 4 * axes:
                raise SaccadeError(f"{path}: cut short inside the lengths of its {axes} axes")
            shape = struct.unpack(f">{axes}I", lengths)
            promised = math.prod(shape)
            if promised > MOST_BYTES:
                raise SaccadeError(f"{path}: promises {promised:,} numbers {shape}; {MOST_BYTES:,} are allowed at most")
            content = bytearray()  # which can be written to, as torch wants it
            while part := file.read(min(READ_AT_ONCE, promised - len(content))):
                content += part
            if len(content) < promised or file.read(1):
                found = f"only {len(content):,}" if len(content) < promised else "more"
                raise SaccadeError(f"{path}: promises {promised:,} numbers {shape}, and {found} are there")
    except (OSError, EOFError, zlib.error) as error:
        raise SaccadeError(f"{path}: cannot read: {getattr(error, 'strerror', None) or error}") from error
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def resized(pixels: Pixels, size: int | tuple[int, int], fit: Fit = "stretch") -> Pixels:
    """An image (H, W, 3) or (H, W) as (height, width) or as a square: bicubic, over all that a new pixel covers.

    All of it, stretched; or, to `crop`, the largest part of the wanted shape in its middle.
    """
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1 or height * width > MOST_PIXELS:
        raise SaccadeError(f"an image cannot be resized to {height} x {width}; from 1 to {MOST_PIXELS:,} pixels can be")
    if fit == "crop":
        pixels = _middle(pixels, height, width)
    return np.array(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))


def _middle(pixels: Pixels, height: int, width: int) -> Pixels:
    """As much as there is of the shape height : width, one pixel at least; to a pixel, as there are no parts of one."""
    rows, columns = pixels.shape[:2]
    scale = min(rows / height, columns / width)
    kept_rows, kept_columns = max(round(scale * height), 1), max(round(scale * width), 1)
    top, left = (rows - kept_rows) // 2, (columns - kept_columns) // 2
    return pixels[top : top + kept_rows, left : left + kept_columns]


def _check(image: Image.Image, name: str, first_frame: bool) -> None:
    width, height = image.size
    if width * height > MOST_PIXELS:
        raise SaccadeError(f"{name}: {width:,} x {height:,} pixels; {MOST_PIXELS:,} are allowed at most")
    # MPO is a photo with its preview or depth behind it: cameras write it under the name of JPEG
    if not first_frame and image.format != "MPO" and getattr(image, "is_animated", False):
        raise SaccadeError(f"{name}: {image.format} with several pictures in it; give one, or ask for the first frame")


def _rgb(image: Image.Image, name: str) -> Image.Image:
    if image.mode.startswith(("I", "F")):
        return _rgb_of_deep_grey(image, name)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _rgb_of_deep_grey(image: Image.Image, name: str) -> Image.Image:
    """Grey of 16 bits, scaled: Pillow itself would cut everything above 255 to white."""
    grey = np.asarray(image)
    if image.mode == "F" or grey.min() < 0 or grey.max() > 0xFFFF:
        raise SaccadeError(f"{name}: values from {grey.min():g} to {grey.max():g}; grey of up to 16 bits can be read")
    scaled = ((grey.astype(np.int64) + 128) // 257).astype(np.uint8)
    scaled[grey == image.info.get("transparency")] = 255
    return Image.fromarray(scaled).convert("RGB")


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Errors and warnings of the decoder, with the name of the file."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")  # also that of a bomb, which `_check` then refuses
        try:
            yield
        except SaccadeError:
            raise
        except Image.DecompressionBombError as error:
            raise SaccadeError(f"{name}: more than the {MOST_PIXELS:,} pixels that are allowed") from error
        except UnidentifiedImageError as error:
            raise SaccadeError(
                f"{name}: not an image that can be read: damaged, or none of {', '.join(FORMATS)}"
            ) from error
        except OSError as error:
            raise SaccadeError(f"{name}: cannot read the image: {error.strerror or error}") from error
        except Exception as error:  # decoders that are fed junk raise all there is, from IndexError to SyntaxError
            raise SaccadeError(f"{name}: cannot read the image: {error or type(error).__name__}") from error
    for each in caught:
        warnings.warn(f"{name}: {each.message}", each.category, stacklevel=4)
