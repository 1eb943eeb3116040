"""The run directory: the recipe, the vocabulary, the metrics and the checkpoints of one training.

    runs/NAME/  recipe.yaml  vocab/  metrics.jsonl  step-002000/  final/

Nothing outside this module, `checkpoint` and `lock` knows a file name. Nothing points at the newest checkpoint: it is
found by looking.
"""

import hashlib
import os
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from saccade.errors import RunError, RunWarning, did_you_mean
from saccade.train import checkpoint as store
from saccade.train.checkpoint import Checkpoint, Contents
from saccade.train.journal import Journal
from saccade.train.lock import locked
from saccade.train.tensors import DamagedError

PARTS = ("model", "optimizer", "random")
TEMPORARY = re.compile(r"\.tmp-.+-(\d+)")


class Run:
    """One run directory; `create` or `open` it, and hold its `lock` while training."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.vocab = path / "vocab"
        self._recipe = path / "recipe.yaml"
        self._journal = Journal(path / "metrics.jsonl")
        self._final = path / "final"
        self._locked = False

    @classmethod
    def create(cls, path: str | Path, recipe_text: str) -> Self:
        """Make a new run; an existing one, or a directory with other things in it, is refused and left as it is."""
        run = cls(Path(path))
        run._refuse_occupied()
        with store.explained(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        with run.lock():
            run._refuse_occupied()  # another process may have been faster
            with store.explained(run.vocab):
                run.vocab.mkdir(exist_ok=True)
            store.replace_file(run._recipe, recipe_text.encode())
        return run

    @classmethod
    def open(cls, path: str | Path) -> Self:
        run = cls(Path(path))
        if run._recipe.is_file():
            return run
        if (run.path.parent / "recipe.yaml").is_file():
            raise RunError(f"{run.path} is not a run but a part of one: name the run, {run.path.parent}")
        problem = "is a file, not a run" if run.path.exists() else "does not exist"
        problem = "has no recipe.yaml, so it is not a run" if run.path.is_dir() else problem
        raise RunError(f"{run.path} {problem}{_siblings(run.path)}")

    def _refuse_occupied(self) -> None:
        if self._recipe.exists():
            steps = self.steps()
            if self.packed:
                raise RunError(f"{self.path} is a packed run already: choose another place")
            progress = f"at step {steps[-1]}" if steps else "without a checkpoint yet"
            raise RunError(
                f"run {self.path} exists, {progress}: choose another place, or continue it with --resume {self.path}"
            )
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path} is a file, not a directory: choose another place")
        # A `create` that failed half way may have left a lock, a temporary file and an empty vocabulary.
        ours = re.compile(rf"\.lock|{TEMPORARY.pattern}" + ("" if self._has_vocab() else "|vocab"))
        if self.path.is_dir() and any(not ours.fullmatch(entry.name) for entry in self.path.iterdir()):
            raise RunError(f"{self.path} is not empty and is not a run: choose another place")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out, and make sure that this one can write, before hours are spent."""
        with locked(self.path):
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

    # Checkpoints

    @property
    def packed(self) -> bool:
        """Weights to be used, and no checkpoint to go on from."""
        return not self.steps() and _or_aside(self._final).is_dir()

    def save(self, checkpoint: Checkpoint, *, keep: int = 2, protect: Collection[int] = frozenset()) -> None:
        """Commit a checkpoint, then delete all but the `keep` newest and the protected ones.

        Steps beyond this one belong to a future that was left behind by resuming from before it: they are set aside.
        """
        if keep < 1 or checkpoint.step < 0:
            raise RunError(f"keep must be at least 1 and step at least 0: keep is {keep}, step is {checkpoint.step}")
        parts = {part: getattr(checkpoint, part) for part in PARTS}
        self._commit(self._step(checkpoint.step), parts, checkpoint.state, checkpoint.step)
        past = [step for step in self.steps() if step <= checkpoint.step]
        for step in self.steps():
            if step > checkpoint.step:
                self._abandon(self._step(step))
            elif step not in past[-keep:] and step not in protect:
                self._delete(self._step(step))

    def save_final(self, model: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Commit the weights that the run is for, in place of earlier ones."""
        self._commit(self._final, {"model": model}, state, None)

    def steps(self) -> list[int]:
        """The committed steps, oldest first; whether they are still sound is seen when they are read."""
        names = {entry.name.removeprefix(".old-") for entry in self.path.iterdir() if entry.is_dir()}
        numbers = [int(name.removeprefix("step-")) for name in names if re.fullmatch(r"step-\d{6,}", name)]
        return sorted(number for number in numbers if self._step(number).name in names)

    def latest(self, *, allow_nonfinite: bool = False) -> Checkpoint | None:
        """The newest checkpoint that verifies, or None for a run without any; damaged ones are named in a warning."""
        found = self._newest(PARTS, allow_nonfinite)
        if found is None:
            return None
        step, (tensors, state) = found
        return Checkpoint(step=step, **tensors, state=state)

    def load(self, step: int, *, allow_nonfinite: bool = False) -> Checkpoint:
        """Exactly this step, or an error that says which older one would do."""
        tensors, state = self._exactly(step, PARTS, allow_nonfinite)
        return Checkpoint(step=step, **tensors, state=state)

    def weights(
        self, step: int | None = None, *, allow_nonfinite: bool = False
    ) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The model of a step and its state; without a step that of final/, else the best step, else the latest."""
        if step is not None:
            tensors, state = self._exactly(step, ("model",), allow_nonfinite)
            return tensors["model"], state
        final, problem = _or_aside(self._final), ""
        if final.is_dir():
            try:
                tensors, state = store.read(final, ("model",), step=None, allow_nonfinite=allow_nonfinite)
                self._tell_of_better(state.get("step"))
                return tensors["model"], state
            except DamagedError as error:
                problem = str(error)
        newest = self._newest(("model",), allow_nonfinite)
        if newest is None:
            raise RunError(problem or f"{self.path} has no weights yet: train it first")
        if problem:
            _warn(f"{problem}; using the best or latest step instead")
        last, (tensors, state) = newest
        best = state.get("best_step")
        if best in self.steps() and best != last:
            try:
                tensors, state = self._read(best, ("model",), allow_nonfinite)
            except DamagedError as error:
                _warn(f"{error}; using step {last} instead of the best one")
        return tensors["model"], state

    def _tell_of_better(self, final: int | None) -> None:
        """Of a run that went on after its end, and found better weights before it was stopped again."""
        steps = self.steps()
        if final is None or not steps or steps[-1] <= final:
            return
        with suppress(RunError, DamagedError):  # which is no reason not to use what is whole
            best = self._read(steps[-1], (), allow_nonfinite=True)[1].get("best_step")
            if best in steps and best > final:
                _warn(
                    f"{self._final} is of step {final}; the run went on, and step {best} is better: "
                    f"use it with --step {best}, or end the run with `saccade train --resume {self.path}`"
                )

    def _newest(self, parts: tuple[str, ...], allow_nonfinite: bool) -> tuple[int, Contents] | None:
        problems = []
        for step in reversed(self.steps()):
            try:
                contents = self._read(step, parts, allow_nonfinite)
            except DamagedError as error:
                problems.append(str(error))
                continue
            for problem in problems:
                _warn(f"{problem}; using step {step} instead")
            return step, contents
        if problems:  # None would start the training again from nothing
            raise RunError(f"no checkpoint of {self.path} can be read: " + "; ".join(problems))
        return None

    def _exactly(self, step: int, parts: tuple[str, ...], allow_nonfinite: bool) -> Contents:
        if step not in self.steps():
            there = ", ".join(map(str, self.steps())) or "none"
            raise RunError(f"{self.path} has no step {step}; there is: {there}")
        try:
            return self._read(step, parts, allow_nonfinite)
        except DamagedError as error:
            for older in reversed([other for other in self.steps() if other < step]):
                try:
                    self._read(older, parts, allow_nonfinite)
                except DamagedError:
                    continue
                raise RunError(f"{error}; step {older} would do") from error
            raise RunError(f"{error}; no older step would do") from error

    def _read(self, step: int, parts: tuple[str, ...], allow_nonfinite: bool) -> Contents:
        return store.read(_or_aside(self._step(step)), parts, step=step, allow_nonfinite=allow_nonfinite)

    def _step(self, step: int) -> Path:
        return self.path / f"step-{step:06d}"

    def _commit(
        self, target: Path, parts: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], step: int | None
    ) -> None:
        self._clean()
        store.commit(target, parts, state, step)
        old = store.aside(target)
        if old.exists():
            with _tolerant(f"could not delete {old}"):
                store.disk.remove(old)

    def _clean(self) -> None:
        """Tidy up what processes that were killed have left; never what a living one is writing."""
        for old in self.path.glob(".old-*"):
            whole = old.with_name(old.name.removeprefix(".old-"))
            with _tolerant(f"could not tidy up {old}"):
                if whole.exists():
                    store.disk.remove(old)
                else:
                    store.disk.rename(old, whole)
        for left in self.path.glob(".tmp-*"):
            match = TEMPORARY.fullmatch(left.name)
            # With the lock held nobody else writes here, whoever may have been given that number since.
            if match and (self._locked or int(match[1]) == os.getpid() or not _alive(int(match[1]))):
                _warn(f"{left}: left by a process that ended while it was writing; deleting it")
                with _tolerant(f"could not delete {left}"):
                    store.disk.remove(left)

    def _delete(self, directory: Path) -> None:
        # Renamed first: a deletion that is cut short must not leave something that looks like a damaged checkpoint.
        doomed = store.temporary_beside(directory.with_name(f"deleted-{directory.name}"))
        with _tolerant(f"could not delete {directory}"):
            store.disk.rename(directory, doomed)
            store.disk.remove(doomed)

    def _abandon(self, directory: Path) -> None:
        places = (directory.with_name(f"abandoned-{directory.name}-{number}") for number in count(1))
        place = next(place for place in places if not place.exists())
        _warn(f"{directory} is from before this run went back to an earlier step; it is now {place.name}")
        with _tolerant(f"could not rename {directory}"):
            store.disk.rename(directory, place)

    # Recipe, vocabulary, metrics

    @property
    def recipe_text(self) -> str:
        try:
            return self._recipe.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"cannot read {self._recipe}: {error}") from error

    def replace_recipe(self, text: str) -> None:
        """Go on with other settings; what was changed is the caller's to log."""
        store.replace_file(self._recipe, text.encode())

    def _has_vocab(self) -> bool:
        return self.vocab.is_dir() and any(self.vocab.iterdir())

    def vocab_hash(self) -> str:
        """SHA-256 over the names and contents in vocab/; kept in the state, it shows that a tokenizer was changed."""
        digest = hashlib.sha256()
        for file in sorted(entry for entry in self.vocab.rglob("*") if entry.is_file() and entry.name[0] != "."):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{file.relative_to(self.vocab).as_posix()}\0{content}\n".encode())
        return digest.hexdigest()

    def log(self, record: Mapping[str, Any]) -> None:
        """Append one line to the metrics."""
        self._journal.append(record)

    def metrics(self) -> list[dict[str, Any]]:
        """All that was logged."""
        return self._journal.records()

    def cut_metrics(self, step: int) -> None:
        """Remove what was logged after `step`, so that a resumed run does not log it twice."""
        self._journal.cut(step)


def _or_aside(directory: Path) -> Path:
    old = store.aside(directory)
    return old if old.is_dir() and not directory.is_dir() else directory


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # someone else's process, or no number of a process: leave it alone
        pass
    return True


@contextmanager
def _tolerant(problem: str) -> Iterator[None]:
    """Tidying up must not stop a training: a failure is only told."""
    try:
        yield
    except OSError as error:
        _warn(f"{problem}: {error.strerror or error}")


def _siblings(path: Path) -> str:
    parent = path.absolute().parent
    names = sorted(entry.parent.name for entry in parent.glob("*/recipe.yaml")) if parent.is_dir() else []
    listed = f"; runs in {path.parent}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}" if names else ""
    return did_you_mean(path.name, names) + listed


def _warn(message: str) -> None:
    warnings.warn(message, RunWarning, stacklevel=3)
