"""The comparison of layers: paths found by gradients, memory counted, table, plot and JSON. Nothing here is timed."""

import io
import json

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from saccade.bench import layers, measure
from saccade.cli import app
from saccade.errors import SaccadeError
from saccade.nn.convolution import ConvolutionEncoder

WIDTH = 4


@pytest.fixture(autouse=True)
def repeatable(monkeypatch):
    torch.manual_seed(3)
    monkeypatch.setattr(measure, "SHORTEST", 0.0)


def depends(output, x, position):
    """Whether a vector depends on one position of x, by its gradient."""
    (gradient,) = torch.autograd.grad(output.sum(), x, retain_graph=True, allow_unused=True)
    return gradient is not None and bool(gradient[0, position].any())


def measured_path(way, length):
    """After how many cells or layers, one after the other, one vector first knows both ends of the sequence."""
    x = torch.randn(1, length, WIDTH, dtype=torch.float64, requires_grad=True)
    for applied in range(1, 2 * length):
        if way == "recurrent":
            layer = layers.Recurrent(WIDTH).double()
            states = layer(x[:, :applied])  # a cell more is a position more
        elif way == "convolution":
            states = ConvolutionEncoder(WIDTH, layers=applied, kernel=layers.KERNEL).double()(x)
        else:
            states = x
            for _ in range(applied):
                states = layers.WAYS[way].layer(WIDTH, 2).double()(states)
        if depends(states[0, -1], x, 0) and depends(states[0, -1], x, length - 1):
            return applied
    raise AssertionError("the ends never met")


@pytest.mark.parametrize("length", [2, 3, 6, 11])
@pytest.mark.parametrize("way", layers.WAYS)
def test_paths_are_as_gradients_say(way, length):
    assert measured_path(way, length) == layers.WAYS[way].path(length)


@pytest.mark.parametrize("way", layers.WAYS)
def test_steps_that_wait(way):
    # a cell that waits for the one before knows what is before it, and nothing of what comes
    length = 6
    x = torch.randn(1, length, WIDTH, dtype=torch.float64, requires_grad=True)
    states = layers.WAYS[way].layer(WIDTH, 2).double()(x)
    assert states.shape == x.shape
    assert depends(states[0, 0], x, 1) == (way != "recurrent")
    assert layers.WAYS[way].steps(length) == (length if way == "recurrent" else 1)


def growth(way, lengths):
    """How many times more memory the second doubling of the length takes than the first."""
    peaks = [
        measure.peak_bytes(layers.forward_and_backward(layers.WAYS[way].layer(8, 2), length, 8)) for length in lengths
    ]
    return (peaks[2] - peaks[1]) / (peaks[1] - peaks[0])


# above 768 positions the blocks of the fused kernel, which add a constant, grow no more
@pytest.mark.parametrize("way", ["recurrent", "convolution", "fused"])
def test_memory_grows_linearly(way):
    lengths = (1024, 2048, 4096) if way == "fused" else (256, 512, 1024)
    assert growth(way, lengths) == pytest.approx(2, rel=0.02)


def test_memory_of_explicit_attention_grows_quadratically():
    assert growth("explicit", (256, 512, 1024)) == pytest.approx(4, rel=0.05)


def test_explicit_attention_holds_as_many_copies_as_is_reckoned_with():
    peak = measure.peak_bytes(layers.forward_and_backward(layers.WAYS["explicit"].layer(8, 2), 1024, 8))
    assert peak == pytest.approx(layers.EXPLICIT_COPIES * 4 * 2 * 1024**2, rel=0.05)


def test_explicit_attention_is_left_out_where_it_would_not_fit(monkeypatch):
    monkeypatch.setattr(layers, "MOST_BYTES", layers.EXPLICIT_COPIES * 4 * 2 * 16**2)
    comparison = layers.compare([16, 17], width=8, heads=2, rounds=1)
    assert [point.way for point in comparison.points if point.length == 16] == list(layers.WAYS)
    assert [point.way for point in comparison.points if point.length == 17] == ["recurrent", "convolution", "fused"]
    layers.to_figure(comparison)


def test_both_self_attentions_agree():
    torch.manual_seed(3)
    fused = layers.SelfAttention(8, heads=2, explicit=False)
    explicit = layers.SelfAttention(8, heads=2, explicit=True)
    explicit.load_state_dict(fused.state_dict())
    x = torch.randn(1, 5, 8)
    torch.testing.assert_close(fused(x), explicit(x))


def test_table_fits_a_terminal():
    points = [layers.Point(way, 32768, 123.4, 130.0, 9_876_500_000, 32768, 32768) for way in layers.WAYS]
    console = Console(width=200, file=io.StringIO())
    table = layers.to_table(layers.Comparison(tuple(points), {}, {}))
    assert console.measure(table).maximum <= 80
    console.print(table)
    assert "123,400" in console.file.getvalue() and "9,876.5" in console.file.getvalue()


def test_lengths_as_people_write_them():
    assert layers.read_lengths("128, 64,64") == [64, 128]
    for wrong in ("64;128", "", "1,64", "-5"):
        with pytest.raises(SaccadeError, match="--lengths"):
            layers.read_lengths(wrong)


def test_command(tmp_path):
    plot, figures = tmp_path / "layers.svg", tmp_path / "deep" / "layers.json"
    arguments = ["bench", "layers", "--lengths", "8,16", "--out", str(plot), "--json", str(figures)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "round 7 of 7" in result.output and "self-attention, explicit" in result.output
    content = json.loads(figures.read_text())
    assert content["settings"]["lengths"] == [8, 16] and content["settings"]["width"] == 128
    assert {"saccade", "torch", "python", "processors", "threads", "load_before"} <= content["circumstances"].keys()
    assert len(content["points"]) == 2 * len(layers.WAYS)
    for point in content["points"]:
        assert point.keys() == {"way", "length", "seconds", "median", "bytes", "steps", "path"}
        assert 0 < point["seconds"] <= point["median"] and point["bytes"] > 0
    drawn = plot.read_text()
    assert drawn.startswith("<?xml") and len(drawn) > 10_000
