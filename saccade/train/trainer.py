"""The training loop: `steps()` makes optimizer updates and nothing else; `fit()` logs, evaluates, saves and stops.

Both are generators, so that whoever calls them keeps the loop. The loss of an update is, for each named term,

    weight x (sum over all batches of the update) / (count over all batches of the update)

so that accumulating over k batches equals one batch k times as large.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config.training import TrainSettings
from saccade.data.batching import Batches, Cursor
from saccade.errors import RunWarning, SaccadeError
from saccade.tasks.base import Batch, Loss, Task
from saccade.train.checkpoint import Checkpoint
from saccade.train.distributed import World
from saccade.train.optim import Average, load_optimizer, make_optimizer, optimizer_tensors, rate_at, set_rate
from saccade.train.progress import Evaluated, Event, Pace, Progress, Saved, Stopped, Update, Window
from saccade.train.randomness import random_state, restore_random, seed_everything
from saccade.train.run import Run
from saccade.train.signals import StopRequest
from saccade.train.tensors import require_match

AVERAGE = "average"
SAMPLES = 5  # answers that are logged at each evaluation


class Objective(nn.Module):
    """Model and loss as one module: the one thing that data parallelism or a compiler would wrap."""

    def __init__(self, model: nn.Module, task: Task, *, precision: str = "float32"):
        super().__init__()
        self.model = model
        self._task = task
        self._low = precision == "bfloat16"

    def forward(self, batch: Batch) -> Loss:
        device = next(self.model.parameters()).device.type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=self._low):
            return self._task.loss(self.model, batch)


class Trainer:
    """Model, optimizer and place in the data; everything that a checkpoint holds."""

    def __init__(self, task: Task, settings: TrainSettings, *, world: World | None = None):
        self.task, self.settings, self.world = task, settings, world or World()
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        seed_everything(settings.seed)
        self.model = task.model()
        self.objective = Objective(self.model, task, precision=settings.precision)
        self.optimizer = make_optimizer(self.model, settings.optimizer)
        self.examples = task.examples("train")
        lengths = [task.length(example) for example in self.examples]
        self.batches = Batches(lengths, batch_tokens=settings.batch_tokens, seed=settings.seed)
        self.average = Average(self.model, settings.average) if settings.average else None
        self.step = 0
        self.cursor = Cursor()
        self.best_step: int | None = None
        self.best_score: float | None = None
        self.evaluations_since_best = 0
        self.window = Window()
        self.minutes = 0.0  # spent in `fit`, over all its resumptions

    def steps(self) -> Iterator[Update]:
        """Optimizer updates until `settings.steps`; no printing, no saving."""
        stream = self.batches.stream(self.cursor)
        self.model.train()
        while self.step < self.settings.steps:
            drawn = [next(stream) for _ in range(self.settings.accumulate * self.world.size)]
            mine = [self._collate(numbers) for numbers, _ in self.world.share(drawn)]
            rate = self.settings.optimizer.rate * rate_at(self.step + 1, self.settings.steps, self.settings.schedule)
            update = self._update(mine, rate)
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
        for update in self.steps():
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
                evaluated = self._evaluate()
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
            "best_step": self.best_step,
            "best_score": self.best_score,
            "evaluations_since_best": self.evaluations_since_best,
            "window": asdict(self.window),
            "minutes": self.minutes,
            "threads": torch.get_num_threads(),
            "vocabulary": run.vocab_hash(),
        }
        optimizer = optimizer_tensors(self.optimizer, self.model)
        if self.average is not None:
            optimizer |= {f"{name}/{AVERAGE}": tensor for name, tensor in self.average.tensors.items()}
        checkpoint = Checkpoint(self.step, named_tensors(self.model), optimizer, random_state(), state)
        protect = () if self.best_step is None else (self.best_step,)
        run.save(checkpoint, keep=self.settings.keep, protect=protect)

    def restore(self, run: Run) -> bool:
        """Go on from the newest sound checkpoint; False when there is none yet."""
        checkpoint = run.latest()
        if checkpoint is None:
            run.cut_metrics(0)
            return False
        state = checkpoint.state
        if state["vocabulary"] != run.vocab_hash():
            raise SaccadeError(f"{run.vocab} is not the vocabulary that step {checkpoint.step} was trained with")
        if state["examples"] != self.batches.fingerprint:
            warnings.warn(
                f"the training data is not what it was at step {checkpoint.step}: the run goes on, "
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
            average = average or checkpoint.model  # averaging that was turned on later starts from the weights
            require_match(average, {n: t.shape for n, t in self.average.tensors.items()}, "average of the weights")
        load_tensors(self.model, checkpoint.model, f"step {checkpoint.step} of {run.path}")
        load_optimizer(self.optimizer, self.model, optimizer)
        if self.average is not None:
            self.average.tensors = {name: average[name].clone() for name in self.average.tensors}
        restore_random(checkpoint.random)
        self.step, self.cursor = checkpoint.step, Cursor(**state["cursor"])
        self.best_step, self.best_score = state["best_step"], state["best_score"]
        self.evaluations_since_best = state["evaluations_since_best"]
        self.window = Window(**state["window"])
        self.minutes = state["minutes"]
        run.cut_metrics(self.step)
        return True

    def _spent(self) -> str | None:
        """Whether time or patience has run out."""
        if self.settings.minutes is not None and self.minutes >= self.settings.minutes:
            return "minutes"
        patience = self.settings.patience
        return "patience" if patience is not None and self.evaluations_since_best >= patience else None

    def _collate(self, numbers: Sequence[int]) -> Batch:
        return self.task.collate([self.examples[number] for number in numbers], numbers)

    def _update(self, batches: Sequence[Batch], rate: float) -> Update:
        counts: dict[str, float] = {}
        for batch in batches:
            for name, count in batch.counts.items():
                counts[name] = counts.get(name, 0) + count
        counts = self.world.sum(counts)
        means = dict.fromkeys(counts, 0.0)
        for batch in batches:
            total = torch.zeros(())
            for name, term in self.objective(batch).items():
                mean = term.sum / max(counts[name], 1)
                means[name] += float(mean.detach())
                total = total + term.weight * mean if term.weight else total
            if not torch.isfinite(total):
                self._refuse(batch, "loss")
            if total.requires_grad:
                total.backward()
        norm = torch.nn.utils.get_total_norm(p.grad for p in self.model.parameters() if p.grad is not None)
        if not torch.isfinite(norm):
            self._refuse(batches[-1], "gradient")
        if self.settings.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(self.model.parameters(), self.settings.clip, norm)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return Update(self.step + 1, means, rate, float(norm), int(max(counts.values(), default=0)))

    def _refuse(self, batch: Batch, what: str) -> None:
        """Stop before the update, so that the weights and the last checkpoint stay good."""
        self.optimizer.zero_grad(set_to_none=True)
        place = first_nonfinite(self.objective, batch)
        numbers = ", ".join(map(str, list(batch.numbers)[:8])) + (", ..." if len(batch.numbers) > 8 else "")
        raise SaccadeError(
            f"the {what} is not finite at step {self.step + 1}; first seen in {place}, with examples {numbers}. "
            "No update was made. Try a lower train.optimizer.rate, a longer warm-up or a smaller train.clip"
        )

    def _evaluate(self) -> Evaluated:
        # scoring draws no random numbers from training's stream, whatever a task does
        state = random_state()
        with nullcontext() if self.average is None else self.average.in_place(self.model):
            scores = self.task.score(self.model)
        restore_random(state)
        better = self.best_score is None or scores.decisive > self.best_score
        best = better or scores.decisive == self.best_score  # of equal scores the later weights have seen more
        if best:
            self.best_step, self.best_score = self.step, scores.decisive
        self.evaluations_since_best = 0 if better else self.evaluations_since_best + 1
        return Evaluated(self.step, scores, best)

    def _finish(self, run: Run) -> None:
        best = run.load(self.best_step or self.step)
        tensors = averaged(best.model, best.optimizer)
        state = {"step": self.best_step or self.step, "score": self.best_score, "vocabulary": run.vocab_hash()}
        run.save_final(tensors, state)


def averaged(tensors: dict[str, Tensor], optimizer: dict[str, Tensor]) -> dict[str, Tensor]:
    """A checkpoint's weights with the averaged ones in their place, where there are any."""
    return tensors | _parted(optimizer)[1]


def _parted(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The optimizer's own state, and the average of the weights that is saved beside it."""
    average = {name.removesuffix(f"/{AVERAGE}"): t for name, t in tensors.items() if name.endswith(f"/{AVERAGE}")}
    return {name: t for name, t in tensors.items() if not name.endswith(f"/{AVERAGE}")}, average


def named_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers under their first name: what is tied is saved once."""
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def load_tensors(model: nn.Module, tensors: dict[str, Tensor], what: str) -> None:
    """Copy saved tensors into a model; anything missing, left over or of another shape is refused whole."""
    own = named_tensors(model)
    require_match(tensors, {name: tensor.shape for name, tensor in own.items()}, what)
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def first_nonfinite(objective: nn.Module, batch: Batch) -> str:
    """The first module, in the order of computation, whose output is not finite."""
    found: list[str] = []

    def finite(value: Any) -> bool:
        leaves = torch.utils._pytree.tree_leaves(value)
        return all(torch.isfinite(leaf).all() for leaf in leaves if isinstance(leaf, Tensor))

    def hook(name: str) -> Any:
        return lambda _module, _inputs, output: None if found or finite(output) else found.append(name)

    handles = [module.register_forward_hook(hook(name)) for name, module in objective.named_modules() if name]
    try:
        with torch.no_grad():
            objective(batch)
    finally:
        for handle in handles:
            handle.remove()
    return found[0].removeprefix("model.") if found else "the loss itself"
