"""Dropout, norms, residuals, feed-forward layers, embedding and output against their formulas and their laws."""

import math

import pytest
import torch
import torch.nn.functional as F

from saccade import formulas as f
from saccade.nn.layers import ACTIVATIONS, GATES, Dropout, Embedding, FeedForward, Output, Residual, make_norm

from .workbench import assert_agree, assert_close, assert_law, both_ways, stir

# Dropout


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_dropout_zeroes_its_share_and_keeps_the_expectation(share):
    y = Dropout(share)(torch.ones(200_000))
    error = 5 * math.sqrt(share * (1 - share) / 200_000)
    assert float((y == 0).double().mean()) == pytest.approx(share, abs=error)
    assert float(y.mean()) == pytest.approx(1, abs=error / (1 - share))


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 1 / 3, 0.9])
def test_what_is_kept_is_scaled_by_exactly_one_over_the_share_that_is_kept(share):
    """The share is rounded to 1/65536, and the scale goes with it: the expectation is exact."""
    dropped = round(share * 65536)
    assert set(Dropout(share)(torch.ones(1000)).tolist()) == {0.0, 65536 / (65536 - dropped)}
    assert 65536 / (65536 - dropped) == pytest.approx(1 / (1 - share), rel=1e-4)


def test_the_four_numbers_of_one_draw_are_dropped_independently():
    kept = (Dropout(0.5)(torch.ones(100_000, 4)) > 0).double()
    torch.testing.assert_close(kept.T.cov(), torch.eye(4) / 4, rtol=0, atol=0.01)
    torch.testing.assert_close(kept.mean(0), torch.full((4,), 0.5), rtol=0, atol=0.01)


def test_the_gradient_uses_the_mask_of_the_forward_pass():
    x = torch.randn(7, 9, requires_grad=True)
    y = Dropout(0.4)(x)
    direction = torch.randn_like(y)
    (slope,) = torch.autograd.grad((y * direction).sum(), x)
    assert_close(slope * x, y * direction)
    assert 0 < int((slope == 0).sum()) < slope.numel()


@pytest.mark.parametrize("shape", [(1,), (2,), (3,), (5,), (3, 7), (2, 3, 5), (0, 4)])
def test_dropout_takes_sizes_that_are_no_multiple_of_four(shape):
    x = torch.randn(shape, requires_grad=True)
    y = Dropout(0.5)(x)
    assert y.shape == x.shape
    assert_close(y, torch.where(y == 0, 0, 2 * x))
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert_close(slope, torch.where(y == 0, 0.0, 2.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_dropout_keeps_the_kind_of_number(dtype):
    assert Dropout(0.5)(torch.ones(9, dtype=dtype)).dtype == dtype


def test_dropout_takes_numbers_that_do_not_lie_in_order():
    x = torch.randn(6, 5).T
    y = Dropout(0.5)(x)
    assert_close(y, torch.where(y == 0, 0, 2 * x))


def test_the_same_generator_state_drops_the_same_numbers():
    drop, x = Dropout(0.5), torch.ones(1001)
    state = torch.get_rng_state()
    first, second = drop(x), drop(x)
    torch.set_rng_state(state)
    assert torch.equal(drop(x), first) and torch.equal(drop(x), second)
    assert not torch.equal(first, second)


def test_no_share_and_no_training_are_the_identity():
    x, state = torch.randn(9), torch.get_rng_state()
    assert Dropout(0.0)(x) is x
    assert Dropout(0.5).eval()(x) is x
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("share", [-0.1, 1, 1.0, 1.5, math.nan])
def test_a_share_outside_zero_to_one_is_refused(share):
    with pytest.raises(ValueError, match=f"at least 0 and below 1; got {share}"):
        Dropout(share)


def test_a_share_that_is_accepted_can_be_dropped():
    """It rounds to all of 65536 levels."""
    assert Dropout(0.999999)(torch.ones(1000)).isfinite().all()


# Norms and residuals


def test_the_layer_norm_equals_its_formula():
    norm, x = stir(make_norm("layer", 8)), torch.randn(2, 5, 8, requires_grad=True)
    assert_agree(norm(x), f.layer_norm(x, norm.weight, norm.bias), x, *norm.parameters())


def test_the_rms_norm_equals_its_formula():
    norm, x = stir(make_norm("rms", 8)), torch.randn(2, 5, 8, requires_grad=True)
    assert_agree(norm(x), f.rms_norm(x, norm.weight, eps=1e-6), x, *norm.parameters())


def test_the_batch_norm_of_sequences_equals_its_formula_in_training_and_in_use():
    norm, x = stir(make_norm("batch", 8)), torch.randn(2, 5, 8, requires_grad=True)
    gamma, beta = norm.norm.weight, norm.norm.bias
    assert_agree(norm(x), f.batch_norm(x, gamma, beta, axes=(0, 1)), x, gamma, beta)
    mean, variance = f.update_running_averages(torch.zeros(8), torch.ones(8), x.detach(), axes=(0, 1))
    expected = f.normalize(x, mean.flatten(), variance.flatten(), gamma, beta)
    assert_agree(norm.eval()(x), expected, x, gamma, beta)


@both_ways
@pytest.mark.parametrize("name", ["layer", "rms", "batch"])
def test_norms_start_with_scale_one_and_shift_zero(name, build):
    for key, parameter in build(lambda: make_norm(name, 8)).named_parameters():
        assert bool((parameter == (0 if key.endswith("bias") else 1)).all())


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_residual_equals_its_formula(order):
    around, inner = stir(Residual(8, order=order)), stir(torch.nn.Linear(8, 8))
    x = torch.randn(2, 5, 8, requires_grad=True)
    norm = {"weight": around.norm.weight, "bias": around.norm.bias}
    expected = f.residual_norm(x, inner, norm, norm_first=order == "pre")
    assert_agree(around(x, inner), expected, x, *around.parameters(), *inner.parameters())


def test_only_the_sublayer_is_dropped_never_the_way_around_it():
    x = torch.randn(4, 50, 8)
    y = Residual(8, dropout=0.5)(x, torch.ones_like)
    assert set((y - x).round(decimals=9).unique().tolist()) == {0.0, 2.0}


# Feed-forward layers


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_feed_forward_layer_equals_its_formula(name):
    layer, x = stir(FeedForward(6, 10, activation=name)), torch.randn(2, 5, 6, requires_grad=True)
    weights = {key.replace("expand", "inner").replace("contract", "outer"): p for key, p in layer.named_parameters()}
    assert_agree(layer(x), f.feed_forward(x, weights, getattr(f, name)), x, *layer.parameters())


@pytest.mark.parametrize(
    ("name", "gate"), [("glu", "sigmoid"), ("reglu", "relu"), ("geglu", "gelu"), ("swiglu", "silu")]
)
def test_a_gated_feed_forward_layer_equals_its_formula(name, gate):
    layer, x = stir(FeedForward(6, 10, activation=name)), torch.randn(2, 5, 6, requires_grad=True)
    weights = {key.replace("expand", "inner").replace("contract", "outer"): p for key, p in layer.named_parameters()}
    assert_agree(layer(x), f.feed_forward(x, weights, getattr(f, gate)), x, *layer.parameters())


def test_every_gate_is_tested():
    assert set(GATES) == {"glu", "reglu", "geglu", "swiglu"}


@both_ways
@pytest.mark.parametrize("name", ["relu", "swiglu"])
def test_feed_forward_layers_start_xavier_uniform_with_zero_biases(name, build):
    layer = build(lambda: FeedForward(100, 300, activation=name))
    for linear in (layer.expand, layer.contract, *([layer.gate] if layer.gated else [])):
        assert_law(linear.weight, 2 / 400, uniform=True)
        assert not linear.bias.any()


# Embedding and output


def test_an_embedding_is_a_scaled_row_of_its_table():
    table, tokens = Embedding(11, 8), torch.tensor([[1, 2, 1], [10, 0, 3]])
    assert_agree(table(tokens), f.embedding(tokens, table.weight) * math.sqrt(8), table.weight)


@both_ways
def test_embeddings_start_with_variance_one_over_their_width_and_come_out_with_variance_one(build):
    table = build(lambda: Embedding(1000, 64))
    assert_law(table.weight, 1 / 64)
    assert_law(table(torch.arange(1000)[None]), 1)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_an_output_layer_equals_its_formula(tied, bias):
    table = Embedding(11, 8)
    output = stir(Output(8, 11, tied=table if tied else None, bias=bias))
    x = torch.randn(2, 5, 8, requires_grad=True)
    assert (output.weight is table.weight) == tied
    assert_agree(output(x), f.linear(x, output.weight, output.bias), x, *output.parameters())


def test_a_tied_output_has_no_table_of_its_own():
    table = Embedding(11, 8)
    assert len(list(torch.nn.ModuleList([table, Output(8, 11, tied=table)]).parameters())) == 1


@both_ways
def test_an_output_layer_of_its_own_starts_xavier_uniform(build):
    output = build(lambda: Output(100, 300, bias=True))
    assert_law(output.weight, 2 / 400, uniform=True)
    assert not output.bias.any()


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = Embedding(1000, 64)
        self.output = Output(64, 1000, tied=self.table, bias=True)


@both_ways
def test_a_tie_survives_construction_on_the_meta_device(build):
    model = build(Tied)
    assert model.output.weight is model.table.weight
    assert_law(model.output.weight, 1 / 64)


def test_tied_logits_start_small():
    model = Tied()
    logits = model.output(F.layer_norm(torch.randn(1, 100, 64), (64,)))
    assert float(logits.detach().std()) == pytest.approx(1, rel=0.1)


# What is refused


@pytest.mark.parametrize("token", [11, 500, -1])
def test_a_token_outside_the_vocabulary_is_refused_by_name(token):
    with pytest.raises(ValueError, match=f"token id {token} is outside the vocabulary of 11 ids"):
        Embedding(11, 8)(torch.tensor([[1, token, 3]]))


@pytest.mark.parametrize("shape", [(3,), (2, 0), (2, 3, 1)])
def test_tokens_of_another_shape_are_refused(shape):
    with pytest.raises(ValueError, match=rf"\(batch, positions\) with one position at least; got \({shape[0]}"):
        Embedding(11, 8)(torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize(("width", "vocabulary"), [(7, 11), (8, 12)])
def test_an_output_tied_to_a_table_of_another_shape_is_refused(width, vocabulary):
    with pytest.raises(ValueError, match=rf"{vocabulary} x {width} cannot be tied to a table of \(11, 8\)"):
        Output(width, vocabulary, tied=Embedding(11, 8))


def test_an_unknown_activation_is_refused_with_all_there_are():
    with pytest.raises(ValueError, match=r"unknown activation 'rellu'; there are elu, .*swiglu"):
        FeedForward(8, 16, activation="rellu")


def test_an_unknown_norm_is_refused_with_all_there_are():
    with pytest.raises(ValueError, match="unknown norm 'group'; there are batch, layer, rms"):
        make_norm("group", 8)


def test_an_unknown_order_is_refused():
    with pytest.raises(ValueError, match="'pre' or 'post'; got 'middle'"):
        Residual(8, order="middle")
