"""Fused and explicit attention over length, and the tap when it is off. Nothing here is timed."""

import io
import json

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from saccade.bench import attention, measure
from saccade.cli import app
from saccade.errors import SaccadeError
from saccade.nn.attention import Attention


@pytest.fixture(autouse=True)
def repeatable(monkeypatch):
    torch.manual_seed(3)
    monkeypatch.setattr(measure, "SHORTEST", 0.0)


def test_both_paths_give_the_same():
    torch.testing.assert_close(attention.forward("fused", 9)(), attention.forward("explicit", 9)())


def test_nothing_is_kept_for_a_backward():
    assert not attention.forward("fused", 9)().requires_grad


def test_explicit_attention_holds_as_much_as_is_reckoned_with():
    peak = measure.peak_bytes(attention.forward("explicit", 1024))
    assert peak == pytest.approx(attention.explicit_bytes(1024), rel=0.15)


def test_fused_memory_grows_with_the_length_and_explicit_memory_with_its_square():
    # a constant block of the fused kernel counts for less the longer a sequence is
    lengths = {"fused": (4096, 8192), "explicit": (1024, 2048)}
    points = [
        attention.Point(way, length, 1.0, 1.0, measure.peak_bytes(attention.forward(way, length)))
        for way, both in lengths.items()
        for length in both
    ]
    ratio = attention.Ratio(1.0, 1.0, 0.9, 1.1)
    costs = attention.AttentionCosts(tuple(points), (), ratio, ratio, {}, {})
    assert costs.growth("fused") == pytest.approx(1, abs=0.05)
    assert costs.growth("explicit") == pytest.approx(2, abs=0.1)


def test_what_does_not_fit_is_left_out_and_said(monkeypatch):
    monkeypatch.setattr(attention, "MOST_BYTES", attention.explicit_bytes(16))
    costs = attention.measure([16, 17], rounds=1, tap_rounds=2)
    assert [(point.way, point.length) for point in costs.points] == [("fused", 16), ("explicit", 16), ("fused", 17)]
    assert costs.left_out == (17,)
    console = Console(width=200, file=io.StringIO())
    console.print(attention.to_table(costs))
    assert console.file.getvalue().count("left out") == 1
    attention.to_figure(costs)


def test_without_one_explicit_point_there_is_still_a_plot(monkeypatch):
    monkeypatch.setattr(attention, "MOST_BYTES", 0)
    costs = attention.measure([16], rounds=1, tap_rounds=2)
    assert costs.growth("explicit") is None
    attention.to_figure(costs)


def test_the_forward_without_the_question_is_the_same_but_for_taps():
    module, never = Attention(8, heads=2).eval(), attention.forward_without_question()
    x = torch.randn(2, 5, 8)
    kv = module.remember(x)
    assert torch.equal(never(module, x, kv), module(x, kv))
    seen = []
    module.tap = seen.append
    module(x, kv)
    assert len(seen) == 1
    never(module, x, kv)
    assert len(seen) == 1  # it never looked whether somebody looks


def test_a_forward_that_asks_otherwise_is_not_measured_as_if_it_did(monkeypatch):
    monkeypatch.setattr(attention, "QUESTION", "self.is_tapped() or ")
    with pytest.raises(SaccadeError, match="its tap cannot be measured"):
        attention.forward_without_question()


def test_a_ratio_is_taken_of_the_best_and_round_by_round():
    ratio = attention.Ratio.of([number / 50 for number in range(1, 200)], [2.0] * 198 + [0.04])
    assert ratio.best == pytest.approx(0.5)
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((1.0, 0.1, 1.9))


def test_table_fits_a_terminal():
    points = [attention.Point(way, 32768, 123.4, 130.0, 9_876_500_000) for way in ("fused", "explicit")]
    ratio = attention.Ratio(1.0, 1.0, 0.9, 1.1)
    costs = attention.AttentionCosts(tuple(points), (), ratio, ratio, {}, {})
    for table in (attention.to_table(costs), attention.tap_table(costs)):
        assert Console(width=200).measure(table).maximum <= 80


def test_command(tmp_path, monkeypatch):
    monkeypatch.setattr(attention.measure, "__kwdefaults__", attention.measure.__kwdefaults__ | {"tap_rounds": 3})
    plot, figures = tmp_path / "attention.svg", tmp_path / "attention.json"
    arguments = ["bench", "attention", "--lengths", "8,16", "--out", str(plot), "--json", str(figures)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    assert "round 5 of 5" in result.output and "asks, and there is none" in result.output and "noise" in result.output
    content = json.loads(figures.read_text())
    assert content.keys() == {"points", "left_out", "tap", "noise", "settings", "circumstances"}
    assert [(point["way"], point["length"]) for point in content["points"]] == [
        (way, length) for length in (8, 16) for way in ("fused", "explicit")
    ]
    for point in content["points"]:
        assert 0 < point["seconds"] <= point["median"] and point["bytes"] > 0
    assert all(0 < content[name]["low"] <= content[name]["median"] for name in ("tap", "noise"))
    assert plot.read_text().startswith("<?xml")
