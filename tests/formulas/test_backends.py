"""Every formula runs unchanged on NumPy, PyTorch and JAX arrays, with equal results."""

import inspect
import re
from functools import partial
from types import FunctionType

import jax
import numpy as np
import pytest

from saccade import formulas as f

RANDOM = np.random.default_rng(7)


def some(*shape):
    return RANDOM.standard_normal(shape)


def projections(width, inner=None, biased=True, names=("query", "key", "value")):
    inner = inner or width
    weights = {f"{name}.weight": some(inner, width) for name in names} | {"output.weight": some(width, inner)}
    return weights | ({"output.bias": some(width), "query.bias": some(inner)} if biased else {})


def below(name, weights):
    return {f"{name}.{key}": value for key, value in weights.items()}


def norm(width):
    return {"weight": some(width), "bias": some(width)}


def block(width, names=("self_attention",)):
    weights = below("feed_forward", {"inner.weight": some(8, width), "outer.weight": some(width, 8)})
    for name in names:
        weights |= below(name, projections(width)) | below(f"{name}_norm", norm(width))
    return weights | below("feed_forward_norm", norm(width))


def cell(gates, inputs, width):
    return {
        "weight_ih": some(gates * width, inputs),
        "weight_hh": some(gates * width, width),
        "bias_ih": some(gates * width),
        "bias_hh": some(gates * width),
    }


TOKENS = np.asarray([[3, 0, 2], [1, 1, 4]])
PLACES = np.arange(6.0)
MASK = np.asarray([[True, False, True], [False, False, False]])
DECODER = ("self_attention", "cross_attention")
RECURRENT = below("cell", cell(3, 3 + 5, 4)) | {"readout.weight": some(7, 3 + 4 + 5)}
LOOKING = {"score.query.weight": some(6, 4), "score.key.weight": some(6, 5), "score.vector": some(6)}
LUONG = below("cell", cell(4, 3, 4)) | {
    "score.weight": some(4, 5),
    "attentional.weight": some(4, 9),
    "readout.weight": some(7, 4),
}

# name -> (function of arrays, the arrays); all that `__all__` names must be here
CASES = {
    "additive_score": (f.additive_score, [some(2, 3), some(4, 3), some(5, 3), some(5, 3), some(5), some(5)]),
    "angles": (partial(f.angles, width=8), [PLACES]),
    "attend_to_inputs": (f.attend_to_inputs, [some(2, 3), some(4, 5), some(3, 5), some(6, 5)]),
    "attend_with_one_query": (f.attend_with_one_query, [some(3), some(4, 3)]),
    "attention": (f.attention, [some(2, 4), some(3, 4), some(3, 5), MASK]),
    "attention_in_columns": (f.attention_in_columns, [some(4, 2), some(4, 3), some(5, 3)]),
    "attention_weights": (f.attention_weights, [some(4, 2, 3), MASK]),
    "bahdanau_step": (f.bahdanau_step, [some(2, 3), some(2, 4), some(2, 3, 5), RECURRENT | LOOKING, MASK]),
    "batch_norm": (partial(f.batch_norm, axes=f.BATCH_AND_GRID), [some(2, 3, 4, 4), some(3, 1, 1), some(3, 1, 1)]),
    "bilinear_score": (f.bilinear_score, [some(2, 3), some(4, 5), some(3, 5)]),
    "block_diagonal": (f.block_diagonal, [some(3, 2, 4)]),
    "causal_mask": (f.causal_mask, [np.arange(3, 5), np.arange(5)]),
    "cells": (f.cells, [some(2, 3, 4, 5)]),
    "collapse": (f.collapse, [some(4, 3), some(4), some(2, 4), some(2)]),
    "contrastive_loss": (f.contrastive_loss, [some(5, 3), some(5, 3)]),
    "corrupt_tokens": (
        partial(f.corrupt_tokens, mask_token=9),
        [TOKENS, RANDOM.random((2, 3)) / 5, RANDOM.random((2, 3)), TOKENS[::-1].copy()],
    ),
    "cosine": (f.cosine, [some(5, 3), some(4, 3)]),
    "cross_entropy": (partial(f.cross_entropy, label_smoothing=0.1), [some(2, 3, 5), TOKENS]),
    "decoder": (
        partial(f.decoder, heads=2, norm_first=True, activation=f.gelu),
        [some(2, 3, 4), some(2, 5, 4), [block(4, DECODER), block(4, DECODER)]],
    ),
    "decoder_block": (partial(f.decoder_block, heads=2), [some(2, 3, 4), some(2, 5, 4), block(4, DECODER)]),
    "dot_score": (f.dot_score, [some(2, 3), some(4, 3)]),
    "doubly_stochastic_penalty": (f.doubly_stochastic_penalty, [RANDOM.random((2, 3, 4))]),
    "embedding": (f.embedding, [TOKENS, some(5, 3)]),
    "embedding_by_product": (f.embedding_by_product, [TOKENS, some(5, 3)]),
    "encoder": (partial(f.encoder, heads=2), [some(2, 3, 4), [block(4), block(4)]]),
    "encoder_block": (partial(f.encoder_block, heads=2, norm_first=True), [some(2, 3, 4), block(4)]),
    "feed_forward": (
        partial(f.feed_forward, activation=f.silu),
        [some(2, 4), {"inner.weight": some(8, 4), "gate.weight": some(8, 4), "outer.weight": some(4, 8)}],
    ),
    "first_state": (f.first_state, [some(2, 3), {"first.weight": some(4, 3), "first.bias": some(4)}]),
    "fixed_context_step": (f.fixed_context_step, [some(2, 3), some(2, 4), some(2, 5), RECURRENT]),
    "fraction": (partial(f.fraction, length=6), [PLACES]),
    "gaussian_kernel": (f.gaussian_kernel, [some(2, 3), some(4, 3)]),
    "gaussian_process_mean": (f.gaussian_process_mean, [some(2, 3), some(4, 3), some(4, 1)]),
    "gaussian_score": (partial(f.gaussian_score, sigma=0.5), [some(2, 3), some(4, 3)]),
    "geglu": (f.geglu, [some(5), some(5)]),
    "glu": (partial(f.glu, axis=1), [some(2, 6, 3)]),
    "grid": (partial(f.grid, height=2, width=3), [some(2, 6, 4)]),
    "grid_self_attention": (f.grid_self_attention, [some(2, 4, 3, 2), projections(4, 3), some()]),
    "gru_step": (f.gru_step, [some(2, 5), some(2, 4), *cell(3, 5, 4).values()]),
    "index": (f.index, [PLACES]),
    "kernel_regression": (f.kernel_regression, [some(2, 3), some(4, 3), some(4, 2)]),
    "kernel_sum": (f.kernel_sum, [some(2, 3), some(4, 3), some(4, 2)]),
    "layer_norm": (f.layer_norm, [some(2, 3, 4), some(4), some(4)]),
    "linear": (f.linear, [some(2, 3), some(4, 3), some(4)]),
    "log_softmax": (f.log_softmax, [some(2, 3)]),
    "lstm_step": (f.lstm_step, [some(2, 5), (some(2, 4), some(2, 4)), *cell(4, 5, 4).values()]),
    "luong_step": (f.luong_step, [some(2, 3), (some(2, 4), some(2, 4)), some(2, 3, 5), LUONG, MASK]),
    "merge_heads": (f.merge_heads, [some(2, 3, 4, 5)]),
    "mlp": (f.mlp, [some(2, 3), [(some(4, 3), some(4)), (some(2, 4), some(2))]]),
    "moments": (f.moments, [some(2, 3)]),
    "multi_head_attention": (
        lambda x, query, others: f.multi_head_attention(x, x, query | others, heads=4, kv_heads=2),
        [some(2, 3, 8), {"query.weight": some(8, 8), "output.weight": some(8, 8)}]
        + [{"key.weight": some(4, 8), "value.weight": some(4, 8)}],
    ),
    "multi_head_attention_by_splitting": (
        partial(f.multi_head_attention_by_splitting, heads=2),
        [some(2, 3, 6), some(2, 4, 6)]
        + [{"output.weight": some(6, 6)} | {f"{n}.weight": some(2, 3, 3) for n in ("query", "key", "value")}],
    ),
    "normalize": (f.normalize, [some(2, 3), some(3), some(3) ** 2, some(3), some(3)]),
    "one_hot": (lambda tokens, like: f.one_hot(tokens, 5, like.dtype), [TOKENS, some(1)]),
    "patches": (partial(f.patches, size=2), [some(2, 3, 4, 6)]),
    "permutation_mask": (partial(f.permutation_mask, sees_itself=False), [np.asarray([2, 0, 1])]),
    "perplexity": (f.perplexity, [some(4)]),
    "relative_bias": (f.relative_bias, [some(2, 5), np.arange(4), np.arange(6)]),
    "residual": (f.residual, [some(2, 3), some(3, 3), some(3)]),
    "residual_norm": (
        lambda x, weights: f.residual_norm(x, f.tanh, weights, norm_first=True),
        [some(2, 3), {"weight": some(3)}],
    ),
    "rms_norm": (f.rms_norm, [some(2, 3), some(3)]),
    "rnn_step": (f.rnn_step, [some(2, 5), some(2, 4), *cell(1, 5, 4).values()]),
    "rotary": (f.rotary, [some(2, 6, 4), PLACES]),
    "rotary_interleaved": (f.rotary_interleaved, [some(2, 6, 4), PLACES]),
    "run_freely": (
        lambda start, state, w, u: f.run_freely(lambda x, s: f.rnn_step(x, s, w, u), start, state, 3),
        [some(2, 4), some(2, 4), some(4, 4), some(4, 4)],
    ),
    "scaled_dot_score": (f.scaled_dot_score, [some(2, 3), some(4, 3)]),
    "self_attention": (f.self_attention, [some(4, 5), some(3, 5), some(3, 5), some(2, 5)]),
    "self_attention_in_columns": (f.self_attention_in_columns, [some(5, 4), some(3, 5), some(3, 5), some(2, 5)]),
    "sinusoidal": (partial(f.sinusoidal, width=8), [PLACES]),
    "sinusoidal_halves": (partial(f.sinusoidal_halves, width=8), [PLACES]),
    "softmax": (partial(f.softmax, axis=0), [some(4, 2)]),
    "split_heads": (partial(f.split_heads, heads=2), [some(2, 3, 4)]),
    "squared_error": (f.squared_error, [some(3), some(3)]),
    "swiglu": (f.swiglu, [some(5), some(5)]),
    "unroll": (
        lambda x, state, w, u: f.unroll(lambda x, s: f.rnn_step(x, s, w, u), x, state),
        [some(2, 3, 5), some(2, 4), some(4, 5), some(4, 4)],
    ),
    "update_running_averages": (f.update_running_averages, [some(3), some(3), some(4, 3)]),
} | {
    name: (getattr(f, name), [3 * some(20)])
    for name in (
        *("elu", "erf", "gelu", "gelu_tanh", "identity", "leaky_relu", "quick_gelu", "relu", "sigmoid", "silu"),
        "tanh",
    )
}


def convert(thing, array):
    """The same nest of lists, tuples and dicts, with every NumPy array turned into another library's."""
    if isinstance(thing, dict):
        return {name: convert(value, array) for name, value in thing.items()}
    if isinstance(thing, list | tuple):
        return type(thing)(convert(value, array) for value in thing)
    return array(thing)


def leaves(thing):
    return [leaf for part in thing for leaf in leaves(part)] if isinstance(thing, tuple) else [thing]


@pytest.mark.parametrize("name", CASES)
def test_a_formula_gives_the_same_on_numpy_torch_and_jax(name, library):
    formula, arguments = CASES[name]
    expected = leaves(formula(*arguments))
    results = leaves(formula(*convert(arguments, library.array)))
    assert len(results) == len(expected)
    for result, right in zip(results, expected, strict=True):
        assert isinstance(result, library.kind)
        assert library.numpy(result).dtype == right.dtype
        np.testing.assert_allclose(library.numpy(result), right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_a_formula_leaves_its_arguments_unchanged(name):
    formula, arguments = CASES[name]
    before = convert(arguments, np.copy)
    formula(*arguments)
    for argument, copy in zip(arguments, before, strict=True):
        np.testing.assert_equal(argument, copy)


@pytest.mark.parametrize("name", ["cross_entropy", "encoder_block", "gaussian_process_mean", "rotary", "one_hot"])
def test_a_formula_that_builds_arrays_of_its_own_can_be_compiled_by_jax(name):
    formula, arguments = CASES[name]
    result = jax.jit(formula)(*convert(arguments, jax.numpy.asarray))
    np.testing.assert_allclose(result, formula(*arguments), rtol=1e-9, atol=1e-9)


def test_no_public_formula_is_left_out_here():
    assert set(CASES) == {name for name in f.__all__ if isinstance(getattr(f, name), FunctionType)}


@pytest.mark.parametrize("name", CASES)
def test_a_formula_names_its_row_of_the_course(name):
    documentation = inspect.getdoc(getattr(f, name))
    assert re.search(r"\[[A-E]\d", documentation or "")
