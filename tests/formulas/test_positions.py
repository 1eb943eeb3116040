"""Positions: the course's formula with its right exponent, the two layouts, the naive ideas, and distances."""

import numpy as np
import pytest

from saccade import formulas as f

PLACES = np.arange(20.0)


def test_sine_and_cosine_have_the_same_exponent_which_one_deck_gets_wrong():
    width, place, i = 4, 3.0, 1
    code = f.sinusoidal(np.asarray([place]), width)[0]
    assert code[2 * i] == pytest.approx(np.sin(place / 10000 ** (2 * i / width)))
    assert code[2 * i + 1] == pytest.approx(np.cos(place / 10000 ** (2 * i / width)))
    deck = np.cos(place / 10000 ** ((2 * i + 1) / width))  # deck 002
    assert abs(code[2 * i + 1] - deck) > 1e-4


def test_only_with_the_same_exponent_does_every_pair_lie_on_the_unit_circle():
    code = f.sinusoidal(PLACES, 512)
    np.testing.assert_allclose(code[:, 0::2] ** 2 + code[:, 1::2] ** 2, 1)
    deck = np.cos(PLACES[:, None] / 10000 ** ((np.arange(0, 512, 2) + 1) / 512))
    assert np.abs(code[:, 0::2] ** 2 + deck**2 - 1).max() > 0.01


def test_halves_and_interleaved_waves_differ_by_a_permutation_of_the_features():
    order = np.concatenate([np.arange(0, 8, 2), np.arange(1, 8, 2)])
    np.testing.assert_array_equal(f.sinusoidal(PLACES, 8)[:, order], f.sinusoidal_halves(PLACES, 8))


def test_waves_meet_the_criteria_of_a_good_encoding():
    code, longer = f.sinusoidal(PLACES, 512), f.sinusoidal(np.arange(1000.0), 512)
    assert len(np.unique(code.round(6), axis=0)) == 20  # unique
    assert np.abs(longer).max() <= 1  # bounded
    np.testing.assert_array_equal(longer[:20], code)  # the same in a longer sentence
    products = longer @ longer.T
    for distance in (1, 5, 100):  # consistent distances
        np.testing.assert_allclose(np.diag(products, distance), products[0, distance], atol=1e-9)


def test_moving_all_positions_on_turns_their_waves_by_an_angle_that_depends_only_on_the_distance():
    def cosines_first(places):
        return np.roll(f.sinusoidal_halves(places, 8), 4, axis=-1)

    turned = f.rotary(cosines_first(PLACES), np.full(20, 7.0))
    np.testing.assert_allclose(cosines_first(PLACES + 7), turned, atol=1e-12)


def test_the_fraction_of_the_way_stays_in_the_unit_interval_but_its_steps_depend_on_the_length():
    short, long = f.fraction(np.arange(5.0), 5), f.fraction(np.arange(9.0), 9)
    assert short.min() == long.min() == 0
    assert short.max() == long.max() == 1
    assert short[1, 0] - short[0, 0] == 2 * (long[1, 0] - long[0, 0])
    np.testing.assert_array_equal(f.fraction(np.asarray([0.0]), 1), [[0]])


def test_the_raw_index_has_even_steps_but_grows_without_bound():
    np.testing.assert_array_equal(f.index(PLACES)[:, 0], PLACES)


def test_adding_a_projected_position_is_concatenating_it_and_projecting_once(draw):
    x, code, weight, place_weight = draw(20, 6), f.sinusoidal(PLACES, 8), draw(5, 6), draw(5, 8)
    added = f.linear(x, weight) + f.linear(code, place_weight)
    both = f.linear(np.concatenate([x, code], axis=-1), np.concatenate([weight, place_weight], axis=-1))
    np.testing.assert_allclose(added, both, atol=1e-12)


@pytest.mark.parametrize("rotate", [f.rotary, f.rotary_interleaved])
def test_rotary_scores_depend_only_on_distance(draw, rotate):
    query, key = np.tile(draw(1, 8), (20, 1)), np.tile(draw(1, 8), (20, 1))
    scores = f.dot_score(rotate(query, PLACES), rotate(key, PLACES))
    shifted = f.dot_score(rotate(query, PLACES + 31), rotate(key, PLACES + 31))
    np.testing.assert_allclose(shifted, scores, atol=1e-9)
    for distance in (-3, 0, 7):
        np.testing.assert_allclose(np.diag(scores, distance), np.diag(scores, distance)[0], atol=1e-9)
    assert np.ptp(scores[0]) > 0.1


@pytest.mark.parametrize("rotate", [f.rotary, f.rotary_interleaved])
def test_rotating_keeps_lengths_and_leaves_position_zero_as_it_is(draw, rotate):
    x = draw(20, 8)
    turned = rotate(x, PLACES)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1))
    np.testing.assert_array_equal(turned[0], x[0])


def test_the_two_rotary_layouts_differ_by_a_permutation_of_the_features_before_and_after(draw):
    x = draw(20, 8)
    order = np.concatenate([np.arange(0, 8, 2), np.arange(1, 8, 2)])
    np.testing.assert_allclose(f.rotary(x[:, order], PLACES), f.rotary_interleaved(x, PLACES)[:, order])
    assert np.abs(f.rotary(x, PLACES) - f.rotary_interleaved(x, PLACES)).max() > 0.1


def test_rotating_is_multiplying_complex_numbers(draw):
    x = draw(20, 8)
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * f.angles(PLACES, 8))
    ours = f.rotary_interleaved(x, PLACES)
    np.testing.assert_allclose(ours[:, 0::2] + 1j * ours[:, 1::2], turned)


def test_a_relative_bias_depends_on_the_clipped_distance_and_the_head(draw):
    table = draw(2, 5)  # distances -2 ... 2
    bias = f.relative_bias(table, np.arange(4), np.arange(6))
    for head, t, s in np.ndindex(2, 4, 6):
        assert bias[head, t, s] == table[head, min(max(s - t, -2), 2) + 2]


def test_positions_that_are_not_floating_point_are_refused_by_name():
    with pytest.raises(TypeError, match="int64"):
        f.sinusoidal(np.arange(3), 4)
