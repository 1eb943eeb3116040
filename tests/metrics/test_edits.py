"""Error rates of transcripts: the fewest edits, over the whole corpus, with a rule for empty references."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import SaccadeError
from saccade.metrics import character_error_rate, edit_distance, word_error_rate


def slow_distance(one: str, other: str) -> int:
    """The definition: the best of keeping or replacing, deleting, inserting the last."""
    table = {(i, 0): i for i in range(len(one) + 1)} | {(0, j): j for j in range(len(other) + 1)}
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            kept = table[i - 1, j - 1] + (one[i - 1] != other[j - 1])
            table[i, j] = min(kept, table[i - 1, j] + 1, table[i, j - 1] + 1)
    return table[len(one), len(other)]


@given(st.text("abc", max_size=12), st.text("abcd", max_size=12))
@settings(max_examples=200, deadline=None)
def test_the_distance_is_the_fewest_edits(one: str, other: str) -> None:
    assert edit_distance(one, other) == slow_distance(one, other) == edit_distance(other, one)


def test_rates_equal_those_of_a_common_evaluator() -> None:
    """Values computed with jiwer 4."""
    references = ["the cat sat on the mat", "one two three four", "hello world", "a b c d e f"]
    answers = ["the cat sat mat", "one too three four five", "hello world", "b a c e f g"]
    assert word_error_rate(answers, references).value == pytest.approx(44.44444444444444)
    assert character_error_rate(answers, references).value == pytest.approx(29.032258064516128)


def test_a_rate_is_of_the_corpus_and_not_a_mean_of_rates() -> None:
    assert word_error_rate(["x", "a b c d e f g h i"], ["a", "a b c d e f g h i"]).value == pytest.approx(10)


def test_white_space_is_one_space_and_case_counts() -> None:
    assert word_error_rate([" the \t cat\n"], ["the cat"]).value == 0
    assert character_error_rate([" the \t cat\n"], ["the cat"]).value == 0
    assert word_error_rate(["The cat"], ["the cat"]).value == 50


def test_more_insertions_than_words_exceed_a_hundred() -> None:
    assert word_error_rate(["a b c d"], ["x"]).value == 400


@pytest.mark.parametrize("rate", [word_error_rate, character_error_rate])
def test_empty_references_have_a_defined_rate(rate) -> None:
    assert rate([""], [""]).value == 0
    assert rate(["a b"], [""]).value == 100
    assert rate(["a", ""], ["", ""]).value == 100
    assert rate(["", "a b c"], ["", "a b c"]).value == 0
    assert rate([""], ["a b c"]).value == 100
    assert rate(["a", ""], ["", ""], interval=True).interval == (0, 100)


def test_insertions_for_an_empty_reference_count_in_a_corpus() -> None:
    assert word_error_rate(["x", "a b c d"], ["", "a b c d"]).value == 25


def test_an_interval_holds_the_rate_and_repeats() -> None:
    drawn = random.Random(0)
    references = [" ".join(drawn.choices("abcdef", k=drawn.randint(1, 9))) for _ in range(60)]
    answers = [text.replace("a", "b") for text in references]
    first, second = (word_error_rate(answers, references, interval=True) for _ in range(2))
    assert first == second
    assert first.interval is not None
    low, high = first.interval
    assert 5 < low < first.value < high < 30
    assert str(first) == f"WER {first.value:.1f} [{low:.1f}, {high:.1f}]"
    assert str(word_error_rate(["a"], ["a"])) == "WER 0.0"


def test_lists_that_do_not_match_are_refused() -> None:
    with pytest.raises(SaccadeError, match="2 answers cannot be scored with 1 references"):
        word_error_rate(["a", "b"], ["a"])
    with pytest.raises(SaccadeError, match="nothing to score"):
        character_error_rate([], [])
