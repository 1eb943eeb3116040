"""Room in large pages, for tables that are read or written from end to end at each step: small ones are looked up every
four kilobytes, and a table that is read from memory takes a tenth longer."""

from __future__ import annotations

import math
import mmap
import threading
import weakref

import torch
from torch import Tensor

PAGE = 1 << 21
BLOCK = 16 * PAGE  # asked of the system at a time: most tables are smaller than a page
APART = 64  # bytes; tables begin at multiples of them


def _block(size: int) -> tuple[mmap.mmap, int]:
    """New memory, and where in it a page begins that has room for so many bytes."""
    block = mmap.mmap(-1, PAGE + size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    return block, -torch.frombuffer(block, dtype=torch.uint8, count=1).data_ptr() % PAGE


class Blocks:
    """Pieces of memory in which tables lie one after the other; each is given back with the last of its tables."""

    def __init__(self) -> None:
        self._newest: weakref.ref[mmap.mmap] | None = None
        self._used = 0  # bytes of the newest
        self._one_at_a_time = threading.Lock()

    def room(self, count: int, dtype: torch.dtype) -> Tensor:
        """An empty tensor (count,), in large pages where the system has them."""
        size = count * dtype.itemsize
        if not hasattr(mmap, "MADV_HUGEPAGE") or not size:
            return torch.empty(count, dtype=dtype)
        with self._one_at_a_time:
            block = self._newest() if self._newest is not None else None
            if block is None or self._used + size > len(block):
                block, self._used = _block(max(BLOCK, size))
                self._newest = weakref.ref(block)
            found = torch.frombuffer(block, dtype=dtype, count=count, offset=self._used)
            self._used += -(-size // APART) * APART
        return found


class Again:
    """Memory of tables that are made at each step, or for each batch, and let go before the next: the same again, where
    the system would take it back and clear what it gives instead. The last few that were let go are kept, as long as
    they are not large: of those, clearing is the smaller part."""

    KEPT, KEPT_BYTES = 16, 128 * PAGE
    LEAST = PAGE // 4  # bytes; what is smaller is torch's own

    def __init__(self) -> None:
        self._free: list[tuple[mmap.mmap, int]] = []

    def room(self, *shape: int) -> Tensor:
        """An empty table of float32."""
        count = math.prod(shape)
        if not hasattr(mmap, "MADV_HUGEPAGE") or 4 * count < self.LEAST:
            return torch.empty(shape, dtype=torch.float32)
        block, first = self._fitting(4 * count)
        lent = memoryview(block)  # every tensor that sees the table holds it
        weakref.finalize(lent, self._take_back, block, first).atexit = False
        return torch.frombuffer(lent, dtype=torch.float32, count=count, offset=first).view(shape)

    def _fitting(self, size: int) -> tuple[mmap.mmap, int]:
        """The smallest that is large enough, and no waste; another thread may take it first, and then there is none."""
        fitting = [free for free in self._free if PAGE + size <= len(free[0]) <= PAGE + max(BLOCK, 4 * size)]
        try:
            chosen = min(fitting, key=lambda free: len(free[0]))
            self._free.remove(chosen)
        except ValueError:
            return _block(-(-size // PAGE) * PAGE)
        return chosen

    def _take_back(self, block: mmap.mmap, first: int) -> None:
        self._free.append((block, first))
        while len(self._free) > self.KEPT or sum(len(each) for each, _ in list(self._free)) > self.KEPT_BYTES:
            del self._free[:1]  # each of these is done in one go: another thread may give and take, too


BLOCKS = Blocks()
AGAIN = Again()


def room(like: Tensor, *shape: int) -> Tensor:
    """An empty tensor, in memory that something before has let go where there is some."""
    plain = like.dtype == torch.float32 and like.device.type == "cpu"
    return AGAIN.room(*shape) if plain else like.new_empty(shape)
