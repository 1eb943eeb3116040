"""What the commands, a page or a notebook call: train, load, predict, look."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from saccade.config import Recipe, dump_recipe, load_recipe, parse_recipe
from saccade.errors import SaccadeError
from saccade.models.shapes import Ensemble, parameter_count
from saccade.nn.packed import Precision
from saccade.predictor import Predictor, for_people, require_precision
from saccade.tasks import TASKS
from saccade.tasks.base import Concluding, Starting, Task
from saccade.train.changes import FILES, changed_recipe, listed
from saccade.train.precision import settled
from saccade.train.progress import Event
from saccade.train.run import Run
from saccade.train.signals import StopRequest
from saccade.train.tensorboard import on_board, require_tensorboard
from saccade.train.trainer import Trainer, load_tensors, weights_to_use

SCORED_ON = ("task.test", "task.zero_shot", "task.stride")  # settings of what `evaluate` alone reads, and how
SHIPPED = Path(__file__).parent / "shipped" / "fr-en"  # the run of the French-to-English model in the package


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

    @property
    def trained_parameters(self) -> int:
        return parameter_count(self.trainer.model, trained_only=True)

    def events(self, stop: StopRequest | None = None) -> Generator[Event, None, None]:
        """Train, and tell what happens; nobody else may train into the same run until this is closed."""
        with self.run.lock(), for_people():
            events = self.trainer.fit(self.run, stop)
            if self.recipe.train.tensorboard:
                events = on_board(events, self.run.path, self.trainer.step)
            yield from events


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
    with _own_threads():
        _tell(begin(recipe, out=out, settings=settings, task=task), tell)
        return load(out, task=task)


def resume(
    out: str | Path,
    *,
    settings: Sequence[str] = (),
    override: bool = False,
    task: Task | None = None,
    tell: Callable[[Event], None] | None = None,
) -> Predictor:
    """Go on with a run from its newest checkpoint, bit for bit as if it had never stopped.

    Other settings than those it was trained with need `override`.
    """
    with _own_threads():
        _tell(resumed(out, settings=settings, override=override, task=task), tell)
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
    started = begun_with(task, recipe)
    recipe, reasons = task.fitted()
    recipe, multiplied = settled(recipe)
    run = Run.create(out, dump_recipe(recipe))
    with run.lock():
        try:
            notes = [*reasons, *multiplied, *_prepared(run, task)]
            trainer = _trainer(task, recipe)
            if started is not None:
                notes += _adopted(trainer, started)
            return Training(run, recipe, trainer, notes)
        except BaseException:
            if not run.steps():  # nothing was trained: a corrected command must find the way free
                shutil.rmtree(run.path, ignore_errors=True)
            raise


def resumed(
    out: str | Path, *, settings: Sequence[str] = (), override: bool = False, task: Task | None = None
) -> Training:
    """A training that goes on where its newest checkpoint stands.

    Other settings, be it by `settings` or by an edited recipe.yaml, make it another training than the one begun: they
    need `override`, and the change is logged.
    """
    run = Run.open(out)
    if run.packed:
        raise SaccadeError(f"{run.path} has weights to use but no checkpoint to go on from: train a new run")
    with run.lock():
        checkpoint = run.latest()
        recipe, changes = changed_recipe(run, checkpoint, settings)
        if changes and not override:
            title = f"{run.path} would go on with other settings than it was trained with; --override if you mean it:"
            raise SaccadeError(listed(title, changes))
        recipe, multiplied = settled(recipe)
        task = task or make_task(recipe)
        if checkpoint is None:  # it was killed before its first save: it begins once more
            run.cut_metrics(-1)
            started = begun_with(task, recipe)
            recipe, reasons = task.fitted()
            notes = [*reasons, *_prepared(run, task)]
            trainer = _trainer(task, recipe)
            if started is not None:
                notes += _adopted(trainer, started)
        else:
            task.load(run.vocab)
            notes = []
            trainer = _trainer(task, recipe)
            trainer.restore(run, checkpoint)
        if recipe != parse_recipe(run.recipe_text, f"{run.path}/recipe.yaml"):
            run.replace_recipe(dump_recipe(recipe))
        if changes:
            run.log({"step": trainer.step, "changed": changes})
            trainer.save(run)  # once meant, it need not be said again
    return Training(run, recipe, trainer, [*changes, *multiplied, *notes])


def load(
    path: str | Path,
    *,
    step: int | None = None,
    settings: Sequence[str] = (),
    task: Task | None = None,
    allow_nonfinite: bool = False,
    precision: Precision = "float32",
) -> Predictor:
    """The model of a run: its final weights, else the best step's, else the latest's; or those of a given step.

    `settings` change how it answers, "decode.beam=8" or "decode.prefix=Dear", or what it is scored on,
    "task.test=FILE", "task.zero_shot=FILE" or "task.stride=16", and nothing else. Weights with NaN or infinity in them
    are refused by name, unless `allow_nonfinite` asks to see them all the same. In the `precision` int8 it writes
    faster, and nearly the same.
    """
    for setting in settings:
        if not setting.startswith("decode.") and setting.partition("=")[0].strip() not in SCORED_ON:
            allowed = f"decode, and {', '.join(SCORED_ON)}"
            raise SaccadeError(f"{setting}: a trained model can only be given other settings of {allowed}")
    run, recipe, task = _open(path, task, settings)
    tensors, state = weights_to_use(run, step, allow_nonfinite=allow_nonfinite)
    if state["vocabulary"] != run.vocab_hash():
        raise SaccadeError(f"{run.vocab} is not the vocabulary that the weights of {run.path} were trained with")
    if isinstance(task, Concluding):
        task.recall(state.get("conclusions", {}))
    model = _model(task)
    load_tensors(model, tensors, f"the checkpoint of {run.path}")
    return Predictor(task, model.eval(), recipe, require_precision(precision))


def ensemble(
    paths: Sequence[str | Path], *, settings: Sequence[str] = (), precision: Precision = "float32"
) -> Predictor:
    """Several runs with the same vocabulary as one model, whose probabilities are the mean of theirs."""
    members = [load(path, settings=settings, precision=precision) for path in paths]
    first = members[0]
    for path in paths[1:]:
        if Run.open(path).vocab_hash() != Run.open(paths[0]).vocab_hash():
            raise SaccadeError(f"{path} has another vocabulary than {paths[0]}: they cannot answer together")
    if first.recipe.decode.coverage_penalty:
        raise SaccadeError("decode.coverage_penalty is of one model's attention: set it to 0 for several models")
    models: list[Any] = [member.model for member in members]
    return Predictor(first.task, Ensemble(models).eval(), first.recipe, precision)


def pack(path: str | Path, out: str | Path, *, half: bool = True) -> Run:
    """A copy of a run with what is needed to use it and nothing else: recipe, vocabulary, final weights.

    `half` stores the weights in float16, half the size; the recipe keeps the names of its data files, not their
    folders.
    """
    run, recipe, _ = _open(path, None)
    tensors, state = weights_to_use(run)
    kept = {name: tensor.half() if half and tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    named = {key: _without_folders(getattr(recipe.task, key)) for key in FILES if hasattr(recipe.task, key)}
    task = recipe.task.model_copy(update=named)
    train = recipe.train.model_copy(update={"start": _without_folders(recipe.train.start)})
    packed = Run.create(out, dump_recipe(recipe.model_copy(update={"task": task, "train": train})))
    shutil.copytree(run.vocab, packed.vocab, dirs_exist_ok=True)
    packed.save_final(kept, state)
    return packed


def _without_folders(value: Any) -> Any:
    """Names of files where there are paths; a share to be held out, or nothing, stays as it is."""
    if isinstance(value, tuple):
        return tuple(map(_without_folders, value))
    return Path(value).name if isinstance(value, str) else value


def make_task(recipe: Recipe) -> Task:
    """The task that a recipe names."""
    if recipe.task.kind == "own":
        raise SaccadeError(
            f"this is a task of one's own, {recipe.task.name or 'without a name'}: give it, as in "
            "saccade.load(path, task=...)"
        )
    if recipe.model.kind == "fitted" and recipe.task.kind != "translate":
        raise SaccadeError(f"model.kind 'fitted' is for translate; say which model is to {recipe.task.kind}")
    return TASKS[recipe.task.kind](recipe)


def _open(path: str | Path, task: Task | None, settings: Sequence[str] = ()) -> tuple[Run, Recipe, Task]:
    run = Run.open(path)
    recipe = parse_recipe(run.recipe_text, f"{run.path}/recipe.yaml", settings)
    task = task or make_task(recipe)
    task.load(run.vocab)
    return run, recipe, task


def begun_with(task: Task, recipe: Recipe) -> Run | None:
    """The run that a recipe begins with, its vocabulary given to the task."""
    if recipe.train.start is None:
        return None
    if not isinstance(task, Starting):
        raise SaccadeError(f"train.start: {recipe.task.kind} cannot begin with the weights of another run")
    other = Run.open(recipe.train.start)
    task.start(other.vocab, parse_recipe(other.recipe_text, f"{other.path}/recipe.yaml"))
    return other


def _adopted(trainer: Trainer, other: Run) -> Sequence[str]:
    assert isinstance(trainer.task, Starting)
    with for_people():
        notes = trainer.task.adopt(trainer.model, weights_to_use(other)[0])
    trainer.begin_average()
    return notes


def _prepared(run: Run, task: Task) -> Sequence[str]:
    """Let a task learn what it needs; what it noticed is logged, so that it can be read afterwards."""
    notes = task.prepare(run.vocab) or ()
    if notes:
        run.log({"step": 0, "notes": list(notes)})
    return notes


def _tell(training: Training, tell: Callable[[Event], None] | None) -> None:
    """Train to the end, or let go of the run: a notebook keeps what an interrupt left open, its lock included."""
    with closing(training.events()) as events:
        for event in events:
            if tell is not None:
                tell(event)


@contextmanager
def _own_threads() -> Iterator[None]:
    """A recipe chooses its number of threads; afterwards the caller has its own again."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _trainer(task: Task, recipe: Recipe) -> Trainer:
    if recipe.train.tensorboard:
        require_tensorboard()
    with for_people():
        return Trainer(task, recipe.train, recipe=recipe)


def _model(task: Task) -> nn.Module:
    with for_people():
        return task.model()
