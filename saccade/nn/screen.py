"""The best word without all logits, where nobody asks how probable it is: what a search looks through in eight bits
before few words are computed in float32 (`cpp/screen.h`). The word is the one that the whole table gives."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from saccade.nn import native, structures
from saccade.nn.native import NativeLinear, in_eight_bits, is_plain, pointer

LEAST = 1 << 18  # numbers of a table: a smaller one is sooner multiplied
MOST_COMPUTED = 1 / 64  # of the words: more take longer than all of them, from the packed table
AFTER = 256  # rows: to make a screen takes as long as some hundred rows gain by it
JUDGED_BY = 64  # rows: of fewer nobody can tell how many words are left to compute
AT_ONCE = 1 << 22  # numbers whose errors are computed together
UNSEEN = 2e-19  # what the square of a number may hide in float32


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
        bias = None if bias is None else bias.detach().float()
        if made is None or not made.has_bytes() or weight.numel() < LEAST or len(weight) < made.lanes():
            return None
        first = 2 * made.lanes()  # words that are computed in any case
        if len(weight) * MOST_COMPUTED < first or not is_plain(weight):
            return None
        if not (weight.isfinite().all() and (bias is None or bias.isfinite().all())):
            return None
        parts = [_distances(part) for part in weight.split(max(1, AT_ONCE // weight.shape[1]))]
        error, length = (torch.cat(each) for each in zip(*parts, strict=True))
        return Screen(NativeLinear(made, weight, bias, in_bytes=True), weight, error, length)

    def note(self, looked_at: int, computed: int) -> None:
        """What came of a stretch."""
        self.looked_at, self.computed = self.looked_at + looked_at, self.computed + computed

    @property
    def pays(self) -> bool:
        """Whether few words are left to compute: states with a number far above the others are rough in eight bits."""
        return self.computed <= MOST_COMPUTED * max(self.looked_at, JUDGED_BY * len(self.table))


def _distances(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Of each row |w - w'| and |w'|, and a little more: what float32 may lose of them."""
    scale, numbers = in_eight_bits(weight)
    near = numbers.float().mul_(scale[:, None])
    length = torch.linalg.vector_norm(near, dim=1)
    error = torch.linalg.vector_norm(torch.sub(weight, near, out=near), dim=1)
    hidden = weight.shape[1] ** 0.5 * UNSEEN
    return error * (1 + 1e-4) + length * 2**-22 + hidden, length * (1 + 1e-4) + hidden


class Screening:
    """The screen of a table: made when so many rows have been searched that it pays, and let go where it does not."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        self.weight, self.bias = weight, bias
        self.screen: Screen | None = None
        self.searched, self.made = 0, False

    def of(self, rows: int) -> Screen | None:
        """For so many more rows; None where there is none, or not yet."""
        self.searched += rows
        if not self.made and self.searched > AFTER:
            self.screen, self.made = Screen.of(self.weight, self.bias), True
        if self.screen is not None and not self.screen.pays:
            self.screen = None
        return self.screen
