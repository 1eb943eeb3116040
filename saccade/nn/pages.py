"""Room in large pages, for tables that are read from end to end at each step: small ones are looked up every four
kilobytes, and a table that is read from memory takes a tenth longer."""

from __future__ import annotations

import mmap
import threading
import weakref

import torch
from torch import Tensor

PAGE = 1 << 21
BLOCK = 16 * PAGE  # asked of the system at a time: most tables are smaller than a page
APART = 64  # bytes; tables begin at multiples of them


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
                block = mmap.mmap(-1, PAGE + max(BLOCK, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                block.madvise(mmap.MADV_HUGEPAGE)
                address = torch.frombuffer(block, dtype=torch.uint8, count=1).data_ptr()
                self._newest, self._used = weakref.ref(block), -address % PAGE
            found = torch.frombuffer(block, dtype=dtype, count=count, offset=self._used)
            self._used += -(-size // APART) * APART
        return found


BLOCKS = Blocks()
