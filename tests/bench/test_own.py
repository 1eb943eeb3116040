"""A run and sentences of one's own, in saccade and in CTranslate2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from saccade import api
from saccade.bench import own
from saccade.bench.peers import CTRANSLATE2, SACCADE
from saccade.cli import app
from saccade.errors import SaccadeError
from saccade.exchange import ctranslate2

LINES = ["Il pleut.", "Je suis fatigué.", "Où est la gare ?"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "lines.fr"
    file.write_text("\n".join([LINES[0], "", *LINES[1:], "Merci."]) + "\n")
    return file


def test_lines_are_translated_one_at_a_time_and_together(tmp_path: Path, source: Path) -> None:
    command = ["bench", "translate", "--model", str(api.SHIPPED), "--source", str(source), "--lines", "3"]
    done = CliRunner().invoke(app, [*command, "--rounds", "1", "--json", str(tmp_path / "race.json")])
    assert done.exit_code == 0, done.output
    race = json.loads((tmp_path / "race.json").read_text())
    places = [(speed["sequences"], speed["beam"], speed["contestant"]) for speed in race["speeds"]]
    names = [str(each) for each in (*SACCADE, *CTRANSLATE2)]
    assert places == [(*place, name) for place in ((1, 1), (1, 4), (3, 1), (3, 4)) for name in names]
    assert all(speed["tokens"] > 0 for speed in race["speeds"]) and race["settings"]["lines"] == 3


def test_all_of_them_say_the_same(tmp_path: Path) -> None:
    ctranslate2.export_run(api.SHIPPED, tmp_path / "folder")
    for contestant in (SACCADE[0], CTRANSLATE2[0]):
        for make in own.makes(contestant, api.SHIPPED, tmp_path / "folder"):
            for at_once in (1, 3):
                assert make(LINES, at_once, 1)() == ["It's raining.", "I'm tired.", "Where's the station?"]


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["bench", "translate", "--model", str(api.SHIPPED)])
    assert isinstance(done.exception, SaccadeError) and "--model and --source together" in str(done.exception)
    (tmp_path / "blank").write_text("\n\n")
    with pytest.raises(SaccadeError, match=r"blank: there is no line in it that can be translated"):
        own.translate(api.SHIPPED, tmp_path / "blank")
