"""Attention over a grid: an image as a set of cells, and self-attention as a module inside a convolutional network.

Q, K, V = 1x1 convolutions of X; O = 1x1 convolution of softmax(Q K^T) V over all cells; Y = X + gamma O.

Images are (B, C, H, W), channels first.

Zhang et al. 2019, "Self-attention generative adversarial networks"; Dosovitskiy et al. 2021, "An image is worth 16x16
words".
"""

from array_api_compat import array_namespace

from saccade.formulas.arrays import Array, Score, Weights
from saccade.formulas.attention import attention
from saccade.formulas.basics import named_linear
from saccade.formulas.scores import dot_score


def cells(image: Array) -> Array:
    """Read a grid as a sequence of cells, row by row: (B, C, H, W) -> (B, H * W, C). [B4, C10]"""
    xp = array_namespace(image)
    batch, channels, height, width = image.shape
    return xp.matrix_transpose(xp.reshape(image, (batch, channels, height * width)))


def grid(sequence: Array, height: int, width: int) -> Array:
    """Lay a sequence of cells out as a grid again: (B, H * W, C) -> (B, C, H, W). [C10]"""
    xp = array_namespace(sequence)
    batch, _, channels = sequence.shape
    return xp.reshape(xp.matrix_transpose(sequence), (batch, channels, height, width))


def grid_self_attention(image: Array, weights: Weights, gamma: float | Array = 1.0, score: Score = dot_score) -> Array:
    """Let every cell of a feature map look at all others: Y = X + gamma * (softmax(Q K^T) V) W_O. [C10]

    A 1x1 convolution is a linear layer on each cell, so query, key, value and output have weights (out, in). gamma
    begins at 0 in training, and the module as the identity. Zhang et al. 2019, whose scores are not scaled.
    """
    x = cells(image)  # (B, H * W, C)
    query, key, value = (named_linear(x, weights, name) for name in ("query", "key", "value"))
    seen = named_linear(attention(query, key, value, score=score), weights, "output")  # (B, H * W, C)
    return image + gamma * grid(seen, *image.shape[-2:])


def patches(image: Array, size: int) -> Array:
    """Cut an image into squares, each a token: (B, C, H, W) -> (B, H/P * W/P, C * P * P), row by row. [E6]

    Inside a token the order is channel, row, column, as a convolution of stride P reads it. Dosovitskiy et al. 2021.
    """
    xp = array_namespace(image)
    batch, channels, height, width = image.shape
    rows, columns = height // size, width // size
    cut = xp.reshape(image, (batch, channels, rows, size, columns, size))
    cut = xp.permute_dims(cut, (0, 2, 4, 1, 3, 5))  # (B, rows, columns, C, P, P)
    return xp.reshape(cut, (batch, rows * columns, channels * size * size))
