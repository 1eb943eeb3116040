"""Recall at k both ways, accuracy, confusion, macro F1, and the two intervals."""

from __future__ import annotations

import numpy as np
import pytest

from saccade.errors import SaccadeError
from saccade.metrics import (
    accuracy,
    bootstrap_interval,
    confusion,
    macro_f1,
    recall_at,
    recalls,
    wilson_interval,
)

# two pictures, of which the first has captions 0 and 1, the second 2 and 3
SIMILARITY = [[0.9, 0.1, 0.5, 0.2], [0.8, 0.3, 0.1, 0.7]]
RIGHT = [[True, True, False, False], [False, False, True, True]]


def test_one_of_several_right_answers_is_enough() -> None:
    assert recall_at(1, SIMILARITY, RIGHT).value == 50
    assert recall_at(2, SIMILARITY, RIGHT).value == 100


def test_recall_both_ways() -> None:
    found = {score.name: score.value for score in recalls(SIMILARITY, RIGHT, at=(1, 2), ways=("to text", "to image"))}
    # of the captions, 0 and 3 are nearest to their own picture, 1 and 2 to the other
    assert found == {"to text R@1": 50, "to text R@2": 100, "to image R@1": 50, "to image R@2": 100}


def test_recall_equals_a_direct_loop() -> None:
    draw = np.random.default_rng(0)
    similarity, right = draw.normal(size=(30, 50)), draw.random((30, 50)) < 0.1
    right[:, 0] |= ~right.any(axis=1)
    for k in (1, 5, 50):
        hits = [right[row, np.argsort(-similarity[row])[:k]].any() for row in range(30)]
        score = recall_at(k, similarity, right)
        assert score.value == pytest.approx(100 * np.mean(hits))
        assert score.interval == pytest.approx([100 * end for end in wilson_interval(sum(hits), 30)])


def test_what_cannot_be_told_apart_is_not_found() -> None:
    assert recall_at(1, np.zeros((3, 3)), np.eye(3)).value == 0
    assert recall_at(3, np.zeros((3, 3)), np.eye(3)).value == 100
    assert recall_at(1, np.full((1, 2), -np.inf), [[True, False]]).value == 0


def test_impossible_rankings_are_refused() -> None:
    with pytest.raises(SaccadeError, match=r"similarity has shape \(2, 4\) and right \(2, 2\)"):
        recall_at(1, SIMILARITY, np.eye(2))
    with pytest.raises(SaccadeError, match="row 1 has no right answer"):
        recall_at(1, SIMILARITY, [RIGHT[0], [False] * 4])
    with pytest.raises(SaccadeError, match=r"row and column \[1, 0\] is NaN"):
        recall_at(1, [[0.1, 0.2], [np.nan, 0.0]], np.eye(2))
    with pytest.raises(SaccadeError, match="1 or more; got 0"):
        recall_at(0, SIMILARITY, RIGHT)


def test_accuracy_is_the_share_of_right_answers() -> None:
    score = accuracy(["a", "b", "b", "c"], ["a", "b", "c", "c"])
    assert score.value == 75
    assert score.interval == pytest.approx([100 * end for end in wilson_interval(3, 4)])
    assert str(score) == "accuracy 75.0 [30.1, 95.4]"


def test_wilsons_interval_has_its_known_values() -> None:
    assert wilson_interval(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998, method 3
    assert wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert wilson_interval(29, 29) == pytest.approx((0.8830, 1.0), abs=1e-4)
    for right, count in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(SaccadeError, match=f"{right} of {count} is no share"):
            wilson_interval(right, count)


def test_rows_of_a_confusion_are_what_was_meant() -> None:
    table = confusion(list("aabbbcccc"), list("aaabbbccd"))
    assert table.labels == ("a", "b", "c", "d")
    assert table.counts.tolist() == [[2, 1, 0, 0], [0, 2, 1, 0], [0, 0, 2, 0], [0, 0, 1, 0]]
    assert table.tsv() == "right\ta\tb\tc\td\na\t2\t1\t0\t0\nb\t0\t2\t1\t0\nc\t0\t0\t2\t0\nd\t0\t0\t1\t0\n"
    ordered = confusion([2, 1], [10, 1], labels=[10, 2, 1, 5])
    assert ordered.counts.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
    assert confusion([10, 2], [2, 2]).labels == (2, 10)  # as numbers, not as words
    with pytest.raises(SaccadeError, match="'c' is not among the labels: 'a', 'b'"):
        confusion(["a", "c"], ["a", "b"], labels=["a", "b"])


def test_macro_f1_weighs_labels_alike() -> None:
    score = macro_f1(list("aabbbcccc"), list("aaabbbccd"), interval=True)
    assert score.value == pytest.approx(100 * (4 / 5 + 4 / 6 + 4 / 6 + 0) / 4)
    assert score.interval is not None and score.interval[0] < score.value < score.interval[1]
    assert macro_f1(list("aaab"), list("aaab"), interval=True).interval == (100, 100)  # also where no b was drawn
    assert macro_f1([1, 1, 1, 1], [1, 1, 1, 0]).value == pytest.approx(100 * (6 / 7) / 2)


def test_a_resampled_mean_spreads_as_the_normal_law_says() -> None:
    values = np.random.default_rng(1).normal(5, 2, size=400)
    low, high = bootstrap_interval(values, resamples=4000)
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.02)
    assert high == pytest.approx(values.mean() + half, abs=0.02)
    assert bootstrap_interval(values) == bootstrap_interval(values)
    assert bootstrap_interval([3.0]) == (3.0, 3.0)


def test_items_stay_whole_when_resampled() -> None:
    pairs = np.array([(n, 2 * n) for n in range(1, 50)])
    low, high = bootstrap_interval(pairs, lambda drawn: drawn[:, 0].sum() / drawn[:, 1].sum())
    assert low == high == 0.5


def test_lists_that_do_not_match_are_refused() -> None:
    for score in (accuracy, macro_f1, confusion):
        with pytest.raises(SaccadeError, match="2 answers cannot be scored with 1 references"):
            score(["a", "b"], ["a"])
        with pytest.raises(SaccadeError, match="nothing to score"):
            score([], [])
    with pytest.raises(SaccadeError, match="nothing to resample"):
        bootstrap_interval([])
