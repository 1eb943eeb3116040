"""The laws on a trained run, and on one that breaks them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from saccade import api
from saccade.models.transformer import TransformerDecoder
from saccade.verify import verify
from tests.test_cli import TINY, saccade  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    api.train("reverse", out=path, settings=TINY)
    return path


def test_every_law_holds_on_a_trained_model(run: Path) -> None:
    laws = verify(api.load(run))
    assert len(laws) == 7
    assert [law.name for law in laws if not law.holds] == []


def test_a_broken_cache_is_found(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decoder that forgets its position at each step."""
    step = TransformerDecoder.step

    def forgetful(self, tokens, past):  # type: ignore[no-untyped-def]
        states, after = step(self, tokens, past)
        return states, type(after)(after.state, after.memory, torch.zeros_like(after.position), after.used)

    monkeypatch.setattr(TransformerDecoder, "step", forgetful)
    broken = [law.name for law in verify(api.load(run)) if not law.holds]
    assert "step by step equals all at once" in broken


def test_the_command_shows_a_table_and_fails_on_a_broken_law(
    saccade,  # noqa: F811
    run: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code, out, _ = saccade("verify", str(run))
    assert code == 0
    assert out.count("holds") == 7
    assert all(len(line) <= 80 for line in out.splitlines())
    monkeypatch.setattr("saccade.verify.TOLERANCE", -1.0)
    code, out, _ = saccade("verify", str(run))
    assert code == 1
    assert "BROKEN" in out
