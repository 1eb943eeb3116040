"""What training makes small: how far off a prediction is.

(y - y')^2; -sum_v q_v log p_v with q smoothed; the symmetric contrast of paired vectors.

Szegedy et al. 2016, "Rethinking the Inception architecture" (label smoothing); Radford et al. 2021, "Learning
transferable visual models from natural language supervision"; Xu et al. 2015, "Show, attend and tell".
"""

from array_api_compat import array_namespace, device

from saccade.formulas.arrays import Array
from saccade.formulas.basics import log_softmax, one_hot


def squared_error(prediction: Array, truth: Array) -> Array:
    """Square the difference, element by element: (y - y')^2. [A5]"""
    return (prediction - truth) ** 2


def cross_entropy(logits: Array, target: Array, label_smoothing: float = 0.0) -> Array:
    """Charge for the truth's improbability, per position: -sum_v q_v log p_v, q = (1 - s) onehot(target) + s / V.

    Nothing is averaged here: logits (..., V) and target (...) give a loss (...). [D5] Szegedy et al. 2016.
    """
    xp = array_namespace(logits)
    classes = logits.shape[-1]
    truth = (1 - label_smoothing) * one_hot(target, classes, logits.dtype) + label_smoothing / classes  # (..., V)
    return -xp.sum(truth * log_softmax(logits), axis=-1)


def contrastive_loss(first: Array, second: Array, temperature: float = 0.07) -> Array:
    """Make row i of one side find row i of the other, both ways: (CE(S) + CE(S^T)) / 2, S = cosines / temperature.

    [E7] Radford et al. 2021.
    """
    xp = array_namespace(first)
    scores = cosine(first, second) / temperature  # (B, B)
    pairs = xp.arange(first.shape[0], device=device(first))
    there = xp.mean(cross_entropy(scores, pairs))
    back = xp.mean(cross_entropy(xp.matrix_transpose(scores), pairs))
    return (there + back) / 2


def cosine(first: Array, second: Array) -> Array:
    """Compare the directions of all rows of two sides: a . b / (|a| |b|). [E7, C2]"""
    xp = array_namespace(first)
    first = first / xp.sqrt(xp.sum(first * first, axis=-1, keepdims=True))
    second = second / xp.sqrt(xp.sum(second * second, axis=-1, keepdims=True))
    return first @ xp.matrix_transpose(second)  # (T, D), (S, D) -> (T, S)


def doubly_stochastic_penalty(weights: Array) -> Array:
    """Ask that every place be looked at about once over all steps: sum_i (1 - sum_t a_{t,i})^2. [B4] Xu et al. 2015."""
    xp = array_namespace(weights)
    looked = xp.sum(weights, axis=-2)  # (..., T, S) -> (..., S)
    return xp.sum((1 - looked) ** 2, axis=-1)


def perplexity(losses: Array) -> Array:
    """Read cross-entropies as a number of equally likely choices: exp(mean of the losses). [E1] Jelinek et al. 1977."""
    xp = array_namespace(losses)
    return xp.exp(xp.mean(losses))
