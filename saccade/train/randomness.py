"""The state of every random generator that a training may touch, as tensors."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor


def seed_everything(seed: int) -> None:
    """The same start for Python's, NumPy's and PyTorch's generators."""
    random.seed(seed)
    np.random.seed(seed % (1 << 32))  # noqa: NPY002 - the global generator, which a user's own task may use
    torch.manual_seed(seed)


def random_state() -> dict[str, Tensor]:
    """What `restore_random` needs to go on exactly here."""
    _, words, gauss = random.getstate()
    _, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "python": torch.tensor(words, dtype=torch.int64),
        "python_gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "numpy": torch.tensor(np.asarray(keys, dtype=np.int64)),
        "numpy_place": torch.tensor([position, has_gauss], dtype=torch.int64),
        "numpy_gauss": torch.tensor([cached], dtype=torch.float64),
    }


def restore_random(state: Mapping[str, Tensor]) -> None:
    """Set every generator to a state that `random_state` gave."""
    torch.set_rng_state(state["torch"])
    gauss = state["python_gauss"].tolist()
    random.setstate((3, tuple(state["python"].tolist()), gauss[0] if gauss else None))
    position, has_gauss = state["numpy_place"].tolist()
    keys = state["numpy"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", keys, position, has_gauss, state["numpy_gauss"].item()))  # noqa: NPY002
