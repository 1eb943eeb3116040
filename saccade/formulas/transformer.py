"""The Transformer: blocks of attention and a network per vector, each inside a residual with a norm, stacked.

post-norm: x = norm(x + f(x)); pre-norm: x = x + f(norm(x)).

Weights have names with dots. A block holds `self_attention`, `feed_forward` and, in a decoder, `cross_attention`, each
with a norm beside it: `self_attention.query.weight`, `self_attention_norm.weight`, `feed_forward.inner.bias`, ...

Vaswani et al. 2017, "Attention is all you need"; Xiong et al. 2020, "On layer normalization in the Transformer
architecture".
"""

from collections.abc import Callable, Sequence

from array_api_compat import array_namespace

from saccade.formulas.activations import relu
from saccade.formulas.arrays import Activation, Array, Weights
from saccade.formulas.basics import named_linear, part
from saccade.formulas.heads import multi_head_attention
from saccade.formulas.norms import layer_norm


def feed_forward(x: Array, weights: Weights, activation: Activation = relu) -> Array:
    """Work on each vector for itself: phi(x W_1 + b_1) W_2 + b_2, weights `inner`, `outer`. [D1] Vaswani et al. 2017.

    With weights `gate` as well, it is gated: (phi(x W_g + b_g) * (x W_1 + b_1)) W_2 + b_2. Shazeer 2020.
    """
    inner = named_linear(x, weights, "inner")
    if "gate.weight" in weights:
        inner = activation(named_linear(x, weights, "gate")) * inner
    else:
        inner = activation(inner)
    return named_linear(inner, weights, "outer")


def residual_norm(
    x: Array, layer: Callable[[Array], Array], norm: Weights, norm_first: bool, eps: float = 1e-5
) -> Array:
    """Add a layer's output to its input, normed after or before: norm(x + f(x)), or x + f(norm(x)) with `norm_first`.

    `norm` holds `weight` (gamma) and `bias` (beta). [D2] Vaswani et al. 2017, Xiong et al. 2020.
    """
    gamma, beta = norm["weight"], norm.get("bias")
    if norm_first:
        return x + layer(layer_norm(x, gamma, beta, eps=eps))
    return layer_norm(x + layer(x), gamma, beta, eps=eps)


def encoder_block(
    x: Array,
    weights: Weights,
    *,
    heads: int,
    mask: Array | None = None,
    norm_first: bool = False,
    activation: Activation = relu,
    eps: float = 1e-5,
) -> Array:
    """Look around, then think for oneself: x = x + attend(x, x), x = x + feed_forward(x), a norm at each. [D1, D2]

    Attention is the only place where vectors meet. Vaswani et al. 2017.
    """

    def look(x: Array) -> Array:
        return multi_head_attention(x, x, part(weights, "self_attention"), heads=heads, mask=mask)

    def think(x: Array) -> Array:
        return feed_forward(x, part(weights, "feed_forward"), activation)

    x = residual_norm(x, look, part(weights, "self_attention_norm"), norm_first, eps)
    return residual_norm(x, think, part(weights, "feed_forward_norm"), norm_first, eps)


def decoder_block(
    y: Array,
    memory: Array,
    weights: Weights,
    *,
    heads: int,
    mask: Array | None = None,
    memory_mask: Array | None = None,
    norm_first: bool = False,
    activation: Activation = relu,
    eps: float = 1e-5,
) -> Array:
    """Look back, look at the source, think: y + attend(y, y), y + attend(y, memory), y + feed_forward(y). [D3]

    Queries come from the decoder, keys and values of the second attention from the encoder. `mask` is usually causal.
    Vaswani et al. 2017.
    """

    def look_back(y: Array) -> Array:
        return multi_head_attention(y, y, part(weights, "self_attention"), heads=heads, mask=mask)

    def look_across(y: Array) -> Array:
        return multi_head_attention(y, memory, part(weights, "cross_attention"), heads=heads, mask=memory_mask)

    def think(y: Array) -> Array:
        return feed_forward(y, part(weights, "feed_forward"), activation)

    y = residual_norm(y, look_back, part(weights, "self_attention_norm"), norm_first, eps)
    y = residual_norm(y, look_across, part(weights, "cross_attention_norm"), norm_first, eps)
    return residual_norm(y, think, part(weights, "feed_forward_norm"), norm_first, eps)


def encoder(
    x: Array,
    blocks: Sequence[Weights],
    *,
    heads: int,
    mask: Array | None = None,
    norm_first: bool = False,
    activation: Activation = relu,
    eps: float = 1e-5,
    last_norm: Weights | None = None,
) -> Array:
    """Stack encoder blocks, 6 in the paper: x = block_N(... block_1(x)). [D3] Vaswani et al. 2017.

    A pre-norm stack leaves its sum without a norm, so it ends in one more, `last_norm`. Xiong et al. 2020.
    """
    for weights in blocks:
        x = encoder_block(x, weights, heads=heads, mask=mask, norm_first=norm_first, activation=activation, eps=eps)
    return x if last_norm is None else layer_norm(x, last_norm["weight"], last_norm.get("bias"), eps=eps)


def decoder(
    y: Array,
    memory: Array,
    blocks: Sequence[Weights],
    *,
    heads: int,
    mask: Array | None = None,
    memory_mask: Array | None = None,
    norm_first: bool = False,
    activation: Activation = relu,
    eps: float = 1e-5,
    last_norm: Weights | None = None,
) -> Array:
    """Stack decoder blocks, 6 in the paper, all looking at the same memory: y = block_N(... block_1(y, m), m). [D3]

    Vaswani et al. 2017; the last norm as in `encoder`.
    """
    for weights in blocks:
        y = decoder_block(
            y,
            memory,
            weights,
            heads=heads,
            mask=mask,
            memory_mask=memory_mask,
            norm_first=norm_first,
            activation=activation,
            eps=eps,
        )
    return y if last_norm is None else layer_norm(y, last_norm["weight"], last_norm.get("bias"), eps=eps)


def corrupt_tokens(
    tokens: Array, chosen: Array, fate: Array, random_tokens: Array, mask_token: int
) -> tuple[Array, Array]:
    """Hide tokens to be predicted back: 15% are chosen; of these 80% become [MASK], 10% random, 10% stay.

    `chosen` and `fate` are uniform draws in [0, 1), of the tokens' shape. Returns the tokens as a model sees them,
    and where it is asked. [E2] Devlin et al. 2019, "BERT".
    """
    xp = array_namespace(tokens)
    asked = chosen < 0.15
    shown = xp.where(fate < 0.8, xp.full_like(tokens, mask_token), xp.where(fate < 0.9, random_tokens, tokens))
    return xp.where(asked, shown, tokens), asked
