"""`train.precision=auto`: the faster precision of the processor, settled when a run begins and kept with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from saccade import api
from saccade.config import load_recipe, parse_recipe
from saccade.plan import plan
from saccade.train.precision import chosen, multiplying
from saccade.train.run import Run

SMALL = ["train.steps=3", "train.save_every=3", "train.evaluate_every=3", "train.threads=1", "model.width=16"]


def on(monkeypatch: pytest.MonkeyPatch, **capabilities: bool) -> None:
    """As if the processor had just these abilities."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


def begun(out: Path, precision: str) -> api.Training:
    return api.begin("reverse", out=out, settings=[*SMALL, f"train.precision={precision}"])


def weights(out: Path) -> dict[str, Any]:
    return api.load(out).model.state_dict()


def test_bfloat16_is_chosen_where_the_processor_has_instructions_for_it() -> None:
    assert chosen({"avx512_bf16": True})[0] == "bfloat16"
    assert chosen({"avx512_bf16": False, "amx_bf16": True})[0] == "bfloat16"
    assert chosen({"avx512_bf16": False, "avx512_f": True})[0] == "float32"
    assert chosen({})[0] == "float32"


@pytest.mark.parametrize(("has", "precision"), [(True, "bfloat16"), (False, "float32")])
def test_a_run_keeps_what_was_chosen_and_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: bool, precision: str
) -> None:
    on(monkeypatch, avx512_bf16=has)
    training = begun(tmp_path / "run", "auto")
    assert any(reason.startswith(f"products in {precision}") for reason in training.reasons)
    kept = parse_recipe(Run.open(tmp_path / "run").recipe_text, "recipe")
    assert kept.train.precision == training.recipe.train.precision == precision


def test_a_chosen_precision_is_the_same_training_as_a_named_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(monkeypatch, avx512_bf16=True)
    for name, precision in (("chosen", "auto"), ("named", "bfloat16"), ("other", "float32")):
        list(begun(tmp_path / name, precision).events())
    one, same, other = (weights(tmp_path / name) for name in ("chosen", "named", "other"))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert any(not torch.equal(one[key], other[key]) for key in one)


def test_a_run_that_goes_on_elsewhere_keeps_its_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, avx512_bf16=True)
    list(begun(tmp_path / "run", "auto").events())
    on(monkeypatch, avx512_bf16=False)
    more = ["train.steps=4"]
    assert api.resumed(tmp_path / "run", settings=more, override=True).recipe.train.precision == "bfloat16"
    more.append("train.precision=auto")
    assert api.resumed(tmp_path / "run", settings=more, override=True).recipe.train.precision == "float32"


def test_a_plan_counts_with_the_precision_that_training_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    monkeypatch.setattr("saccade.plan.multiplying", lambda precision: used.append(precision) or multiplying(precision))
    on(monkeypatch, avx512_bf16=True)
    plan(load_recipe("reverse", [*SMALL, "train.precision=auto"]))
    assert set(used) == {"bfloat16"}
