"""Scores: how well each query fits each key, and the kernels that they are the logarithms of.

q.k; q.k / sqrt(K); v^T tanh(W q + U k); q^T W k; -|q - k|^2 / (2 sigma^2); y' = sum_i K(x, x_i) y_i / sum_i K(x, x_i).

All take queries (..., T, K) and keys (..., S, K) and give scores (..., T, S).

Bahdanau et al. 2015, "Neural machine translation by jointly learning to align and translate"; Luong et al. 2015,
"Effective approaches to attention-based neural machine translation"; Vaswani et al. 2017, "Attention is all you
need"; Nadaraya 1964, "On estimating regression"; Rasmussen and Williams 2006, "Gaussian processes for machine
learning".
"""

import math

from array_api_compat import array_namespace, device

from saccade.formulas.activations import tanh
from saccade.formulas.arrays import Array, Score
from saccade.formulas.basics import linear


def dot_score(query: Array, key: Array) -> Array:
    """Score by the dot product: e_{t,s} = q_t . k_s. [C2] Luong et al. 2015."""
    return query @ array_namespace(query).matrix_transpose(key)  # (..., T, S)


def scaled_dot_score(query: Array, key: Array) -> Array:
    """Score by the dot product over its standard deviation: e_{t,s} = q_t . k_s / sqrt(K). [C2] Vaswani et al. 2017.

    K is the width of the query itself: inside a head it is the head's width, model width / heads.
    """
    return dot_score(query, key) / math.sqrt(query.shape[-1])


def additive_score(
    query: Array, key: Array, query_weight: Array, key_weight: Array, vector: Array, bias: Array | None = None
) -> Array:
    """Score by a network with one hidden layer: e_{t,s} = v^T tanh(W q_t + U k_s + b). [B2] Bahdanau et al. 2015."""
    of_query = linear(query, query_weight, bias)[..., :, None, :]  # (..., T, 1, A)
    of_key = linear(key, key_weight)[..., None, :, :]  # (..., 1, S, A)
    return tanh(of_query + of_key) @ vector  # (..., T, S, A) -> (..., T, S)


def bilinear_score(query: Array, key: Array, weight: Array) -> Array:
    """Score by a learned product: e_{t,s} = q_t^T W k_s. [C2] Luong et al. 2015, who call it "general"."""
    return dot_score(query @ weight, key)


def gaussian_score(query: Array, key: Array, sigma: float = 1.0) -> Array:
    """Score by nearness: e_{t,s} = -|q_t - k_s|^2 / (2 sigma^2). [B6] Nadaraya 1964."""
    difference = query[..., :, None, :] - key[..., None, :, :]  # (..., T, S, K)
    return -array_namespace(query).sum(difference**2, axis=-1) / (2 * sigma**2)


def gaussian_kernel(query: Array, key: Array, sigma: float = 1.0) -> Array:
    """Measure likeness between 0 and 1: K(q, k) = exp(-|q - k|^2 / (2 sigma^2)). [B6]"""
    return array_namespace(query).exp(gaussian_score(query, key, sigma))


def kernel_sum(query: Array, examples: Array, targets: Array, kernel: Score = gaussian_kernel) -> Array:
    """Add up the examples' targets by their likeness to the query: y' = sum_i K(x, x_i) y_i. [B6]"""
    return kernel(query, examples) @ targets  # (..., T, S) @ (..., S, E) -> (..., T, E)


def kernel_regression(query: Array, examples: Array, targets: Array, kernel: Score = gaussian_kernel) -> Array:
    """Average the examples' targets by their likeness to the query: y' = sum_i K(x, x_i) y_i / sum_i K(x, x_i).

    With the kernel exp(q.k / sqrt(K)) of learned embeddings, this is attention. [B6] Nadaraya 1964, Watson 1964.
    """
    likeness = kernel(query, examples)  # (..., T, S)
    return likeness @ targets / array_namespace(query).sum(likeness, axis=-1, keepdims=True)


def gaussian_process_mean(
    query: Array, examples: Array, targets: Array, kernel: Score = gaussian_kernel, noise: float = 1e-6
) -> Array:
    """Predict with a Gaussian process: y' = sum_i K(x, x_i) w_i, w = (K(X, X) + noise I)^-1 y. [B6] Rasmussen 2006.

    `noise` is the variance of the targets around the function; without any, the mean goes through every target.
    """
    xp = array_namespace(query)
    size = examples.shape[-2]
    likeness = kernel(examples, examples) + noise * xp.eye(size, dtype=examples.dtype, device=device(examples))
    return kernel_sum(query, examples, xp.linalg.solve(likeness, targets), kernel)
