"""Examples for models that came without data, or whose data is gone: random, of the right kind.

What is counted on them or compared with itself is right; what is scored on them means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.errors import SaccadeError
from saccade.tasks import classify_images, contrast, translate

EXAMPLES = 8
RANDOM_TOKENS = 32  # of a text at most
SEED = 12345


def some_examples(task: Any, split: str) -> list[Any]:
    """The first examples of a part of the task's data, or made-up ones where there is none to be read."""
    try:
        examples = task.examples(split)
        return [examples[number] for number in range(min(EXAMPLES, len(examples)))]
    except SaccadeError:
        if (make := MADE_UP.get(task.recipe.task.kind)) is None:
            raise
        return make(task, np.random.default_rng(SEED))


def _ids(size: int, longest: int, draw: np.random.Generator) -> list[int]:
    """Of a made-up text; not the first few, which may be marks."""
    return draw.integers(min(8, size - 1), size, int(draw.integers(1, longest + 1))).tolist()


def _pixels(size: int, draw: np.random.Generator) -> NDArray[np.uint8]:
    return draw.integers(0, 256, (size, size, 3), dtype=np.uint8)


def _pairs(task: Any, draw: np.random.Generator) -> list[Any]:
    size, longest = len(task.pieces), min(task.settings.longest, RANDOM_TOKENS)
    return [translate.Example(_ids(size, longest, draw), _ids(size, longest, draw)) for _ in range(EXAMPLES)]


def _texts(task: Any, draw: np.random.Generator) -> list[Any]:
    """Windows of running text, all of one length; marks have room beside them."""
    length = max(2, min(task.settings.window, RANDOM_TOKENS) // 2)
    return [draw.integers(min(8, len(task.lexicon) - 1), len(task.lexicon), length) for _ in range(EXAMPLES)]


def _labelled_texts(task: Any, draw: np.random.Generator) -> list[Any]:
    size, longest = len(task.lexicon), min(task.settings.longest, RANDOM_TOKENS)
    return [(_ids(size, longest, draw), int(draw.integers(len(task.labels)))) for _ in range(EXAMPLES)]


def _labelled_images(task: Any, draw: np.random.Generator) -> list[Any]:
    return [
        classify_images.Picture(_pixels(task.settings.size, draw), int(draw.integers(len(task.labels))), "made up")
        for _ in range(EXAMPLES)
    ]


def _captioned(task: Any, draw: np.random.Generator) -> list[Any]:
    size, longest = len(task.pieces), min(task.settings.longest, RANDOM_TOKENS)
    return [
        contrast.Captioned("made up", _pixels(task.settings.size, draw), ("",), (_ids(size, longest, draw),))
        for _ in range(EXAMPLES)
    ]


# Of tasks whose models can come from elsewhere, without data.
MADE_UP: dict[str, Callable[[Any, np.random.Generator], list[Any]]] = {
    "translate": _pairs,
    "language": _texts,
    "masked": _texts,
    "permuted": _texts,
    "classify": _labelled_texts,
    "classify_images": _labelled_images,
    "contrast": _captioned,
}
