"""How surprised a language model is by a text, per token, per word and per byte.

    loss = -(1 / N) sum_t log p(y_t | y_<t)    perplexity = exp(loss)    bits per byte = -(1 / bytes) sum_t log2 p(y_t)

Only what is counted per word or byte compares models with different vocabularies, and only where these know the same
text: an unknown word is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from saccade.errors import SaccadeError
from saccade.metrics.score import Score, bootstrap_interval


def perplexities(surprise: ArrayLike, tokens: ArrayLike, *, words: int, text_bytes: int) -> list[Score]:
    """Scores of a text in parts: the surprise of each in nats, and its tokens; intervals by resampling the parts."""
    parts = np.stack([np.asarray(surprise, dtype=np.float64), np.asarray(tokens, dtype=np.float64)], axis=1)
    if parts[:, 1].sum() == 0:
        raise SaccadeError("there is no text to score")
    count = parts[:, 1].sum()

    def loss(rows: np.ndarray) -> float:
        return float(rows[:, 0].sum() / rows[:, 1].sum())

    low, high = bootstrap_interval(parts, loss)
    per_word, per_byte = count / max(words, 1), count / max(text_bytes, 1)
    counted = f"{int(count):,} tokens, {words:,} words, {text_bytes:,} bytes"

    def scaled(name: str, function: Callable[[float], float], digits: int) -> Score:
        ends = (function(low), function(high))
        return Score(name, function(loss(parts)), ends, counted, digits)

    return [
        scaled("loss per token", float, 4),
        scaled("perplexity per token", math.exp, 2),
        scaled("perplexity per word", lambda value: math.exp(min(value * per_word, 700.0)), 1),
        scaled("bits per byte", lambda value: value * per_byte / math.log(2), 4),
    ]
