"""Cold starts: every command in a process of its own, compared with importing torch alone. Nothing here is timed."""

import json
import sys

import pytest
from typer.testing import CliRunner

from saccade.bench import start
from saccade.cli import app
from saccade.errors import SaccadeError


@pytest.fixture
def light(monkeypatch, tmp_path):
    """Commands that are quick, each leaving a letter where it ran."""
    trace = tmp_path / "trace"
    code = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
    commands = {"python": ("-c", code, str(trace), "p"), start.TORCH: ("-c", code, str(trace), "t")}
    monkeypatch.setattr(start, "COMMANDS", commands)
    return trace


def test_commands_take_turns_in_processes_of_their_own(light):
    found = start.measure(rounds=2)
    assert light.read_text() == "pptt" + "pt" * 2
    assert [each.command for each in found.starts] == ["python", start.TORCH]
    assert found.starts[1].multiple == 1
    assert all(0 < each.seconds <= each.median and each.multiple > 0 for each in found.starts)


def test_a_command_that_fails_is_no_figure(monkeypatch):
    monkeypatch.setattr(start, "COMMANDS", {"broken": ("-c", "import sys; sys.exit('no such model')")})
    with pytest.raises(SaccadeError, match="broken ended with code 1: no such model"):
        start.starting("broken")()


def test_what_is_started_is_what_is_said():
    assert list(start.COMMANDS) == ["python", "import torch", "saccade --help", 'saccade translate "Bonjour."']
    start.starting("saccade --help")()


def test_command(light, tmp_path):
    figures = tmp_path / "start.json"
    result = CliRunner().invoke(app, ["bench", "start", "--json", str(figures)], catch_exceptions=False)
    assert result.exit_code == 0
    assert f"round {start.ROUNDS} of {start.ROUNDS}" in result.output and "x torch" in result.output
    content = json.loads(figures.read_text())
    assert content.keys() == {"starts", "settings", "circumstances"}
    assert {each["command"] for each in content["starts"]} == {"python", start.TORCH}
    assert content["circumstances"]["python"] == sys.version.split()[0]
