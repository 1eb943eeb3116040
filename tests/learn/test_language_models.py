"""Every language model learns to repeat what it read: random letters can only be known by looking back."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from saccade import api
from saccade.config import load_recipe
from saccade.config.language import GPTSettings, RecurrentLanguageSettings

LETTERS, COPIED = 6, 4
FLOOR = COPIED * math.log(LETTERS) / (2 * COPIED + 2)  # nats per character of one who repeats without a mistake
IGNORANT = 2 * FLOOR  # of one who knows everything but the copy

MODELS = {
    "gpt": GPTSettings(width=64, heads=4, layers=2),
    "gpt modern": GPTSettings(
        width=64, heads=4, kv_heads=2, layers=2, positions="rotary", norm="rms", activation="swiglu"
    ),
    "lstm": RecurrentLanguageSettings(width=32, hidden=96, dropout=0.0),
    "lstm with attention": RecurrentLanguageSettings(width=32, hidden=64, attend=True, dropout=0.0),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_repeats_what_it_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)
    words = ["".join("abcdef"[n] for n in draw.integers(LETTERS, size=COPIED)) for _ in range(2500)]
    (tmp_path / "copies.txt").write_text("".join(f"{word}|{word}\n" for word in words))
    settings = [
        f"task.data={tmp_path / 'copies.txt'}",
        "task.window=30",
        "train.steps=250",
        "train.batch_tokens=960",
        "train.evaluate_every=250",
        "train.optimizer.rate=3e-3",
        "train.schedule.warmup=30",
        "train.threads=1",
    ]
    recipe = load_recipe("language-quick", settings).model_copy(update={"model": MODELS[name]})
    scores = {score.name: score.value for score in api.train(recipe, out=tmp_path / "run").evaluate()}
    assert scores["loss per token"] < (FLOOR + IGNORANT) / 2 < scores["loss per token of single frequencies (baseline)"]
