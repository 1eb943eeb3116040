"""Losses agree with PyTorch's, and are smallest where they should be."""

import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from saccade import formulas as f

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


def test_squared_error_is_zero_only_at_the_truth():
    np.testing.assert_allclose(f.squared_error(np.asarray([1.0, 4.0]), np.asarray([1.0, 1.0])), [0, 9])


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_cross_entropy_with_smoothed_labels_is_the_same_as_in_torch(draw, smoothing):
    logits, target = torch.tensor(draw(6, 5)), torch.tensor([0, 4, 2, 2, 1, 3])
    theirs = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="none")
    assert_close(f.cross_entropy(logits, target, smoothing), theirs)


def test_the_perplexity_of_equal_chances_is_the_number_of_choices():
    losses = f.cross_entropy(np.zeros((4, 7)), np.asarray([0, 2, 6, 3]))
    assert f.perplexity(losses) == pytest.approx(7)


def test_smoothed_labels_are_never_free_even_for_the_surest_right_answer():
    logits = np.asarray([30.0, 0.0, 0.0])
    assert f.cross_entropy(logits, np.asarray(0)) < 1e-9
    assert f.cross_entropy(logits, np.asarray(0), 0.1) == pytest.approx(0.1 / 3 * 2 * 30)


def test_the_contrast_of_pairs_is_the_mean_of_two_cross_entropies_as_in_clip(draw):
    first, second = torch.tensor(draw(5, 3)), torch.tensor(draw(5, 3))
    scores = F.normalize(first, dim=-1) @ F.normalize(second, dim=-1).T / 0.07
    pairs = torch.arange(5)
    theirs = (F.cross_entropy(scores, pairs) + F.cross_entropy(scores.T, pairs)) / 2
    assert_close(f.contrastive_loss(first, second), theirs)


def test_the_contrast_is_small_when_pairs_point_the_same_way_and_large_when_they_are_mixed_up():
    vectors = np.eye(4)
    assert f.contrastive_loss(vectors, 3 * vectors) < 1e-5
    assert f.contrastive_loss(vectors, vectors[::-1]) > 10


def test_the_cosine_of_a_vector_with_itself_is_one(draw):
    x = draw(4, 3)
    np.testing.assert_allclose(np.diag(f.cosine(x, 5 * x)), 1)


def test_looking_at_every_place_once_costs_nothing():
    assert f.doubly_stochastic_penalty(np.eye(3)) == 0
    ignoring_one = np.asarray([[1.0, 0, 0], [0, 1.0, 0], [0, 1.0, 0]])
    assert f.doubly_stochastic_penalty(ignoring_one) == pytest.approx(2)


def test_the_length_of_a_constant_vector_is_its_value_times_the_root_of_its_width():
    constant = np.full((1, 16), 0.3)
    assert math.sqrt(f.dot_score(constant, constant)[0, 0]) == pytest.approx(0.3 * math.sqrt(16))
