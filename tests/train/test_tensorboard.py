"""Numbers of a training for TensorBoard."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from saccade import api
from saccade.errors import SaccadeError

SHORT = [
    "train.tensorboard=true",
    "train.steps=6",
    "train.log_every=2",
    "train.evaluate_every=3",
    "task.valid_examples=4",
    "model.width=8",
    "model.hidden=8",
    "train.threads=1",
]


def read(run: Path) -> dict[str, list[int]]:
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return {name: [each.step for each in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_every_logged_number_is_there_at_its_step(tmp_path: Path) -> None:
    api.train("reverse", out=tmp_path / "run", settings=SHORT)
    found = read(tmp_path / "run")
    assert found["train/loss"] == found["train/rate"] == [2, 4, 6]
    assert found["valid/exact"] == [3, 6]


def test_without_the_package_it_is_refused_before_a_first_step(tmp_path: Path, monkeypatch: Any) -> None:
    real = builtins.__import__

    def missing(name: str, *more: Any, **others: Any) -> Any:
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return real(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SaccadeError, match=r"pip install -e '\.\[tensorboard\]'"):
        api.begin("reverse", out=tmp_path / "run", settings=SHORT)
    assert not (tmp_path / "run").exists()
