"""Training side by side: the same model and the same work for everybody, and nobody missing in silence. Nothing here is
timed."""

import importlib.util
import io
import json

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from saccade.bench import measure, trainers, training
from saccade.cli import app
from saccade.errors import SaccadeError
from saccade.models.shapes import parameter_count
from saccade.train.progress import Update

SMALL = trainers.Size(1, 16, 32, 2, 31, rows=3, positions=5, goal=1.5)
THERE = [name for name, each in trainers.CONTESTANTS.items() if trainers.absence(each) is None]
# what x-transformers does when it is imported
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def repeatable(monkeypatch):
    torch.manual_seed(3)
    monkeypatch.setattr(measure, "SHORTEST", 0.0)


def without(monkeypatch, *libraries):
    found = importlib.util.find_spec
    monkeypatch.setattr(trainers, "find_spec", lambda name: None if name in libraries else found(name))


def printed(result):
    console = Console(width=200, file=io.StringIO())
    console.print(training.to_table(result))
    return console.file.getvalue()


def loss_of(made):
    return made.means["loss"] if isinstance(made, Update) else float(made)


@pytest.mark.parametrize("name", THERE)
def test_everybody_trains_a_model_of_the_same_size(name):
    size = training.SIZES["tiny"]
    ours, _ = trainers.saccade_update(size, "float32")
    model, _ = trainers.CONTESTANTS[name].prepare(size)
    assert parameter_count(model, trained_only=True) == pytest.approx(
        parameter_count(ours, trained_only=True), rel=0.01
    )


@pytest.mark.parametrize("name", THERE)
def test_everybody_learns_the_batch(name, monkeypatch):
    monkeypatch.setattr(trainers, "RATE", 1e-2)
    model, update = trainers.CONTESTANTS[name].prepare(SMALL)
    assert model.training
    losses = [loss_of(update()) for _ in range(60)]
    assert losses[-1] < 0.7 * losses[0]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_no_token_is_padding_and_the_counted_tokens_are_those_predicted():
    _, update = trainers.saccade_update(SMALL, "float32")
    assert update().tokens == SMALL.tokens
    pairs = trainers.pairs_of(SMALL)
    assert {len(source) for source, _ in pairs} == {SMALL.positions}
    assert {len(target) + 1 for _, target in pairs} == {SMALL.positions}  # and the end


def test_with_the_same_weights_the_stock_model_has_our_loss(monkeypatch):
    monkeypatch.setattr(trainers, "DROPOUT", 0.0)
    monkeypatch.setattr(trainers, "SMOOTHING", 0.0)
    theirs, stock_update = trainers.stock(SMALL)
    ours, our_update = trainers.saccade_update(SMALL, "float32")
    theirs.body.encoder.norm = theirs.body.decoder.norm = None  # the last norms, which the original does not have
    with torch.no_grad():
        theirs.table.weight.copy_(ours.output.weight)
        for side in ("encoder", "decoder"):
            for block, layer in zip(getattr(ours, side).stack.blocks, getattr(theirs.body, side).layers, strict=True):
                attentions = [(block.attention, layer.self_attn)]
                attentions += [(block.cross, layer.multihead_attn)] if side == "decoder" else []
                for mine, its in attentions:
                    its.in_proj_weight.copy_(torch.cat([mine.query.weight, mine.key.weight, mine.value.weight]))
                    its.in_proj_bias.zero_()
                    its.out_proj.weight.copy_(mine.output.weight)
                    its.out_proj.bias.zero_()
                for mine, its in (
                    (block.feed_forward.expand, layer.linear1),
                    (block.feed_forward.contract, layer.linear2),
                ):
                    its.weight.copy_(mine.weight)
                    its.bias.copy_(mine.bias)
    # twice: the second is after an update of the same gradients, up to the decay of weights
    assert float(stock_update()) == pytest.approx(loss_of(our_update()), rel=1e-5)
    assert float(stock_update()) == pytest.approx(loss_of(our_update()), rel=1e-3)


def test_multiples_are_of_the_best_peer():
    assert training.fastest_peer({"saccade": 9.0, "saccade bfloat16": 8.0, "torch": 3.0, "marian": 4.0}) == 4.0
    assert training.fastest_peer({"saccade": 9.0}) is None


def test_a_peer_that_is_not_installed_is_said_to_be(monkeypatch):
    without(monkeypatch, "transformers", "x_transformers")
    result = training.measure(SMALL, rounds=1)
    assert list(result.missing) == ["marian", "x-transformers"]
    assert [speed.contestant for speed in result.speeds] == ["saccade", "saccade bfloat16", "torch"]
    text = printed(result)
    assert text.count("not installed") == 4  # in the row, and how to get it
    text = " ".join(text.split())
    assert "pip install -e '.[huggingface]'" in text and "pip install -e '.[bench]'" in text
    assert "goal: saccade at least 1.5 x the best peer" in text


def test_threads_are_as_they_were(monkeypatch):
    without(monkeypatch, "transformers", "x_transformers")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        result = training.measure(SMALL, rounds=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert {speed.threads for speed in result.speeds} <= {1, 2}


def test_table_fits_a_terminal():
    speeds = [training.Speed(name, 63_082_496, 12345.6, 12345.6, 128, 1.234) for name in trainers.CONTESTANTS]
    result = training.Training(tuple(speeds), {}, {"goal": 1.2}, {})
    assert Console(width=200).measure(training.to_table(result)).maximum <= 80


def test_command(tmp_path, monkeypatch):
    monkeypatch.setitem(training.SIZES, "tiny", SMALL)
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "0")
    figures = tmp_path / "training.json"
    arguments = ["bench", "train", "--rounds", "2", "--json", str(figures)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "round 2 of 2" in result.output and "torch.nn.Transformer" in result.output
    content = json.loads(figures.read_text())
    assert content.keys() == {"speeds", "missing", "settings", "circumstances"}
    assert [speed["contestant"] for speed in content["speeds"]] == THERE
    assert content["settings"]["rounds"] == 2 and "torch" in content["settings"]["versions"]
    assert content["settings"]["allocator"]["MALLOC_MMAP_MAX_"] == "0"
    for speed in content["speeds"]:
        assert 0 < speed["median"] <= speed["tokens"] and speed["multiple"] > 0
    peers = [speed["multiple"] for speed in content["speeds"] if not trainers.CONTESTANTS[speed["contestant"]].ours]
    assert max(peers) == 1


def test_a_size_that_is_none_is_refused():
    with pytest.raises(SaccadeError, match="--size huge: there are tiny and base"):
        training.named_size("huge")
