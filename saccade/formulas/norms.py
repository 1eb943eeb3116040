"""Normalisation: shift and scale so that the mean is 0 and the variance 1, then shift and scale as learned.

y = gamma * (x - mu) / sqrt(sigma^2 + eps) + beta. Layer and batch normalisation are this one formula; they differ in
the axes over which mu and sigma are taken, named below. gamma and beta broadcast against x: for channels-first
images (B, C, H, W) a value per channel has the shape (C, 1, 1).

Ba, Kiros and Hinton 2016, "Layer normalization"; Ioffe and Szegedy 2015, "Batch normalization"; Zhang and Sennrich
2019, "Root mean square layer normalization".
"""

import math

from array_api_compat import array_namespace

from saccade.formulas.arrays import Array, Axes

FEATURES: Axes = (-1,)  # layer norm of a linear layer's channels (B, D), and of each word of a sentence (B, T, D)
CHANNELS: Axes = (-3,)  # layer norm of a convolution (B, C, H, W), each cell of the grid for itself
CHANNELS_AND_GRID: Axes = (-3, -2, -1)  # layer norm of a convolution as it is commonly done
BATCH: Axes = (0,)  # batch norm of a linear layer (B, D)
BATCH_AND_TIME: Axes = (0, 1)  # batch norm of sentences (B, T, D): padding and lengths leak into it
BATCH_AND_GRID: Axes = (0, -2, -1)  # batch norm of a convolution (B, C, H, W)


def moments(x: Array, axes: Axes = FEATURES) -> tuple[Array, Array]:
    """Measure centre and spread: mu = mean of x, sigma^2 = mean of (x - mu)^2, the axes kept with length 1. [A7]"""
    xp = array_namespace(x)
    mean = xp.mean(x, axis=axes, keepdims=True)
    return mean, xp.mean((x - mean) ** 2, axis=axes, keepdims=True)


def normalize(
    x: Array, mean: Array, variance: Array, gamma: Array | None, beta: Array | None, eps: float = 1e-5
) -> Array:
    """Apply given statistics: y = gamma * (x - mu) / sqrt(sigma^2 + eps) + beta. [A7, A8]"""
    y = (x - mean) / array_namespace(x).sqrt(variance + eps)
    y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def layer_norm(
    x: Array, gamma: Array | None = None, beta: Array | None = None, *, axes: Axes = FEATURES, eps: float = 1e-5
) -> Array:
    """Normalise one example over its own features: mu, sigma^2 over `axes`, never over the batch. [A7, A9] Ba 2016."""
    mean, variance = moments(x, axes)
    return normalize(x, mean, variance, gamma, beta, eps)


def batch_norm(
    x: Array, gamma: Array | None = None, beta: Array | None = None, *, axes: Axes = BATCH, eps: float = 1e-5
) -> Array:
    """Normalise one feature over all examples of the batch: mu, sigma^2 over `axes`, as in training. [A8] Ioffe 2015.

    At inference the running averages take their place: `normalize(x, running_mean, running_variance, gamma, beta)`.
    """
    mean, variance = moments(x, axes)
    return normalize(x, mean, variance, gamma, beta, eps)


def update_running_averages(
    running_mean: Array, running_variance: Array, x: Array, *, axes: Axes = BATCH, momentum: float = 0.1
) -> tuple[Array, Array]:
    """Move the averages a little towards this batch: r' = (1 - m) r + m * statistic, the variance unbiased. [A8]

    The batch itself is normalised with sigma^2 over n, but n - 1 divides in what is remembered. Ioffe 2015.
    """
    mean, variance = moments(x, axes)
    count = math.prod(x.shape[axis] for axis in axes)
    unbiased = variance * count / (count - 1)
    return (1 - momentum) * running_mean + momentum * mean, (1 - momentum) * running_variance + momentum * unbiased


def rms_norm(x: Array, gamma: Array | None = None, *, axes: Axes = FEATURES, eps: float = 1e-5) -> Array:
    """Scale without shifting: y = gamma * x / sqrt(mean(x^2) + eps). [A7] Zhang and Sennrich 2019."""
    xp = array_namespace(x)
    y = x / xp.sqrt(xp.mean(x * x, axis=axes, keepdims=True) + eps)
    return y if gamma is None else y * gamma
