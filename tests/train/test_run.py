"""The run directory: what it promises, and that it keeps the promises under faults."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from saccade.errors import RunError, RunWarning, SaccadeError, did_you_mean
from saccade.train import checkpoint as store
from saccade.train.checkpoint import Checkpoint, Disk
from saccade.train.run import Run

RECIPE = "format: 1\ntask: reverse\n"


def make(step: int, **state: object) -> Checkpoint:
    return Checkpoint(
        step=step,
        model={"embed.weight": torch.full((3, 4), float(step)), "out.bias": torch.arange(4.0)},
        optimizer={"embed.weight/exp_avg": torch.full((3, 4), step / 7), "step": torch.tensor(step)},
        random={"torch": torch.arange(16, dtype=torch.uint8)},
        state={"cursor": {"epoch": 1, "batch": step}, "threads": 2, **state},
    )


def same(left: Checkpoint, right: Checkpoint) -> bool:
    pairs = [(left.model, right.model), (left.optimizer, right.optimizer), (left.random, right.random)]
    equal = all(a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a) for a, b in pairs)
    return equal and left.step == right.step and left.state == right.state


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()} - {".lock"}


class FailingDisk(Disk):
    """Fails at the n-th write, fsync or rename; a failing write leaves half of its data, as a full disk does."""

    def __init__(self, fail_at: int, code: int = errno.ENOSPC) -> None:
        self.fail_at, self.code, self.count = fail_at, code, 0

    def _maybe_fail(self) -> None:
        self.count += 1
        if self.count == self.fail_at:
            raise OSError(self.code, os.strerror(self.code))

    def write(self, file, data):
        if self.count + 1 == self.fail_at:
            file.write(bytes(data)[: len(data) // 2])
        self._maybe_fail()
        super().write(file, data)

    def sync(self, descriptor):
        self._maybe_fail()
        super().sync(descriptor)

    def rename(self, source, target):
        self._maybe_fail()
        super().rename(source, target)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path / "runs" / "first", RECIPE)


# Creating and opening


def test_a_new_run_holds_its_recipe_and_an_empty_vocabulary(run: Run) -> None:
    assert run.recipe_text == RECIPE
    assert names(run.path) == {"recipe.yaml", "vocab"}
    assert run.vocab.is_dir() and run.steps() == [] and run.latest() is None and run.metrics() == []


def test_an_existing_run_is_refused_with_its_step_and_the_two_ways_on(run: Run) -> None:
    with pytest.raises(
        RunError, match=r"first exists, without a checkpoint yet: choose another place, or .*--resume .*first$"
    ):
        Run.create(run.path, "other")
    run.save(make(200))
    with pytest.raises(RunError, match=r"first exists, at step 200: choose another place, or .*--resume .*first$"):
        Run.create(run.path, "other")
    assert run.recipe_text == RECIPE and run.steps() == [200]


def test_a_foreign_directory_or_file_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match="not empty and is not a run"):
        Run.create(tmp_path, RECIPE)
    with pytest.raises(RunError, match="is a file, not a directory"):
        Run.create(tmp_path / "thesis.txt", RECIPE)
    with pytest.raises(RunError, match=r"cannot write .*below"):
        Run.create(tmp_path / "thesis.txt" / "below", RECIPE)
    assert names(tmp_path) == {"thesis.txt"}


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    assert Run.create(tmp_path, RECIPE).recipe_text == RECIPE


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_trained(tmp_path, monkeypatch, run, code) -> None:
    for fail_at in range(1, 7):  # the probe: write, fsync; the recipe: write, fsync, rename, fsync of the directory
        path = tmp_path / f"other-{fail_at}"
        monkeypatch.setattr(store, "disk", FailingDisk(fail_at, code))
        with pytest.raises(RunError) as caught:
            Run.create(path, RECIPE)
        reason = "disk full: need" if code == errno.ENOSPC else f"cannot write {path}"
        assert reason in str(caught.value) and str(path) in str(caught.value)
    monkeypatch.setattr(store, "disk", FailingDisk(1, code))
    with pytest.raises(RunError, match="first"), run.lock():  # a resumed run learns it here
        pass


def test_a_create_that_failed_half_way_can_be_repeated(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(store, "disk", FailingDisk(4))
    with pytest.raises(RunError):
        Run.create(tmp_path / "other", RECIPE)
    monkeypatch.undo()
    assert Run.create(tmp_path / "other", RECIPE).recipe_text == RECIPE


def test_opening_what_is_not_a_run_names_the_path_and_the_nearest_run(run: Run) -> None:
    with pytest.raises(RunError, match=r"firts does not exist \(did you mean 'first'\?\); runs in .*: first"):
        Run.open(run.path.with_name("firts"))
    run.path.with_name("empty").mkdir()
    with pytest.raises(RunError, match=r"empty has no recipe\.yaml, so it is not a run"):
        Run.open(run.path.with_name("empty"))
    run.save(make(1))
    with pytest.raises(RunError, match=r"part of one: name the run, .*first"):
        Run.open(run.path / "step-000001")
    assert Run.open(str(run.path)).steps() == [1]


# The lock


def test_a_second_process_is_refused_by_pid_and_a_kill_releases_the_lock(run: Run) -> None:
    script = (
        "import sys, time\nfrom saccade.train.run import Run\n"
        "with Run.open(sys.argv[1]).lock():\n    print('held', flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, run.path], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "held\n"
            with pytest.raises(RunError, match=f"first is in use by process {other.pid}:"), run.lock():
                pass
        finally:
            other.kill()
    with run.lock():
        pass


def test_the_lock_is_held_once_and_free_again_after_an_error(run: Run) -> None:
    with pytest.raises(ZeroDivisionError), run.lock():
        with pytest.raises(RunError, match=f"process {os.getpid()}"), Run.open(run.path).lock():
            pass
        raise ZeroDivisionError
    with run.lock():
        run.save(make(1))


# Saving and loading


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, float("inf"), -0.0, 5e-324], dtype=torch.float64),
        torch.tensor([0x7FC1, -1, 0x7F81], dtype=torch.int16).view(torch.bfloat16),  # NaNs with a payload
        torch.randn(3, 2).half(),
        torch.randn(5).to(torch.float8_e4m3fn),
        torch.tensor([-(2**63), 2**63 - 1]),
        torch.arange(7, dtype=torch.uint8),
        torch.tensor([True, False, True]),
        torch.zeros(0, 3, dtype=torch.float64),
        torch.tensor(3, dtype=torch.int32),
        torch.tensor(2.5),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.randn(4, requires_grad=True),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{tuple(tensor.shape)}".removeprefix("torch."),
)
def test_tensors_come_back_bit_for_bit(run: Run, tensor: torch.Tensor) -> None:
    odd = torch.ones(3, dtype=torch.uint8)  # would misalign what follows it
    run.save(Checkpoint(step=1, model={"a": odd, "x.ü": tensor}, optimizer={}, random={"r": tensor}, state={}))
    loaded = run.load(1, allow_nonfinite=True)
    for found in (loaded.model["x.ü"], loaded.random["r"]):
        assert found.dtype == tensor.dtype and found.shape == tensor.shape
        flat = [t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (found, tensor)]
        assert torch.equal(*flat)
    assert loaded.optimizer == {} and torch.equal(loaded.model["a"], odd)


def test_state_comes_back_with_every_digit(run: Run) -> None:
    state = {"best": 0.1 + 0.2, "seen": 2**70, "worst": float("-inf"), "vocab": run.vocab_hash(), "list": [1, None]}
    run.save(Checkpoint(step=1, model={}, optimizer={}, random={}, state=state))
    assert run.load(1).state == state


def test_a_tied_tensor_is_saved_under_both_names(run: Run) -> None:
    weight = torch.randn(3, 2)
    run.save_final({"embed": weight, "out": weight}, {})
    model, _ = run.weights()
    assert torch.equal(model["embed"], weight) and torch.equal(model["out"], weight)


def test_training_on_loaded_tensors_does_not_write_into_the_checkpoint(run: Run) -> None:
    run.save(make(1))
    run.load(1).model["embed.weight"].add_(1)
    assert same(run.load(1), make(1))


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_modes_follow_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        run = Run.create(tmp_path / "run", RECIPE)
        run.save(make(1))
        run.log({"step": 1})
    finally:
        os.umask(before)
    for path in [run.path, *run.path.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o777 if path.is_dir() else 0o666) & ~mask, path


def test_temporary_files_are_beside_the_target_and_not_in_tmpdir(run: Run, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nonexistent")
    seen = []

    class Watching(Disk):
        def rename(self, source, target):
            seen.append((source, target))
            super().rename(source, target)

    monkeypatch.setattr(store, "disk", Watching())
    run.save(make(1))
    assert seen == [(run.path / f".tmp-step-000001-{os.getpid()}", run.path / "step-000001")]


def test_every_file_is_on_the_disk_before_the_manifest_and_all_of_it_before_the_name(run: Run, monkeypatch) -> None:
    events: list[int | str] = []

    class Watching(Disk):
        def sync(self, descriptor):
            events.append(os.fstat(descriptor).st_ino)

        def rename(self, source, target):
            events.append("rename")
            super().rename(source, target)

    monkeypatch.setattr(store, "disk", Watching())
    run.save(make(1))
    step = run.path / "step-000001"
    files = [*(f"{part}.safetensors" for part in ("model", "optimizer", "random")), "state.json", "manifest.json"]
    inodes = [path.stat().st_ino for path in (*(step / file for file in files), step, run.path)]
    assert events == [*inodes[:-1], "rename", inodes[-1]]


def test_only_what_json_can_hold_is_taken_as_state(run: Run) -> None:
    with pytest.raises(RunError, match=r"step-000001/state.json as JSON: .*Tensor"):
        run.save(make(1, bad=torch.ones(1)))
    with pytest.raises(RunError, match=r"called 'x' of type torch.complex128"):
        run.save(Checkpoint(1, {"x": torch.ones(1, dtype=torch.complex128)}, {}, {}, {}))
    with pytest.raises(RunError, match="called '__metadata__'"):
        run.save_final({"__metadata__": torch.ones(1)}, {})
    with pytest.raises(RunError, match=r"metrics.jsonl as JSON"):
        run.log({"loss": torch.ones(1)})
    assert names(run.path) == {"recipe.yaml", "vocab"}


# Which checkpoints stay


def test_the_newest_and_the_protected_steps_stay(run: Run) -> None:
    for step in (100, 200, 300, 400):
        run.save(make(step), keep=2, protect={100})
    assert run.steps() == [100, 300, 400]
    run.save(make(500), keep=1)
    assert run.steps() == [500]
    run.save(make(1_000_000), keep=2)
    assert run.steps() == [500, 1_000_000]
    with pytest.raises(RunError, match="keep is 0"):
        run.save(make(2_000_000), keep=0)


def test_there_is_a_valid_checkpoint_at_every_instant_of_a_rotation_that_keeps_one(run: Run, monkeypatch) -> None:
    run.save(make(1), keep=1)
    seen = []

    class Watching(Disk):
        def _look(self):
            found = Run.open(run.path).latest()
            assert found is not None and same(found, make(found.step))
            seen.append(found.step)

    for name in ("write", "sync", "rename", "remove"):

        def around(self, *arguments, name=name):
            self._look()
            getattr(Disk, name)(self, *arguments)
            self._look()

        setattr(Watching, name, around)
    monkeypatch.setattr(store, "disk", Watching())
    run.save(make(2), keep=1)
    assert seen == sorted(seen) and set(seen) == {1, 2}
    run.save(make(2), keep=1)  # the same step once more, at the end of a training
    assert run.steps() == [2]


def test_a_deletion_that_fails_is_only_a_warning(run: Run, monkeypatch) -> None:
    class Stubborn(Disk):
        def remove(self, path):  # noqa: ARG002
            raise PermissionError(errno.EACCES, "Permission denied")

    run.save(make(1))
    monkeypatch.setattr(store, "disk", Stubborn())
    with pytest.warns(RunWarning, match="could not delete .*step-000001: Permission denied"):
        run.save(make(2), keep=1)
    assert run.steps() == [2] and same(run.load(2), make(2))
    monkeypatch.undo()
    with pytest.warns(RunWarning, match=f".tmp-deleted-step-000001-{os.getpid()}: left by"):
        run.save(make(3))
    assert names(run.path) == {"recipe.yaml", "vocab", "step-000002", "step-000003"}


def test_leftovers_of_dead_processes_are_named_and_cleaned_and_those_of_living_ones_kept(run: Run) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    dead, living = run.path / f".tmp-step-000009-{child.pid}", run.path / f".tmp-step-000009-{os.getppid()}"
    for path in (dead, living):
        path.mkdir()
        (path / "model.safetensors").write_bytes(b"half")
    with pytest.warns(RunWarning, match=dead.name):
        run.save(make(1))
    assert not dead.exists() and living.exists()
    with run.lock(), pytest.warns(RunWarning, match=living.name):  # the lock proves that nobody writes
        run.save(make(2))
    assert names(run.path) == {"recipe.yaml", "vocab", "step-000001", "step-000002"}


def test_going_back_to_an_earlier_step_sets_the_later_ones_aside(run: Run) -> None:
    for step in (1, 2, 3):
        run.save(make(step), keep=3)
    with pytest.warns(RunWarning, match="step-000003 is from before .* now abandoned-step-000003-1"):
        run.save(make(2, branch="second"), keep=3)
    assert run.steps() == [1, 2]
    latest = run.latest()
    assert latest is not None and same(latest, make(2, branch="second"))
    run.save(make(3, branch="second"), keep=3)
    with pytest.warns(RunWarning, match="abandoned-step-000003-2"):
        run.save(make(2), keep=3)


# Failures while saving


@pytest.mark.parametrize("target", ["new step", "same step", "final"])
def test_after_a_failure_at_any_write_fsync_or_rename_the_older_checkpoint_is_intact(run, monkeypatch, target) -> None:
    run.save(make(1), keep=3)
    run.save_final({"w": torch.zeros(2)}, {"score": 1})
    step = 2 if target == "new step" else 1

    def save() -> None:
        if target == "final":
            run.save_final({"w": torch.ones(2)}, {"score": 2})
        else:
            run.save(make(step, again=True), keep=1)

    for fail_at in range(1, 100):
        monkeypatch.setattr(store, "disk", disk := FailingDisk(fail_at))
        failed = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)  # deleting what is superseded may fail: it warns
            try:
                save()
            except RunError as error:
                failed = True
                assert str(error).startswith("disk full: need ") and str(run.path) in str(error)
        monkeypatch.undo()
        if disk.count < fail_at:
            break
        assert not list(run.path.glob(".tmp-step*")) and not list(run.path.glob(".tmp-final*"))
        fresh = Run.open(run.path)
        latest = fresh.latest()
        model, state = fresh.weights()
        assert latest is not None
        assert same(latest, make(1)) or same(latest, make(step, again=True))
        assert torch.equal(model["w"], torch.full((2,), float(state["score"] - 1)))
        if failed:  # no trace of the attempt but, when only the last fsync failed, the result itself
            assert (run.path / "step-000001").is_dir() and (run.path / "final").is_dir()
        else:
            assert (state["score"] == 2) if target == "final" else same(latest, make(step, again=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RunWarning)
            run.save(make(1), keep=1)  # also puts a new step 2, which is then beyond, out of the way
            run.save_final({"w": torch.zeros(2)}, {"score": 1})
    assert fail_at > 10


def test_a_full_disk_is_told_in_one_line_with_sizes_and_place(run: Run, monkeypatch) -> None:
    run.save(make(1))
    monkeypatch.setattr(store, "disk", FailingDisk(3))
    big = Checkpoint(2, {"w": torch.zeros(300_000)}, {}, {}, {})
    with pytest.raises(RunError, match=r"^disk full: need 1\.2 MB, have .+ at .*step-000002; .* intact.*\Z") as caught:
        run.save(big)
    assert "\n" not in str(caught.value) and isinstance(caught.value, SaccadeError)
    monkeypatch.setattr(store, "disk", FailingDisk(3, errno.EIO))
    with pytest.raises(RunError, match=r"cannot write .*step-000002: Input/output error"):
        run.save(big)
    assert names(run.path) == {"recipe.yaml", "vocab", "step-000001"}


def test_an_interrupt_while_saving_leaves_nothing_behind(run: Run, monkeypatch) -> None:
    class Interrupted(Disk):
        def sync(self, descriptor):  # noqa: ARG002
            raise KeyboardInterrupt

    monkeypatch.setattr(store, "disk", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        run.save(make(1))
    assert names(run.path) == {"recipe.yaml", "vocab"}


def test_a_kill_between_the_two_renames_of_a_replacement_loses_nothing(run: Run) -> None:
    run.save(make(1))
    run.save_final({"w": torch.ones(1)}, {})
    (run.path / "step-000001").rename(run.path / ".old-step-000001")
    (run.path / "final").rename(run.path / ".old-final")
    assert run.steps() == [1] and same(run.load(1), make(1)) and torch.equal(run.weights()[0]["w"], torch.ones(1))
    run.save(make(2))
    assert names(run.path) == {"recipe.yaml", "vocab", "step-000001", "step-000002", "final"}
    (run.path / ".old-final").mkdir()  # killed after the second rename
    run.save(make(3))
    assert names(run.path) == {"recipe.yaml", "vocab", "step-000002", "step-000003", "final"}


NURSERY = """
import os, random, signal, sys, time, warnings
import torch
from saccade.train.checkpoint import Checkpoint
from saccade.train.run import Run

torch.set_num_threads(1)
warnings.simplefilter("ignore")
run, chance, step = Run.open(sys.argv[1]), random.Random(5), 0
for _ in range(12):
    ear, mouth = os.pipe()
    child = os.fork()
    if not child:
        with run.lock():
            while True:
                step += 1
                value = torch.full((20_000,), float(step))
                run.save(Checkpoint(step, {"w": value}, {"m": -value}, {}, {"n": step}), keep=chance.choice([1, 2]))
                os.write(mouth, b"%d\\n" % step)
    os.close(mouth)
    time.sleep(chance.uniform(0.02, 0.25))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(ear) as reports:
        reported = max((int(line) for line in reports.read().split()), default=step)
    warnings.simplefilter("error")  # a committed checkpoint is never damaged
    found = run.latest()
    warnings.simplefilter("ignore")
    if found is not None:
        assert reported <= found.step <= reported + 1, (reported, found.step)
        assert found.state == {"n": found.step}
        assert (found.model["w"] == found.step).all() and (found.optimizer["m"] == -found.step).all()
        step = found.step
    else:
        assert reported == 0
print(step)
"""


def test_kill_nine_at_any_moment_leaves_the_last_reported_checkpoint_or_a_newer_one(run: Run) -> None:
    done = subprocess.run([sys.executable, "-c", NURSERY, run.path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 12, "the children hardly saved anything: the kills prove little"


def test_a_kill_in_the_middle_of_a_save_is_cleaned_up_at_the_next(run: Run) -> None:
    script = (
        "import os, signal, sys, torch\nfrom saccade.train import checkpoint as store\n"
        "from saccade.train.run import Run\n"
        "store.disk.sync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Run.open(sys.argv[1]).save(store.Checkpoint(2, {'w': torch.zeros(3)}, {}, {}, {}))"
    )
    run.save(make(1))
    done = subprocess.run([sys.executable, "-c", script, run.path], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = run.path.glob(".tmp-step-000002-*")
    latest = run.latest()
    assert latest is not None and same(latest, make(1))
    with pytest.warns(RunWarning, match=left.name):
        run.save(make(2))
    assert names(run.path) == {"recipe.yaml", "vocab", "step-000001", "step-000002"}


# The weights of a run


def test_weights_are_final_else_best_else_latest_and_a_step_overrides(run: Run) -> None:
    with pytest.raises(RunError, match="no weights yet"):
        run.weights()
    run.save(make(1), keep=3)
    assert run.weights()[0]["embed.weight"][0, 0] == 1
    run.save(make(2, best_step=1), keep=3)
    assert run.weights()[0]["embed.weight"][0, 0] == 1
    run.save(make(3, best_step=0), keep=3)  # a best step that is gone
    assert run.weights()[0]["embed.weight"][0, 0] == 3
    run.save_final({"embed.weight": torch.full((3, 4), 9.0)}, {"averaged": 3})
    assert run.weights()[0]["embed.weight"][0, 0] == 9 and run.weights()[1] == {"averaged": 3}
    assert run.weights(2)[0]["embed.weight"][0, 0] == 2
    run.save_final({"embed.weight": torch.full((3, 4), 8.0)}, {"averaged": 4})
    assert run.weights()[1] == {"averaged": 4}


def test_a_run_that_went_on_and_found_better_weights_says_so(run: Run) -> None:
    run.save(make(2, best_step=2))
    run.save_final({"w": torch.ones(1)}, {"step": 2})
    run.save(make(5, best_step=2), protect=[2])
    assert run.weights()[1] == {"step": 2}  # and nothing is said: what came after is no better
    run.save(make(9, best_step=9))
    with pytest.warns(RunWarning, match=r"final is of step 2; the run went on, and step 9 is better: .*--step 9"):
        assert run.weights()[1] == {"step": 2}


def test_damaged_final_or_best_weights_are_named_and_the_next_best_used(run: Run) -> None:
    run.save(make(1), keep=3)
    run.save(make(2, best_step=1), keep=3)
    run.save_final({"w": torch.ones(1)}, {})
    (run.path / "final" / "model.safetensors").write_bytes(b"")
    with pytest.warns(RunWarning, match="final/model.safetensors: expected"):
        assert run.weights()[0]["embed.weight"][0, 0] == 1
    (run.path / "step-000001" / "model.safetensors").write_bytes(b"")
    shutil.rmtree(run.path / "final")
    with pytest.warns(RunWarning, match="step-000001/model.safetensors.*using step 2 instead of the best"):
        assert run.weights()[0]["embed.weight"][0, 0] == 2


def test_damage_in_the_optimizer_does_not_keep_a_model_from_being_used(run: Run) -> None:
    run.save(make(1))
    (run.path / "step-000001" / "optimizer.safetensors").write_bytes(b"")
    assert run.weights()[0]["embed.weight"][0, 0] == 1


# Metrics and vocabulary


def test_metrics_come_back_and_are_cut_on_resume(run: Run) -> None:
    records = [{"step": step, "loss": 1 / step} for step in range(1, 6)]
    for record in records:
        run.log(record)
    run.log({"note": "no step, logged after step 5"})
    run.cut_metrics(3)
    assert run.metrics() == records[:3]
    run.log({"step": 4, "loss": float("inf")})
    assert run.metrics() == [*records[:3], {"step": 4, "loss": float("inf")}]


def test_a_metrics_line_cut_short_by_a_kill_is_tolerated(run: Run) -> None:
    run.log({"step": 1})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 2, "lo')
    assert run.metrics() == [{"step": 1}]
    run.log({"step": 3})
    with pytest.warns(RunWarning, match="metrics.jsonl:2: not JSON"):
        assert run.metrics() == [{"step": 1}, {"step": 3}]
    with pytest.warns(RunWarning, match="metrics.jsonl:2"):
        run.cut_metrics(3)
    assert (run.path / "metrics.jsonl").read_text() == '{"step": 1}\n{"step": 3}\n'


def test_cutting_metrics_is_all_or_nothing(run: Run, monkeypatch) -> None:
    for step in (1, 2):
        run.log({"step": step})
    for fail_at in (1, 2, 3):
        monkeypatch.setattr(store, "disk", FailingDisk(fail_at))
        with pytest.raises(RunError, match="disk full"):
            run.cut_metrics(1)
        monkeypatch.undo()
        assert run.metrics() == [{"step": 1}, {"step": 2}]
    assert names(run.path) == {"recipe.yaml", "vocab", "metrics.jsonl"}


def test_the_vocabulary_hash_sees_contents_and_names_but_not_hidden_files(run: Run) -> None:
    hashes = [run.vocab_hash()]
    for name, text in [("tokenizer.json", "{}"), ("tokenizer.json", "{ }"), ("other.json", "{}"), ("sub/x", "1")]:
        (run.vocab / name).parent.mkdir(exist_ok=True)
        (run.vocab / name).write_text(text)
        hashes.append(run.vocab_hash())
    assert len(set(hashes)) == 5
    (run.vocab / ".DS_Store").write_text("x")
    assert run.vocab_hash() == hashes[-1] == Run.open(run.path).vocab_hash()


def test_did_you_mean_names_the_nearest_or_nothing() -> None:
    assert did_you_mean("head", ["heads", "width"]) == " (did you mean 'heads'?)"
    assert did_you_mean("zzz", iter(["heads", "width"])) == ""


def test_the_manifest_is_readable_by_people(run: Run) -> None:
    run.save(make(1))
    manifest = json.loads((run.path / "step-000001" / "manifest.json").read_text())
    assert manifest["format"] == 1 and manifest["step"] == 1
    assert set(manifest["files"]) | {"manifest.json"} == names(run.path / "step-000001")
