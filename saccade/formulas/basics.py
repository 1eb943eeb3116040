"""Linear layers, embeddings and what is built of them: row vectors in, row vectors out.

y = x W^T + b, with the weight laid out (out, in) as in PyTorch; y = phi(W x + b) + x; phi(W_L phi(... ) + b_L).

Rumelhart, Hinton and Williams 1986, "Learning representations by back-propagating errors".
He et al. 2016, "Deep residual learning for image recognition" (the residual layer).
"""

from collections.abc import Sequence
from typing import Any

from array_api_compat import array_namespace, device

from saccade.formulas.activations import relu
from saccade.formulas.arrays import Activation, Array, Weights


def softmax(x: Array, axis: int = -1) -> Array:
    """Turn scores into positive numbers that add up to one: softmax(x)_i = exp(x_i) / sum_j exp(x_j).

    Every score is lowered by the largest, which cancels in the fraction and keeps exp from overflowing.
    [C1] Bridle 1990.
    """
    xp = array_namespace(x)
    raised = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return raised / xp.sum(raised, axis=axis, keepdims=True)


def log_softmax(x: Array, axis: int = -1) -> Array:
    """Take the logarithm of softmax without forming it: log_softmax(x)_i = x_i - log sum_j exp(x_j). [D4]"""
    xp = array_namespace(x)
    lowered = x - xp.max(x, axis=axis, keepdims=True)
    return lowered - xp.log(xp.sum(xp.exp(lowered), axis=axis, keepdims=True))


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Map every row vector of x: y = x W^T + b. [A1]"""
    xp = array_namespace(x)
    y = x @ xp.matrix_transpose(weight)  # (..., in) -> (..., out)
    return y if bias is None else y + bias


def collapse(first_weight: Array, first_bias: Array, second_weight: Array, second_bias: Array) -> tuple[Array, Array]:
    """Write two linear layers in a row as one: W2 (W1 x + b1) + b2 = (W2 W1) x + (W2 b1 + b2). [A1]"""
    return second_weight @ first_weight, second_weight @ first_bias + second_bias


def residual(x: Array, weight: Array, bias: Array, activation: Activation = relu) -> Array:
    """Add a layer's output to its input: y = phi(W x + b) + x. [A3] He et al. 2016."""
    return activation(linear(x, weight, bias)) + x


def mlp(
    x: Array,
    layers: Sequence[tuple[Array, Array]],
    activation: Activation = relu,
    last_activation: Activation | None = None,
) -> Array:
    """Alternate linear layers and activations: phi(W_L phi(W_{L-1} (...) + b_{L-1}) + b_L).

    The course puts phi after the last layer too, so None stands for `activation`; give `identity` for a plain output.
    [A5] Rumelhart et al. 1986.
    """
    *inner, (weight, bias) = layers
    for inner_weight, inner_bias in inner:
        x = activation(linear(x, inner_weight, inner_bias))
    return (last_activation or activation)(linear(x, weight, bias))


def one_hot(index: Array, classes: int, dtype: Any) -> Array:
    """Write each index as a row of zeros with a single one: h_v = 1 if v = index else 0. [A6]"""
    xp = array_namespace(index)
    every = xp.arange(classes, device=device(index))
    return xp.astype(index[..., None] == every, dtype)  # (...,) -> (..., V)


def embedding_by_product(tokens: Array, table: Array) -> Array:
    """Embed tokens as one-hot rows times a matrix: e = h E. [A6] Bengio et al. 2003."""
    return one_hot(tokens, table.shape[0], table.dtype) @ table  # (..., V) @ (V, D) -> (..., D)


def embedding(tokens: Array, table: Array) -> Array:
    """Embed tokens by looking up rows of a matrix: e = E[token], the same as the one-hot product. [A6]"""
    xp = array_namespace(table)
    rows = xp.take(table, xp.reshape(tokens, (-1,)), axis=0)
    return xp.reshape(rows, (*tokens.shape, table.shape[-1]))  # (...,) -> (..., D)


def part(weights: Weights, name: str) -> dict[str, Array]:
    """Select the weights whose names begin with `name.`, and drop that beginning: {"a.b": w} below "a" is {"b": w}."""
    return {key.removeprefix(f"{name}."): value for key, value in weights.items() if key.startswith(f"{name}.")}


def named_linear(x: Array, weights: Weights, name: str) -> Array:
    """Apply the linear layer of that name: y = x W^T + b, W = `name.weight` and, if there is one, b = `name.bias`."""
    return linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
