"""Multi-head attention: several attentions side by side, each in a narrow space of its own.

head_j = Attention(Q W_Q^j, K W_K^j, V W_V^j), Y = Concat(head_1, ..., head_H) W_O; a head is D / H wide and its scores
are divided by sqrt(D / H).

Weights are named query.weight, key.weight, value.weight, output.weight, each with an optional bias. The rows of
query.weight are the heads' matrices one below the other.

Vaswani et al. 2017, "Attention is all you need"; Shazeer 2019, "Fast Transformer decoding"; Ainslie et al. 2023,
"GQA: training generalized multi-query Transformer models".
"""

from array_api_compat import array_namespace

from saccade.formulas.arrays import Array, Score, Weights
from saccade.formulas.attention import attention
from saccade.formulas.basics import named_linear
from saccade.formulas.scores import scaled_dot_score


def split_heads(x: Array, heads: int) -> Array:
    """Cut every vector into one piece per head: (..., T, H * K) -> (..., H, T, K). [C9]"""
    xp = array_namespace(x)
    pieces = xp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))  # (..., T, H, K)
    return xp.moveaxis(pieces, -2, -3)


def merge_heads(x: Array) -> Array:
    """Put the heads' pieces side by side again: (..., H, T, K) -> (..., T, H * K). [C9]"""
    xp = array_namespace(x)
    pieces = xp.moveaxis(x, -3, -2)  # (..., T, H, K)
    return xp.reshape(pieces, (*pieces.shape[:-2], pieces.shape[-2] * pieces.shape[-1]))


def multi_head_attention(
    x: Array,
    memory: Array,
    weights: Weights,
    *,
    heads: int,
    kv_heads: int | None = None,
    mask: Array | None = None,
    score: Score = scaled_dot_score,
) -> Array:
    """Project the whole vector for each head, attend, join: Concat_j(Attention(x W_Q^j, m W_K^j, m W_V^j)) W_O.

    With fewer key-value heads than heads, each serves heads / kv_heads neighbouring heads. A mask with a head axis is
    (..., H, T, S). [C9] Vaswani et al. 2017, Ainslie et al. 2023.
    """
    xp = array_namespace(x)
    kv_heads = kv_heads or heads
    query = split_heads(named_linear(x, weights, "query"), heads)  # (..., H, T, K)
    key = split_heads(named_linear(memory, weights, "key"), kv_heads)  # (..., G, S, K)
    value = split_heads(named_linear(memory, weights, "value"), kv_heads)  # (..., G, S, K)
    key = xp.repeat(key, heads // kv_heads, axis=-3)  # (..., H, S, K)
    value = xp.repeat(value, heads // kv_heads, axis=-3)  # (..., H, S, K)
    context = attention(query, key, value, mask, score)  # (..., H, T, K)
    return named_linear(merge_heads(context), weights, "output")


def multi_head_attention_by_splitting(
    x: Array, memory: Array, weights: Weights, *, heads: int, mask: Array | None = None
) -> Array:
    """Give each head only its own piece of the vector: Concat_j(Attention(x_j W_Q^j, m_j W_K^j, m_j W_V^j)) W_O.

    Here query.weight, key.weight and value.weight are small matrices, one per head: (H, D / H, D / H). It equals the
    whole projection with these matrices along the diagonal of a large one and zeros elsewhere. [C9]
    """
    xp = array_namespace(x)
    piece, memory_piece = split_heads(x, heads), split_heads(memory, heads)  # (..., H, T, K), (..., H, S, K)
    query = piece @ xp.matrix_transpose(weights["query.weight"])
    key = memory_piece @ xp.matrix_transpose(weights["key.weight"])
    value = memory_piece @ xp.matrix_transpose(weights["value.weight"])
    return named_linear(merge_heads(attention(query, key, value, mask)), weights, "output")


def block_diagonal(blocks: Array) -> Array:
    """Place matrices along the diagonal of a large one, zeros elsewhere: (H, M, N) -> (H * M, H * N). [C9]"""
    xp = array_namespace(blocks)
    count = blocks.shape[0]
    rows = [
        xp.concat([blocks[i] if i == j else xp.zeros_like(blocks[i]) for j in range(count)], axis=1)
        for i in range(count)
    ]
    return xp.concat(rows, axis=0)
