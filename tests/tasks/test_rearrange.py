"""Copy, reverse, sort: three parts that are not each other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from saccade.config import load_recipe
from saccade.decode import Hypothesis
from saccade.errors import SaccadeError
from saccade.tasks import rearrange
from saccade.tasks.rearrange import Rearrange


def test_the_test_part_is_one_of_its_own_and_is_what_is_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Rearrange(load_recipe("reverse", ["task.valid_examples=20", "task.train_examples=20", "task.shortest=6"]))
    parts = {split: task.examples(split) for split in ("train", "valid", "test")}
    assert [len(each) for each in parts.values()] == [20, 20, 20]
    sources = [tuple(source) for each in parts.values() for source, _ in each]
    assert len(set(sources)) == 60
    assert parts["test"] == task.examples("test")

    def right(_: object, asked: Sequence[list[int]], *others: object) -> list[list[Hypothesis]]:
        """Of validation alone."""
        known = [source for source, _ in parts["valid"]]
        return [[Hypothesis(tuple(each[::-1] if each in known else each), 0.0, (), "eos")] for each in asked]

    monkeypatch.setattr(rearrange, "answer_pairs", right)
    assert task.evaluate(task.model(), "valid")[0].value == 100
    assert task.evaluate(task.model(), "test")[0].value < 20
    with pytest.raises(SaccadeError, match="no part called 'dev'; there are train, valid, test"):
        task.examples("dev")
