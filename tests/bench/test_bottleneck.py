"""The bottleneck of one vector: intervals, accuracy by length, table, plot and JSON, after a training of few steps."""

import json
from functools import partial

import pytest
from rich.console import Console
from typer.testing import CliRunner

from saccade.bench import bottleneck
from saccade.cli import app
from saccade.data.toy import sequences, symbol_names
from saccade.metrics import wilson_interval
from saccade.tasks.base import Answer, Prediction


class Stub:
    """Reverses what has fewer than five symbols, and drops the last symbol of anything else."""

    def predict(self, inputs):
        answers = [text.split()[::-1] if len(text.split()) < 5 else text.split()[:0:-1] for text in inputs]
        return [
            Prediction(text, (Answer(" ".join(answer), None),)) for text, answer in zip(inputs, answers, strict=True)
        ]


def test_accuracy_by_length():
    found = bottleneck.accuracy_by_length("without", Stub(), [2, 4, 5, 9], 20)
    assert [(each.length, each.right, each.share) for each in found] == [(2, 20, 1), (4, 20, 1), (5, 0, 0), (9, 0, 0)]
    assert [(each.low, each.high) for each in found] == [wilson_interval(each.right, 20) for each in found]


def test_sequences_are_new():
    shortest, longest = 10, bottleneck.LONGEST
    taught = sequences(
        2000, symbols=bottleneck.SYMBOLS, shortest=shortest, longest=longest, seed=bottleneck.SEED, split="train"
    )
    asked = []
    stub = Stub()
    stub.predict = lambda inputs: asked.extend(inputs) or Stub.predict(stub, inputs)
    bottleneck.accuracy_by_length("with", stub, range(shortest, longest + 1), 50)
    names = symbol_names(bottleneck.SYMBOLS)
    assert len(set(asked)) == 50 * (longest - shortest + 1)
    assert not set(asked) & {" ".join(names[each] for each in sequence) for sequence in taught}


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(bottleneck, "measure", partial(bottleneck.measure, lengths=(2, 30, 32), count=3))
    settings = bottleneck.common_settings
    quick = {
        "task.train_examples=100000": "task.train_examples=300",
        "task.valid_examples=200": "task.valid_examples=4",
    }
    monkeypatch.setattr(bottleneck, "common_settings", lambda minutes: [quick.get(s, s) for s in settings(minutes)])


def test_command(tmp_path, small):
    plot, figures, keep = tmp_path / "plot.png", tmp_path / "figures.json", tmp_path / "runs"
    arguments = ["bench", "bottleneck", "--minutes", "0.01", "--out", str(plot), "--json", str(figures)]
    result = CliRunner().invoke(app, [*arguments, "--keep", str(keep)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "train.steps=6" in result.output and "118,280 parameters" in result.output
    assert {each.name for each in keep.iterdir()} == {"reverse-rnn", "reverse-attention"}
    content = json.loads(figures.read_text())
    assert content.keys() == {"accuracies", "parameters", "seconds", "settings", "circumstances"}
    assert len(content["accuracies"]) == 2 * 3
    for each in content["accuracies"]:
        assert each.keys() == {"model", "length", "right", "sequences", "share", "low", "high"}
    # as many parameters, to a tenth, and no fewer where the source must fit into one vector
    assert content["parameters"]["with"] <= content["parameters"]["without"] <= 1.1 * content["parameters"]["with"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_table_fits_a_terminal():
    full = [
        bottleneck.Accuracy(model, length, 200, 200, 1.0, *wilson_interval(200, 200))
        for model in bottleneck.CONTESTANTS
        for length in (2, 40)
    ]
    result = bottleneck.Bottleneck(tuple(full), {"with": 1_111_168, "without": 1_118_280}, {}, {"lengths": [2, 40]}, {})
    assert Console(width=200).measure(bottleneck.to_table(result)).maximum <= 80
