"""Sentences that are read twice, with other dropout, and should be answered alike."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from saccade import api
from saccade.errors import SaccadeError
from saccade.tasks.pairs import collate_pairs
from saccade.tasks.written import agreeing_loss, written_loss
from saccade.train.run import Run
from tests.laws.models import sequence_model
from tests.numbers import corpus
from tests.test_translation import SMALL

PAIRS = [([3, 4, 5], [6, 7]), ([8], [9, 3, 4])]


def pairs(folder: Path) -> list[str]:
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{french}\t{english}\n" for french, english in corpus()), encoding="utf-8")
    return [f'task.source="{path}"', *SMALL]


@pytest.mark.parametrize("name", ["bahdanau", "convolutional", "transformer"])
def test_without_dropout_two_readings_are_one(name: str) -> None:
    model, batch = sequence_model(name), collate_pairs(PAIRS, [0, 1])
    once, twice = written_loss(model, batch, smoothing=0.1), agreeing_loss(model, batch, smoothing=0.1, weight=3.0)
    for term in once:
        torch.testing.assert_close(twice[term].sum.double(), once[term].sum.double(), rtol=1e-5, atol=1e-6)
    assert float(twice["disagreement"].sum) == pytest.approx(0, abs=1e-6)


def test_readings_with_other_dropout_differ_and_training_brings_them_together(tmp_path: Path) -> None:
    found = {}
    for weight in (0.001, 3.0):
        chosen = [*pairs(tmp_path), f"task.agreement={weight}", "train.steps=60", "model.dropout=0.3"]
        api.train("translate", out=tmp_path / str(weight), settings=[*chosen, "train.log_every=10"])
        lines = [line for line in Run(tmp_path / str(weight)).metrics() if "disagreement" in line]
        found[weight] = lines[-1]["disagreement"]
    assert 0 < found[3.0] < found[0.001] / 2


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (["task.guided_alignment=0.1"], "agreement and guided_alignment cannot be had together"),
        (["model.dropout=0"], "task.agreement compares readings with other dropout, and model.dropout is 0"),
        (["task.agreement=-1"], "task.agreement"),
    ],
)
def test_what_cannot_be_asked_is_refused(settings: list[str], told: str, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=told):
        api.begin("translate", out=tmp_path / "run", settings=[*pairs(tmp_path), "task.agreement=1", *settings])
    assert not (tmp_path / "run").exists()
