"""Scores: each by hand, their common cases, and attention as kernel regression."""

import itertools
import math
from functools import partial

import numpy as np
import pytest

from saccade import formulas as f


def test_every_score_is_its_formula_written_out_for_one_query_and_one_key(draw):
    queries, keys = draw(2, 3), draw(4, 3)
    weight, other, vector, bias = draw(5, 3), draw(5, 3), draw(5), draw(5)
    product = draw(3, 3)
    for (t, q), (s, k) in itertools.product(enumerate(queries), enumerate(keys)):
        by_hand = {
            f.dot_score(queries, keys)[t, s]: sum(a * b for a, b in zip(q, k, strict=True)),
            f.scaled_dot_score(queries, keys)[t, s]: np.dot(q, k) / math.sqrt(3),
            f.additive_score(queries, keys, weight, other, vector, bias)[t, s]: np.dot(
                vector, np.tanh(weight @ q + other @ k + bias)
            ),
            f.bilinear_score(queries, keys, product)[t, s]: q @ product @ k,
            f.gaussian_score(queries, keys, 0.5)[t, s]: -np.sum((q - k) ** 2) / 0.5,
        }
        for ours, expected in by_hand.items():
            assert ours == pytest.approx(expected, abs=1e-12)


def test_a_bilinear_score_with_the_identity_is_the_dot_product(draw):
    query, key = draw(2, 3), draw(4, 3)
    np.testing.assert_allclose(f.bilinear_score(query, key, np.eye(3)), f.dot_score(query, key))


@pytest.mark.parametrize("width", [1, 3, 6])
def test_the_variance_of_a_dot_product_of_unit_variance_vectors_is_their_width(width):
    signs = np.asarray(list(itertools.product([-1.0, 1.0], repeat=width)))  # all vectors of independent fair signs
    assert f.dot_score(signs, signs).mean() == 0
    assert f.dot_score(signs, signs).var() == pytest.approx(width)
    assert f.scaled_dot_score(signs, signs).var() == pytest.approx(1)
    by_count = f.dot_score(signs, signs) / len(signs)  # deck 002 divides by the number of words
    assert by_count.var() != pytest.approx(1)


def test_scores_are_divided_by_the_root_of_the_width_and_not_by_the_number_of_words_as_in_the_deck(draw):
    query, key = draw(5, 4), draw(5, 4)
    np.testing.assert_allclose(f.scaled_dot_score(query, key), query @ key.T / 2)
    deck = query @ key.T / 5
    assert np.abs(f.scaled_dot_score(query, key) - deck).max() > 0.1


def test_without_scaling_wide_vectors_saturate_softmax_and_its_gradient_dies():
    generator = np.random.default_rng(3)
    query, keys = generator.standard_normal((1, 1024)), generator.standard_normal((6, 1024))

    def slope(scores):  # the largest derivative d a_i / d e_i = a_i (1 - a_i)
        weights = f.attention_weights(scores)
        return (weights * (1 - weights)).max()

    assert slope(f.dot_score(query, keys)) < 0.01
    assert slope(f.scaled_dot_score(query, keys)) > 0.1


def test_kernel_regression_with_embeddings_is_attention(draw):
    x, examples, targets = draw(2, 3), draw(5, 3), draw(5, 2)
    query, key, value = f.linear(x, draw(4, 3)), f.linear(examples, draw(4, 3)), f.linear(targets, draw(6, 2))
    regression = f.kernel_regression(query, key, value, lambda q, k: np.exp(f.scaled_dot_score(q, k)))
    np.testing.assert_allclose(regression, f.attention(query, key, value), atol=1e-12)


def test_gaussian_kernel_regression_is_attention_with_the_gaussian_score(draw):
    x, examples, targets = draw(2, 3), draw(5, 3), draw(5, 2)
    np.testing.assert_allclose(
        f.kernel_regression(x, examples, targets, partial(f.gaussian_kernel, sigma=0.7)),
        f.attention(x, examples, targets, score=partial(f.gaussian_score, sigma=0.7)),
        atol=1e-12,
    )


def test_kernel_regression_of_a_constant_is_that_constant_and_a_plain_sum_is_not(draw):
    x, examples, ones = draw(2, 3), draw(5, 3), np.ones((5, 1))
    np.testing.assert_allclose(f.kernel_regression(x, examples, ones), 1)
    assert np.abs(f.kernel_sum(x, examples, ones) - 1).max() > 0.01


def test_a_narrow_kernel_returns_the_target_of_the_nearest_example(draw):
    examples, targets = draw(5, 3), draw(5, 2)
    narrow = partial(f.gaussian_kernel, sigma=0.05)
    np.testing.assert_allclose(f.kernel_regression(examples + 1e-3, examples, targets, narrow), targets, atol=1e-6)


def test_the_mean_of_a_gaussian_process_goes_through_its_targets(draw):
    examples, targets = draw(5, 3), draw(5, 1)
    np.testing.assert_allclose(f.gaussian_process_mean(examples, examples, targets, noise=1e-10), targets, atol=1e-6)
    assert np.abs(f.kernel_regression(examples, examples, targets) - targets).max() > 0.1


def test_the_mean_of_a_gaussian_process_returns_to_zero_far_from_all_examples(draw):
    far = np.full((1, 3), 50.0)
    np.testing.assert_allclose(f.gaussian_process_mean(far, draw(5, 3), draw(5, 1)), 0, atol=1e-12)
