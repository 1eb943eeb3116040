"""A run beside a folder in the format of others: what is the same holds, what was changed is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from saccade import api
from saccade.cli import app
from saccade.errors import SaccadeError
from saccade.exchange import ctranslate2, huggingface, onnx
from saccade.exchange.against import against
from tests.exchange import published
from tests.exchange.test_ctranslate2 import translating

FORMATS = {"huggingface": huggingface, "ctranslate2": ctranslate2, "onnx": onnx}
INPUTS = ["the cat sat on the mat", "a dog", "do cats sit? they do."]
SAME = {"order": "post", "tie": "all"}  # as Marian has it


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run and its three exports; and another run that differs in its weights."""
    place = tmp_path_factory.mktemp("against")
    translating(place, **SAME)
    for name, format_ in FORMATS.items():
        format_.export_run(place / "run", place / name)
    (place / "other").mkdir()
    published.drawn_run((place / "run/recipe.yaml").read_text(), place / "other/run", _vocabulary, deviation=0.3)
    return place


def _vocabulary(folder: Path) -> None:
    from tests.exchange.test_ctranslate2 import PIECES

    PIECES.save(folder)


@pytest.mark.parametrize("name", FORMATS)
def test_an_export_says_what_its_run_says(name: str, place: Path) -> None:
    laws = against(api.load(place / "run"), place / name, INPUTS)
    assert [law.name for law in laws if not law.holds] == []
    assert any("answers that differ" in law.name for law in laws)


@pytest.mark.parametrize("name", FORMATS)
def test_another_model_is_found_out(name: str, place: Path) -> None:
    laws = against(api.load(place / "other/run"), place / name, INPUTS)
    assert not all(law.holds for law in laws)


def test_the_command_asks_lines_of_a_file_and_says_what_it_found(place: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("\n".join(INPUTS))
    how = ["verify", str(place / "run"), "--against", str(place / "huggingface"), "--input", str(tmp_path / "lines")]
    done = CliRunner().invoke(app, how)
    assert done.exit_code == 0, done.output
    assert "tensors that differ" in done.output and "BROKEN" not in done.output
    broken = CliRunner().invoke(app, ["verify", str(place / "other/run"), *how[2:]])
    assert broken.exit_code == 1 and "BROKEN" in broken.output


def test_a_folder_of_no_known_format_is_refused(place: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_text(json.dumps({}))
    with pytest.raises(SaccadeError, match="no format that is known"):
        against(api.load(place / "run"), tmp_path, INPUTS)


def test_inputs_and_a_folder_belong_together(place: Path) -> None:
    nothing = CliRunner().invoke(app, ["verify", str(place / "run"), "--against", str(place / "onnx")])
    assert "say on what they are to be compared" in str(nothing.exception)
    alone = CliRunner().invoke(app, ["verify", str(place / "run"), "a text"])
    assert "inputs are for --against" in str(alone.exception)
