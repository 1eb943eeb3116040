"""Tasks: one file each, and this table of contents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.config import Recipe
    from saccade.tasks.base import Task


def _rearrange(recipe: Recipe) -> Task:
    from saccade.tasks.rearrange import Rearrange

    return Rearrange(recipe)


def _translate(recipe: Recipe) -> Task:
    from saccade.tasks.translate import Translate

    return Translate(recipe)


# kind in a recipe -> function that makes the task
TASKS: dict[str, Callable[[Recipe], Task]] = {
    "copy": _rearrange,
    "reverse": _rearrange,
    "sort": _rearrange,
    "translate": _translate,
}
