"""Scores against their formulas, whether a fused kernel may compute them, and how they begin."""

import pytest
import torch

from saccade import formulas as f
from saccade.nn.scores import Additive, Bilinear, Dot, Gaussian, Place, RelativeDot, ScaledDot, Score

from .workbench import assert_agree, assert_close, assert_law, both_ways, stir

HERE = Place(torch.arange(3), torch.arange(5))


def additive(score, query, key):
    eye = torch.eye(query.shape[-1])
    each = [f.additive_score(query[:, h], key[:, h], eye, eye, vector) for h, vector in enumerate(score.vector)]
    return torch.stack(each, dim=1)


def relative(score, query, key):
    """Every pair by itself: the keys of distances are made anew for each."""
    rows = []
    for t in range(query.shape[2]):
        apart = torch.tensor([t - s for s in range(key.shape[2])])
        sinusoids = f.sinusoidal_halves(apart.to(query.dtype), 6)  # (S, width)
        far = (sinusoids @ score.distance.weight.T).unflatten(-1, (2, 4)).transpose(0, 1)  # (H, S, K)
        content = torch.einsum("bhk,bhsk->bhs", query[:, :, t] + score.content_bias, key)
        distance = torch.einsum("bhk,hsk->bhs", query[:, :, t] + score.distance_bias, far)
        rows.append((content + distance) / 2)
    return torch.stack(rows, dim=2)


CASES = {
    "dot": (Dot, lambda score, query, key: f.dot_score(query, key)),
    "scaled dot": (ScaledDot, lambda score, query, key: f.scaled_dot_score(query, key)),
    "additive": (lambda: Additive(4, heads=2), additive),
    "bilinear": (
        lambda: Bilinear(4, 4, heads=2),
        lambda score, query, key: f.bilinear_score(query, key, score.weight),
    ),
    "relative dot": (lambda: RelativeDot(4, heads=2, width=6), relative),
    "gaussian": (
        lambda: Gaussian(heads=2),
        lambda score, query, key: f.gaussian_score(query, key, score.log_sigma.exp()[:, None, None]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_score_equals_its_formula(name):
    make, formula = CASES[name]
    score = stir(make())
    query, key = torch.randn(2, 2, 3, 4, requires_grad=True), torch.randn(2, 2, 5, 4, requires_grad=True)
    assert_agree(score(query, key, HERE), formula(score, query, key), query, key, *score.parameters())


def test_the_bilinear_score_takes_queries_and_keys_of_different_widths():
    score, query, key = stir(Bilinear(4, 6)), torch.randn(2, 1, 3, 4), torch.randn(2, 1, 5, 6)
    assert_close(score(query, key, HERE), f.bilinear_score(query, key, score.weight))


def test_the_softmax_of_the_gaussian_score_is_kernel_regression():
    query, key, value = torch.randn(2, 1, 3, 2), torch.randn(2, 1, 5, 2), torch.randn(2, 1, 5, 1)
    weights = Gaussian(0.7)(query, key, HERE).softmax(-1)
    kernel = lambda query, key: f.gaussian_kernel(query, key, 0.7)  # noqa: E731
    assert_close(weights @ value, f.kernel_regression(query, key, value, kernel))


def test_only_plain_dot_products_say_that_they_may_be_fused():
    assert Dot().scale(64) == 1
    assert ScaledDot().scale(64) == 1 / 8
    assert [each.scale(64) for each in (Additive(4), Bilinear(4, 4), Gaussian())] == [None, None, None]


def test_a_score_without_a_formula_is_not_a_score():
    with pytest.raises(NotImplementedError):
        Score()(torch.randn(1, 1, 3, 4), torch.randn(1, 1, 5, 4), HERE)


@both_ways
def test_the_additive_vector_starts_with_variance_one_over_its_width(build):
    assert_law(build(lambda: Additive(64, heads=1000)).vector, 1 / 64, uniform=True)


@both_ways
def test_the_bilinear_weight_starts_xavier_uniform(build):
    weight = build(lambda: Bilinear(100, 300)).weight
    assert_law(weight, 2 / 400, uniform=True)


@both_ways
def test_the_gaussian_starts_with_the_sigma_it_is_given(build):
    assert_close(build(lambda: Gaussian(0.3, heads=2)).log_sigma.exp(), torch.tensor([0.3, 0.3]))


def test_a_gaussian_that_is_not_learned_needs_no_gradient():
    assert [each.log_sigma.requires_grad for each in (Gaussian(learned=False), Gaussian())] == [False, True]
