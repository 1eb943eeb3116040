"""BLEU and chrF by sacrebleu: lists that do not match are refused, and equal answers do not differ."""

from __future__ import annotations

import pytest

from saccade.errors import SaccadeError
from saccade.metrics import Score, bleu, chrf, paired_p_value, streams


def test_scores_refuse_lists_that_do_not_match() -> None:
    with pytest.raises(SaccadeError, match="2 answers cannot be scored with 1 references"):
        bleu(["a", "b"], [["a"]])
    with pytest.raises(SaccadeError, match="nothing to score"):
        chrf([], [])
    assert bleu(["the cat sat down"], [["a dog", "the cat sat down"]]).value == pytest.approx(100)


def test_a_missing_reference_leaves_a_gap() -> None:
    assert streams(["x", "y"], [["a"], ["b", "c"]]) == [["a", "b"], [None, "c"]]


def test_a_score_says_its_name_its_interval_and_how_it_was_counted() -> None:
    answers, references = ["the cat sat down", "the dog ran off"], [["the cat sat down"], ["the dog ran away"]]
    score = chrf(answers, references, interval=True)
    assert score.interval is not None
    low, high = score.interval
    assert low < score.value < high
    assert str(score) == f"chrF {score.value:.1f} [{low:.1f}, {high:.1f}]"
    assert "nc:6" in score.signature
    assert str(Score("BLEU", 12.34)) == "BLEU 12.3"


def test_no_interval_goes_beyond_what_a_score_can_be() -> None:
    answers = ["the cat sat down", "oh", "the dog ran off with it"]
    low, high = bleu(answers, [[answer] for answer in answers], interval=True).interval or (-1.0, 101.0)
    assert 0.0 <= low < high <= 100.0


def test_the_same_answers_do_not_differ_by_chance() -> None:
    assert paired_p_value(["a b"], ["a b"], [["a c"]]) == 1.0


def test_other_answers_of_equal_score_do_not_differ() -> None:
    first, second, references = ["a b", "c"], ["x", "y z"], [["one two three"], ["four five six"]]
    assert bleu(first, references).value == bleu(second, references).value == 0.0
    assert paired_p_value(first, second, references) == 1.0


def test_resampled_sentences_of_which_none_matches_count_as_nothing() -> None:
    score = chrf(["abc", "xyz"], [["abc"], ["qqq"]], interval=True)
    low, high = score.interval or (-1.0, 101.0)
    assert 0.0 <= low < 1.0 < score.value < high == 100.0
