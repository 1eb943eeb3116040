"""Positions: how a set of vectors, to which attention gives no order, is told its order.

PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(pos / 10000^(2i/D)): the same exponent in both.

Positions are given as floating-point arrays, so that their precision is the result's. A learned table is
`embedding(position, table)`.

Vaswani et al. 2017, "Attention is all you need"; Su et al. 2021, "RoFormer: enhanced Transformer with rotary position
embedding"; Shaw et al. 2018, "Self-attention with relative position representations"; Raffel et al. 2020 (T5).
"""

from array_api_compat import array_namespace, device

from saccade.formulas.arrays import Array


def index(position: Array) -> Array:
    """Naive idea: the raw number, p = pos. It is unbounded, and grows past all that was seen in training. [C7]"""
    return position[..., None]  # (T,) -> (T, 1)


def fraction(position: Array, length: int) -> Array:
    """Naive idea: the part of the way, p = pos / (length - 1), in [0, 1]. [C7]

    The step between neighbours depends on the length: one distance means something else in every sentence.
    """
    return position[..., None] / max(length - 1, 1)  # (T,) -> (T, 1)


def angles(position: Array, width: int, base: float = 10000.0) -> Array:
    """Turn a position by one angle per pair of features, fast to slow: theta_i = pos / base^(2i/width). [C7]"""
    xp = array_namespace(position)
    if not xp.isdtype(position.dtype, "real floating"):
        raise TypeError(f"positions are {position.dtype}; give floating-point ones, their precision is the result's")
    pair = xp.arange(width // 2, dtype=position.dtype, device=device(position))
    return position[..., None] / base ** (2 * pair / width)  # (T,) -> (T, width / 2)


def sinusoidal(position: Array, width: int, base: float = 10000.0) -> Array:
    """Encode a position by waves, sine and cosine in turns: (sin theta_0, cos theta_0, sin theta_1, ...). [C7]

    theta_i = pos / base^(2i/width). Vaswani et al. 2017, as the paper writes it.
    """
    xp = array_namespace(position)
    theta = angles(position, width, base)
    pairs = xp.stack([xp.sin(theta), xp.cos(theta)], axis=-1)  # (T, width / 2, 2)
    return xp.reshape(pairs, (*position.shape, width))


def sinusoidal_halves(position: Array, width: int, base: float = 10000.0) -> Array:
    """Encode a position by waves, all sines first: (sin theta_0, sin theta_1, ..., cos theta_0, cos theta_1, ...). [C7]

    The same features in another order, as many programs store them. Vaswani et al. 2017.
    """
    xp = array_namespace(position)
    theta = angles(position, width, base)
    return xp.concat([xp.sin(theta), xp.cos(theta)], axis=-1)  # (T, width)


def rotary(x: Array, position: Array, base: float = 10000.0) -> Array:
    """Turn the pair (x_i, x_{i + K/2}) of every query or key by its position's angle; then q.k knows only distances.

    (a, b) -> (a cos - b sin, a sin + b cos), theta_i = pos / base^(2i/K). x is (..., T, K). [C7] Su et al. 2021, with
    the pairs taken from the two halves.
    """
    xp = array_namespace(x)
    theta = angles(position, x.shape[-1], base)  # (T, K / 2)
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    cos, sin = xp.cos(theta), xp.sin(theta)
    return xp.concat([first * cos - second * sin, first * sin + second * cos], axis=-1)


def rotary_interleaved(x: Array, position: Array, base: float = 10000.0) -> Array:
    """Turn the pair (x_{2i}, x_{2i+1}) of every query or key by its position's angle theta_i. [C7]

    (a, b) -> (a cos - b sin, a sin + b cos). x is (..., T, K). Su et al. 2021, neighbours as pairs, as written there.
    """
    xp = array_namespace(x)
    theta = angles(position, x.shape[-1], base)  # (T, K / 2)
    first, second = x[..., 0::2], x[..., 1::2]
    cos, sin = xp.cos(theta), xp.sin(theta)
    pairs = xp.stack([first * cos - second * sin, first * sin + second * cos], axis=-1)  # (..., T, K / 2, 2)
    return xp.reshape(pairs, x.shape)


def relative_bias(table: Array, query_position: Array, key_position: Array) -> Array:
    """Look up a number per head and distance, to be added to scores: b_{h,t,s} = table[h, clip(s - t, -R, R) + R].

    The table is (H, 2R + 1), the positions integers. [C7] Shaw et al. 2018, Raffel et al. 2020.
    """
    xp = array_namespace(table)
    reach = table.shape[-1] // 2
    distance = key_position[None, :] - query_position[:, None]  # (T, S)
    place = xp.reshape(xp.clip(distance, -reach, reach) + reach, (-1,))
    return xp.reshape(xp.take(table, place, axis=-1), (table.shape[0], *distance.shape))  # (H, T, S)
