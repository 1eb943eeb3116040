"""Room in large pages, for tables that are read or written from end to end at each step: small ones are looked up every
four kilobytes, and a table that is read from memory takes a tenth longer."""

from __future__ import annotations

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
    """Memory of a table that is made at each step and let go before the next: the same again, where the system would
    take it back and clear what it gives instead. The last one that was let go is kept."""

    def __init__(self) -> None:
        self._free: list[tuple[mmap.mmap, int]] = []

    def room(self, rows: int, columns: int) -> Tensor:
        """An empty table of float32."""
        size = 4 * rows * columns
        if not hasattr(mmap, "MADV_HUGEPAGE") or size < PAGE:
            return torch.empty(rows, columns)
        try:
            block, first = self._free.pop()  # in one go: another thread may ask, too
        except IndexError:
            block, first = _block(size)
        if len(block) < PAGE + size:
            block, first = _block(size)
        lent = memoryview(block)  # every tensor that sees the table holds it
        weakref.finalize(lent, self._take_back, block, first).atexit = False
        return torch.frombuffer(lent, dtype=torch.float32, count=rows * columns, offset=first).view(rows, columns)

    def _take_back(self, block: mmap.mmap, first: int) -> None:
        self._free[:] = [(block, first)]


BLOCKS = Blocks()
AGAIN = Again()
