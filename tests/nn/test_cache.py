"""Caches: cells written where each row stands, growth, beams that follow their survivors, pytrees."""

import pytest
import torch
from torch.utils import _pytree as pytree

from saccade.nn.cache import KeyValues, Past, capacity_for
from saccade.nn.recurrent import RecurrentMemory, RecurrentState


def cells(rows=3, count=2, heads=2, widths=(3, 4)):
    return KeyValues(*(torch.randn(rows, heads, count, width) for width in widths))


def a_past(rows=4, sentences=2):
    kv = KeyValues.empty(rows, 2, (3, 4), torch.empty(()), 16).since(torch.arange(rows))
    kv.key.normal_()
    kv.value.normal_()
    state = {"layers": (kv,), "hidden": torch.randn(rows, 5)}
    return Past(state, (cells(sentences), torch.randn(sentences, 1)), torch.arange(rows), used=rows)


def test_an_empty_cache_has_room_and_zeros_like_its_model():
    like = torch.empty((), dtype=torch.float16)
    kv = KeyValues.empty(3, 2, (4, 5), like, 16)
    assert (kv.key.shape, kv.value.shape, kv.key.dtype) == ((3, 2, 16, 4), (3, 2, 16, 5), torch.float16)
    assert (len(kv), kv.rows, kv.mask, kv.position) == (16, 3, None, None)
    assert not kv.key.any() and not kv.value.any()


def test_cells_are_appended_where_each_row_stands():
    position, new = torch.tensor([0, 3, 14]), cells()
    kv = KeyValues.empty(3, 2, (3, 4), torch.empty(()), 16).since(position).append(new)
    for row, start in enumerate(position.tolist()):
        for whole, part in ((kv.key[row], new.key[row]), (kv.value[row], new.value[row])):
            assert torch.equal(whole[:, start : start + 2], part)
            assert int(whole.count_nonzero()) == part.numel()


def test_appending_keeps_what_was_there_before():
    first, second = cells(count=2), cells(count=1)
    kv = KeyValues.empty(3, 2, (3, 4), torch.empty(()), 16).since(torch.tensor([0, 0, 0])).append(first)
    kv = kv.since(torch.tensor([2, 2, 2])).append(second)
    assert torch.equal(kv.key[:, :, :3], torch.cat([first.key, second.key], dim=2))
    assert torch.equal(kv.value[:, :, :3], torch.cat([first.value, second.value], dim=2))


def test_a_cache_that_does_not_know_its_position_refuses_cells():
    with pytest.raises(ValueError, match=r"call since\(position\)"):
        KeyValues.empty(3, 2, (3, 4), torch.empty(()), 16).append(cells())


@pytest.mark.parametrize(
    ("count", "capacity"), [(0, 16), (1, 16), (16, 16), (17, 32), (32, 32), (33, 64), (1000, 1024), (1025, 2048)]
)
def test_capacities_are_powers_of_two_from_sixteen_on(count, capacity):
    assert capacity_for(count) == capacity


def test_growth_keeps_every_cell_and_adds_empty_ones():
    past = a_past()
    before = past.state["layers"][0]
    after = past.room_for(13).state["layers"][0]
    assert (len(before), len(after)) == (16, 32)
    assert torch.equal(after.key[:, :, :16], before.key) and torch.equal(after.value[:, :, :16], before.value)
    assert not after.key[:, :, 16:].any() and not after.value[:, :, 16:].any()
    assert torch.equal(after.position, before.position)


def test_nothing_grows_while_there_is_room():
    past = a_past()
    assert past.room_for(12).state["layers"][0] is past.state["layers"][0]
    assert past.room_for(13).state["hidden"] is past.state["hidden"]
    assert past.room_for(13).memory is past.memory


def test_select_follows_the_survivors_in_order_and_with_repetition():
    past, rows = a_past(), [2, 0, 0, 3, 2]
    chosen = past.select(rows)
    for before, after in zip(pytree.tree_leaves(past.state), pytree.tree_leaves(chosen.state), strict=True):
        assert (before is None and after is None) or torch.equal(after, before[rows])
    assert chosen.position.tolist() == rows
    assert chosen.state["layers"][0].position.tolist() == rows
    assert (chosen.memory is past.memory, chosen.used) == (True, 4)


def test_select_of_everyone_in_order_copies_nothing():
    past = a_past()
    assert past.select([0, 1, 2, 3]) is past


@pytest.mark.parametrize("rows", [[0, 1, 2], [1, 0, 2, 3], [0, 1, 2, 3, 3]])
def test_select_of_anything_else_is_another_past(rows):
    chosen = a_past().select(rows)
    assert chosen.position.tolist() == rows


def test_keep_drops_the_memory_of_other_sentences_and_nothing_else():
    past = a_past()
    kept = past.keep([1])
    assert torch.equal(kept.memory[0].key, past.memory[0].key[1:])
    assert torch.equal(kept.memory[0].value, past.memory[0].value[1:])
    assert torch.equal(kept.memory[1], past.memory[1][1:])
    assert kept.state is past.state and kept.position is past.position


def test_keep_drops_the_masks_of_other_sentences_too():
    mask = torch.tensor([[True, False], [True, True]])
    past = Past((), KeyValues(*(torch.randn(2, 1, 2, 3) for _ in range(2)), mask), torch.zeros(2, dtype=torch.long))
    assert past.keep([1]).memory.mask.tolist() == [[True, True]]


@pytest.mark.parametrize("rows", [[0, 1, 2, 3], [0, 3, 2], [3, 1], [1, 2, 3], [2, 0], [2]])
def test_cells_are_copied_once_and_then_moved_where_they_are(rows: list[int]) -> None:
    cells = KeyValues(*(torch.randn(4, 2, 3, 5) for _ in range(2)), mask=torch.rand(4, 3) > 0.5)
    assert cells.mask is not None
    key, value, mask = cells.key.clone(), cells.value.clone(), cells.mask.clone()
    own = Past((), (cells, torch.arange(4)), torch.zeros(4, dtype=torch.long)).keep(range(4))
    at = own.memory[0].key.data_ptr()
    kept, numbers = own.keep(rows).memory
    assert torch.equal(kept.key, key[rows]) and torch.equal(kept.value, value[rows])
    assert torch.equal(kept.mask, mask[rows]) and numbers.tolist() == rows
    assert (kept.key.data_ptr() == at) == (rows != [2, 0])  # these would be written over before they are read
    assert torch.equal(cells.key, key) and torch.equal(cells.value, value) and torch.equal(cells.mask, mask)


def test_a_past_advances_its_position_and_its_bound_together():
    past = a_past()
    after = past.advanced("state", 3)
    assert (after.position.tolist(), after.used, after.state) == ([3, 4, 5, 6], 7, "state")
    assert after.memory is past.memory and past.position.tolist() == [0, 1, 2, 3]


TREES = {
    "a memory": lambda: cells(),
    "a masked memory": lambda: KeyValues(*(torch.randn(2, 1, 2, 3) for _ in range(2)), torch.ones(2, 2) > 0),
    "a cache": lambda: cells().since(torch.arange(3)),
    "a past": a_past,
    "a recurrent past": lambda: Past(
        RecurrentState((torch.randn(2, 1, 3),) * 2, torch.randn(2, 1, 4)),
        RecurrentMemory(None, torch.randn(2, 1, 5)),
        torch.zeros(2, dtype=torch.long),
        used=9,
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_a_tree_comes_back_from_its_leaves(name):
    tree = TREES[name]()
    leaves, shape = pytree.tree_flatten(tree)
    again = pytree.tree_unflatten(leaves, shape)
    assert type(again) is type(tree)
    assert pytree.tree_structure(again) == shape
    assert all(one is other for one, other in zip(leaves, pytree.tree_leaves(again), strict=True))
    assert getattr(again, "used", None) == getattr(tree, "used", None)


@pytest.mark.parametrize("name", TREES)
def test_every_tensor_survives_a_map_over_the_tree(name):
    tree = TREES[name]()
    mapped = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor + 1, tree)
    before, after = ([x for x in pytree.tree_leaves(each) if x is not None] for each in (tree, mapped))
    assert len(before) >= 2
    assert all(torch.equal(one + 1, other) for one, other in zip(before, after, strict=True))
