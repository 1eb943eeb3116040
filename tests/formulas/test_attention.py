"""Attention in all its steps: PyTorch's reference, masks, both notations, and the order it does not know."""

from functools import partial

import jax
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade import formulas as f

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


def torch_random(draw, *shapes):
    return [torch.tensor(draw(*shape)) for shape in shapes]


def test_attention_is_the_same_as_torch_s_scaled_dot_product_attention(draw):
    query, key, value = torch_random(draw, (2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6))
    assert_close(f.attention(query, key, value), F.scaled_dot_product_attention(query, key, value))


def test_masked_attention_is_the_same_as_torch_s_with_true_for_what_may_be_seen(draw):
    query, key, value = torch_random(draw, (2, 3, 4, 8), (2, 3, 5, 8), (2, 3, 5, 6))
    mask = torch.tensor(draw(2, 1, 4, 5)) > 0
    mask[..., 0] = True
    theirs = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    assert_close(f.attention(query, key, value, mask), theirs)


def test_causal_attention_is_the_same_as_torch_s(draw):
    query, key, value = torch_random(draw, (2, 6, 8), (2, 6, 8), (2, 6, 8))
    theirs = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert_close(f.attention(query, key, value, f.causal_mask(torch.arange(6))), theirs)


def test_a_causal_mask_is_true_on_and_below_the_diagonal():
    np.testing.assert_array_equal(f.causal_mask(np.arange(3)), np.tri(3, dtype=bool))


def test_a_causal_mask_of_late_queries_is_the_last_rows_of_the_whole_one():
    whole = f.causal_mask(np.arange(7))
    np.testing.assert_array_equal(f.causal_mask(np.arange(5, 7), np.arange(7)), whole[5:])


def test_a_word_under_the_causal_mask_does_not_change_when_the_future_does(draw):
    x, weights = draw(6, 4), [draw(4, 4) for _ in range(3)]
    mask = f.causal_mask(np.arange(6))
    before = f.self_attention(x, *weights, mask)
    changed = np.concatenate([x[:3], draw(3, 4)])
    after = f.self_attention(changed, *weights, mask)
    np.testing.assert_allclose(after[:3], before[:3], atol=1e-12)
    assert np.abs(after[3:] - before[3:]).max() > 0.1


def test_a_permutation_mask_in_written_order_is_the_causal_mask_with_or_without_the_diagonal():
    rank = np.arange(4)
    np.testing.assert_array_equal(f.permutation_mask(rank, sees_itself=True), np.tri(4, dtype=bool))
    np.testing.assert_array_equal(f.permutation_mask(rank, sees_itself=False), np.tri(4, k=-1, dtype=bool))


def test_a_permutation_mask_lets_each_position_see_as_many_as_had_their_turn():
    rank = np.asarray([2, 0, 3, 1])
    np.testing.assert_array_equal(f.permutation_mask(rank, sees_itself=False).sum(axis=-1), rank)


def test_a_fully_hidden_row_gives_zeros_and_leaves_the_other_rows_alone(draw, library):
    query, key, value = draw(3, 4), draw(5, 4), draw(5, 2)
    mask = np.ones((3, 5), dtype=bool)
    mask[1] = False
    seen = library.numpy(f.attention(*(library.array(array) for array in (query, key, value, mask))))
    np.testing.assert_array_equal(seen[1], np.zeros(2))
    np.testing.assert_allclose(seen[[0, 2]], f.attention(query, key, value)[[0, 2]], atol=1e-12)


def test_a_fully_hidden_row_has_a_gradient_of_zero_and_not_nan(draw):
    scores = torch.tensor(draw(2, 3), requires_grad=True)
    mask = torch.tensor([[True, True, False], [False, False, False]])
    (slope,) = torch.autograd.grad((f.attention_weights(scores, mask) ** 2).sum(), scores)
    assert torch.all(torch.isfinite(slope))
    assert torch.all(slope[~mask] == 0)
    values, mask = jax.numpy.asarray(scores.detach().numpy()), jax.numpy.asarray(mask.numpy())
    jax_slope = jax.grad(lambda scores: (f.attention_weights(scores, mask) ** 2).sum())(values)
    np.testing.assert_allclose(jax_slope, slope, atol=1e-12)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e4, 1e4), st.booleans()), min_size=1, max_size=8))
def test_weights_are_a_softmax_over_what_may_be_seen_and_zero_elsewhere(row):
    scores, mask = np.asarray([score for score, _ in row]), np.asarray([seen for _, seen in row])
    weights = f.attention_weights(scores, mask)
    assert np.all(weights[~mask] == 0)
    if mask.any():
        np.testing.assert_allclose(weights[mask], f.softmax(scores[mask]), atol=1e-12)


def test_masking_is_a_score_of_minus_infinity(draw):
    scores, mask = draw(4, 4), np.tri(4, dtype=bool)
    np.testing.assert_allclose(f.attention_weights(scores, mask), f.softmax(np.where(mask, scores, -np.inf)))


def test_one_query_is_a_search_that_returns_the_key_it_fits():
    inputs = 20 * np.eye(3)
    np.testing.assert_allclose(f.attend_with_one_query(np.asarray([0.0, 5, 0]), inputs), inputs[1], atol=1e-9)


def test_many_queries_are_each_query_alone(draw):
    queries, inputs, weights = draw(4, 3), draw(5, 6), (draw(3, 6), draw(2, 6))
    together = f.attend_to_inputs(queries, inputs, *weights)
    for query, seen in zip(queries, together, strict=True):
        np.testing.assert_allclose(f.attend_to_inputs(query[None], inputs, *weights)[0], seen, atol=1e-12)


def test_the_softmax_runs_over_the_keys_so_that_the_weights_of_each_query_add_up_to_one(draw):
    weights = f.attention_weights(f.scaled_dot_score(draw(3, 4), draw(5, 4)))
    np.testing.assert_allclose(weights.sum(axis=-1), 1)
    assert np.abs(weights.sum(axis=-2) - 1).max() > 0.1


def test_the_denominator_sums_over_other_keys_than_the_numerator_s_which_the_deck_does_not_write(draw):
    query, keys = draw(1, 4), draw(3, 4)
    raised = np.exp(f.dot_score(query, keys))
    np.testing.assert_allclose(f.attention_weights(f.dot_score(query, keys)), raised / raised.sum())
    deck = raised / (3 * raised)  # deck 002 writes k_m below the sum over m'; then every weight is 1/N
    assert np.abs(f.attention_weights(f.dot_score(query, keys)) - deck).max() > 0.1


@pytest.mark.parametrize("scaled", [True, False])
def test_column_notation_is_row_notation_transposed(draw, scaled):
    x, weights = draw(7, 5), (draw(4, 5), draw(4, 5), draw(3, 5))
    rows = f.attention(
        *(f.linear(x, weight) for weight in weights), score=f.scaled_dot_score if scaled else f.dot_score
    )
    np.testing.assert_allclose(f.self_attention_in_columns(x.T, *weights, scaled).T, rows, atol=1e-12)


def test_mixing_the_two_notations_as_one_deck_does_lets_features_attend_instead_of_words(draw):
    words, width = 7, 5
    columns, query_weight, key_weight = draw(width, words), draw(4, width), draw(4, width)
    mixed = (query_weight @ columns) @ (key_weight @ columns).T  # deck 004: W^Q X (W^K X)^T
    assert mixed.shape == (4, 4) != (words, words)
    right = f.dot_score(f.linear(columns.T, query_weight), f.linear(columns.T, key_weight))
    assert right.shape == (words, words)


def test_self_attention_is_permutation_equivariant(draw):
    x, weights = draw(6, 4), [draw(4, 4) for _ in range(3)]
    order = np.asarray([3, 0, 5, 1, 4, 2])
    np.testing.assert_allclose(f.self_attention(x[order], *weights), f.self_attention(x, *weights)[order], atol=1e-12)


def test_positions_break_the_equivariance(draw):
    x, weights = draw(6, 4), [draw(4, 4) for _ in range(3)]
    order = np.asarray([3, 0, 5, 1, 4, 2])
    places = f.sinusoidal(np.arange(6.0), 4)
    shuffled = f.self_attention(x[order] + places, *weights)
    assert np.abs(shuffled - f.self_attention(x + places, *weights)[order]).max() > 0.1


def test_self_attention_asks_with_the_sequence_itself(draw):
    x, query, key, value = draw(6, 4), draw(3, 4), draw(3, 4), draw(2, 4)
    asked = f.attend_to_inputs(f.linear(x, query), x, key, value)
    np.testing.assert_array_equal(f.self_attention(x, query, key, value), asked)
