"""Where a vector stands: schemes that are added to or put beside token vectors, and schemes inside the attention.

    sinusoidal:  p(pos, 2i) = sin(pos / 10000^(2i/D)),  p(pos, 2i+1) = cos(pos / 10000^(2i/D))  (Vaswani et al. 2017)

Tables are computed when asked for, never kept as buffers: a model built on the meta device has nothing to lose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

Layout = Literal["halves", "interleaved"]


class Positions(nn.Module):
    """Interface of schemes for token vectors: positions `at` (..., T) in a sentence of `length` -> (..., T, width)."""

    width: int

    def forward(self, at: Tensor, length: int) -> Tensor:
        raise NotImplementedError


class Sinusoidal(Positions):
    """Sines and cosines of geometric wavelengths; nothing to learn, any length.

    The course interleaves the columns (sin, cos, sin, cos, ...); "halves" puts all sines first, as exchange formats do.
    The two differ by a permutation of columns, which the next linear map absorbs.
    """

    def __init__(self, width: int, *, layout: Layout = "halves"):
        super().__init__()
        if width % 2:
            raise ValueError(f"sinusoidal positions need an even width; got {width}, try {width + 1}")
        _check_layout(layout)
        self.width, self.layout = width, layout

    def forward(self, at: Tensor, length: int) -> Tensor:  # noqa: ARG002
        angle = _angles(at, self.width)  # (..., T, D / 2)
        if self.layout == "halves":
            return torch.cat([angle.sin(), angle.cos()], dim=-1)
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


class Learned(Positions):
    """A learned vector for each of `longest` positions, after the `first` rows of a table, which are not used.

    Initial law: normal with the given deviation; or `waves`, the sinusoidal table with that deviation, in which
    neighbours are alike before anything is learned.
    """

    def __init__(self, width: int, *, longest: int, deviation: float = 0.02, first: int = 0, waves: bool = False):
        super().__init__()
        self.width, self.longest, self.deviation, self.first, self.waves = width, longest, deviation, first, waves
        self.table = nn.Parameter(torch.empty(first + longest, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.waves:
            with torch.no_grad():
                at = torch.arange(len(self.table), device=self.table.device) - self.first
                waves = Sinusoidal(self.width + self.width % 2)(at, self.longest)[:, : self.width]
                self.table.copy_(math.sqrt(2) * self.deviation * waves)
        else:
            nn.init.normal_(self.table, std=self.deviation)

    def forward(self, at: Tensor, length: int) -> Tensor:  # noqa: ARG002
        try:
            return nn.functional.embedding(at + self.first if self.first else at, self.table)
        except IndexError as error:
            wrong = int(at[(at < 0) | (at >= self.longest)][0])
            raise ValueError(
                f"position {wrong} is beyond the table of {self.longest} learned positions; shorten the input "
                "or use sinusoidal, rotary or relative positions, which have no end"
            ) from error


def reach(modules: Iterable[nn.Module]) -> float:
    """How many positions learned tables tell apart; there is no end where there are none."""
    return min((each.longest for each in modules if isinstance(each, Learned)), default=math.inf)


class Fraction(Positions):
    """First naive idea: a value in [0, 1]. Wrong: one step means another distance in every sentence length."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, at: Tensor, length: int) -> Tensor:
        return (at / max(length - 1, 1))[..., None].expand(*at.shape, self.width)


class Index(Positions):
    """Second naive idea: the raw index. Wrong: values grow without bound and drown the words."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width

    def forward(self, at: Tensor, length: int) -> Tensor:  # noqa: ARG002
        return at.to(torch.float64)[..., None].expand(*at.shape, self.width)


class Grid2d(nn.Module):
    """Positions of the cells of a grid: half the columns say which row, the other half which column.

    Each half is a scheme of its own, sinusoidal or learned: p(r, c) = [down(r), across(c)] (Parmar et al. 2018).
    """

    def __init__(self, down: Positions, *, across: Positions):
        super().__init__()
        if down.width != across.width:
            raise ValueError(f"rows and columns get half the width each; got {down.width} and {across.width}")
        self.down, self.across = down, across
        self.width = down.width + across.width

    def forward(self, grid: Tensor) -> Tensor:
        """Where the cells of a grid (B, H, W, ...) stand -> (H, W, width), in the grid's kind of numbers."""
        height, width = grid.shape[1:3]
        rows = self.down(torch.arange(height, device=grid.device), height)  # (H, width / 2)
        columns = self.across(torch.arange(width, device=grid.device), width)  # (W, width / 2)
        places = [rows[:, None].expand(-1, width, -1), columns[None].expand(height, -1, -1)]
        return torch.cat([place.to(grid.dtype) for place in places], dim=-1)


class AttentionPositions(nn.Module):
    """Interface of schemes inside the attention: `turn` queries and keys, `bias` their scores; by default neither."""

    def require(self, heads: int, width: int) -> None:
        """Refuse heads that this scheme was not made for."""
        raise NotImplementedError

    def turn(self, x: Tensor, at: Tensor) -> Tensor:  # noqa: ARG002
        return x  # (B, H, T, K)

    def bias(self, query_at: Tensor, key_at: Tensor) -> Tensor | None:  # noqa: ARG002
        return None  # broadcastable to (B, H, T, S)


class Rotary(AttentionPositions):
    """Turn each pair of columns by an angle that grows with the position: scores then depend on distance only.

    Su et al. (2021). "halves" pairs column i with i + K/2, "interleaved" pairs 2i with 2i + 1.
    """

    def __init__(self, width: int, *, layout: Layout = "halves"):
        super().__init__()
        if width % 2:
            raise ValueError(f"rotary positions need an even head width; got {width}")
        _check_layout(layout)
        self.width, self.layout = width, layout

    def require(self, heads: int, width: int) -> None:  # noqa: ARG002
        if width != self.width:
            raise ValueError(f"rotary positions of width {self.width} do not fit heads of width {width}")

    def waves(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Sine and cosine of each pair's angle: positions (..., T) -> (..., T, K / 2)."""
        angle = _angles(at, self.width)
        return angle.sin(), angle.cos()

    def turn(self, x: Tensor, at: Tensor) -> Tensor:
        sine, cosine = (
            wave.to(x.dtype) if wave.dim() == 2 else wave[:, None].to(x.dtype)  # (B, 1, T, K / 2)
            for wave in self.waves(at)
        )
        if self.layout == "halves":
            left, right = x.chunk(2, dim=-1)
            return torch.cat([left * cosine - right * sine, right * cosine + left * sine], dim=-1)
        left, right = x[..., 0::2], x[..., 1::2]
        return torch.stack([left * cosine - right * sine, right * cosine + left * sine], dim=-1).flatten(-2)


class RelativeBias(AttentionPositions):
    """A learned number per head and distance is added to the score; distances beyond `reach` share the last one.

    Shaw et al. (2018) in the scalar form of Raffel et al. (2020), without logarithmic buckets. Initial law: zeros, so
    that an untrained layer looks everywhere alike.
    """

    def __init__(self, heads: int, *, reach: int = 32):
        super().__init__()
        self.reach = reach
        self.table = nn.Parameter(torch.empty(heads, 2 * reach + 1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.table)

    def require(self, heads: int, width: int) -> None:  # noqa: ARG002
        if heads != len(self.table):
            raise ValueError(f"relative positions for {len(self.table)} heads do not fit {heads} heads")

    def bias(self, query_at: Tensor, key_at: Tensor) -> Tensor | None:
        distance = (key_at - query_at[..., None]).clamp(-self.reach, self.reach) + self.reach  # (T, S) or (B, T, S)
        bias = self.table[:, distance]  # (H, T, S) or (H, B, T, S)
        return bias[None] if bias.dim() == 3 else bias.transpose(0, 1)


@dataclass(frozen=True)
class Criteria:
    """How a scheme fares against the five wishes of the course, as numbers first and verdicts second."""

    nearest: float  # smallest distance between two positions of one sentence, relative to the mean distance
    spread: float  # how much the distance of k steps varies over places and sentence lengths, relative to its mean
    largest: float  # largest magnitude in a sentence ten times as long as any before
    growth: float  # that magnitude over the one in the known lengths
    reaches: bool  # gives an answer at all beyond the known lengths
    repeats: bool  # gives the same answer twice

    @property
    def verdicts(self) -> dict[str, bool]:
        return {
            "unique": self.nearest > 1e-4,
            "consistent distances": self.spread < 1e-3,
            "bounded": math.isfinite(self.growth) and self.growth < 1.01,
            "generalises to longer": self.reaches,
            "deterministic": self.repeats,
        }


@torch.no_grad()
def measure(
    scheme: Positions, *, lengths: tuple[int, ...] = (10, 20, 50), steps: tuple[int, ...] = (1, 2, 5)
) -> Criteria:
    """Measure a scheme against the course's five criteria, over sentences of these lengths."""

    def table(length: int) -> Tensor:
        return scheme(torch.arange(length), length)  # (T, D)

    tables = [table(length) for length in lengths]
    pairs = torch.cat([torch.pdist(each) for each in tables])
    spreads = []
    for step in steps:
        distance = torch.cat([(each[step:] - each[:-step]).norm(dim=-1) for each in tables])
        spreads.append(float(distance.std() / distance.mean()))
    known = max(float(each.abs().max()) for each in tables)
    try:
        largest, reaches = float(table(10 * max(lengths)).abs().max()), True
    except ValueError:
        largest, reaches = known, False
    repeats = all(torch.equal(each, table(len(each))) for each in tables)
    return Criteria(float(pairs.min() / pairs.mean()), max(spreads), largest, largest / known, reaches, repeats)


def _check_layout(layout: str) -> None:
    if layout not in ("halves", "interleaved"):
        raise ValueError(f"columns are laid out in 'halves' or 'interleaved'; got {layout!r}")


def _angles(at: Tensor, width: int) -> Tensor:
    # float64: in float32 the fast columns of far positions are off by whole digits; what is added to is cast at the end
    rates = torch.exp(torch.arange(0, width, 2, dtype=torch.float64, device=at.device) * (-math.log(10_000.0) / width))
    return at[..., None] * rates
