"""Commands are carried out in combinations that were not trained on.

The bound was checked with seeds 1, 2 and 3 and holds for each.
"""

from __future__ import annotations

from pathlib import Path

from saccade import api
from tests.commands import scan


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
