"""Both captioners learn to describe generated pictures, and the one that attends looks at what it names.

With seeds 1 to 6 the recurrent one described 64 to 100% exactly and looked at what it names 62 to 92% of the time:
which of them it is hangs on rounding, so its bounds are below the lowest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade import api
from saccade.config import parse_recipe
from saccade.predictor import Predictor
from tests.scenes import FORMS, SIZE, Scene, scenes, write_scenes

VALID = scenes(100, seed=1)
IMAGE = "{kind: cnn, width: 16, stages: 2, dropout: 0.0}"
MODELS = {
    "show_attend_tell": f"{{kind: show_attend_tell, width: 32, hidden: 64, dropout: 0.0, image: {IMAGE}}}",
    "caption_transformer": (
        f"{{kind: caption_transformer, width: 32, hidden: 64, heads: 2, layers: 1, dropout: 0.0, image: {IMAGE}}}"
    ),
}
# a caption has nine words for thirty-six cells: that each be looked at once is not wanted here
RECIPE = """
task: {{kind: caption, data: {data}, size: 24, pieces: 300, valid_examples: 100, doubly_stochastic: 0}}
model: {model}
train:
  seed: {seed}
  steps: 600
  batch_tokens: 200
  optimizer: {{rate: 5e-3}}
  schedule: {{kind: cosine, warmup: 20}}
  evaluate_every: 10000
  save_every: 10000
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("scenes") / "data", {"train": scenes(1500), "valid": VALID})


@pytest.mark.parametrize(("name", "bound"), [("show_attend_tell", 0.6), ("caption_transformer", 0.9)])
@pytest.mark.parametrize("seed", [1])
def test_a_captioner_learns_to_describe_what_is_where(
    name: str, bound: float, seed: int, data: Path, tmp_path: Path
) -> None:
    """Colours and forms, on the right sides: a guess is right once in thirty-six."""
    recipe = parse_recipe(RECIPE.format(data=data, model=MODELS[name], seed=seed), "recipe")
    predictor = api.train(recipe, out=tmp_path / "run")
    samples = predictor.score().samples
    assert sum(answer == reference for _, answer, reference in samples) / len(samples) >= bound
    if name == "show_attend_tell":
        found = [hit for number, scene in enumerate(VALID[:40]) for hit in hits(predictor, f"valid{number}.png", scene)]
        assert sum(found) / len(found) > 0.5


def hits(predictor: Predictor, name: str, scene: Scene) -> list[bool]:
    """For each word that names a form, whether the cell that it looked at most lies on the shape that it names; a cell
    chosen blindly does so once in six."""
    looked = predictor.look(name, scene.caption)[0]
    rows = [row for row, label in enumerate(looked.rows.labels) if label in FORMS]
    cells = [int(looked.mean[row].argmax()) for row in rows]
    middles = [((cell // 6 + 0.5) * SIZE / 6, (cell % 6 + 0.5) * SIZE / 6) for cell in cells]
    return [shape.covers(*middle) for shape, middle in zip((scene.left, scene.right), middles, strict=True)]
