"""Heads: PyTorch's multi-head attention, the split vector as a block-diagonal projection, grouped key-value heads."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from saccade import formulas as f

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)

HEADS, WIDTH = 4, 8


def from_torch(module):
    weights = dict(zip(("query.weight", "key.weight", "value.weight"), module.in_proj_weight.chunk(3), strict=True))
    weights |= dict(zip(("query.bias", "key.bias", "value.bias"), module.in_proj_bias.chunk(3), strict=True))
    return weights | {"output.weight": module.out_proj.weight, "output.bias": module.out_proj.bias}


def projections(draw, width=WIDTH):
    return {f"{name}.weight": draw(width, width) for name in ("query", "key", "value", "output")}


@pytest.mark.parametrize("hidden", [False, True])
def test_multi_head_attention_is_the_same_as_torch_s(draw, hidden):
    module = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(module.in_proj_bias, generator=torch.Generator().manual_seed(1))
    x, memory = torch.tensor(draw(2, 3, WIDTH)), torch.tensor(draw(2, 5, WIDTH))
    mask = torch.tensor([[True, False, True, True, False]] * 3) if hidden else None
    theirs, _ = module(x, memory, memory, attn_mask=None if mask is None else ~mask)  # there True means hidden
    ours = f.multi_head_attention(x, memory, from_torch(module), heads=HEADS, mask=mask)
    assert_close(ours, theirs)


def test_splitting_the_vector_is_projecting_it_with_block_diagonal_weights(draw):
    x, memory = draw(2, 3, WIDTH), draw(2, 5, WIDTH)
    small = {f"{name}.weight": draw(HEADS, 2, 2) for name in ("query", "key", "value")}
    large = {name: f.block_diagonal(blocks) for name, blocks in small.items()}
    output = {"output.weight": draw(WIDTH, WIDTH), "output.bias": draw(WIDTH)}
    by_splitting = f.multi_head_attention_by_splitting(x, memory, small | output, heads=HEADS)
    by_projecting = f.multi_head_attention(x, memory, large | output, heads=HEADS)
    np.testing.assert_allclose(by_splitting, by_projecting, atol=1e-12)


def test_a_head_that_splits_is_blind_to_the_other_pieces_and_one_that_projects_is_not(draw):
    x = draw(3, WIDTH)
    other = np.concatenate([x[:, :2], draw(3, WIDTH - 2)], axis=1)  # the first head's piece stays
    keep = np.eye(WIDTH)
    small = {f"{name}.weight": draw(HEADS, 2, 2) for name in ("query", "key", "value")} | {"output.weight": keep}
    whole = projections(draw) | {"output.weight": keep}
    split = [f.multi_head_attention_by_splitting(y, y, small, heads=HEADS)[:, :2] for y in (x, other)]
    projected = [f.multi_head_attention(y, y, whole, heads=HEADS)[:, :2] for y in (x, other)]
    np.testing.assert_allclose(split[0], split[1], atol=1e-12)
    assert np.abs(projected[0] - projected[1]).max() > 0.1


def test_a_block_diagonal_matrix_is_zero_beside_its_blocks():
    blocks = np.arange(1.0, 9.0).reshape(2, 2, 2)
    expected = [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]]
    np.testing.assert_array_equal(f.block_diagonal(blocks), expected)


def test_one_head_is_plain_attention_between_projections(draw):
    x, weights = draw(5, WIDTH), projections(draw)
    plain = f.self_attention(x, weights["query.weight"], weights["key.weight"], weights["value.weight"])
    expected = f.linear(plain, weights["output.weight"])
    np.testing.assert_allclose(f.multi_head_attention(x, x, weights, heads=1), expected, atol=1e-12)


def test_every_head_is_an_attention_of_its_own_scaled_by_its_own_width_and_not_the_model_s(draw):
    x, weights = draw(5, WIDTH), projections(draw) | {"output.weight": np.eye(WIDTH)}
    joined = f.multi_head_attention(x, x, weights, heads=HEADS)
    for head in range(HEADS):
        rows = slice(2 * head, 2 * head + 2)
        query, key, value = (x @ weights[f"{name}.weight"][rows].T for name in ("query", "key", "value"))
        np.testing.assert_allclose(
            joined[:, rows], f.softmax(query @ key.T / np.sqrt(WIDTH / HEADS)) @ value, atol=1e-12
        )
        deck = f.softmax(query @ key.T / np.sqrt(WIDTH)) @ value  # deck 000 divides by sqrt(d) inside a head
        assert np.abs(joined[:, rows] - deck).max() > 0.01


def test_the_paper_s_heads_are_64_wide():
    assert f.split_heads(np.zeros((20, 512)), 8).shape == (8, 20, 64)


def test_merging_undoes_splitting(draw):
    x = draw(2, 3, WIDTH)
    np.testing.assert_array_equal(f.merge_heads(f.split_heads(x, HEADS)), x)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_key_value_heads_are_the_same_as_torch_s(draw, kv_heads):
    x = torch.tensor(draw(2, 3, WIDTH))
    width = 2 * kv_heads
    shapes = {"query": (WIDTH, WIDTH), "key": (width, WIDTH), "value": (width, WIDTH), "output": (WIDTH, WIDTH)}
    weights = {f"{name}.weight": torch.tensor(draw(*shape)) for name, shape in shapes.items()}
    query, key, value = (
        f.split_heads(x @ weights[f"{name}.weight"].T, heads)
        for name, heads in (("query", HEADS), ("key", kv_heads), ("value", kv_heads))
    )
    theirs = f.merge_heads(F.scaled_dot_product_attention(query, key, value, enable_gqa=True))
    ours = f.multi_head_attention(x, x, weights, heads=HEADS, kv_heads=kv_heads)
    assert_close(ours, theirs @ weights["output.weight"].T)


def test_a_head_whose_columns_of_the_output_are_zero_is_pruned(draw):
    x, weights = draw(5, WIDTH), projections(draw)
    pruned = weights["output.weight"].copy()
    pruned[:, :2] = 0
    without = f.multi_head_attention(x, x, weights | {"output.weight": pruned}, heads=HEADS)
    other_query = np.concatenate([draw(2, WIDTH), weights["query.weight"][2:]])  # the pruned head asks something else
    changed = weights | {"output.weight": pruned, "query.weight": other_query}
    np.testing.assert_allclose(f.multi_head_attention(x, x, changed, heads=HEADS), without, atol=1e-12)
