"""Settings for all tests."""

import os
from collections.abc import Iterator

import pytest
import torch

# the models here are too small to share among threads, and a test's time must not depend on what else is running; what
# tests start is told, too
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")

SLOWEST = ("test_readme.py", "test_translation.py", "test_caption.py")  # files that take a minute or more


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slowest files first: with several workers, none of them is left alone with one at the end."""
    items.sort(key=lambda item: item.path.name not in SLOWEST)  # stable: everything else stays in its order


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Token files of the tests go nowhere else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
