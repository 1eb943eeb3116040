"""A run that was killed and resumed is the run that never stopped, bit for bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from saccade import api
from saccade.errors import RunWarning, SaccadeError
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
    api.train("reverse", out=path, settings=SETTINGS)
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


def test_kill_minus_nine_at_random_moments_then_resume_equals_the_unbroken_run(unbroken: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken"
    moments = random.Random(7)
    command = [sys.executable, "-W", "ignore", "-m", "saccade", "train"]
    begin = [*command, "reverse", "--out", str(path), *(part for each in SETTINGS for part in ("--set", each))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    kills = 0
    for _ in range(30):
        started = (path / "recipe.yaml").exists()
        process = subprocess.Popen(
            [*command, "--resume", str(path)] if started else begin,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        before = len(Run.open(path).steps()) and Run.open(path).steps()[-1] if started else 0
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            now = Run.open(path).steps() if (path / "recipe.yaml").exists() else []
            if now and now[-1] > before:
                break  # it has saved at least once since it was started, so that the test ends some day
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.15))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        _, errors = process.communicate()
        assert process.returncode in (0, -signal.SIGKILL), errors.decode()
        if process.returncode == 0:
            break
    else:
        pytest.fail("the run never came to its end")
    assert kills >= 3
    assert_same_run(unbroken, path, 60)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_leaves_with_its_own_code(number: int, code: int, tmp_path: Path) -> None:
    path, unbroken = tmp_path / "asked", tmp_path / "unbroken"
    settings = [*SETTINGS, "train.steps=300", "train.save_every=1000", "train.evaluate_every=1000"]
    api.train("reverse", out=unbroken, settings=settings)
    command = [sys.executable, "-m", "saccade", "train"]
    begin = [*command, "reverse", "--out", str(path), *(part for each in settings for part in ("--set", each))]
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
    weights, expected = Run.open(path).weights()[0], Run.open(unbroken).weights()[0]
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_resuming_a_finished_run_changes_nothing(unbroken: Path) -> None:
    before = tensors_of(unbroken, 60)
    api.resume(unbroken)
    after = tensors_of(unbroken, 60)
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
