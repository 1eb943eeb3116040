"""How the recipe that a run would go on with differs from the one it was trained with."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.config import Recipe, parse_recipe
from saccade.errors import SaccadeError
from saccade.train.checkpoint import Checkpoint
from saccade.train.run import Run

# keys of a task that name its data
FILES = (
    *("source", "target", "valid_source", "valid_target", "alignments"),
    *("data", "valid", "test", "images", "zero_shot", "words", "fonts", "vocabulary"),
)


def digests(recipe: Recipe) -> dict[str, str]:
    """For each key that names data to train or validate on, what tells its content from any other."""
    found = {}
    for key in (key for key in FILES if key not in ("test", "zero_shot")):
        named = getattr(recipe.task, key, None)
        paths = [Path(each) for each in (named if isinstance(named, tuple) else (named,)) if isinstance(each, str)]
        if paths and all(path.exists() for path in paths):
            found[key] = hashlib.blake2b(b"".join(map(_digest, paths)), digest_size=8).hexdigest()
    return found


def _digest(path: Path) -> bytes:
    """Of a file's content; of a folder the names and sizes of all files in it, which takes no reading."""
    if path.is_dir():
        inside = []
        for folder, folders, files in os.walk(path):
            folders[:] = [each for each in folders if not Path(folder, each, "recipe.yaml").exists()]  # runs grow
            inside += [(Path(folder, each).relative_to(path).as_posix(), _size(Path(folder, each))) for each in files]
        return hashlib.blake2b(repr(sorted(inside)).encode()).digest()
    if not path.is_file():  # a pipe can be read once only
        return b""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else -1  # a link that leads nowhere


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
        # JSON is YAML as well, but for what it writes as two halves of a character
        before = parse_recipe(json.dumps(trained, ensure_ascii=False), f"step {checkpoint.step} of {run.path}")
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
