"""Networks made of the formulas train with jax.grad, as in the course's demonstration. [E9]"""

import jax
import jax.numpy as jnp
import numpy as np

from saccade import formulas as f


def descend(loss, weights, rate, steps):
    """Plain gradient descent; gives the first and the last loss."""

    @jax.jit
    def step(weights):
        value, slope = jax.value_and_grad(loss)(weights)
        return value, jax.tree.map(lambda weight, change: weight - rate * change, weights, slope)

    first, weights = step(weights)
    for _ in range(steps):
        last, weights = step(weights)
    return float(first), float(last)


def test_a_small_network_learns_exclusive_or_which_no_linear_layer_can(draw):
    x, truth = jnp.asarray([[0.0, 0], [0, 1], [1, 0], [1, 1]]), jnp.asarray([[0.0], [1], [1], [0]])

    def loss(layers):
        return f.squared_error(f.mlp(x, layers, f.tanh, f.identity), truth).mean()

    _, deep = descend(
        loss, [(jnp.asarray(draw(8, 2)), jnp.zeros(8)), (jnp.asarray(draw(1, 8)), jnp.zeros(1))], 0.1, 500
    )
    _, flat = descend(loss, [(jnp.asarray(draw(1, 2)), jnp.zeros(1))], 0.1, 500)
    assert deep < 1e-3
    assert flat > 0.24


def test_a_tiny_transformer_learns_to_reverse_its_input(draw):
    length, vocabulary, width = 4, 5, 16
    source = jnp.asarray(np.random.default_rng(0).integers(vocabulary, size=(64, length)))
    places = f.sinusoidal(jnp.arange(float(length)), width)

    names = [f"self_attention.{name}.weight" for name in ("query", "key", "value", "output")]
    block = {name: jnp.asarray(draw(width, width)) / 4 for name in names}
    block |= {"feed_forward.inner.weight": jnp.asarray(draw(32, width)) / 4}
    block |= {"feed_forward.outer.weight": jnp.asarray(draw(width, 32)) / 6}
    block |= {f"{name}_norm.weight": jnp.ones(width) for name in ("self_attention", "feed_forward")}
    weights = {"table": jnp.asarray(draw(vocabulary, width)), "block": block}

    def loss(weights):
        x = f.embedding(source, weights["table"]) + places
        states = f.encoder_block(x, weights["block"], heads=2)
        return f.cross_entropy(f.linear(states, weights["table"]), source[:, ::-1]).mean()

    first, last = descend(loss, weights, 0.1, 400)
    assert first > np.log(vocabulary)
    assert last < 0.1
