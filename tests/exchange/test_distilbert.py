"""DistilBERT both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import DistilBertConfig, DistilBertForMaskedLM, DistilBertModel

from saccade import api
from saccade.exchange.huggingface import export_run, import_folder
from tests.exchange import published
from tests.exchange.test_bert import MARKS

SMALL = {"dim": 21, "n_heads": 3, "hidden_dim": 33, "vocab_size": 101, "max_position_embeddings": 24}


@pytest.mark.parametrize(
    ("kind", "layers"), [(DistilBertForMaskedLM, 1), (DistilBertForMaskedLM, 3), (DistilBertModel, 2)]
)
def test_it_says_what_theirs_says_and_goes_back_bit_for_bit(kind: type, layers: int, tmp_path: Path) -> None:
    original = kind(DistilBertConfig(**SMALL, n_layers=layers))
    theirs = published.save(original, tmp_path / "theirs", published.word_pieces(), **MARKS)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    model = predictor.model
    tokens, mask = published.ids(101, 11)
    with torch.no_grad():
        said = original(tokens, attention_mask=mask.long())
        states = model.encoder(tokens, mask).states
        if kind is DistilBertModel:
            assert (states - said.last_hidden_state)[mask].abs().max() < 1e-5
        else:
            assert (model.output(model.transform(states)) - said.logits)[mask].abs().max() < 1e-5
    assert predictor.predict(["the [MASK] sat"])[0].answers
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")
