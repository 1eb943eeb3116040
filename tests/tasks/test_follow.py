"""Commands carried out."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from saccade import api
from saccade.data.commands import read_commands
from saccade.errors import SaccadeError

ACTIONS = {"walk": "WALK", "run": "RUN", "jump": "JUMP", "look": "LOOK"}
TIMES = {"": 1, "twice": 2, "thrice": 3}


def scan(path: Path) -> Path:
    """A small language of the same kind, in the format of SCAN."""
    phrases = {
        f"{verb} {times}".strip(): " ".join([ACTIONS[verb]] * TIMES[times]) for verb, times in product(ACTIONS, TIMES)
    }
    both = list(phrases.items())
    both += [(f"{a} and {b}", f"{phrases[a]} {phrases[b]}") for a, b in product(phrases, phrases)]
    path.write_text("".join(f"IN: {command} OUT: {actions}\n" for command, actions in both))
    return path


def test_commands_that_were_never_seen_are_carried_out(tmp_path: Path) -> None:
    data = scan(tmp_path / "scan.txt")
    settings = [
        f'task.data="{data}"',
        f'task.test="{data}"',
        "task.valid_examples=30",
        "train.steps=250",
        "train.evaluate_every=250",
        "train.save_every=250",
        "train.threads=1",
        "model.width=32",
        "model.hidden=48",
    ]
    model = api.train("follow-quick", out=tmp_path / "run", settings=settings)
    assert model.predict(["jump twice and look"])[0].text == "JUMP JUMP LOOK"
    scores = {score.name: score.value for score in model.evaluate("valid")}
    assert scores["exact"] > 80
    assert scores["exact with commands shuffled (control)"] < 30
    assert any(name.startswith("exact, ") for name in scores)
    again = api.load(tmp_path / "run")
    assert again.evaluate("test")[0].value > 80
    assert again.look("jump twice")[0].columns.labels == ("jump", "twice")
    unknown, known = again.predict(["fly", "jump twice and look"])
    assert "symbol 1 of 'fly' is 'fly'" in (unknown.refusal or "") and known.text == "JUMP JUMP LOOK"


def test_a_line_that_is_no_command_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("IN: walk OUT: WALK\nwalk WALK\n")
    with pytest.raises(SaccadeError, match=r"bad:2: 'walk WALK' is neither"):
        read_commands(tmp_path / "bad")
    (tmp_path / "bad").write_text("walk\tWALK\n")
    assert read_commands(tmp_path / "bad")[0].target == "WALK"
    (tmp_path / "bad").write_text("")
    with pytest.raises(SaccadeError, match="no text found"):
        read_commands(tmp_path / "bad")


def test_commands_that_are_all_held_out_leave_none_and_the_setting_is_named(tmp_path: Path) -> None:
    data = scan(tmp_path / "scan.txt")
    with pytest.raises(SaccadeError, match=r"scan\.txt: 0 commands .* and 156 .* task.valid_examples than 500"):
        api.begin("follow-quick", out=tmp_path / "run", settings=[f"task.data={data}", "task.valid_examples=500"])
