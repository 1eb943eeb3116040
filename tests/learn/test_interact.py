"""An actor learns to fetch what the lamp says, in worlds that it has never seen.

The bounds were checked with seeds 1, 2 and 3 and hold for each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade import api
from saccade.config import parse_recipe

RECIPE = """
task:
  {{kind: interact, side: 6, things: 2, locked: 0, limit: 15, train_worlds: 1500, valid_worlds: 9, test_worlds: 100}}
model:
  {{kind: show_attend_interact, width: 64, heads: 8, image: {{kind: cnn, width: 8, dropout: 0.0}}}}
train:
  seed: {seed}
  steps: 320
  batch_tokens: 48
  optimizer: {{rate: 4e-3}}
  schedule: {{kind: cosine, warmup: 30}}
  evaluate_every: 10000
  save_every: 10000
"""


@pytest.mark.parametrize("seed", [3])
def test_an_actor_fetches_what_the_lamp_says_in_new_worlds(seed: int, tmp_path: Path) -> None:
    predictor = api.train(parse_recipe(RECIPE.format(seed=seed), "recipe"), out=tmp_path / "run")
    scores = {score.name: score.value for score in predictor.evaluate("test")}
    assert scores["success"] > 65
    assert scores["success when the lamp has another colour (control)"] < scores["success"] / 2
    assert max(value for name, value in scores.items() if "(baseline)" in name) < 40
