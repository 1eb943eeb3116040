"""Pre-norm against post-norm: what is equal, the halving, table, plot and JSON, after a training of few steps."""

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from saccade.bench import norms
from saccade.cli import app


def test_the_four_differ_in_nothing_but_order_and_warmup():
    pairs = {(each.order, each.warmup > 0) for each in norms.CONTESTANTS.values()}
    assert pairs == {("pre", False), ("pre", True), ("post", False), ("post", True)}
    for each in norms.CONTESTANTS.values():
        assert [setting.split("=")[0] for setting in each.settings] == ["model.order", "train.schedule.warmup"]
    assert not any(s.startswith(("model.order", "train.schedule.warmup")) for s in norms.common_settings(1.0))


def test_the_smooth_loss_is_the_mean_of_the_latest_updates():
    assert norms.smooth([4.0, 2.0]) == [4.0, 3.0]
    assert norms.smooth([100.0, *[1.0] * norms.WINDOW])[-1] == 1.0


def test_the_halving_is_counted_from_one_and_may_never_come():
    flat = [3.0] * norms.WINDOW
    assert norms.half_at([*flat, *[0.0] * norms.WINDOW]) == norms.WINDOW + norms.WINDOW // 2 + 1
    assert norms.half_at([2.0, 0.0]) is None  # the mean is half, not below it
    assert norms.half_at(flat) is None


def test_one_lucky_batch_is_no_halving():
    losses = [3.0] * norms.WINDOW + [0.1] + [3.0] * norms.WINDOW
    assert norms.half_at(losses) is None


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(norms, "LAYERS", 1)
    settings = norms.common_settings
    quick = {f"task.valid_examples={norms.SEQUENCES}": "task.valid_examples=4"}
    monkeypatch.setattr(
        norms,
        "common_settings",
        lambda minutes: [*(quick.get(s, s) for s in settings(minutes)), "task.train_examples=200"],
    )


def test_command(tmp_path, small):
    plot, figures, keep = tmp_path / "plot.png", tmp_path / "figures.json", tmp_path / "runs"
    arguments = ["bench", "norms", "--minutes", "0.014", "--out", str(plot), "--json", str(figures)]
    result = CliRunner().invoke(app, [*arguments, "--keep", str(keep)], catch_exceptions=False)
    assert result.exit_code == 0
    assert "train.steps=3" in result.output and "never" in result.output
    assert {each.name for each in keep.iterdir()} == set(norms.CONTESTANTS)
    content = json.loads(figures.read_text())
    assert content.keys() == {"curves", "settings", "circumstances"}
    assert [each["model"] for each in content["curves"]] == list(norms.CONTESTANTS)
    for each in content["curves"]:
        assert len(each["losses"]) == len(each["gradient_norms"]) == 3
        assert each["low"] <= each["exact"] <= each["high"]
        assert each["half_at"] is None
    # the same weights and the same first batch: the warm-up shows only from the second update on
    first = {each["model"]: each["losses"] for each in content["curves"]}
    for order in ("pre", "post"):
        assert first[order][0] == first[f"{order}-warm"][0]
        assert first[order][1:] != first[f"{order}-warm"][1:]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_table_fits_a_terminal():
    curves = [norms.Curve(name, (3.0,), (1.0,), 1.0, 0.99, 1.0, 10.0, 10_000, 1, 1.0) for name in norms.CONTESTANTS]
    result = norms.Norms(tuple(curves), {}, {})
    assert Console(width=200).measure(norms.to_table(result)).maximum <= 80
