"""Norms: the course's worked example with its right values, PyTorch's references, and which axes do what."""

from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from saccade import formulas as f

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)

E1, E2 = np.asarray([0.5, -3.0, 8.5]), np.asarray([-2.0, 4.0, 1.0])


def test_the_worked_example_has_standard_deviations_that_the_deck_gets_wrong():
    mean, variance = f.moments(np.stack([E1, E2]))
    np.testing.assert_allclose(mean[:, 0], [2, 1])
    sigma = np.sqrt(variance[:, 0])
    np.testing.assert_allclose(sigma, [4.813, 2.449], atol=5e-4)
    deck = np.asarray([2, 2])  # deck 000 prints sigma_1 = sigma_2 = 2
    assert np.abs(sigma - deck).min() > 0.4


def test_the_worked_example_normalises_to_other_vectors_than_the_deck_prints():
    normal = f.layer_norm(np.stack([E1, E2]), eps=0.0)
    np.testing.assert_allclose(normal, [[-0.312, -1.039, 1.350], [-1.225, 1.225, 0]], atol=5e-4)
    deck = np.asarray([[-0.75, -2.5, 3.25], [-1.5, 1.5, 0]])
    assert np.abs(normal - deck).max(axis=1).min() > 0.25
    np.testing.assert_allclose((normal**2).mean(axis=1), 1)
    assert np.all((deck**2).mean(axis=1) > 1.4)  # so the deck's vectors are not of unit variance


def test_gamma_and_beta_rescale_the_worked_example():
    gamma, beta = np.asarray([2.0, 1.0, 0.5]), np.asarray([1.0, 0.0, -1.0])
    np.testing.assert_allclose(f.layer_norm(E1, gamma, beta, eps=0.0), f.layer_norm(E1, eps=0.0) * gamma + beta)


@pytest.mark.parametrize("axes", [f.FEATURES, (-2, -1), f.CHANNELS_AND_GRID])
def test_layer_norm_is_the_same_as_in_torch(draw, axes):
    x = torch.tensor(draw(2, 3, 4, 5))
    shape = x.shape[4 - len(axes) :]
    gamma, beta = torch.tensor(draw(*shape)), torch.tensor(draw(*shape))
    assert_close(f.layer_norm(x, gamma, beta, axes=axes), F.layer_norm(x, shape, gamma, beta))


def test_layer_norm_of_a_convolution_over_channels_only_normalises_each_cell_for_itself(draw):
    image = torch.tensor(draw(2, 3, 4, 5))
    gamma, beta = torch.tensor(draw(3)), torch.tensor(draw(3))
    ours = f.layer_norm(image, gamma[:, None, None], beta[:, None, None], axes=f.CHANNELS)
    theirs = F.layer_norm(image.permute(0, 2, 3, 1), (3,), gamma, beta).permute(0, 3, 1, 2)
    assert_close(ours, theirs)


def test_layer_norm_of_a_convolution_over_channels_and_over_the_grid_are_two_different_things(draw):
    image = draw(2, 3, 4, 5)
    by_cell = f.layer_norm(image, axes=f.CHANNELS)
    whole = f.layer_norm(image, axes=f.CHANNELS_AND_GRID)
    np.testing.assert_allclose(by_cell.mean(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(whole.mean(axis=(1, 2, 3)), 0, atol=1e-12)
    assert np.abs(whole.mean(axis=1)).max() > 0.1


def test_a_sentence_is_normed_over_the_features_of_each_word_and_not_over_the_words_as_the_deck_says(draw):
    sentence = draw(7, 4)  # 7 words, 4 features
    features = f.layer_norm(sentence, axes=f.FEATURES)
    longer = f.layer_norm(np.concatenate([sentence, draw(3, 4)]), axes=f.FEATURES)
    np.testing.assert_array_equal(longer[:7], features)  # a word's norm does not depend on the others
    words = f.layer_norm(sentence, axes=(-2,))  # deck 002: "channels = number of words"
    assert np.abs(words - features).max() > 0.1


def test_layer_norm_of_one_example_does_not_depend_on_the_batch_and_batch_norm_does(draw):
    batch = draw(8, 5)
    np.testing.assert_array_equal(f.layer_norm(batch)[:2], f.layer_norm(batch[:2]))
    assert np.abs(f.batch_norm(batch)[:2] - f.batch_norm(batch[:2])).max() > 0.1


def test_batch_norm_of_a_single_example_erases_it(draw):
    np.testing.assert_array_equal(f.batch_norm(draw(1, 5)), np.zeros((1, 5)))


@pytest.mark.parametrize(("shape", "axes"), [((6, 3), f.BATCH), ((6, 3, 4, 5), f.BATCH_AND_GRID)])
def test_batch_norm_and_its_running_averages_are_the_same_as_in_torch(draw, shape, axes):
    x, grid = torch.tensor(draw(*shape)), (1,) * (len(shape) - 2)
    gamma, beta, mean = (torch.tensor(draw(3)) for _ in range(3))
    variance = torch.tensor(draw(3)) ** 2
    per_channel = (mean, variance, gamma, beta)
    wide_mean, wide_variance, wide_gamma, wide_beta = (value.reshape(3, *grid) for value in per_channel)

    seen_mean, seen_variance = f.update_running_averages(wide_mean, wide_variance, x, axes=axes)
    at_inference = f.normalize(x, wide_mean, wide_variance, wide_gamma, wide_beta)
    assert_close(at_inference, F.batch_norm(x, *per_channel))

    running_mean, running_variance = mean.clone(), variance.clone()  # torch changes these in place
    theirs = F.batch_norm(x, running_mean, running_variance, gamma, beta, training=True)
    assert_close(f.batch_norm(x, wide_gamma, wide_beta, axes=axes), theirs)
    assert_close(seen_mean.reshape(3), running_mean)
    assert_close(seen_variance.reshape(3), running_variance)


def test_batch_norm_of_sentences_changes_a_word_when_another_sentence_is_padded(draw):
    sentences = draw(2, 6, 4)
    padded = np.concatenate([sentences, np.zeros((2, 3, 4))], axis=1)
    normal = f.batch_norm(sentences, axes=f.BATCH_AND_TIME)
    assert np.abs(f.batch_norm(padded, axes=f.BATCH_AND_TIME)[:, :6] - normal).max() > 0.05
    np.testing.assert_array_equal(f.layer_norm(padded)[:, :6], f.layer_norm(sentences))


def test_rms_norm_is_the_same_as_in_torch(draw):
    x, gamma = torch.tensor(draw(2, 3, 4)), torch.tensor(draw(4))
    assert_close(f.rms_norm(x, gamma), F.rms_norm(x, (4,), gamma, eps=1e-5))


def test_rms_norm_is_layer_norm_for_vectors_of_mean_zero(draw):
    x = draw(3, 6)
    x = x - x.mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(f.rms_norm(x), f.layer_norm(x), atol=1e-12)
