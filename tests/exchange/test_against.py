"""A run beside a folder in the format of others: what is the same holds, what was changed is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from saccade import api
from saccade.cli import app
from saccade.data.lexicon import Lexicon
from saccade.data.vocab import Pieces
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


LANGUAGE = "task: {kind: language, data: x, window: 16}\nmodel: {kind: gpt, width: 16, heads: 2, layers: 1}\n"


def _lexicon(folder: Path) -> None:
    Lexicon.learn(["abcd"], "characters", size=20).save(folder)


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


@pytest.mark.parametrize(("name", "package"), [("ctranslate2", "ctranslate2"), ("onnx", "onnxruntime")])
def test_without_the_package_nothing_is_said_to_hold(
    name: str, package: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saccade.exchange.against.find_spec", lambda asked: None if asked == package else object())
    with pytest.raises(SaccadeError, match=f"to ask it, install {package}"):
        against(api.load(place / "run"), place / name, INPUTS)


def test_what_ctranslate2_cannot_do_is_said_in_its_words(place: Path) -> None:
    with pytest.raises(SaccadeError, match="ctranslate2: CTranslate2: No position encodings"):
        against(api.load(place / "run"), place / "ctranslate2", ["a " * 3000])


def test_what_can_only_be_asked_on_drawn_inputs_is_found_out_too(tmp_path: Path) -> None:
    """A language model, whose graphs of another model are a broken law and no error."""
    for name, deviation in (("run", 0.2), ("other", 0.3)):
        published.drawn_run(LANGUAGE, tmp_path / name, _lexicon, deviation=deviation)
    onnx.export_run(tmp_path / "run", tmp_path / "graphs")
    (same,) = against(api.load(tmp_path / "run"), tmp_path / "graphs", ["ab"])
    (different,) = against(api.load(tmp_path / "other"), tmp_path / "graphs", ["ab"])
    assert same.holds and "checked against onnxruntime" in same.name
    assert not different.holds and "has other log-probabilities" in different.name


def test_a_vision_transformer_whose_class_token_has_no_position_is_no_other_there(tmp_path: Path) -> None:
    """Theirs always has one, of zeros."""
    task, model = "{kind: classify_images, data: x, size: 12}", "{kind: vit, patch: 4, width: 12, heads: 3, layers: 1}"
    labels = '["cat", "dog"]'
    for name, deviation in (("run", 0.2), ("other", 0.3)):
        published.drawn_run(
            f"task: {task}\nmodel: {model}",
            tmp_path / name,
            lambda vocab: (vocab / "labels.json").write_text(labels),
            deviation=deviation,
        )
    huggingface.export_run(tmp_path / "run", tmp_path / "theirs")
    Image.new("RGB", (12, 12), "red").save(tmp_path / "red.png")
    asked = [str(tmp_path / "red.png")]
    assert all(law.holds for law in against(api.load(tmp_path / "run"), tmp_path / "theirs", asked))
    assert not all(law.holds for law in against(api.load(tmp_path / "other"), tmp_path / "theirs", asked))


SEARCHES = ["length_penalty: 0.3", "no_repeat: 1, minimum_length: 3", "must_not_include: [a], limit_extra: 4"]


@pytest.mark.parametrize("search", SEARCHES)
def test_a_run_and_a_folder_are_asked_by_the_same_search(search: str, place: Path, tmp_path: Path) -> None:
    recipe = (place / "run/recipe.yaml").read_text().partition("\ndecode:")[0]
    recipe += f"\ndecode: {{beam: 3, {search}}}\n"
    predictor = published.drawn_run(recipe, tmp_path / "run", _vocabulary, deviation=0.15)
    huggingface.export_run(tmp_path / "run", tmp_path / "theirs")
    assert [law.name for law in against(predictor, tmp_path / "theirs", INPUTS) if not law.holds] == []


def test_a_vocabulary_of_another_size_is_a_broken_law(place: Path, tmp_path: Path) -> None:
    small = published.drawn_run(
        (place / "run/recipe.yaml").read_text(), tmp_path / "small", Pieces.learn(published.TEXTS, 270).save
    )
    ctranslate2.export_run(tmp_path / "small", tmp_path / "theirs")
    for run, folder in ((api.load(place / "run"), tmp_path / "theirs"), (small, place / "ctranslate2")):
        (law,) = against(run, folder, INPUTS)
        assert law.name == "pieces of the vocabulary that differ" and not law.holds
    (tmp_path / "theirs/shared_vocabulary.json").write_text("{}")
    with pytest.raises(SaccadeError, match=r"shared_vocabulary\.json: must be a list of pieces; got dict"):
        against(small, tmp_path / "theirs", INPUTS)
    (tmp_path / "theirs/shared_vocabulary.json").unlink()
    with pytest.raises(SaccadeError, match=r"shared_vocabulary\.json: cannot read the vocabulary"):
        against(small, tmp_path / "theirs", INPUTS)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({}, "there is no task"),
        ({"task": "language"}, "task is 'language', and that of the run 'translate'"),
        ({"task": "translate"}, "there are no graphs"),
    ],
)
def test_graphs_of_which_nothing_fitting_is_said_are_refused(said: dict, why: str, place: Path, tmp_path: Path) -> None:
    (tmp_path / "saccade.json").write_text(json.dumps(said))
    with pytest.raises(SaccadeError, match=rf"saccade\.json: {why}"):
        against(api.load(place / "run"), tmp_path, INPUTS)


def test_what_onnxruntime_cannot_do_is_said_in_its_words(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "onnx", tmp_path / "theirs")
    (tmp_path / "theirs/decoder.onnx").write_bytes(b"no graph")
    with pytest.raises(SaccadeError, match=r"theirs: onnxruntime: \[ONNXRuntimeError\]") as refusal:
        against(api.load(place / "run"), tmp_path / "theirs", INPUTS)
    assert "\n" not in str(refusal.value)
