"""What an attention map is: weights between two axes, each of which is words, cells of an image, time, or steps of a
walk."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.errors import SaccadeError

EVEN_SHARES = 3  # see AttentionMap.top
Groups = Sequence[tuple[str, Sequence[int]]]  # a label and the places it stands for


@dataclass(frozen=True)
class Tokens:
    """An axis of words or pieces; or of images, each with a name: bytes (H, W, 3) for every label."""

    kind: ClassVar[str] = "tokens"
    labels: tuple[str, ...]
    images: tuple[NDArray[np.uint8], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if self.images and len(self.images) != len(self.labels):
            raise SaccadeError(f"every label has an image or none; got {len(self.images)} for {len(self.labels)}")
        _check_images(self.images)

    def __len__(self) -> int:
        return len(self.labels)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "size": len(self)}


@dataclass(frozen=True, eq=False)
class Grid:
    """An axis of the cells of an image, in reading order; with the image, bytes (H, W, 3), to draw upon. Where the
    image was another one each time, `images` has one for each that looked."""

    kind: ClassVar[str] = "grid"
    height: int
    width: int
    image: NDArray[np.uint8] | None = None
    images: tuple[NDArray[np.uint8], ...] = ()

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise SaccadeError(f"a grid has one row and one column at least; got {self.height} x {self.width}")
        _check_images(self.images if self.image is None else (self.image, *self.images))

    def __len__(self) -> int:
        return self.height * self.width

    # Pixels are not compared: grids are the same that lie over the same array.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grid) or (self.height, self.width) != (other.height, other.width):
            return False
        return self.image is other.image and [*map(id, self.images)] == [*map(id, other.images)]

    def __hash__(self) -> int:
        return hash((self.height, self.width, id(self.image)))

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(
            f"row {row}, column {column}" for row in range(1, self.height + 1) for column in range(1, self.width + 1)
        )

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "size": len(self), "height": self.height, "width": self.width}


@dataclass(frozen=True, eq=False)
class Frames:
    """An axis of positions in time, `seconds` each; the spectrogram (T, F) lasts as long as all of them together; it is
    not a number where the sound has ended before. Of bands that are frequencies, `hertz` are the middles, ascending."""

    kind: ClassVar[str] = "frames"
    count: int
    seconds: float
    spectrogram: NDArray[Any] | None = None
    hertz: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.count < 1 or not 0 < self.seconds < math.inf:
            raise SaccadeError(f"time has one position at least, of some length; got {self.count} of {self.seconds} s")
        if self.spectrogram is not None and (self.spectrogram.ndim != 2 or 0 in self.spectrogram.shape):
            raise SaccadeError(f"a spectrogram has shape (times, bands); got {tuple(self.spectrogram.shape)}")
        if self.hertz and (self.spectrogram is None or len(self.hertz) != self.spectrogram.shape[1]):
            raise SaccadeError(f"{len(self.hertz)} frequencies do not fit the bands of the spectrogram")

    def __len__(self) -> int:
        return self.count

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Frames) and (self.count, self.seconds) == (other.count, other.seconds)
        return same and self.spectrogram is other.spectrogram  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((self.count, self.seconds, id(self.spectrogram)))

    @property
    def duration(self) -> float:
        return self.count * self.seconds

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{place * self.seconds:.2f} s" for place in range(self.count))

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "size": len(self), "seconds": self.seconds}

    def joined(self, per: int) -> Frames:
        """The same time in positions of `per` of these."""
        return Frames(math.ceil(self.count / per), self.seconds * per, self.spectrogram, self.hertz)


@dataclass(frozen=True)
class Steps:
    """An axis of the steps of a walk: what was done at each, the pose (x, y, heading) in which it was chosen, and the
    plan to draw it upon. Headings are degrees: 0 is up, 90 to the right."""

    kind: ClassVar[str] = "steps"
    labels: tuple[str, ...]
    poses: tuple[tuple[int, int, int], ...]
    corridors: tuple[tuple[tuple[int, int], tuple[int, int], str], ...]  # from, to, floor
    items: tuple[tuple[int, int, str], ...]  # x, y, what stands there

    def __post_init__(self) -> None:
        if len(self.labels) != len(self.poses):
            raise SaccadeError(f"every step has a pose; got {len(self.labels)} steps and {len(self.poses)} poses")

    def __len__(self) -> int:
        return len(self.labels)

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "size": len(self), "poses": [list(pose) for pose in self.poses]}


def _check_images(images: Sequence[NDArray[np.uint8]]) -> None:
    for image in images:
        shape = tuple(image.shape)
        if image.dtype != np.uint8 or len(shape) != 3 or shape[2] != 3 or 0 in shape:
            raise SaccadeError(f"an image is bytes of shape (height, width, 3); got {image.dtype} {shape}")


Axis = Tokens | Grid | Frames | Steps


@dataclass(frozen=True)
class AttentionMap:
    """Where each row looked: weights (H, T, S) with a label for each row and column."""

    name: str
    weights: Tensor
    rows: Axis
    columns: Axis

    def __post_init__(self) -> None:
        shape = (len(self.rows), len(self.columns))
        if self.weights.dim() != 3 or tuple(self.weights.shape[1:]) != shape:
            raise SaccadeError(f"map {self.name}: weights {tuple(self.weights.shape)} do not fit {shape} labels")
        images = self.columns.images if isinstance(self.columns, Grid) else ()
        if images and len(images) != len(self.rows):
            raise SaccadeError(f"map {self.name}: {len(images)} images do not fit {len(self.rows)} rows")

    @property
    def heads(self) -> int:
        return self.weights.shape[0]

    @property
    def mean(self) -> Tensor:
        return self.weights.mean(0)  # (T, S)

    @property
    def mean_name(self) -> str:
        return self.name if self.heads == 1 else f"{self.name} (mean of {self.heads} heads)"

    @property
    def even(self) -> float:
        """The weight of each column for a row that looked everywhere alike."""
        return 1 / len(self.columns)

    def top(self, weights: Tensor) -> float:
        """The weight that is drawn darkest: the largest of the drawn ones, but no less than some even shares, so that a
        row that looked everywhere is pale all over."""
        return max(float(weights.max()), min(1.0, EVEN_SHARES * self.even))

    def grouped(self, rows: Groups | None = None, columns: Groups | None = None) -> AttentionMap:
        """The same map over words instead of pieces: what a word's pieces looked at is averaged, what was looked at in
        a word's pieces is summed, so that rows still sum to one. Images and time, and what has no groups, stay."""
        weights, asking, seen = self.weights, self.rows, self.columns
        if rows is not None and isinstance(asking, Tokens):
            weights = torch.stack([weights[:, places].mean(1) for _, places in rows], dim=1)
            asking = Tokens(tuple(label for label, _ in rows))
        if columns is not None and isinstance(seen, Tokens):
            weights = torch.stack([weights[:, :, places].sum(2) for _, places in columns], dim=2)
            seen = Tokens(tuple(label for label, _ in columns))
        return AttentionMap(self.name, weights, asking, seen)

    def binned(self, *, rows: int, columns: int) -> AttentionMap:
        """The same map with at most so many positions in time: neighbours joined, by the rule of `grouped`."""
        weights, asking, seen = self.weights, self.rows, self.columns
        if isinstance(asking, Frames) and len(asking) > rows:
            per = math.ceil(len(asking) / rows)
            weights = torch.stack([each.mean(1) for each in weights.split(per, dim=1)], dim=1)
            asking = asking.joined(per)
        if isinstance(seen, Frames) and len(seen) > columns:
            per = math.ceil(len(seen) / columns)
            weights = torch.stack([each.sum(2) for each in weights.split(per, dim=2)], dim=2)
            seen = seen.joined(per)
        return AttentionMap(self.name, weights, asking, seen)
