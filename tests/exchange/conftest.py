"""What is made of texts goes where the tests are, and models are drawn alike each time."""

from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def _alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path / "cache"))
