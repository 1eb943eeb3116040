"""RoBERTa both ways: another epsilon, positions from 2, pieces of bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import (
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaModel,
)

from saccade import api
from saccade.exchange.huggingface import export_run, import_folder
from tests.exchange import published

MARKS = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>"}
MARKS |= {"mask_token": "<mask>", "unk_token": "<unk>"}
SMALL = {"hidden_size": 21, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 33}
SMALL |= {"vocab_size": 301, "max_position_embeddings": 26, "type_vocab_size": 1, "layer_norm_eps": 1e-5}


@pytest.mark.parametrize("kind", [RobertaForMaskedLM, RobertaModel, RobertaForSequenceClassification])
def test_it_says_what_theirs_says_and_goes_back_bit_for_bit(kind: type, tmp_path: Path) -> None:
    original = kind(RobertaConfig(**SMALL))
    tokenizer = published.byte_pieces(specials=("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    theirs = published.save(original, tmp_path / "theirs", tokenizer, **MARKS)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    model = predictor.model
    tokens, mask = published.ids(290, 11)
    tokens = torch.where(mask, tokens + 5, 1)  # they count positions by which tokens are no padding
    with torch.no_grad():
        said = original(tokens, attention_mask=mask.long())
        if kind is RobertaForSequenceClassification:
            assert (model(tokens, mask) - said.logits).abs().max() < 1e-5
        elif kind is RobertaModel:
            assert (model.encoder(tokens, mask).states - said.last_hidden_state)[mask].abs().max() < 1e-5
        else:
            assert (model.output(model(tokens, mask)) - said.logits)[mask].abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")


def test_a_gap_takes_the_space_before_it(tmp_path: Path) -> None:
    tokenizer = published.byte_pieces(specials=("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    original = RobertaForMaskedLM(RobertaConfig(**SMALL))
    theirs = published.save(original, tmp_path / "theirs", tokenizer, **MARKS)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    read = PreTrainedTokenizerFast.from_pretrained(theirs)
    ids = [0, *read("the cat")["input_ids"], 4, *read(" on")["input_ids"], 2]
    gap = ids.index(4)
    with torch.no_grad():
        log_p = original(torch.tensor([ids])).logits[0, gap].log_softmax(-1)
    answer = predictor.predict(["the cat <mask> on"])[0].answers[0]
    texts = [predictor.task.lexicon.decode([*ids[:gap], id_, *ids[gap + 1 :]]) for id_ in range(301)]
    assert min(abs(float(log_p[id_]) - answer.score) for id_, text in enumerate(texts) if text == answer.text) < 1e-4
