"""What the commands, a page or a notebook call: train, load, predict, look."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from saccade.config import Recipe, dump_recipe, load_recipe, parse_recipe
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.models.shapes import parameter_count
from saccade.tasks import TASKS
from saccade.tasks.base import Prediction, Scores, Task
from saccade.train.progress import Event
from saccade.train.run import Run
from saccade.train.signals import StopRequest
from saccade.train.trainer import Trainer, averaged, load_tensors


@dataclass(frozen=True)
class Training:
    """A training about to begin or to go on; `events()` does it."""

    run: Run
    recipe: Recipe
    trainer: Trainer
    reasons: Sequence[str] = ()  # why the recipe was completed as it was

    @property
    def parameters(self) -> int:
        return parameter_count(self.trainer.model)

    def events(self, stop: StopRequest | None = None) -> Iterator[Event]:
        """Train, and tell what happens; nobody else may train into the same run meanwhile."""
        with self.run.lock(), for_people():
            yield from self.trainer.fit(self.run, stop)


def train(
    recipe: str | Path | Recipe,
    *,
    out: str | Path,
    settings: Sequence[str] = (),
    task: Task | None = None,
    tell: Callable[[Event], None] | None = None,
) -> Predictor:
    """Train a recipe (a name, a YAML file or an object) into the new run `out`, and return the trained model.

    `settings` are "key=value" texts on top of the recipe; `task` is a task of one's own in place of the recipe's;
    `tell` is called with every event.
    """
    for event in begin(recipe, out=out, settings=settings, task=task).events():
        if tell is not None:
            tell(event)
    return load(out, task=task)


def resume(out: str | Path, *, task: Task | None = None, tell: Callable[[Event], None] | None = None) -> Predictor:
    """Go on with a run from its newest checkpoint, bit for bit as if it had never stopped."""
    for event in resumed(out, task=task).events():
        if tell is not None:
            tell(event)
    return load(out, task=task)


def begin(
    recipe: str | Path | Recipe, *, out: str | Path, settings: Sequence[str] = (), task: Task | None = None
) -> Training:
    """Make the run directory and everything a training needs, without a first step."""
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(recipe, settings)
    elif settings:
        recipe = parse_recipe(dump_recipe(recipe), "recipe", settings)
    task = task or make_task(recipe)
    recipe, reasons = task.fitted()
    run = Run.create(out, dump_recipe(recipe))
    try:
        with run.lock():
            task.prepare(run.vocab)
        return Training(run, recipe, _trainer(task, recipe), reasons)
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)  # nothing was trained: a corrected command must find the way free
        raise


def resumed(
    out: str | Path, *, settings: Sequence[str] = (), override: bool = False, task: Task | None = None
) -> Training:
    """A training that goes on where its newest checkpoint stands.

    Other `settings` make it another training than the one begun: they need `override`, and the change is logged.
    """
    run = Run.open(out)
    recipe, changes = _changed(run, settings)
    if changes and not override:
        listed = "\n".join(f"  {change}" for change in changes)
        raise SaccadeError(f"{run.path} would go on with other settings; --override if you mean it:\n{listed}")
    task = task or make_task(recipe)
    if run.steps() or any(run.vocab.iterdir()):
        task.load(run.vocab)
    else:  # it was killed before it had learned a vocabulary
        recipe, _ = task.fitted()
        task.prepare(run.vocab)
    trainer = _trainer(task, recipe)
    with run.lock():
        trainer.restore(run)
        if changes:
            run.replace_recipe(dump_recipe(recipe))
            run.log({"step": trainer.step, "changed": changes})
    return Training(run, recipe, trainer, changes)


def load(path: str | Path, *, step: int | None = None, task: Task | None = None) -> Predictor:
    """The model of a run: its final weights, else the best step's, else the latest's; or those of a given step."""
    run, recipe, task = _open(path, task)
    tensors, state = run.weights(step)
    if "cursor" in state:  # of a step and not of final/: what was evaluated are the averaged weights, if there are any
        tensors = averaged(tensors, run.load(state["step"]).optimizer)
    if state["vocabulary"] != run.vocab_hash():
        raise SaccadeError(f"{run.vocab} is not the vocabulary that the weights of {run.path} were trained with")
    model = _model(task)
    load_tensors(model, tensors, f"the weights of {run.path}")
    return Predictor(task, model.eval(), recipe)


def pack(path: str | Path, out: str | Path, *, half: bool = True) -> Run:
    """A copy of a run with what is needed to use it and nothing else: recipe, vocabulary, final weights.

    `half` stores the weights in float16, half the size; the recipe keeps the names of its data files, not their
    folders.
    """
    run, recipe, _ = _open(path, None)
    tensors, state = run.weights()
    kept = {name: tensor.half() if half and tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    files = ("source", "target", "valid_source", "valid_target")
    named = {key: Path(value).name for key in files if (value := getattr(recipe.task, key, None)) is not None}
    packed = Run.create(out, dump_recipe(recipe.model_copy(update={"task": recipe.task.model_copy(update=named)})))
    for file in run.vocab.iterdir():
        shutil.copy(file, packed.vocab / file.name)
    packed.save_final(kept, state)
    return packed


@dataclass(frozen=True)
class Predictor:
    """A trained model with its task."""

    task: Task
    model: nn.Module
    recipe: Recipe

    def predict(self, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """Answers to inputs, in their order, by the recipe's search or another method."""
        with for_people():
            return self.task.predict(self.model, inputs, method)

    def look(self, text: str, target: str | None = None, *, pieces: bool = False) -> list[AttentionMap]:
        """Where the model looked while it wrote its answer, or while it was made to write `target`."""
        with for_people():
            return self.task.look(self.model, text, target, pieces=pieces)

    def score(self) -> Scores:
        """On the validation part of the task's data."""
        return self.task.score(self.model)


def make_task(recipe: Recipe) -> Task:
    """The task that a recipe names."""
    if recipe.model.kind == "fitted" and recipe.task.kind != "translate":
        raise SaccadeError(f"model.kind 'fitted' is for translate; say which model is to {recipe.task.kind}")
    return TASKS[recipe.task.kind](recipe)


def _changed(run: Run, settings: Sequence[str]) -> tuple[Recipe, list[str]]:
    """The recipe of a run with other settings, and each difference in words; model and data must stay as they are."""
    where = f"{run.path}/recipe.yaml"
    before, after = (parse_recipe(run.recipe_text, where, chosen) for chosen in ((), settings))
    for part in ("task", "model"):
        if getattr(before, part) != getattr(after, part):
            raise SaccadeError(f"a run cannot go on with another {part}: its weights would not fit; start a new run")
    old, new = (_flat(recipe.model_dump(mode="json")) for recipe in (before, after))
    return after, [f"{key}: {old.get(key)} -> {value}" for key, value in new.items() if old.get(key) != value]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train": {"steps": 5}} -> {"train.steps": 5}"""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _open(path: str | Path, task: Task | None) -> tuple[Run, Recipe, Task]:
    run = Run.open(path)
    recipe = parse_recipe(run.recipe_text, f"{run.path}/recipe.yaml")
    task = task or make_task(recipe)
    task.load(run.vocab)
    return run, recipe, task


def _trainer(task: Task, recipe: Recipe) -> Trainer:
    with for_people():
        return Trainer(task, recipe.train)


def _model(task: Task) -> nn.Module:
    with for_people():
        return task.model()


@contextmanager
def for_people() -> Iterator[None]:
    """The modules know nothing of saccade and raise ValueError; what they say is meant for people all the same."""
    try:
        yield
    except ValueError as error:
        raise SaccadeError(str(error)) from error
