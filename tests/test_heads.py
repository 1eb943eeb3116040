"""Heads are removed from outside, one at a time, and put back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from saccade import api
from saccade.cli import app
from saccade.errors import SaccadeError
from saccade.heads import remove_each, without_head
from saccade.nn.attention import Attention


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    settings = ["train.steps=30", "train.evaluate_every=30", "task.train_examples=500", "task.valid_examples=40"]
    small = ["model.encoder_layers=1", "model.decoder_layers=1", "model.width=16", "model.heads=2"]
    api.train("reverse", out=out, settings=[*settings, *small])
    return out


def test_a_removed_head_is_as_if_it_had_read_nothing() -> None:
    attention = Attention(8, heads=2)
    x = torch.randn(1, 5, 8)
    kv = attention.remember(x)
    weights = attention.weigh(x, kv)
    with without_head(attention, 1):
        apart = attention(x, kv)
    weights[:, 1] = 0
    torch.testing.assert_close(apart, attention.read(weights, kv))
    assert not torch.allclose(apart, attention(x, kv))


def test_a_head_is_put_back_after_an_error() -> None:
    attention = Attention(8, heads=2)
    before = attention.output.weight.clone()
    with pytest.raises(ZeroDivisionError), without_head(attention, 0):
        raise ZeroDivisionError
    assert torch.equal(attention.output.weight, before)


def test_every_head_of_every_attention_is_measured_and_the_model_stays(run: Path) -> None:
    predictor = api.load(run)
    before = {name: tensor.clone() for name, tensor in predictor.model.state_dict().items()}
    *_, found = remove_each(predictor, examples=20)
    assert [(each.name, each.head) for each in found.removals] == [
        (name, head)
        for name in (
            "encoder block 1, self-attention",
            "decoder block 1, self-attention",
            "decoder block 1, cross-attention",
        )
        for head in (0, 1)
    ]
    for each in found.removals:
        assert each.interval[0] <= each.change <= each.interval[1]
    for name, tensor in predictor.model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_the_loss_without_a_head_is_what_the_model_then_has(run: Path) -> None:
    predictor = api.load(run)
    first = next(remove_each(predictor, examples=40))
    block = predictor.model.encoder.stack.blocks[0].attention
    with torch.no_grad():
        block.output.weight[:, :8] = 0
    after = next(remove_each(predictor, examples=40))
    assert after.loss == pytest.approx(first.loss + first.removals[0].change, abs=1e-6)
    assert after.removals[0].change == pytest.approx(0, abs=1e-6)


def test_heads_are_told_and_drawn(run: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["heads", str(run), "--examples", "20", "--out", str(tmp_path / "heads.png")])
    assert result.exit_code == 0
    assert "of 6 heads are missed" in result.stdout
    assert (tmp_path / "heads.png").stat().st_size > 5000


def test_a_few_examples_do_not_tell_what_is_missed_from_chance(run: Path) -> None:
    with pytest.raises(SaccadeError, match=r"10 validation examples are too few .* 16 will do"):
        next(remove_each(api.load(run), examples=10))


def test_few_examples_are_resampled_in_small_batches(run: Path) -> None:
    *_, found = remove_each(api.load(run), examples=16)
    assert all(each.interval[1] - each.interval[0] > 1e-4 for each in found.removals)
