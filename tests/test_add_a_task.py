"""docs/add-a-task.md does what it says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from saccade import api
from saccade.errors import SaccadeError

PAGE = Path(__file__).parents[1] / "docs" / "add-a-task.md"


def test_the_function_is_not_hidden_by_the_folder_of_its_name() -> None:
    import saccade.train.run

    assert saccade.train is api.train
    assert saccade.train is api.train  # and not only once
    from saccade import train

    assert train is api.train


def test_the_task_of_the_page_is_learned_loaded_and_looked_at(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)
    assert re.match(r"accuracy [\d.]+ \[.*\]\n\d{4}-03-03\n", capsys.readouterr().out)
    again = names["again"]
    assert again.evaluate()[0].value > 80  # seeds 1 to 3 reach 92.5, 96.5 and 98.0
    assert again.look("3 March 2021")[0].rows.labels[-1] == "<end>"
    pairs, asked = again.task.pairs, []
    monkeypatch.setattr(again.task, "pairs", lambda split: asked.append(split) or pairs(split))
    assert again.evaluate("test")[0].value > 80
    assert asked == ["test"]
    assert pairs("test") != pairs("valid")
    with pytest.raises(SaccadeError, match=r"task of one's own, dates.*saccade.load\(path, task=...\)"):
        api.load("runs/dates")
