"""A run that was killed and resumed is the run that never stopped, bit for bit."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from saccade import api
from saccade.config import load_recipe
from saccade.errors import RunWarning, SaccadeError
from saccade.models.shapes import EncoderDecoder
from saccade.tasks.base import Loss
from saccade.tasks.rearrange import Rearrange
from saccade.tasks.written import WrittenBatch
from saccade.train.progress import Event, Saved
from saccade.train.run import Run

# dropout, accumulation, shuffling, buckets and several epochs: everything that a resume could get wrong
SETTINGS = (
    "model.kind=transformer",
    "model.width=16",
    "model.hidden=32",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.dropout=0.2",
    "task.symbols=6",
    "task.train_examples=300",
    "task.valid_examples=8",
    "train.batch_tokens=128",
    "train.accumulate=2",
    "train.smoothing=0.1",
    "train.steps=60",
    "train.log_every=5",
    "train.save_every=6",
    "train.evaluate_every=10",
    "train.threads=1",
)
KILLED = (*SETTINGS, "train.steps=100", "train.save_every=1", "train.evaluate_every=25")


def tensors_of(path: Path, step: int) -> dict[str, torch.Tensor]:
    checkpoint = Run.open(path).load(step)
    parts = {"model": checkpoint.model, "optimizer": checkpoint.optimizer, "random": checkpoint.random}
    return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def assert_same_run(one: Path, other: Path, step: int) -> None:
    first, second = tensors_of(one, step), tensors_of(other, step)
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert different == []
    states = [Run.open(path).load(step).state for path in (one, other)]
    assert all(state.pop("minutes") > 0 for state in states)  # time is the one thing that cannot be repeated
    assert states[0] == states[1]
    assert Run.open(one).metrics() == Run.open(other).metrics()
    final, other_final = Run.open(one).weights()[0], Run.open(other).weights()[0]
    assert all(torch.equal(final[name], other_final[name]) for name in final)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "unbroken"
    api.train("reverse", out=path, settings=KILLED)
    return path


@pytest.mark.parametrize("kind", ["sutskever", "bahdanau", "luong", "convolutional"])
def test_every_model_resumes_bit_for_bit(kind: str, tmp_path: Path) -> None:
    small = ["model.width=16", "model.dropout=0.2", "model.layers=1"]
    small += [] if kind == "convolutional" else ["model.hidden=16"]
    settings = [each for each in SETTINGS if not each.startswith("model.")]
    settings += [f"model.kind={kind}", *small, "train.steps=12"]
    api.train("reverse", out=tmp_path / "whole", settings=settings)
    events = api.begin("reverse", out=tmp_path / "broken", settings=settings).events()
    for event in events:
        if getattr(event, "step", 0) >= 7:
            break  # walk away in the middle: no last save, as after a crash
    events.close()
    api.resume(tmp_path / "broken")
    assert_same_run(tmp_path / "whole", tmp_path / "broken", 12)


# Children that have torch already, killed from outside at a random moment, or by their own n-th touch of the disk.
NURSERY = """
import os, random, signal, sys, time, traceback, warnings
from pathlib import Path
import torch
from saccade import api
from saccade.train import checkpoint as store

torch.set_num_threads(1)
warnings.simplefilter("ignore")
path, settings, chance = Path(sys.argv[1]), sys.argv[2:], random.Random(7)
api.begin("reverse", out=path.with_name("first"), settings=settings)  # all that is imported late is imported now


class Deadly(store.Disk):
    def __init__(self, touches):
        self.left = touches

    def touch(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, file, data):
        if self.left == 1:
            file.write(bytes(data)[: len(data) // 2])
            file.flush()
        self.touch()
        super().write(file, data)

    def sync(self, descriptor):
        self.touch()
        super().sync(descriptor)

    def rename(self, source, target):
        self.touch()
        super().rename(source, target)

    def remove(self, path):
        self.touch()
        super().remove(path)


def born(touches=0):
    ear, mouth = os.pipe()
    child = os.fork()
    if child:
        os.close(mouth)
        return child, ear
    try:
        store.disk = Deadly(touches)
        there = (path / "recipe.yaml").exists()
        training = api.resumed(path) if there else api.begin("reverse", out=path, settings=settings)
        for event in training.events():
            os.write(mouth, b".")
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


in_a_save = 0
for number in range(20):
    kind = ("start", "disk", "moment", "disk")[number % 4]
    child, ear = born(chance.randrange(1, 800) if kind == "disk" else 0)
    if kind == "moment":
        for _ in range(chance.randrange(1, 6)):
            os.read(ear, 1)
        time.sleep(chance.uniform(0, 0.02))
    elif kind == "start":
        time.sleep(chance.uniform(0, 0.1))
    if kind != "disk":
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, (number, kind, status)
    os.close(ear)
    in_a_save += any(path.glob(f".tmp-step-*-{child}"))
child, ear = born()
while os.read(ear, 4096):
    pass
assert os.waitpid(child, 0)[1] == 0
print(in_a_save)
"""


def test_kill_nine_at_twenty_random_moments_then_resume_equals_the_unbroken_run(unbroken: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NURSERY, str(tmp_path / "broken"), *KILLED],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5, "hardly any kill was inside a save: they prove little"
    assert_same_run(unbroken, tmp_path / "broken", 100)


ASKED = (*SETTINGS, "train.steps=200", "train.save_every=1000", "train.evaluate_every=1000")


@pytest.fixture(scope="module")
def unasked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "unasked"
    api.train("reverse", out=path, settings=ASKED)
    return path


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_leaves_with_its_own_code(number: int, code: int, unasked: Path, tmp_path: Path) -> None:
    path = tmp_path / "asked"
    command = [sys.executable, "-m", "saccade", "train"]
    begin = [*command, "reverse", "--out", str(path), *(part for each in ASKED for part in ("--set", each))]
    with subprocess.Popen(begin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if line.startswith("step 5/"):
                process.send_signal(number)
                break
        rest, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == code
    assert "Traceback" not in errors
    assert "--resume" in rest
    assert Run.open(path).steps()
    done = subprocess.run([*command, "--resume", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    weights, expected = Run.open(path).weights()[0], Run.open(unasked).weights()[0]
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_resuming_a_finished_run_changes_nothing(unbroken: Path) -> None:
    before = tensors_of(unbroken, 100)
    api.resume(unbroken)
    after = tensors_of(unbroken, 100)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_another_thread_count_is_warned_of(tmp_path: Path) -> None:
    api.train("reverse", out=tmp_path / "run", settings=[*SETTINGS, "train.steps=3", "train.threads=null"])
    torch.set_num_threads(2)
    try:
        with pytest.warns(RunWarning, match="trained with 1 threads, now there are 2"):
            api.resumed(tmp_path / "run")
    finally:
        torch.set_num_threads(1)


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    api.train("reverse", out=tmp_path / "run", settings=[*SETTINGS, "train.steps=3"])
    file = tmp_path / "run" / "vocab" / "symbols.json"
    file.write_text(file.read_text().replace('"a"', '"z"'))
    for use in (api.load, api.resumed):
        with pytest.raises(SaccadeError, match="not the vocabulary"):
            use(tmp_path / "run")


def test_a_run_that_was_stopped_is_packed_with_the_weights_that_it_is_loaded_with(tmp_path: Path) -> None:
    """With averaging on: the averaged ones of its best step."""
    events = api.begin("reverse", out=tmp_path / "run", settings=[*SETTINGS, "train.average=0.9"]).events()
    for event in events:
        if getattr(event, "step", 0) >= 13:
            break
    events.close()
    packed = api.pack(tmp_path / "run", tmp_path / "packed", half=False)
    one, other = (api.load(path).model.state_dict() for path in (tmp_path / "run", packed.path))
    assert all(torch.equal(one[name], other[name]) for name in one)


# A recipe that was edited by hand


@pytest.fixture
def short(tmp_path: Path) -> Path:
    api.train("reverse", out=tmp_path / "run", settings=[*SETTINGS, "train.steps=3"])
    return tmp_path / "run"


def edit(run: Path, *changes: tuple[str, str]) -> None:
    text = (run / "recipe.yaml").read_text()
    for before, after in changes:
        assert text.count(before) == 1
        text = text.replace(before, after)
    (run / "recipe.yaml").write_text(text)


def test_an_edited_recipe_is_shown_and_needs_override(short: Path) -> None:
    edit(short, ("steps: 3\n", "steps: 5\n"), ("smoothing: 0.1", "smoothing: 0.2"))
    with pytest.raises(SaccadeError, match=r"other settings than it was trained with; --override") as caught:
        api.resume(short)
    assert str(caught.value).splitlines()[1:] == ["  train.steps: 3 -> 5", "  train.smoothing: 0.1 -> 0.2"]
    assert Run.open(short).steps()[-1] == 3
    training = api.resumed(short, override=True)
    assert training.recipe.train.smoothing == 0.2
    assert {"step": 3, "changed": ["train.steps: 3 -> 5", "train.smoothing: 0.1 -> 0.2"]} in Run.open(short).metrics()
    api.resume(short)  # it was meant once, that is enough
    assert Run.open(short).steps()[-1] == 5


def test_comments_and_layout_of_a_recipe_are_free(short: Path) -> None:
    edit(short, ("  steps: 3\n", "  # as few as that\n  steps:   3\n"))
    before = (short / "recipe.yaml").read_text()
    assert not api.resumed(short).reasons
    assert (short / "recipe.yaml").read_text() == before


@pytest.mark.parametrize("by", ["hand", "setting"])
def test_another_task_or_model_is_refused_key_by_key(short: Path, by: str) -> None:
    settings = ["task.valid_examples=9", "model.width=32"]
    if by == "hand":
        edit(short, ("valid_examples: 8", "valid_examples: 9"), ("width: 16", "width: 32"))
        settings = []
    with pytest.raises(SaccadeError, match="its own task and model; for others start a new run") as caught:
        api.resumed(short, settings=settings, override=True)
    assert str(caught.value).splitlines()[1:] == ["  task.valid_examples: 8 -> 9", "  model.width: 16 -> 32"]


def test_a_checkpoint_from_before_recipes_were_kept_still_goes_on(short: Path) -> None:
    step = short / "step-000003"
    state = json.loads((step / "state.json").read_text())
    for key in ("recipe", "parts"):
        del state[key]
    data = json.dumps(state).encode()
    (step / "state.json").write_bytes(data)
    manifest = json.loads((step / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (step / "manifest.json").write_text(json.dumps(manifest))
    edit(short, ("steps: 3\n", "steps: 5\n"))  # nobody can tell
    api.resume(short)
    assert Run.open(short).steps()[-1] == 5


def test_a_packed_run_is_to_be_used_and_not_to_be_trained(short: Path, tmp_path: Path) -> None:
    packed = api.pack(short, tmp_path / "packed").path
    before = sorted(path.read_bytes() for path in packed.rglob("*") if path.is_file())
    with pytest.raises(SaccadeError, match="no checkpoint to go on from"):
        api.resume(packed)
    assert sorted(path.read_bytes() for path in packed.rglob("*") if path.is_file()) == before


# An interrupted notebook


BRIEF = (*SETTINGS, "train.steps=24", "train.save_every=4", "train.evaluate_every=12")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "uninterrupted"
    api.train("reverse", out=path, settings=BRIEF)
    return path


class Interrupted(Rearrange):
    """Somebody presses the stop button while the thirtieth batch is computed."""

    batches = 0

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        self.batches += 1
        if self.batches == 30:
            raise KeyboardInterrupt
        return super().loss(model, batch)


def interrupt(event: Event) -> None:
    if isinstance(event, Saved) and event.step >= 12:
        raise KeyboardInterrupt


def in_the_loss(out: Path) -> None:
    recipe = load_recipe("reverse", BRIEF)
    api.train(recipe, out=out, task=Interrupted(recipe))


def in_the_callers_own_code(out: Path) -> None:
    api.train("reverse", out=out, settings=BRIEF, tell=interrupt)


def while_resuming(out: Path) -> None:
    events = api.begin("reverse", out=out, settings=BRIEF).events()
    while getattr(next(events), "step", 0) < 5:
        pass
    events.close()
    torch.set_num_threads(2)
    api.resume(out, tell=interrupt)


@pytest.mark.parametrize("work", [in_the_loss, in_the_callers_own_code, while_resuming])
def test_an_interrupted_notebook_gets_everything_back_and_can_resume_at_once(
    work: Callable[[Path], None], uninterrupted: Path, tmp_path: Path
) -> None:
    torch.set_num_threads(2)  # the recipe asks for one
    signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            work(tmp_path / "run")
        assert caught.value.__traceback__ is not None  # as a notebook keeps it, with all the frames in it
        assert torch.get_num_threads() == 2
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == signals
        assert 0 < Run.open(tmp_path / "run").steps()[-1] < 24
        model = api.resume(tmp_path / "run")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert_same_run(uninterrupted, tmp_path / "run", 24)
    assert model.predict(["a b c"])[0].text
