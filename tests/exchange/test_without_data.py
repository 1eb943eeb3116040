"""Models that came without data: the laws are checked on examples made up for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import transformers
from typer.testing import CliRunner

from saccade import api
from saccade.cli import app
from saccade.exchange.huggingface import import_folder
from saccade.models.shapes import parameter_count
from saccade.verify import verify
from tests.exchange import published

TEXT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
BERT = transformers.BertConfig(vocab_size=90, max_position_embeddings=40, **TEXT)
VIT = transformers.ViTConfig(image_size=16, patch_size=4, **TEXT)
MADE: dict[str, Callable[[Path], Path]] = {
    "masked": lambda place: published.save(transformers.BertForMaskedLM(BERT), place, published.word_pieces(90)),
    "classify": lambda place: published.save(
        transformers.BertForSequenceClassification(BERT), place, published.word_pieces(90)
    ),
    "classify_images": lambda place: published.save(transformers.ViTForImageClassification(VIT), place),
}


@pytest.mark.parametrize("task", MADE)
def test_the_laws_are_checked(task: str, tmp_path: Path) -> None:
    import_folder(MADE[task](tmp_path / "folder"), tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    assert predictor.recipe.task.kind == task
    laws = verify(predictor)
    assert "looking changes nothing (fused equals explicit)" in [law.name for law in laws]
    assert [law.name for law in laws if not law.holds] == []


@pytest.mark.parametrize("task", MADE)
def test_what_it_costs_to_train_it_is_counted(task: str, tmp_path: Path) -> None:
    import_folder(MADE[task](tmp_path / "folder"), tmp_path / "run")
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "run"), "--no-probe"])
    assert done.exit_code == 0, done.output
    assert f"{parameter_count(api.load(tmp_path / 'run').model):,} parameters" in done.output


def test_a_broken_law_shows_without_data_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_folder(MADE["classify"](tmp_path / "folder"), tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    collate = type(predictor.task).collate

    def forgetful(self: object, examples: list, numbers: list) -> object:
        """Padding is taken for text."""
        batch = collate(self, examples, numbers)
        batch.mask[:] = True
        return batch

    monkeypatch.setattr(type(predictor.task), "collate", forgetful)
    assert [law.name for law in verify(predictor) if not law.holds] == ["batch size and padding change nothing"]
