"""Cells of a Transformer that writes: where a step puts its keys and values, and which of them it looks at."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from saccade.nn.cache import KeyValues, Past
from saccade.nn.choice import Stretch
from saccade.nn.pages import room

ROOM = 16  # cells that a cache grows by, at least
USUAL = 64  # cells of an answer that there is room for from the start, at most
LONGEST = 256  # positions of a text that our own code reads at once; torch reads longer ones, without a table of S x S
AT_MOST = 4096  # positions of several prompts: with more, what lies between two layers would take much memory


class Cells:
    """Where a step writes its keys and values, and which it may look at: the same for all layers, whose cells lie side
    by side as if they were heads of one."""

    kept: KeyValues  # (N, layers G, S, K), N rows or sentences
    first: int  # cells filled before this step ...
    filled: int  # ... and after it
    position: Tensor  # (R,), where the first new one of each row stands
    steps: int  # new ones of each row
    causal: bool = False  # whether all are new, and each sees those before
    cell: Tensor  # (R,), of a single new position, where it is written ...
    seen: Tensor | None = None  # ... and (R, S) what it may look at, none: all up to there

    @functools.cached_property
    def at(self) -> Tensor:
        """Where all new ones stand, (R, t)."""
        return self.position[:, None] + torch.arange(self.steps)

    @functools.cached_property
    def mask(self) -> Tensor | None:
        """What the new ones may look at, as torch asks for it; our own code does not."""
        return None

    @property
    def reads_at_once(self) -> bool:
        """Whether the new ones are prompts that our own code reads faster than torch."""
        return False

    def make_room(self, cells: KeyValues, by: int, least: int = 0) -> None:
        """What a beam or a longer text needs is made in growing steps: little is copied, and little lies idle."""
        if max(self.filled, least) > len(cells):
            enough = max(self.filled, least, len(cells) + len(cells) // 2)
            cells = self.grown(cells, -(-enough // by) * by)
        self.kept = cells

    def grown(self, cells: KeyValues, capacity: int) -> KeyValues:
        return cells.grown(capacity)

    def write(self, number: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """The filled cells of one layer, the new ones (R, G, t, K) among them."""
        groups = slice(number * key.shape[1], (number + 1) * key.shape[1])
        keys, values = self.kept.key[:, groups], self.kept.value[:, groups]
        self.put(keys, key)
        self.put(values, value)
        return keys[:, :, : self.filled], values[:, :, : self.filled]

    def put(self, cells: Tensor, new: Tensor) -> None:
        cells[:, :, self.first : self.filled] = self.fold(new)

    def fold(self, x: Tensor) -> Tensor:
        return x

    def unfold(self, x: Tensor) -> Tensor:
        return x


@functools.lru_cache(maxsize=256)
def _own_cells(sentences: int, width: int, steps: int, first: int) -> tuple[Tensor, Tensor]:
    """Of `width` hypotheses of each sentence, which take `steps` new cells each from `first` on: where each begins (R,)
    and which of the new ones it sees (R, W t)."""
    own = torch.eye(width, dtype=torch.bool).repeat_interleave(steps, 1)
    return first + steps * torch.arange(width).repeat(sentences), own.repeat(sentences, 1)


@functools.lru_cache(maxsize=256)
def standing(rows: int, at: int) -> Tensor:
    """The position (R,) of rows that all stand at the same place."""
    return torch.full((rows,), at)


class OwnCells(Cells):
    """Every row has its own: those of a language model, whose prompts may have several lengths."""

    def __init__(self, past: Past, steps: int):
        self.position, self.steps = past.position, steps
        self.first, self.filled = past.used, past.used + steps
        self.make_room(past.state, ROOM)
        self.causal = steps > 1 and past.used == 0
        self.cell = past.position

    @property
    def steps_ahead(self) -> int:
        """How many steps there is room for, this one included."""
        return len(self.kept) - self.first

    @property
    def reads_at_once(self) -> bool:
        """Not where their tables would be large."""
        return self.causal and self.steps <= LONGEST and self.steps * len(self.position) <= AT_MOST

    @functools.cached_property
    def even(self) -> bool:
        """Whether all rows stand at the same place."""
        return bool((self.position == self.first).all())

    @functools.cached_property
    def mask(self) -> Tensor | None:
        """(R, 1, t, S)."""
        if self.causal or (self.steps == 1 and self.even):
            return None
        return (torch.arange(self.filled) <= self.at[..., None])[:, None]

    def put(self, cells: Tensor, new: Tensor) -> None:
        if self.even:
            super().put(cells, new)
        else:
            cells.scatter_(2, self.at[:, None, :, None].expand_as(new), new)

    def advanced(self, past: Past, steps: int) -> Past:
        rows, used = len(past.position), past.used + steps
        together = past.position is standing(rows, past.used)  # a sum of tensors would take ten times as long
        return Past(self.kept, past.memory, standing(rows, used) if together else past.position + steps, used)

    def after(self, past: Past, stretch: Stretch) -> Past:
        """Of the texts that go on."""
        return self.advanced(past, stretch.steps).select(stretch.left)


@functools.lru_cache(maxsize=64)
def places(sentences: int, length: int) -> Tensor:
    """Where each position of these sentences stands, (B S,): to make it takes a tenth of the time of a single one."""
    return torch.arange(length).repeat(sentences)


class PromptCells(Cells):
    """Those of prompts that are read at once: every position is a row, and looks at those up to it."""

    def __init__(self, own: Cells):
        rows, self.filled, self.kept = len(own.position), own.filled, own.kept
        self.position = self.cell = places(rows, self.filled)
        self.seen = torch.ones(self.filled, self.filled, dtype=torch.bool).tril().repeat(rows, 1)


class SharedCells(Cells):
    """A sentence's hypotheses share theirs like a memory: a beam copies none.

    Every step adds cells for each live hypothesis; `seen` says which of them each has behind it: all, as long as each
    sentence has one hypothesis. All that are filled have been written, so that what lies in the others does not matter.
    """

    @staticmethod
    def begun(sentences: int, heads: int, width: int, like: Tensor, limit: int) -> KeyValues:
        """Room for answers that may have so many tokens: most have half of them."""
        capacity = min(limit, max(ROOM, min(limit // 2 + ROOM // 2, USUAL)))
        key, value = (room(like, sentences, heads, capacity, width) for _ in range(2))
        return KeyValues(key, value)

    def __init__(self, past: Past, steps: int):
        self.others, cells = past.memory  # what the encoder says, and cells of each sentence
        self.position, self.steps = past.position, steps
        self.width = len(self.position) // max(cells.rows, 1)
        self.first = past.used if past.state is None else past.state.shape[1]
        self.filled = self.first + self.width * steps
        branches = past.state is None and self.width > 1
        self.make_room(cells, ROOM * self.width, len(cells) * self.width if branches else 0)
        if past.state is None and self.width == 1:
            self.cell, self.causal = past.position, steps > 1 and self.first == 0
        else:
            self.cell, own = _own_cells(cells.rows, self.width, steps, self.first)
            before = torch.ones(len(own), self.first, dtype=torch.bool) if past.state is None else past.state
            self.seen = torch.cat([before, own], 1)

    def grown(self, cells: KeyValues, capacity: int) -> KeyValues:
        """Only what is filled has to be copied."""
        key, value = (room(each, *each.shape[:2], capacity, each.shape[3]) for each in (cells.key, cells.value))
        for new, old in ((key, cells.key), (value, cells.value)):
            new[:, :, : self.first] = old[:, :, : self.first]
        return KeyValues(key, value, own=True)

    @functools.cached_property
    def mask(self) -> Tensor | None:
        """(B, 1, W t, S)."""
        if self.causal or (self.steps == 1 and self.seen is None):
            return None
        sentences = self.kept.rows
        seen = torch.ones(sentences, self.filled, dtype=torch.bool) if self.seen is None else self.seen
        asked = seen.view(sentences, self.width, 1, -1).repeat(1, 1, self.steps, 1)
        asked[..., self.first :] &= torch.ones(self.steps, self.steps, dtype=torch.bool).tril().repeat(1, self.width)
        return asked.flatten(1, 2)[:, None]

    def fold(self, x: Tensor) -> Tensor:
        """(B W, H, t, K) -> (B, H, W t, K)."""
        return x if self.width == 1 else x.unflatten(0, (-1, self.width)).transpose(1, 2).flatten(2, 3)

    def unfold(self, x: Tensor) -> Tensor:
        """(B, H, W t, K) -> (B W, H, t, K)."""
        return x if self.width == 1 else x.unflatten(2, (self.width, self.steps)).transpose(1, 2).flatten(0, 1)

    @property
    def steps_ahead(self) -> int:
        """How many steps there is room for, this one included."""
        return (len(self.kept) - self.first) // self.width

    def advanced(self, past: Past, steps: int) -> Past:
        used = past.used + steps
        return Past(self.seen, (self.others, self.kept), standing(len(past.position), used), used)

    def after(self, past: Past, stretch: Stretch) -> Past:
        """Of the sentences that are left."""
        used = past.used + stretch.steps
        all_ = Past(stretch.seen, (self.others, self.kept), standing(len(stretch.score), used), used)
        return all_ if len(stretch.left) == self.kept.rows else all_.keep(stretch.left)
