"""Images side by side with a line below each: what a search found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from saccade.maps.png import reduced
from saccade.maps.tables import literal
from saccade.maps.text import short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS = 5  # images in a line
SIDE = 1.7  # of an image with its line, in inches
PHOTO = 400  # pixels of an image's longer side


def sheet(title: str, lines: Sequence[str], images: Iterable[NDArray[np.uint8]]) -> Figure:
    """Images (H, W, 3), of which one at a time is held as large as it is, with their lines."""
    from matplotlib.figure import Figure

    across, down = min(ACROSS, len(lines)), math.ceil(len(lines) / ACROSS)
    figure = Figure(figsize=(across * SIDE, down * (SIDE + 0.1) + 0.35), layout="constrained")
    figure.suptitle(literal(short(title, 20 * across)), fontsize=9)
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for place, line, image in zip(axes, lines, images, strict=False):
        place.imshow(reduced(image, PHOTO))
        place.set_xlabel(literal(short(line, 28)), fontsize=7, labelpad=3)
        place.set(xticks=[], yticks=[])
    for place in axes[len(lines) :]:
        place.set_axis_off()
    return figure
