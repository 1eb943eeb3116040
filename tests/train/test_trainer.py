"""The training loop: updates, early stopping, schedules, what a resume notices."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from saccade import api
from saccade.config import load_recipe
from saccade.config.training import ScheduleSettings
from saccade.errors import RunError, RunWarning
from saccade.tasks.pairs import Pair
from saccade.tasks.rearrange import Rearrange
from saccade.train.optim import load_optimizer, make_optimizer, optimizer_tensors, rate_at
from saccade.train.progress import Evaluated, Progress, Stopped
from saccade.train.run import Run
from saccade.train.trainer import Trainer, named_tensors

TINY = (
    "model.width=16",
    "model.hidden=32",
    "model.encoder_layers=1",
    "task.symbols=6",
    "task.train_examples=64",
    "task.valid_examples=8",
    "train.steps=8",
)


def trainer(*settings: str) -> Trainer:
    recipe = load_recipe("reverse", [*TINY, *settings])
    return Trainer(api.make_task(recipe), recipe.train)


def test_steps_does_nothing_but_update() -> None:
    run = trainer()
    updates = list(run.steps())
    assert [update.step for update in updates] == list(range(1, 9))
    assert all(update.tokens > 0 and update.gradient_norm > 0 for update in updates)


def test_a_clock_that_is_put_back_changes_no_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = itertools.count(1_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(hours)))
    training = api.begin("reverse", out=tmp_path / "run", settings=[*TINY, "train.log_every=2", "train.minutes=5"])
    told = [event for event in training.events() if isinstance(event, Progress)]
    assert len(told) == 4
    assert all(event.tokens_per_second > 0 and 0 <= event.seconds_left <= 300 for event in told)
    assert 0 < training.trainer.minutes < 5


def test_training_stops_when_patience_is_out_and_keeps_the_best(tmp_path: Path) -> None:
    settings = [*TINY, "train.steps=400", "train.evaluate_every=5", "train.patience=2", "train.optimizer.rate=1e-9"]
    events = list(api.begin("reverse", out=tmp_path / "run", settings=settings).events())
    last = events[-1]
    assert isinstance(last, Stopped)
    assert last.reason == "patience"
    scores = [event.scores.decisive for event in events if isinstance(event, Evaluated)]
    assert last.step == 5 * len(scores) < 400
    assert last.best_score == max(scores)
    assert Run.open(tmp_path / "run").weights()[1]["step"] == last.best_step


def test_a_run_that_ended_by_patience_stays_as_it_is_when_resumed(tmp_path: Path) -> None:
    settings = [*TINY, "train.steps=400", "train.evaluate_every=5", "train.patience=1", "train.optimizer.rate=1e-9"]
    api.train("reverse", out=tmp_path / "run", settings=settings)
    steps = Run.open(tmp_path / "run").steps()
    api.resume(tmp_path / "run")
    assert Run.open(tmp_path / "run").steps() == steps


def test_of_equal_scores_the_later_weights_are_kept_but_patience_runs_out(tmp_path: Path) -> None:
    settings = [*TINY, "train.evaluate_every=2", "train.optimizer.rate=1e-9", "train.patience=3"]
    events = list(api.begin("reverse", out=tmp_path / "run", settings=settings).events())
    scores = [event.scores.decisive for event in events if isinstance(event, Evaluated)]
    assert len(set(scores)) == 1
    assert events[-1].best_step == events[-1].step == 8


def test_changed_data_is_noticed_on_resume(tmp_path: Path) -> None:
    class Fewer(Rearrange):
        def examples(self, split: str) -> Sequence[Pair]:
            return super().examples(split)[:60]

    api.train("reverse", out=tmp_path / "run", settings=TINY)
    with pytest.warns(RunWarning, match="the training data is not what it was"):
        api.resumed(tmp_path / "run", task=Fewer(load_recipe("reverse", TINY)))


def test_other_text_of_the_same_length_is_noticed_and_named_on_resume(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("abcdefgh\n" * 200)
    settings = [f"task.data={text}", "task.window=8", "model.width=16", "model.layers=1", "train.steps=2"]
    api.train("language-quick", out=tmp_path / "run", settings=settings)
    api.resumed(tmp_path / "run")  # without a word
    text.write_text("hgfedcba\n" * 200)
    with pytest.warns(RunWarning, match=r"not what it was at step 2 \(task\.data\): the run goes on"):
        api.resumed(tmp_path / "run")


def test_the_state_of_another_models_optimizer_is_refused_whole() -> None:
    small, large = trainer(), trainer("model.width=32")
    list(small.steps())
    tensors = optimizer_tensors(small.optimizer, small.model)
    with pytest.raises(RunError, match="does not fit"):
        load_optimizer(large.optimizer, large.model, tensors)
    assert not large.optimizer.state


def test_weight_decay_touches_matrices_only() -> None:
    run = trainer("train.optimizer.weight_decay=0.5")
    matrices, vectors = make_optimizer(run.model, run.settings.optimizer).param_groups
    assert all(parameter.dim() >= 2 for parameter in matrices["params"]) and matrices["weight_decay"] == 0.5
    assert all(parameter.dim() < 2 for parameter in vectors["params"]) and vectors["weight_decay"] == 0.0


def test_schedules_rise_in_a_line_and_fall_as_they_say() -> None:
    inverse = ScheduleSettings(kind="inverse_sqrt", warmup=100)
    assert [rate_at(step, 1000, inverse) for step in (1, 50, 100, 400)] == pytest.approx([0.01, 0.5, 1.0, 0.5])
    cosine = ScheduleSettings(kind="cosine", warmup=100, floor=0.1)
    assert [rate_at(step, 1100, cosine) for step in (100, 600, 1100)] == pytest.approx([1.0, 0.55, 0.1])
    constant = ScheduleSettings(kind="constant", warmup=0)
    again = ScheduleSettings(kind="cosine", warmup=100, restart=1100)
    once = ScheduleSettings(kind="cosine", warmup=100)
    assert [rate_at(n, 2100, again) for n in range(1, 1101)] == [rate_at(n, 1100, once) for n in range(1, 1101)]
    assert [rate_at(step, 2100, again) for step in (1101, 1600, 2100)] == pytest.approx([1.0, 0.5, 0.0], abs=1e-5)
    assert [rate_at(n, 1000, again) for n in range(1, 1001)] == [rate_at(n, 1000, once) for n in range(1, 1001)]
    assert rate_at(1, 10, constant) == rate_at(10, 10, constant) == 1.0


def test_the_same_seed_gives_the_same_model_and_another_seed_another() -> None:
    one, again, other = trainer(), trainer(), trainer("train.seed=2")
    for run in (one, again, other):
        list(run.steps())
    tensors = [named_tensors(run.model) for run in (one, again, other)]
    assert all(torch.equal(tensors[0][name], tensors[1][name]) for name in tensors[0])
    assert not all(torch.equal(tensors[0][name], tensors[2][name]) for name in tensors[0])


def test_what_was_trained_is_kept_where_it_cannot_be_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        torch.rand(3)  # an evaluation may draw, and still no number of the training is lost
        raise RunError("no score today")

    whole, out = trainer(), tmp_path / "run"
    list(whole.steps())
    settings = [*TINY, "train.evaluate_every=5", "train.save_every=100"]
    with monkeypatch.context() as patch:
        patch.setattr(Rearrange, "score", broken)
        with pytest.raises(RunError, match="no score today"):
            list(api.begin("reverse", out=out, settings=settings).events())
    assert Run.open(out).steps() == [5]
    model = api.resume(out).model
    assert all(torch.equal(each, named_tensors(model)[name]) for name, each in named_tensors(whole.model).items())


def test_a_run_ends_with_its_last_weights_where_the_best_are_damaged(tmp_path: Path) -> None:
    out = tmp_path / "run"
    training = api.begin("reverse", out=out, settings=[*TINY, "train.save_every=4", "train.evaluate_every=100"])
    list(training.events())
    training.trainer.best_step, training.trainer.best_score = 4, 1.0
    weights = out / "step-000004" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.warns(RunWarning, match=r"step-000004.*final/ is made of step 8"):
        training.trainer._finish(training.run)
    assert training.run.weights()[1]["step"] == 8
