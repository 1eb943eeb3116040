"""Attention, generalised step by step: from one query over inputs to many heads.

E = Q K^T / sqrt(K), A = softmax over the keys of E, Y = A V.

A mask is boolean, True = may be seen, and broadcasts to (..., T, S). Weights are laid out (out, in) as in PyTorch, so
what the course writes as X W_Q with rows is linear(X, query_weight) here, with query_weight = W_Q^T.

Vaswani et al. 2017, "Attention is all you need"; Bahdanau et al. 2015, "Neural machine translation by jointly
learning to align and translate".
"""

import math

from array_api_compat import array_namespace

from saccade.formulas.arrays import Array, Score
from saccade.formulas.basics import linear, softmax
from saccade.formulas.scores import dot_score, scaled_dot_score


def attention_weights(scores: Array, mask: Array | None = None) -> Array:
    """Decide where to look: a = softmax over the keys of e, hidden keys counting as e = -inf. [C1, C8]

    A row that may see nothing looks nowhere: its weights are all zero, where exp(-inf) / 0 would not be a number.
    """
    if mask is None:
        return softmax(scores)
    xp = array_namespace(scores)
    lowest = xp.full_like(scores, xp.finfo(scores.dtype).min)
    top = xp.max(xp.where(mask, scores, lowest), axis=-1, keepdims=True)
    lowered = xp.where(mask, scores - top, xp.zeros_like(scores))
    raised = xp.where(mask, xp.exp(lowered), xp.zeros_like(scores))
    total = xp.sum(raised, axis=-1, keepdims=True)
    return raised / xp.where(total > 0, total, xp.ones_like(total))


def attention(
    query: Array, key: Array, value: Array, mask: Array | None = None, score: Score = scaled_dot_score
) -> Array:
    """Read the values where the keys answer the queries: Y = softmax(score(Q, K)) V. [C3, C8] Vaswani et al. 2017."""
    return attention_weights(score(query, key), mask) @ value  # (..., T, S) @ (..., S, E) -> (..., T, E)


def attend_with_one_query(query: Array, inputs: Array, score: Score = dot_score) -> Array:
    """Look over inputs with a single query: e_i = f(q, X_i), a = softmax(e), y = sum_i a_i X_i. [C1]"""
    return attention(query[..., None, :], inputs, inputs, score=score)[..., 0, :]  # (..., D) -> (..., D)


def attend_to_inputs(
    query: Array, inputs: Array, key_weight: Array, value_weight: Array, mask: Array | None = None
) -> Array:
    """Look over inputs through keys, and read them through values: K = X W_K, V = X W_V, Y = softmax(Q K^T/sqrt K) V.

    [C3] Vaswani et al. 2017.
    """
    return attention(query, linear(inputs, key_weight), linear(inputs, value_weight), mask)


def self_attention(
    x: Array, query_weight: Array, key_weight: Array, value_weight: Array, mask: Array | None = None
) -> Array:
    """Let every vector of a sequence ask all of them: Q = X W_Q, K = X W_K, V = X W_V. [C4, C5] Vaswani et al. 2017."""
    return attend_to_inputs(linear(x, query_weight), x, key_weight, value_weight, mask)


def attention_in_columns(query: Array, key: Array, value: Array, scaled: bool = True) -> Array:
    """Attend with a vector per column: Y = V softmax over the rows of (K^T Q / sqrt K). [C5] Prince 2023, chapter 12.

    query (..., K, T), key (..., K, S), value (..., E, S) -> (..., E, T).
    """
    scores = array_namespace(query).matrix_transpose(key) @ query  # (..., S, T)
    if scaled:
        scores = scores / math.sqrt(query.shape[-2])
    return value @ softmax(scores, axis=-2)


def self_attention_in_columns(
    x: Array, query_weight: Array, key_weight: Array, value_weight: Array, scaled: bool = True
) -> Array:
    """Attend to oneself with a vector per column: Sa[X] = V[X] softmax(K[X]^T Q[X]), V[X] = W_V X. [C5] Prince 2023."""
    return attention_in_columns(query_weight @ x, key_weight @ x, value_weight @ x, scaled)


def causal_mask(query_position: Array, key_position: Array | None = None) -> Array:
    """Forbid looking ahead: position t may see position s if s <= t. [C8] Vaswani et al. 2017.

    Positions rather than lengths, so that queries may start late in the memory: (T,), (S,) -> (T, S).
    """
    key_position = query_position if key_position is None else key_position
    return query_position[..., :, None] >= key_position[..., None, :]


def permutation_mask(rank: Array, sees_itself: bool) -> Array:
    """Forbid looking ahead in another order than the written: t may see s if rank_s < rank_t. [E10] Yang et al. 2019.

    `rank` says when each position's turn is. The content stream of XLNet sees itself, its query stream does not.
    """
    seen, asking = rank[..., None, :], rank[..., :, None]
    return seen <= asking if sees_itself else seen < asking  # (..., T, T)
