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


def _transcribe(recipe: Recipe) -> Task:
    from saccade.tasks.transcribe import Transcribe

    return Transcribe(recipe)


def _regress(recipe: Recipe) -> Task:
    from saccade.tasks.regress import Regress

    return Regress(recipe)


def _follow(recipe: Recipe) -> Task:
    from saccade.tasks.follow import Follow

    return Follow(recipe)


def _classify_images(recipe: Recipe) -> Task:
    from saccade.tasks.classify_images import ClassifyImages

    return ClassifyImages(recipe)


def _contrast(recipe: Recipe) -> Task:
    from saccade.tasks.contrast import Contrast

    return Contrast(recipe)


def _caption(recipe: Recipe) -> Task:
    from saccade.tasks.caption import CaptionImages

    return CaptionImages(recipe)


def _answer(recipe: Recipe) -> Task:
    from saccade.tasks.answer import AnswerQuestions

    return AnswerQuestions(recipe)


def _walk(recipe: Recipe) -> Task:
    from saccade.tasks.walk import FollowRoutes

    return FollowRoutes(recipe)


def _interact(recipe: Recipe) -> Task:
    from saccade.tasks.interact import Interact

    return Interact(recipe)


def _classify(recipe: Recipe) -> Task:
    from saccade.tasks.classify import Classify

    return Classify(recipe)


def _language(recipe: Recipe) -> Task:
    from saccade.tasks.language import Language

    return Language(recipe)


def _masked(recipe: Recipe) -> Task:
    from saccade.tasks.masked import Masked

    return Masked(recipe)


def _permuted(recipe: Recipe) -> Task:
    from saccade.tasks.permuted import Permuted

    return Permuted(recipe)


def _read(recipe: Recipe) -> Task:
    from saccade.tasks.read import ReadWords

    return ReadWords(recipe)


# kind in a recipe -> function that makes the task
TASKS: dict[str, Callable[[Recipe], Task]] = {
    "copy": _rearrange,
    "reverse": _rearrange,
    "sort": _rearrange,
    "translate": _translate,
    "regress": _regress,
    "follow": _follow,
    "transcribe": _transcribe,
    "classify_images": _classify_images,
    "contrast": _contrast,
    "caption": _caption,
    "read": _read,
    "language": _language,
    "classify": _classify,
    "masked": _masked,
    "permuted": _permuted,
    "walk": _walk,
    "interact": _interact,
    "answer": _answer,
}
