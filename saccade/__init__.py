"""saccade: train, run and look inside attention models on your own data.

import saccade
saccade.train("reverse", out="runs/reverse")
model = saccade.load("runs/reverse")
model.predict(["a b c"])[0].text
"""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.api import load, resume, train
    from saccade.config import Recipe, load_recipe
    from saccade.errors import SaccadeError
    from saccade.predictor import Predictor

# What oneDNN has compiled for a shape of a product it keeps, for a thousand shapes unless told: gigabytes where every
# batch has a shape of its own. A step meets a few dozen. torch reads this when it is loaded.
for _name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_name, "128")

__version__ = "0.1.0"
__all__ = ["Predictor", "Recipe", "SaccadeError", "load", "load_recipe", "resume", "train"]

# Public name -> the module it lives in; loaded when first asked for, so that `saccade --help` does not wait for torch.
_HOMES = {
    "Predictor": "saccade.predictor",
    "Recipe": "saccade.config",
    "SaccadeError": "saccade.errors",
    "load": "saccade.api",
    "load_recipe": "saccade.config",
    "resume": "saccade.api",
    "train": "saccade.api",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'saccade' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


class _Package(ModuleType):
    """`train` is a function here and a folder, too: importing from the folder must not hide the function."""

    @property
    def train(self) -> Any:
        return __getattr__("train")

    @train.setter
    def train(self, folder: ModuleType) -> None:
        """What the import system does after `import saccade.train`; the folder stays in sys.modules."""


sys.modules[__name__].__class__ = _Package
