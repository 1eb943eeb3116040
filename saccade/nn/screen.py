"""The best word without all logits, where nobody asks how probable it is: what a search looks through in eight bits
before few words are computed in float32 (`cpp/screen.h`). The word is the one that the whole table gives."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from saccade.nn import native, structures
from saccade.nn.native import NativeLinear, in_eight_bits, is_plain, pointer

LEAST = 1 << 18  # numbers of a table: a smaller one is sooner multiplied
AFTER = 256  # rows: to make a screen takes as long as some hundred rows gain by it
MOST_COMPUTED = 1 / 64  # of the words: more take longer than all of them, from the packed table
AT_ONCE = 1 << 22  # numbers whose errors are computed together


class Screen:
    """An output table in eight bits, and how far each of its rows w is from what they make of it: |w - w'| and |w'|."""

    def __init__(self, rough: NativeLinear, table: Tensor, error: Tensor, length: Tensor):
        self.rough, self.table, self.error, self.length = rough, table, error, length
        self.given = structures.Screen(rough.address, *map(pointer, (table, error, length)))
        self.address = ctypes.addressof(self.given)
        self.looked_at = self.computed = 0  # words

    @staticmethod
    def of(weight: Tensor, bias: Tensor | None) -> Screen | None:
        """None where our own code has none, it would not pay, or numbers are none."""
        made, weight = native.library(), weight.detach()
        if made is None or not made.has_bytes() or weight.numel() < LEAST or len(weight) < made.lanes():
            return None
        if not is_plain(weight) or not (weight.isfinite().all() and (bias is None or bias.isfinite().all())):
            return None
        parts = [_distances(part) for part in weight.split(max(1, AT_ONCE // weight.shape[1]))]
        error, length = (torch.cat(each) for each in zip(*parts, strict=True))
        rough = NativeLinear(made, weight, None if bias is None else bias.detach(), in_bytes=True)
        return Screen(rough, weight, error, length)

    def note(self, looked_at: int, computed: int) -> None:
        """What came of a stretch."""
        self.looked_at, self.computed = self.looked_at + looked_at, self.computed + computed

    @property
    def pays(self) -> bool:
        """Whether few words are left to compute: states with a number far above the others are rough in eight bits."""
        return self.computed <= MOST_COMPUTED * self.looked_at


def _distances(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Of each row |w - w'| and |w'|, and a little more: what float32 may lose of them."""
    scale, numbers = in_eight_bits(weight)
    near = numbers.float().mul_(scale[:, None])
    length = torch.linalg.vector_norm(near, dim=1)
    error = torch.linalg.vector_norm(torch.sub(weight, near, out=near), dim=1)
    return error * (1 + 1e-4) + length * 2**-22, length * (1 + 1e-4)


class Screening:
    """The screen of a table, made when so many rows have been searched that it pays."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.weight, self.bias = weight, bias
        self.screen: Screen | None = None
        self.searched, self.made = 0, False

    def of(self, rows: int) -> Screen | None:
        """For so many more rows; None where it does not pay yet, or not at all."""
        self.searched += rows
        if not self.made and self.searched > AFTER:
            self.screen, self.made = Screen.of(self.weight, self.bias), True
        return self.screen if self.screen is not None and self.screen.pays else None
