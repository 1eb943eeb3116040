"""What a layer remembers and what a decoder has behind it, as pytrees that are passed in and handed back.

Nothing here lives on a layer: a model does not remember a conversation. Tensors are batch first and preallocated with a
capacity in powers of two, so a decoding step meets few different shapes. Letters: B sentences, R rows (hypotheses, W
per sentence), H heads, S remembered cells, K and E the widths of a head's keys and values.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from saccade.nn.pages import room

SMALLEST_CAPACITY = 16


@dataclass(frozen=True)
class KeyValues:
    """Projected cells that may be looked at.

    `mask` says which cells are real (True = may be seen; None: all of them). `position` is the place of the first
    asking vector of each row, None for zero: a cache is asked from where it was filled up to, a fresh memory from its
    beginning. Cells that were copied for one search alone (`own`) may be written over when it needs them no more.
    """

    key: Tensor  # (B, H, S, K)
    value: Tensor  # (B, H, S, E)
    mask: Tensor | None = None  # (B, S)
    position: Tensor | None = None  # (B,)
    own: bool = False

    @staticmethod
    def empty(rows: int, heads: int, widths: tuple[int, int], like: Tensor, capacity: int) -> KeyValues:
        """Room for `capacity` cells in each row, none of them filled."""
        key, value = (like.new_zeros(rows, heads, capacity, width) for width in widths)
        return KeyValues(key, value)

    def __len__(self) -> int:
        return self.key.shape[2]

    @property
    def rows(self) -> int:
        return self.key.shape[0]

    def since(self, position: Tensor) -> KeyValues:
        """The same cells, asked by vectors that begin at `position` (R,)."""
        return replace(self, position=position)

    def append(self, new: KeyValues) -> KeyValues:
        """Write new cells at each row's position, into the room that is there.

        Cells after the position are never visible to a causal layer, so the write may be in place.
        """
        if self.position is None:
            raise ValueError("a cache must know each row's position before cells are appended; call since(position)")
        if int(self.position.max()) + len(new) > len(self):
            raise ValueError(f"no room for {len(new)} more cells after {int(self.position.max())} of {len(self)}")
        steps = torch.arange(len(new), device=self.position.device)
        cells = (self.position[:, None] + steps)[:, None, :, None]  # (R, 1, t, 1)
        self.key.scatter_(2, cells.expand_as(new.key), new.key)
        self.value.scatter_(2, cells.expand_as(new.value), new.value)
        return self

    def keep(self, rows: Sequence[int]) -> KeyValues:
        """These rows, in this order: copied once, and from then on one's own, of which only those are copied again that
        move to the place of another."""
        chosen = torch.tensor(rows, dtype=torch.long, device=self.key.device)
        mask, position = (None if each is None else each.index_select(0, chosen) for each in (self.mask, self.position))
        moved = [(place, row) for place, row in enumerate(rows) if row != place]
        if not self.own or any(row < place for place, row in moved):  # whoever moves back may be written over before
            key, value = (
                torch.index_select(each, 0, chosen, out=room(each, len(rows), *each.shape[1:]))
                for each in (self.key, self.value)
            )
            return KeyValues(key, value, mask, position, own=True)
        for place, row in moved:
            self.key[place], self.value[place] = self.key[row], self.value[row]
        return replace(self, key=self.key[: len(rows)], value=self.value[: len(rows)], mask=mask, position=position)

    def grown(self, capacity: int) -> KeyValues:
        """The same cells with room for more."""
        extra = capacity - len(self)
        key, value = (torch.nn.functional.pad(tensor, (0, 0, 0, extra)) for tensor in (self.key, self.value))
        return replace(self, key=key, value=value)


@dataclass(frozen=True)
class Past:
    """All that a decoder has behind it.

    `state` has one row per hypothesis and follows the survivors of a beam; `memory` has one row per sentence, is
    shared by the sentence's hypotheses and never copied for them (attention folds the beam into the asking axis
    instead). A past that was stepped on is spent: its tensors may have been written to.
    """

    state: Any  # pytree of (R, ...)
    memory: Any  # pytree of (B, ...)
    position: Tensor  # (R,)
    used: int = 0  # upper bound of position, known without looking at the tensor

    def select(self, rows: Sequence[int]) -> Past:
        """Keep these hypotheses, in this order, with repetitions; nothing is copied when nothing changes."""
        if list(rows) == list(range(len(self.position))):
            return self
        chosen = self._places(rows)
        state = _map_tensors(lambda tensor: tensor.index_select(0, chosen), self.state)
        return Past(state, self.memory, self.position.index_select(0, chosen), self.used)

    def keep(self, sentences: Sequence[int]) -> Past:
        """Drop the memory of every other sentence."""
        chosen = self._places(sentences)

        def kept(leaf: Any) -> Any:
            if _is_cache(leaf):
                return leaf.keep(sentences)
            return leaf.index_select(0, chosen) if isinstance(leaf, Tensor) else leaf

        return replace(self, memory=pytree.tree_map(kept, self.memory, is_leaf=_is_cache))

    @staticmethod
    def joined(pasts: Sequence[Past]) -> Past:
        """Several pasts as the rows of one, each where it stands."""
        if len(pasts) == 1:
            return pasts[0]
        caches = (leaf for past in pasts for leaf in pytree.tree_leaves(past.state, is_leaf=_is_cache))
        capacity = max((len(leaf) for leaf in caches if _is_cache(leaf)), default=0)
        used = max(past.used for past in pasts)
        alike = [pytree.tree_flatten(replace(past._grown(capacity), used=used)) for past in pasts]
        matched = zip(*(leaves for leaves, _ in alike), strict=True)
        leaves = [torch.cat(same) if isinstance(same[0], Tensor) else same[0] for same in matched]
        return pytree.tree_unflatten(leaves, alike[0][1])

    def room_for(self, steps: int) -> Past:
        """The same past with room for so many more cells: capacity doubles when it must."""
        return self._grown(capacity_for(self.used + steps))

    def advanced(self, state: Any, steps: int) -> Past:
        """The past after so many more positions."""
        return Past(state, self.memory, self.position + steps, self.used + steps)

    def _places(self, numbers: Sequence[int]) -> Tensor:
        """A tensor of few numbers, by way of an array, which takes half the time."""
        if not numbers:
            return self.position.new_empty(0)
        return torch.frombuffer(array("q", numbers), dtype=torch.long).to(self.position.device)

    def _grown(self, capacity: int) -> Past:
        def grow(leaf: Any) -> Any:
            return leaf.grown(capacity) if _is_cache(leaf) and len(leaf) < capacity else leaf

        return replace(self, state=pytree.tree_map(grow, self.state, is_leaf=_is_cache))


def capacity_for(cells: int) -> int:
    """The smallest power of two that holds so many cells."""
    return max(SMALLEST_CAPACITY, 1 << max(cells - 1, 0).bit_length())


def _is_cache(leaf: Any) -> bool:
    return isinstance(leaf, KeyValues)


def _map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return function(tree)  # a tree of one leaf, in a tenth of the time
    return pytree.tree_map_only(Tensor, function, tree)


pytree.register_pytree_node(
    KeyValues,
    lambda kv: ([kv.key, kv.value, kv.mask, kv.position], kv.own),
    lambda children, own: KeyValues(*children, own),  # type: ignore[call-arg]
    serialized_type_name="saccade.KeyValues",
)
pytree.register_pytree_node(
    Past,
    lambda past: ([past.state, past.memory, past.position], past.used),
    lambda children, used: Past(*children, used),  # type: ignore[call-arg]
    serialized_type_name="saccade.Past",
)
