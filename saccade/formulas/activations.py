"""Activation functions, element by element, and the gated pairs that feed-forward layers use.

relu(x) = max(0, x); sigmoid(x) = 1 / (1 + e^-x); gelu(x) = x Phi(x); silu(x) = x sigmoid(x);
glu([a; b]) = a * sigmoid(b).

Hendrycks and Gimpel 2016, "Gaussian error linear units"; Dauphin et al. 2017, "Language modeling with gated
convolutional networks"; Shazeer 2020, "GLU variants improve Transformer".
"""

import math

from array_api_compat import array_namespace

from saccade.formulas.arrays import Array


def identity(x: Array) -> Array:
    """Change nothing: phi(x) = x. [A2]"""
    return x


def relu(x: Array) -> Array:
    """Cut off what is negative: max(0, x). [A2] Nair and Hinton 2010."""
    xp = array_namespace(x)
    return xp.where(x > 0, x, xp.zeros_like(x))


def sigmoid(x: Array) -> Array:
    """Squash into (0, 1): 1 / (1 + e^-x), written as (1 + tanh(x/2)) / 2, which cannot overflow. [A2]"""
    return (1 + tanh(x / 2)) / 2


def tanh(x: Array) -> Array:
    """Squash into (-1, 1): (e^x - e^-x) / (e^x + e^-x). [A2]"""
    return array_namespace(x).tanh(x)


def leaky_relu(x: Array, slope: float = 0.01) -> Array:
    """Let a little of the negative through: x if x > 0 else slope * x. [A2] Maas et al. 2013."""
    return array_namespace(x).where(x > 0, x, slope * x)


def elu(x: Array, alpha: float = 1.0) -> Array:
    """Level out smoothly at -alpha: x if x > 0 else alpha * (e^x - 1). [A2] Clevert et al. 2016."""
    xp = array_namespace(x)
    negative = xp.where(x > 0, xp.zeros_like(x), x)  # so that exp never sees a large number, not even unused
    return xp.where(x > 0, x, alpha * xp.expm1(negative))


def erf(x: Array) -> Array:
    """Integrate the bell curve: erf(x) = 2/sqrt(pi) e^(-x^2) sum_n 2^n x^(2n+1) / (1*3*5*...*(2n+1)).

    [A2] The standard has no erf. All terms of this series have one sign, so nothing cancels; beyond |x| = 6 a float64
    cannot tell erf from 1, and up to there 150 terms are more than enough.
    """
    xp = array_namespace(x)
    x = xp.clip(x, -6.0, 6.0)
    term = total = x
    for n in range(1, 150):
        term = term * (2 * x * x / (2 * n + 1))
        total = total + term
    return 2 / math.sqrt(math.pi) * xp.exp(-x * x) * total


def gelu(x: Array) -> Array:
    """Weigh x by the chance that a normal variable is below it: x (1 + erf(x / sqrt 2)) / 2. [A2] Hendrycks 2016."""
    return x * (1 + erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: Array) -> Array:
    """Approximate gelu as GPT-2 does: x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2. [A2] Hendrycks 2016."""
    return x * (1 + tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def quick_gelu(x: Array) -> Array:
    """Approximate gelu as CLIP does: x sigmoid(1.702 x). [A2] Hendrycks 2016."""
    return x * sigmoid(1.702 * x)


def silu(x: Array) -> Array:
    """Weigh x by its own sigmoid: x / (1 + e^-x). [A2] Elfwing et al. 2018; also called swish."""
    return x * sigmoid(x)


def glu(x: Array, axis: int = -1) -> Array:
    """Let the second half of an axis gate the first: glu([a; b]) = a * sigmoid(b). [A2] Dauphin et al. 2017."""
    xp = array_namespace(x)
    x = xp.moveaxis(x, axis, -1)
    half = x.shape[-1] // 2
    return xp.moveaxis(x[..., :half] * sigmoid(x[..., half:]), -1, axis)


def swiglu(gate: Array, value: Array) -> Array:
    """Gate one projection by another's silu: silu(gate) * value, with gate = W x and value = V x. [A2] Shazeer 2020."""
    return silu(gate) * value


def geglu(gate: Array, value: Array) -> Array:
    """Gate one projection by another's gelu: gelu(gate) * value, with gate = W x and value = V x. [A2] Shazeer 2020."""
    return gelu(gate) * value
