"""The training loop: `steps()` makes optimizer updates and nothing else; `fit()` logs, evaluates, saves and stops.

Both are generators, so that whoever calls them keeps the loop.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import Recipe
from saccade.config.training import TrainSettings
from saccade.data.batching import Batches, Cursor
from saccade.errors import RunError, RunWarning, SaccadeError
from saccade.tasks.base import Concluding, Task
from saccade.train.changes import digests
from saccade.train.checkpoint import Checkpoint
from saccade.train.distributed import World
from saccade.train.optim import Average, load_optimizer, make_optimizer, optimizer_tensors, rate_at
from saccade.train.progress import Evaluated, Event, Pace, Progress, Saved, Skipped, Split, Stopped, Update, Window
from saccade.train.randomness import random_state, restore_random, seed_everything
from saccade.train.run import Run
from saccade.train.signals import StopRequest
from saccade.train.tensors import require_match
from saccade.train.update import NonFiniteError, Updater

AVERAGE = "average"
SAMPLES = 5  # answers that are logged at each evaluation


class Trainer:
    """Model, optimizer and place in the data; everything that a checkpoint holds."""

    def __init__(
        self, task: Task, settings: TrainSettings, *, recipe: Recipe | None = None, world: World | None = None
    ):
        """`recipe` is what every checkpoint keeps to say what it was trained with."""
        self.task, self.settings, self.recipe, self.world = task, settings, recipe, world or World()
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        seed_everything(settings.seed)
        self.model = task.model()
        self.optimizer = make_optimizer(self.model, settings.optimizer)
        self.examples = task.examples("train")
        lengths = [task.length(example) for example in self.examples]
        self.batches = Batches(lengths, batch_tokens=settings.batch_tokens, seed=settings.seed)
        self.updater = Updater(task, self.model, self.optimizer, self.examples, settings, world=self.world)
        self.begin_average()
        self.step = 0
        self.cursor = Cursor()
        self.best_step: int | None = None
        self.best_score: float | None = None
        self.evaluations_since_best = 0
        self.window = Window()
        self.minutes = 0.0  # spent in `fit`, over all its resumptions
        self.files = {} if recipe is None else digests(recipe)

    def begin_average(self) -> None:
        """The average of the weights begins with those there are."""
        self.average = Average(self.model, self.settings.average) if self.settings.average else None

    def steps(self) -> Iterator[Update | Skipped]:
        """Optimizer updates until `settings.steps`; no printing, no saving."""
        stream = self.batches.stream(self.cursor)
        skipped = 0
        self.model.train()
        while self.step < self.settings.steps:
            drawn = [next(stream) for _ in range(self.settings.accumulate * self.world.size)]
            mine = [numbers for numbers, _ in self.world.share(drawn)]
            rate = self.settings.optimizer.rate * rate_at(self.step + 1, self.settings.steps, self.settings.schedule)
            update: Update | Skipped
            try:
                update = self.updater.make(self.step + 1, mine, rate)
            except NonFiniteError as error:
                if skipped == self.settings.skip_nonfinite:
                    raise
                update = Skipped(self.step + 1, str(error), error.examples, skipped + 1)
            if isinstance(update, Skipped):
                skipped = update.in_a_row
            else:
                skipped = 0  # no checkpoint needs to know it: saving comes after an update
                self.step, self.cursor = self.step + 1, drawn[-1][1]
                if self.average is not None:
                    self.average.update(self.model, self.step)
            yield update

    def fit(self, run: Run, stop: StopRequest | None = None) -> Iterator[Event]:
        """Train into a run directory, from wherever this trainer stands, and end with the best weights in final/."""
        settings, stop = self.settings, StopRequest() if stop is None else stop
        pace = Pace()
        begun, before = time.monotonic(), self.minutes
        reason = "steps"
        if self._spent() is not None:  # resumed after its own end: nothing is left but to finish
            self._finish(run)
            yield Stopped(self.step, self._spent() or reason, self.best_step, self.best_score)
            return
        parts = self.updater.parts
        for update in self.steps():
            if isinstance(update, Skipped):
                run.log({"step": update.step, "skipped": update.problem, "examples": list(update.examples)})
                yield update
                continue
            if update.parts > parts:
                parts = update.parts
                run.log({"step": self.step, "parts": parts})
                yield Split(self.step, parts)
            pace.add(update)
            self.window.add(update)
            self.minutes = before + (time.monotonic() - begun) / 60
            last = self.step == settings.steps or self._spent() == "minutes"
            if self.step % settings.log_every == 0 or last:
                means = self.window.means()
                self.window = Window()
                run.log({"step": self.step, **means, "rate": update.rate, "norm": update.gradient_norm})
                left = pace.seconds_for(settings.steps - self.step)
                if settings.minutes is not None:
                    left = min(left, 60 * max(settings.minutes - self.minutes, 0.0))
                yield Progress(
                    self.step, settings.steps, means, update.rate, update.gradient_norm, pace.tokens_per_second(), left
                )
            evaluated = None
            if self.step % settings.evaluate_every == 0 or last:
                try:
                    evaluated = self._evaluate()
                except Exception:  # what was trained is not lost with it
                    self.save(run)
                    raise
                values = {f"valid_{name}": value for name, value in evaluated.scores.values.items()}
                run.log({"step": self.step, **values, "samples": list(evaluated.scores.samples[:SAMPLES])})
                yield evaluated
            better = evaluated is not None and evaluated.best
            spent = self._spent()
            if self.step % settings.save_every == 0 or last or better or stop or spent is not None:
                self.save(run)
                yield Saved(self.step)
            if stop or spent is not None:
                reason = "signal" if stop else spent or reason
                break
            if evaluated is not None:
                self.model.train()
            pace.resume()
        if reason != "signal":
            self._finish(run)
        yield Stopped(self.step, reason, self.best_step, self.best_score)

    def save(self, run: Run) -> None:
        """Everything that the next step depends on, committed at once."""
        state = {
            "step": self.step,
            "cursor": asdict(self.cursor),
            "examples": self.batches.fingerprint,
            "files": self.files,
            "best_step": self.best_step,
            "best_score": self.best_score,
            "evaluations_since_best": self.evaluations_since_best,
            "window": asdict(self.window),
            "minutes": self.minutes,
            "parts": self.updater.parts,
            "recipe": None if self.recipe is None else self.recipe.model_dump(mode="json"),
            "threads": torch.get_num_threads(),
            "vocabulary": run.vocab_hash(),
        }
        optimizer = optimizer_tensors(self.optimizer, self.model)
        if self.average is not None:
            optimizer |= {f"{name}/{AVERAGE}": tensor for name, tensor in self.average.tensors.items()}
        checkpoint = Checkpoint(self.step, named_tensors(self.model), optimizer, random_state(), state)
        protect = () if self.best_step is None else (self.best_step,)
        run.save(checkpoint, keep=self.settings.keep, protect=protect)

    def restore(self, run: Run, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint of the run."""
        state = checkpoint.state
        if state["vocabulary"] != run.vocab_hash():
            raise SaccadeError(f"{run.vocab} is not the vocabulary that step {checkpoint.step} was trained with")
        known = state.get("files", {})  # older checkpoints do not say
        changed = [f"task.{key}" for key, digest in known.items() if self.files.get(key, digest) != digest]
        if changed or state["examples"] != self.batches.fingerprint:
            named = f" ({', '.join(changed)})" if changed else ""
            warnings.warn(
                f"the training data is not what it was at step {checkpoint.step}{named}: the run goes on, "
                "but not bit for bit, and what is held out now may have been trained on",
                RunWarning,
                stacklevel=2,
            )
        if state["threads"] != torch.get_num_threads():
            warnings.warn(
                f"step {checkpoint.step} was trained with {state['threads']} threads, now there are "
                f"{torch.get_num_threads()}: sums are rounded differently, so the run goes on, but not bit for bit",
                RunWarning,
                stacklevel=2,
            )
        optimizer, average = _parted(checkpoint.optimizer)
        if self.average is not None:
            # averaging that was turned on later starts from the weights
            average = average or {
                name: checkpoint.model[name] for name in self.average.tensors.keys() & checkpoint.model
            }
            require_match(average, {n: t.shape for n, t in self.average.tensors.items()}, "average of the weights")
        load_tensors(self.model, checkpoint.model, f"step {checkpoint.step} of {run.path}")
        load_optimizer(self.optimizer, self.model, optimizer)
        if self.average is not None:
            self.average.tensors = {name: average[name].clone() for name in self.average.tensors}
        restore_random(checkpoint.random)
        self.step, self.cursor = checkpoint.step, Cursor(**state["cursor"])
        if state["best_step"] in run.steps():  # else its checkpoint is lost, and the best is to be found anew
            self.best_step, self.best_score = state["best_step"], state["best_score"]
        self.evaluations_since_best = state["evaluations_since_best"]
        self.window = Window(**state["window"])
        self.minutes = state["minutes"]
        self.updater.parts = state.get("parts", 1)  # older checkpoints know nothing of parts
        run.cut_metrics(self.step)

    def _spent(self) -> str | None:
        """Whether time or patience has run out."""
        if self.settings.minutes is not None and self.minutes >= self.settings.minutes:
            return "minutes"
        patience = self.settings.patience
        return "patience" if patience is not None and self.evaluations_since_best >= patience else None

    def _evaluate(self) -> Evaluated:
        # scoring draws no random numbers from training's stream, whatever a task does
        state = random_state()
        try:
            with nullcontext() if self.average is None else self.average.in_place(self.model):
                scores = self.task.score(self.model)
        finally:
            restore_random(state)
        better = self.best_score is None or scores.decisive > self.best_score
        best = better or scores.decisive == self.best_score  # of equal scores the later weights have seen more
        if best:
            self.best_step, self.best_score = self.step, scores.decisive
        self.evaluations_since_best = 0 if better else self.evaluations_since_best + 1
        return Evaluated(self.step, scores, best)

    def _finish(self, run: Run) -> None:
        try:
            best = run.load(self.best_step or self.step)
        except RunError as error:
            best = run.load(self.step)
            self.best_step, self.best_score = None, None
            warnings.warn(f"{error}; final/ is made of step {self.step}", RunWarning, stacklevel=2)
        tensors = averaged(best.model, best.optimizer)
        state: dict[str, Any] = {"step": best.step, "score": self.best_score, "vocabulary": run.vocab_hash()}
        if isinstance(self.task, Concluding):
            load_tensors(self.model, tensors, "the final weights")
            state["conclusions"] = self.task.conclude(self.model)
        run.save_final(tensors, state)


def weights_to_use(
    run: Run, step: int | None = None, *, allow_nonfinite: bool = False
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights that were evaluated, and what final/ says of them: of a step that has averaged ones, those."""
    tensors, state = run.weights(step, allow_nonfinite=allow_nonfinite)
    if "cursor" not in state:  # it is final/
        return tensors, state
    tensors = averaged(tensors, run.load(state["step"], allow_nonfinite=allow_nonfinite).optimizer)
    score = state["best_score"] if state["best_step"] == state["step"] else None
    return tensors, {"step": state["step"], "score": score, "vocabulary": state["vocabulary"]}


def averaged(tensors: dict[str, Tensor], optimizer: dict[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint's weights with the averaged ones in their place, where there are any."""
    return tensors | _parted(optimizer)[1]


def _parted(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The optimizer's own state, and the average of the weights that is saved beside it."""
    average = {name.removesuffix(f"/{AVERAGE}"): t for name, t in tensors.items() if name.endswith(f"/{AVERAGE}")}
    return {name: t for name, t in tensors.items() if not name.endswith(f"/{AVERAGE}")}, average


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers under their first name: what is tied is saved once, and what is not the model's own (a
    buffer that is not persistent, such as published weights) not at all."""
    saved = model.state_dict(keep_vars=True)
    everything = (*model.named_parameters(), *model.named_buffers())
    return {name: tensor.detach() for name, tensor in everything if name in saved}


def load_tensors(model: nn.Module, tensors: dict[str, Tensor], what: str) -> None:
    """Copy saved tensors into a model; anything missing, left over or of another shape is refused whole."""
    own = named_tensors(model)
    require_match(tensors, {name: tensor.shape for name, tensor in own.items()}, what)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
