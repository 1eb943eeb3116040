"""Tables in large pages: beside each other and never over each other, given back with the last, or lent again."""

from __future__ import annotations

import gc
import mmap
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.nn import pages
from saccade.nn.pages import APART, BLOCK, PAGE, Again, Blocks


def test_tables_keep_what_is_written_beside_them() -> None:
    blocks = Blocks()
    sizes = [
        (1, torch.float32),
        (33, torch.uint8),
        (5_000_000, torch.float32),
        (1, torch.uint8),
        (9_000_000, torch.float32),
    ]
    tables = [blocks.room(count, dtype) for count, dtype in sizes]
    for number, table in enumerate(tables):
        table.fill_(number)
    for number, (table, (count, dtype)) in enumerate(zip(tables, sizes, strict=True)):
        assert (table.shape, table.dtype) == ((count,), dtype)
        assert bool((table == number).all())
        assert table.data_ptr() % APART == 0


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without large pages to ask for")
def test_a_block_is_given_back_with_its_last_table() -> None:
    blocks = Blocks()
    first, second = blocks.room(100, torch.float32), blocks.room(100, torch.float32)
    newest = blocks._newest
    assert newest is not None
    assert second.data_ptr() - first.data_ptr() == -(-400 // APART) * APART
    assert first.data_ptr() % pages.PAGE == 0
    del first
    gc.collect()
    assert newest() is not None
    del second
    gc.collect()
    assert newest() is None
    assert blocks.room(100, torch.float32).zero_().sum() == 0


def test_a_table_may_be_larger_than_a_block_or_empty() -> None:
    blocks = Blocks()
    assert blocks.room(BLOCK + 1, torch.uint8).fill_(1).sum() == BLOCK + 1
    assert blocks.room(0, torch.uint8).shape == (0,)


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without large pages to ask for")
@pytest.mark.parametrize("rows", [1024, 1000, 1])
def test_what_was_let_go_is_given_again_if_it_is_large_enough(rows: int) -> None:
    again = Again()
    table = again.room(1024, 1000)
    first = table.data_ptr()
    assert first % PAGE == 0
    del table
    found = again.room(rows, 1000)
    assert found.shape == (rows, 1000)
    assert (found.data_ptr() == first) == (rows * 4000 >= PAGE)  # a small one is torch's own
    assert again.room(4096, 1000).data_ptr() != first


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without large pages to ask for")
def test_of_several_that_were_let_go_the_smallest_that_fits_is_given_again() -> None:
    again = Again()
    sizes = (8, 2, 5)  # in pages
    tables = [again.room(size, PAGE // 4) for size in sizes]
    places = {size: table.data_ptr() for size, table in zip(sizes, tables, strict=True)}
    tables.clear()
    two, three, four = (again.room(size, PAGE // 4) for size in (2, 3, 4))
    assert [each.data_ptr() for each in (two, three, four)] == [places[2], places[5], places[8]]
    fifth = again.room(1, PAGE // 4)
    assert fifth.data_ptr() not in places.values()


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without large pages to ask for")
def test_only_some_are_kept_and_none_for_a_table_much_smaller() -> None:
    again = Again()
    tables = [again.room(1, PAGE // 4) for _ in range(Again.KEPT + 3)]
    tables.clear()
    assert len(again._free) == Again.KEPT
    again = Again()
    large = again.room(40, PAGE // 4)
    first = large.data_ptr()
    del large
    assert again.room(1, PAGE // 4).data_ptr() != first
    assert again.room(39, PAGE // 4).data_ptr() == first


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without large pages to ask for")
def test_what_is_kept_is_never_large() -> None:
    again = Again()
    tables = [again.room(size, PAGE // 4) for size in (50, 50, 50, 200)]
    while tables:
        tables.pop(0)
        assert sum(len(block) for block, _ in again._free) <= Again.KEPT_BYTES
    assert not again._free  # the last was larger than all that may be kept


@pytest.mark.parametrize("held", [lambda table: table[5, 7:9], lambda table: table.numpy()[5, 7:9]])
def test_what_anyone_still_sees_is_not_given_again(held: Callable[[Tensor], Any]) -> None:
    again = Again()
    table = again.room(1024, 1000).fill_(1.0)
    seen = held(table)
    del table
    again.room(1024, 1000).fill_(2.0)
    assert seen.tolist() == [1.0, 1.0]


def test_without_large_pages_there_is_room_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert Blocks().room(7, torch.float32).shape == (7,)
    assert Again().room(1024, 1000).shape == (1024, 1000)
