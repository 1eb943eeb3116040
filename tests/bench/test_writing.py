"""Races of models that write: the same weights, as many tokens, every tool in every place; never how fast."""

from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from saccade.bench import peers, writing
from saccade.cli import app
from saccade.errors import SaccadeError

CONTESTANTS = ["saccade float32", "saccade int8", "Hugging Face float32", "CTranslate2 float32", "CTranslate2 int8"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = "encoder_layers: 1, decoder_layers: 2"
    monkeypatch.setattr(writing, "SIZES", {"tiny": f"width: 16, heads: 2, hidden: 24, {layers}"})
    monkeypatch.setattr(writing, "VOCABULARIES", {"tiny": 300})
    monkeypatch.setattr(writing, "SHORTEST", 0.0)


def test_every_tool_translates_in_every_place(tmp_path, small: None) -> None:
    done = CliRunner().invoke(app, ["bench", "translate", "--rounds", "1", "--json", str(tmp_path / "race.json")])
    assert done.exit_code == 0, done.output
    assert "x best" in done.output
    race = json.loads((tmp_path / "race.json").read_text())
    places = [(speed["sequences"], speed["beam"], speed["contestant"]) for speed in race["speeds"]]
    assert places == [(*place, name) for place in ((1, 1), (1, 4), (32, 1), (32, 4)) for name in CONTESTANTS]
    assert all(speed["tokens"] >= speed["median"] > 0 and speed["threads"] >= 1 for speed in race["speeds"])
    assert set(race["settings"]["peers"]) == {"CTranslate2", "Hugging Face"} and race["circumstances"]["torch"]


def test_every_contestant_writes_as_many_tokens_as_it_is_asked_for(tmp_path, small: None) -> None:
    vocabulary = writing.Pieces(peers.byte_pairs(300 - len(writing.SPECIALS)))
    model = f"{{kind: transformer, order: post, tie: all, {writing.SIZES['tiny']}}}"
    peers.drawn(f"task: {{kind: translate, source: none}}\nmodel: {model}", vocabulary, tmp_path)
    peers.exported(tmp_path)
    source = writing.torch.randint(4, 300, (2, 6), generator=writing.torch.Generator().manual_seed(1))
    for contestant in writing._contestants():
        make, *_ = writing.makes(contestant, writing.TRANSLATE, tmp_path, 7)
        found = make(source.tolist(), 2)()
        if contestant.tool == "saccade":
            lengths = [len(each[0].tokens) for each in found]
        elif contestant.tool == "CTranslate2":
            lengths = [len(each.hypotheses[0]) for each in found]
        else:
            lengths = [row.shape[0] - 1 for row in found]  # the start is given
        assert lengths == [7, 7], contestant


def test_a_language_model_goes_on_with_every_tool() -> None:
    small = {"model": "width: 16, heads: 2, layers: 2", "vocabulary": 300}
    race = writing.generate(sequences=(2,), prompt=3, tokens=4, rounds=1, **small)
    too = ["llama.cpp float32", "llama.cpp int8"] if "llama.cpp" in race.settings["peers"] else []
    assert [speed.contestant for speed in race.speeds] == CONTESTANTS + too


def test_the_table_says_how_much_ours_is_of_the_best_other_and_how_rounds_differ(capsys) -> None:
    figures = {"saccade float32": (300.0, 240.0), "saccade int8": (90.0, 90.0), "CTranslate2 float32": (200.0, 190.0)}
    speeds = tuple(writing.Speed("tiny", 1, 4, name, *both, threads=2) for name, both in figures.items())
    Console(width=80).print(writing.to_table(writing.Race(speeds, {}, {})))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[-3:] == [
        ["x", "best", "float32", "1.50"],
        ["x", "best", "int8", "-"],
        ["median", "behind", "best", "20%"],
    ]


def test_a_vocabulary_made_of_nothing_has_as_many_pieces_as_asked() -> None:
    assert [peers.byte_pairs(size).get_vocab_size() for size in (256, 300, 10_000)] == [256, 300, 10_000]


def test_without_a_peer_there_is_nothing_to_compare_with() -> None:
    with pytest.raises(SaccadeError, match="nothing to compare with"):
        peers.installed({"CTranslate2": "no-such-package"})


def test_a_size_that_is_not_there_is_said() -> None:
    wrong = CliRunner().invoke(app, ["bench", "translate", "--size", "huge"])
    assert "there are tiny" in str(wrong.exception)
