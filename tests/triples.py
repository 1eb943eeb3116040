"""A text in which the middle word of a line follows from both its neighbours, and not from one of them alone."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import torch

from saccade import api
from saccade.config import Recipe, dump_recipe, parse_recipe

NAMES = ("ash", "birch", "cedar", "elm", "fir")
ALL = [(left, right) for left in NAMES for right in NAMES]


def line(left: str, right: str) -> str:
    return f"{left} {left}-{right} {right}"


def write_triples(path: Path, count: int, seed: int = 0) -> Path:
    drawn = np.random.default_rng(seed).integers(len(ALL), size=count).tolist()
    path.write_text("".join(f"{line(*ALL[number])}\n" for number in drawn), encoding="utf-8")
    return path


def assert_resumed_equals_whole(recipe: Recipe, folder: Path) -> None:
    """Six updates are three, a checkpoint and three, to the bit."""
    whole = api.begin(recipe, out=folder / "whole").trainer
    losses = [update.means for update in whole.steps()]
    begun = api.begin(recipe, out=folder / "parts")
    first = [update.means for update in islice(begun.trainer.steps(), 3)]
    begun.trainer.save(begun.run)
    torch.manual_seed(0)
    rest = api.resumed(folder / "parts").trainer
    assert first + [update.means for update in rest.steps()] == losses
    assert len(losses) == 6
    for one, other in zip(whole.model.parameters(), rest.model.parameters(), strict=True):
        assert torch.equal(one, other)


def assert_goes_on_with_other_text(recipe: Recipe, folder: Path) -> None:
    """Vocabulary, window, model and weights come with the run that another one starts with."""
    before = api.train(recipe, out=folder / "first")
    other = write_triples(folder / "other.txt", 601, seed=1)
    settings = [f"task.data={other}", "task.unit=characters", "task.window=16", "model.layers=1", "train.average=0.9"]
    text = dump_recipe(recipe)
    training = api.begin(
        parse_recipe(text, "recipe", [*settings, f"train.start={folder / 'first'}"]), out=folder / "second"
    )
    task, start = training.recipe.task, before.recipe.task
    assert training.recipe.model == before.recipe.model and task.data == str(other)
    assert (task.window, task.unit) == (start.window, start.unit)
    assert len(training.trainer.task.lexicon) == len(before.task.lexicon)
    assert any("parameters come from" in reason and "left" not in reason for reason in training.reasons)
    old, new = before.model.state_dict(), training.trainer.model.state_dict()
    assert old.keys() == new.keys() and all(torch.equal(new[name], tensor) for name, tensor in old.items())
    assert len(list(training.trainer.steps())) == recipe.train.steps
