"""How the recipe that a run would go on with differs from the one it was trained with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from saccade.config import Recipe, parse_recipe
from saccade.errors import SaccadeError
from saccade.train.checkpoint import Checkpoint
from saccade.train.run import Run

# keys of a task that name its data
FILES = (
    *("source", "target", "valid_source", "valid_target", "alignments"),
    *("data", "valid", "test", "images", "zero_shot", "words", "fonts"),
)


def changed_recipe(run: Run, checkpoint: Checkpoint | None, settings: Sequence[str]) -> tuple[Recipe, list[str]]:
    """The recipe that a run would go on with, and in words how it differs from the one it was trained with.

    Model and task must stay as they are, but files may have moved: whether they are the same is seen when they are
    read.
    """
    where = f"{run.path}/recipe.yaml"
    after = parse_recipe(run.recipe_text, where, settings)
    trained = None if checkpoint is None else checkpoint.state.get("recipe")  # older checkpoints do not say
    before = parse_recipe(run.recipe_text, where)
    if checkpoint is not None and trained is not None:
        before = parse_recipe(json.dumps(trained), f"step {checkpoint.step} of {run.path}")  # JSON is YAML as well
    old, new = (_flat(recipe.model_dump(mode="json")) for recipe in (before, after))
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    changes = {key: f"{key}: {old.get(key)} -> {new.get(key)}" for key in keys}
    moved = {f"task.{name}" for name in FILES}
    fixed = [change for key, change in changes.items() if key.split(".")[0] in ("task", "model") and key not in moved]
    if fixed:
        raise SaccadeError(listed("a run goes on with its own task and model; for others start a new run:", fixed))
    return after, list(changes.values())


def listed(title: str, items: Sequence[str]) -> str:
    return "\n  ".join([title, *items])


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train": {"steps": 5}} -> {"train.steps": 5}"""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat
