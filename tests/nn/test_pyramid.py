"""Pyramids and subsampling against direct loops over each sound alone; padding that does not leak."""

import math

import pytest
import torch

from saccade.nn.pyramid import Pyramid, Subsample, paired
from saccade.nn.recurrent import RecurrentEncoder

from .workbench import assert_agree, assert_close, assert_law, both_ways, stir

FEATURES = 3
LENGTHS = [13, 8, 1, 6, 7]
MAKERS = {
    "pyramid": lambda: Pyramid(FEATURES, 4, halvings=2),
    "gru pyramid": lambda: Pyramid(FEATURES, 4, cell="gru", halvings=3),
    "no halving": lambda: Pyramid(FEATURES, 4, halvings=0),
    "subsample": lambda: Subsample(FEATURES, 16),
}
every_encoder = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def sounds():
    """Sounds of all kinds of lengths, with loud nonsense behind each."""
    x = torch.randn(len(LENGTHS), max(LENGTHS) + 2, FEATURES)
    mask = torch.arange(x.shape[1]) < torch.tensor(LENGTHS)[:, None]
    return torch.where(mask[..., None], x, 1e3), mask


@every_encoder
def test_a_sound_in_a_padded_batch_is_the_sound_alone(make):
    encoder, (x, mask) = stir(make()), sounds()
    states, real = encoder(x, mask)
    for row, length in enumerate(LENGTHS):
        alone, nothing = encoder(x[row : row + 1, :length])
        assert nothing is None
        assert real[row].tolist() == [True] * alone.shape[1] + [False] * (real.shape[1] - alone.shape[1])
        assert_close(states[row, : alone.shape[1]], alone[0])
        assert not states[row, alone.shape[1] :].any()


@every_encoder
def test_padding_gets_no_gradient(make):
    encoder, (x, mask) = stir(make()), sounds()
    states, _ = encoder(x.requires_grad_(), mask)
    states.square().sum().backward()
    assert x.grad[mask].abs().sum(-1).all()
    assert not x.grad[~mask].any()


@pytest.mark.parametrize("halvings", [0, 1, 2, 3])
@pytest.mark.parametrize("length", [1, 2, 5, 8, 9])
def test_each_halving_rounds_the_length_up(halvings, length):
    pyramid = Pyramid(FEATURES, 2, halvings=halvings)
    states, mask = pyramid(torch.randn(1, 11, FEATURES), torch.arange(11)[None] < length)
    assert int(mask.sum()) == math.ceil(length / 2**halvings)
    assert states.shape == (1, math.ceil(11 / 2**halvings), pyramid.width) == (1, mask.shape[1], 4)


@pytest.mark.parametrize("length", [1, 2, 5, 8, 9])
def test_subsampling_leaves_a_quarter_rounded_up(length):
    states, mask = Subsample(FEATURES, 6)(torch.randn(1, 11, FEATURES), torch.arange(11)[None] < length)
    assert int(mask.sum()) == math.ceil(length / 4)
    assert states.shape == (1, 3, 6)


def test_neighbours_stand_side_by_side_and_a_missing_one_is_zero():
    x = torch.arange(1.0, 7.0).view(1, 3, 2)
    assert paired(x).tolist() == [[[1, 2, 3, 4], [5, 6, 0, 0]]]


def test_a_pyramid_is_recurrent_layers_over_pairs():
    pyramid, x = stir(Pyramid(FEATURES, 4, halvings=1)), torch.randn(2, 6, FEATURES, requires_grad=True)
    bottom, top = pyramid.layers
    states, _ = bottom(x)
    pairs = torch.stack([torch.cat([states[:, 2 * i], states[:, 2 * i + 1]], dim=-1) for i in range(3)], dim=1)
    assert_agree(pyramid(x)[0], top(pairs)[0], x, *pyramid.parameters())
    assert isinstance(top, RecurrentEncoder) and top.layers[0].mode == "LSTM" and top.layers[0].bidirectional


def test_subsampling_equals_a_direct_loop():
    encoder, x = stir(Subsample(FEATURES, 5)), torch.randn(2, 7, FEATURES, requires_grad=True)
    states = x
    for layer in encoder.layers:
        outside = torch.zeros_like(states[:, :1])
        around = torch.cat([outside, states, outside], dim=1)
        places = []
        for at in range(0, states.shape[1], 2):
            total = sum(around[:, at + k] @ layer.weight[..., k].T for k in range(3))
            places.append((total + layer.bias).clamp(min=0))
        states = torch.stack(places, dim=1)
    assert_agree(encoder(x)[0], states, x, *encoder.parameters())


def test_dropout_stands_between_the_layers_in_training_only():
    pyramid, x = Pyramid(FEATURES, 4, halvings=1, dropout=0.5), torch.randn(1, 6, FEATURES)
    assert not torch.equal(pyramid(x)[0], pyramid(x)[0])
    pyramid.eval()
    assert torch.equal(pyramid(x)[0], pyramid(x)[0])


@both_ways
def test_subsampling_starts_normal_for_what_is_rectified(build):
    encoder = build(lambda: Subsample(100, 100))
    for layer in encoder.layers:
        assert_law(layer.weight, 2 / 300)
        assert not layer.bias.any()


@both_ways
def test_a_pyramid_built_without_memory_is_drawn_like_any_other(build):
    pyramid = build(lambda: Pyramid(FEATURES, 4))
    assert torch.isfinite(pyramid(torch.randn(1, 9, FEATURES))[0]).all()
    first, second = pyramid.layers[-2:]
    assert not torch.equal(first.layers[0].weight_hh_l0, second.layers[0].weight_hh_l0)
