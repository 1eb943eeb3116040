"""Positions against their formulas, in both layouts; the course's five criteria; far positions."""

import math

import pytest
import torch

from saccade import formulas as f
from saccade.nn.layers import Embedding
from saccade.nn.positions import Fraction, Index, Learned, Positions, RelativeBias, Rotary, Sinusoidal, measure

from .workbench import assert_agree, assert_close, assert_law, both_ways, stir

LAYOUTS = ["halves", "interleaved"]
WAVES = {"halves": f.sinusoidal_halves, "interleaved": f.sinusoidal}
TURNS = {"halves": f.rotary, "interleaved": f.rotary_interleaved}


def interleave(width):
    """Where each column of the interleaved layout stands among the halves."""
    return torch.arange(width).view(2, -1).T.flatten()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sinusoidal_positions_equal_their_formula(layout):
    at = torch.arange(50)
    assert_close(Sinusoidal(12, layout=layout)(at, 50), WAVES[layout](at.to(torch.float64), 12))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sinusoidal_positions_may_differ_from_row_to_row(layout):
    scheme, at = Sinusoidal(12, layout=layout), torch.tensor([[0, 1, 2], [7, 8, 9]])
    assert_close(scheme(at, 3), torch.stack([scheme(row, 3) for row in at]))


def test_the_sinusoidal_layouts_differ_by_a_permutation_of_columns():
    at = torch.arange(50)
    halves, interleaved = (Sinusoidal(12, layout=layout)(at, 50) for layout in LAYOUTS)
    assert torch.equal(interleaved, halves[:, interleave(12)])
    assert not torch.equal(interleaved, halves)


@pytest.mark.parametrize("position", [10_000, 1_000_003, 16_777_217])
def test_far_positions_are_as_exact_as_float64(position):
    """In float32 the angle itself is off: 16777217 is not even a float32, and its sine is another."""
    (place,) = Sinusoidal(8)(torch.tensor([position]), 1)
    angles = [position / 10_000 ** (2 * pair / 8) for pair in range(4)]
    expected = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
    torch.testing.assert_close(place, torch.tensor(expected), rtol=0, atol=1e-8)


def test_a_float32_embedding_rounds_positions_at_the_end_only():
    table = Embedding(3, 8, positions=Sinusoidal(8)).to(torch.float32)
    torch.nn.init.zeros_(table.weight)
    far = torch.tensor([[1_000_003]])
    placed = table(torch.tensor([[1]]), at=far)
    assert placed.dtype == torch.float32
    assert_close(placed, f.sinusoidal_halves(far.to(torch.float64), 8).to(torch.float32), rtol=0, atol=1e-7)


@pytest.mark.parametrize("at", [torch.arange(5), torch.tensor([[0, 1, 2, 3, 4], [9, 8, 100, 6, 5]])])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotary_positions_equal_their_formula(layout, at):
    x = torch.randn(2, 3, 5, 8, requires_grad=True)
    rows = at.expand(2, 5).to(x.dtype)
    expected = torch.stack([TURNS[layout](x[row], rows[row]) for row in range(2)])
    assert_agree(Rotary(8, layout=layout).turn(x, at), expected, x)


def test_the_rotary_layouts_differ_by_a_permutation_of_columns():
    x, at = torch.randn(2, 3, 5, 8), torch.arange(5)
    halves, interleaved = Rotary(8, layout="halves"), Rotary(8, layout="interleaved")
    order = interleave(8)
    assert_close(interleaved.turn(x[..., order], at), halves.turn(x, at)[..., order])
    assert not torch.allclose(interleaved.turn(x, at), halves.turn(x, at))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_scores_of_rotated_vectors_know_distances_only(layout):
    rotary, query, key = Rotary(8, layout=layout), torch.randn(1, 1, 1, 8), torch.randn(1, 1, 1, 8)

    def score(query_at, key_at):
        return (rotary.turn(query, torch.tensor([query_at])) * rotary.turn(key, torch.tensor([key_at]))).sum()

    assert_close(score(3, 7), score(103, 107))
    assert abs(score(3, 7) - score(3, 8)) > 1e-3


def test_the_relative_bias_equals_its_formula():
    scheme = stir(RelativeBias(2, reach=3))
    query_at, key_at = torch.arange(4, 9), torch.arange(12)
    assert_agree(scheme.bias(query_at, key_at)[0], f.relative_bias(scheme.table, query_at, key_at), scheme.table)


def test_the_relative_bias_may_stand_elsewhere_in_each_row():
    scheme, key_at = stir(RelativeBias(2, reach=3)), torch.arange(12)
    query_at = torch.tensor([[0, 1], [7, 8]])
    expected = torch.stack([f.relative_bias(scheme.table, row, key_at) for row in query_at])  # (B, H, T, S)
    assert_close(scheme.bias(query_at, key_at), expected)


def test_distances_beyond_the_reach_share_the_last_number():
    scheme = stir(RelativeBias(2, reach=3))
    bias = scheme.bias(torch.tensor([10]), torch.arange(21))[0, :, 0]  # (H, S)
    assert bool((bias[:, :8] == bias[:, :1]).all()) and bool((bias[:, 13:] == bias[:, -1:]).all())
    assert not torch.equal(bias[:, 7], bias[:, 8]) and not torch.equal(bias[:, 12], bias[:, 13])


def test_the_naive_ideas_equal_their_formulas():
    at = torch.arange(7)
    assert_close(Index(3)(at, 7), f.index(at.to(torch.float64)).expand(7, 3))
    assert_close(Fraction(3)(at, 7), f.fraction(at.to(torch.float64), 7).expand(7, 3))


def test_a_sentence_of_one_word_has_a_fraction_too():
    assert Fraction(2)(torch.tensor([0]), 1).tolist() == [[0, 0]]


# The course's five criteria


def test_sinusoidal_positions_pass_all_five_criteria():
    for layout in LAYOUTS:
        assert all(measure(Sinusoidal(64, layout=layout)).verdicts.values())


def failures(scheme):
    return {wish for wish, passed in measure(scheme).verdicts.items() if not passed}


def test_fractions_fail_consistent_distances_only():
    assert failures(Fraction(64)) == {"consistent distances"}


def test_raw_numbers_are_unbounded_only():
    assert failures(Index(64)) == {"bounded"}
    assert measure(Index(64)).growth == pytest.approx(499 / 49)


def test_learned_positions_do_not_generalise_to_longer_sentences():
    assert "generalises to longer" in failures(Learned(64, longest=50))
    assert "generalises to longer" not in failures(Learned(64, longest=500))


def test_positions_that_share_a_vector_are_not_unique():
    class InPairs(Positions):
        width = 4

        def forward(self, at, _length):
            return (at // 2).double()[:, None].expand(-1, 4)

    assert "unique" in failures(InPairs())


def test_positions_drawn_anew_each_time_are_not_deterministic():
    class Random(Positions):
        width = 4

        def forward(self, at, _length):
            return torch.randn(len(at), 4)

    assert "deterministic" in failures(Random())


# Learned tables, and positions beside the tokens


@pytest.mark.parametrize("deviation", [0.02, 0.5])
@both_ways
def test_learned_positions_start_normal_with_the_given_deviation(build, deviation):
    assert_law(build(lambda: Learned(100, longest=400, deviation=deviation)).table, deviation**2)


@pytest.mark.parametrize("first", [0, 2])
def test_learned_positions_may_start_as_waves_of_the_given_deviation(first):
    scheme = Learned(64, longest=50, deviation=0.05, first=first, waves=True)
    at = torch.arange(50)
    torch.testing.assert_close(scheme(at, 50) / (0.05 * 2**0.5), Sinusoidal(64)(at, 50))
    assert float(scheme.table.detach().square().mean().sqrt()) == pytest.approx(0.05, rel=1e-4)
    assert scheme.table.requires_grad


@both_ways
def test_the_relative_bias_starts_at_zero(build):
    assert not build(lambda: RelativeBias(4, reach=5)).table.any()


def test_learned_positions_are_rows_of_their_table():
    scheme, at = Learned(4, longest=9), torch.tensor([[0, 8], [3, 3]])
    assert_agree(scheme(at, 2), scheme.table[at], scheme.table)


@pytest.mark.parametrize("combine", ["add", "concatenate"])
def test_positions_are_added_to_or_put_beside_scaled_tokens(combine):
    places = Sinusoidal(8 if combine == "add" else 2)
    table, tokens = Embedding(11, 8, positions=places, combine=combine), torch.tensor([[1, 2, 3], [4, 5, 6]])
    place = places(torch.arange(3), 3).expand(2, 3, -1)
    if combine == "add":
        expected = table.weight[tokens] * math.sqrt(8) + place
    else:
        expected = torch.cat([table.weight[tokens] * math.sqrt(6), place], dim=-1)
    assert_agree(table(tokens), expected, table.weight)
    assert_close(table(tokens, at=torch.arange(3).expand(2, 3)), expected)


def test_positions_beyond_a_learned_table_are_refused_by_name():
    with pytest.raises(ValueError, match="position 9 is beyond the table of 9 learned positions"):
        Learned(4, longest=9)(torch.arange(10), 10)


def test_a_negative_position_of_a_learned_table_is_refused_by_name():
    with pytest.raises(ValueError, match=r"position -1\b.*9"):
        Learned(4, longest=9)(torch.tensor([-1, 3]), 2)


@pytest.mark.parametrize("width", [1, 7])
def test_odd_widths_are_refused(width):
    with pytest.raises(ValueError, match=f"even width; got {width}, try {width + 1}"):
        Sinusoidal(width)
    with pytest.raises(ValueError, match=f"even head width; got {width}"):
        Rotary(width)


@pytest.mark.parametrize("scheme", [Sinusoidal, Rotary])
def test_an_unknown_layout_is_refused(scheme):
    with pytest.raises(ValueError, match="thirds"):
        scheme(8, layout="thirds")


def test_positions_that_cannot_be_added_are_refused():
    with pytest.raises(ValueError, match="positions of width 6 cannot be added to tokens of width 8"):
        Embedding(11, 8, positions=Sinusoidal(6))


def test_positions_that_leave_no_room_for_tokens_are_refused():
    with pytest.raises(ValueError, match="positions of width 8 leave no room for tokens in a width of 8"):
        Embedding(11, 8, positions=Sinusoidal(8), combine="concatenate")


def test_an_unknown_way_to_combine_is_refused():
    with pytest.raises(ValueError, match="'add' or 'concatenate'; got 'multiply'"):
        Embedding(11, 8, positions=Sinusoidal(8), combine="multiply")


def test_a_scheme_without_an_answer_is_not_a_scheme():
    with pytest.raises(NotImplementedError):
        Positions()(torch.arange(3), 3)
