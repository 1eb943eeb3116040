"""Batches: within the budget, every example once an epoch, and resumable anywhere."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.batching import Batches, Cursor
from saccade.data.toy import sequences
from saccade.data.vocab import Symbols
from saccade.errors import SaccadeError

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=60)


@given(lengths=LENGTHS, budget=st.integers(1, 100), seed=st.integers(0, 9))
def test_every_example_comes_once_an_epoch_within_the_budget(lengths: list[int], budget: int, seed: int) -> None:
    plan = Batches(lengths, batch_tokens=budget, seed=seed).plan(0)
    assert sorted(number for batch in plan for number in batch) == list(range(len(lengths)))
    for batch in plan:
        assert len(batch) == 1 or len(batch) * max(lengths[number] for number in batch) <= budget


@given(lengths=LENGTHS, steps=st.integers(0, 40))
def test_a_stream_goes_on_from_any_cursor(lengths: list[int], steps: int) -> None:
    batches = Batches(lengths, batch_tokens=40, seed=1)
    whole = list(islice(batches.stream(Cursor()), steps + 10))
    cursor = whole[steps - 1][1] if steps else Cursor()
    assert list(islice(Batches(lengths, batch_tokens=40, seed=1).stream(cursor), 10)) == whole[steps:]


def test_epochs_differ_and_seeds_differ() -> None:
    batches = Batches([3] * 50, batch_tokens=12, seed=1)
    assert batches.plan(0) != batches.plan(1)
    assert batches.plan(0) != Batches([3] * 50, batch_tokens=12, seed=2).plan(0)
    assert batches.plan(0) == Batches([3] * 50, batch_tokens=12, seed=1).plan(0)


def test_like_lengths_meet() -> None:
    lengths = [1 + number % 20 for number in range(400)]
    for batch in Batches(lengths, batch_tokens=60, seed=1).plan(0):
        found = [lengths[number] for number in batch]
        assert max(found) - min(found) <= 1


def test_no_examples_is_an_error() -> None:
    with pytest.raises(SaccadeError, match="no examples"):
        Batches([], batch_tokens=10, seed=1)


def test_toy_sequences_are_the_same_every_time_and_splits_differ() -> None:
    def drawn(split: str) -> list[list[int]]:
        return sequences(50, symbols=9, shortest=2, longest=7, seed=3, split=split)

    assert drawn("train") == drawn("train") != drawn("valid")
    assert {len(each) for each in drawn("train")} == set(range(2, 8))
    assert {symbol for each in drawn("train") for symbol in each} == set(range(9))


def test_symbols_come_back_as_they_went_in() -> None:
    vocabulary = Symbols(["a", "b", "c"])
    assert vocabulary.decode(vocabulary.encode("c a  b")) == "c a b"
    assert len(vocabulary) == 6
    with pytest.raises(SaccadeError, match="symbol 2 of 'a d' is 'd'"):
        vocabulary.encode("a d")
