"""Commands carried out."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade import api
from saccade.data.commands import read_commands
from saccade.errors import SaccadeError
from tests.commands import scan


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
