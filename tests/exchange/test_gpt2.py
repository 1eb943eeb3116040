"""GPT-2 both ways: what transformers says, we say; what it wrote, we write."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model, PreTrainedTokenizerFast

from saccade import api
from saccade.decode import Greedy
from saccade.errors import SaccadeError
from saccade.exchange.huggingface import export_run, import_folder
from tests.exchange import published

END = "<|endoftext|>"


def folder(place: Path, kind: type = GPT2LMHeadModel, **settings: object) -> Path:
    tokenizer = published.byte_pieces()
    end = tokenizer.token_to_id(END)
    small = {"n_embd": 21, "n_head": 3, "n_layer": 2, "n_positions": 24, "vocab_size": tokenizer.get_vocab_size()}
    config = GPT2Config(**{**small, "bos_token_id": end, "eos_token_id": end, **settings})
    return published.save(kind(config), place / "theirs", tokenizer, eos_token=END, bos_token=END)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_layer": 1, "n_inner": 17, "activation_function": "gelu"},
        {"n_layer": 3, "vocab_size": 301, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-2},
        {"n_embd": 16, "n_head": 4, "activation_function": "relu"},
    ],
)
def test_the_logits_are_theirs_and_the_file_goes_back_bit_for_bit(settings: dict, tmp_path: Path) -> None:
    theirs = folder(tmp_path, **settings)
    import_folder(theirs, tmp_path / "run")
    model = api.load(tmp_path / "run").model
    original = GPT2LMHeadModel.from_pretrained(theirs).eval()
    tokens, mask = published.ids(original.config.vocab_size, 13)
    with torch.no_grad():
        expected = original(tokens, attention_mask=mask.long()).logits
        found = model.output(model(tokens))
    assert (found - expected)[mask].abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")
    assert (tmp_path / "ours/config.json").read_text() and (tmp_path / "ours/tokenizer.json").is_file()


def test_texts_go_on_as_theirs_do(tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    import_folder(theirs, tmp_path / "run")
    original = GPT2LMHeadModel.from_pretrained(theirs).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(theirs)
    predictor = api.load(tmp_path / "run")
    for text in ("the cat", "a dog ran to"):
        given = tokenizer(text, return_tensors="pt")
        ids = original.generate(**given, max_new_tokens=8, do_sample=False, pad_token_id=tokenizer.eos_token_id)[0]
        expected = ids[given["input_ids"].shape[1] :].tolist()
        found = predictor.generate([text], tokens=8, method=Greedy())[0].answers[0].hypothesis
        assert found is not None and list(found.tokens) == [id_ for id_ in expected if id_ != tokenizer.eos_token_id]


def test_a_body_alone_has_other_names_and_goes_back_under_them(tmp_path: Path) -> None:
    theirs = folder(tmp_path, GPT2Model)
    import_folder(theirs, tmp_path / "run")
    model = api.load(tmp_path / "run").model
    tokens, _ = published.ids(290, 9)
    with torch.no_grad():
        expected = GPT2Model.from_pretrained(theirs).eval()(tokens).last_hidden_state
        assert (model(tokens) - expected).abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")


def test_an_imported_model_can_be_looked_at_and_says_that_it_has_no_data(tmp_path: Path) -> None:
    import_folder(folder(tmp_path), tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    assert predictor.look("the cat", "sat")[0].weights.shape[0] == 1
    assert predictor.predict(["the cat"])[0].answers
    with pytest.raises(SaccadeError, match="no-data"):
        predictor.evaluate()


def test_a_model_trained_here_is_read_by_transformers(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("\n".join(published.TEXTS * 20))
    settings = [f"task.data={data}", "task.pieces=300", "task.window=12", "model.width=12", "model.heads=2"]
    settings += ["model.layers=2", "train.steps=2", "train.batch_tokens=64"]
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("task:\n  kind: language\n  data: x\nmodel:\n  kind: gpt\n")
    predictor = api.train(recipe, out=tmp_path / "run", settings=settings)
    export_run(tmp_path / "run", tmp_path / "theirs")
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "theirs").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    text = "do cats sit on the mat?"
    ids = predictor.task.lexicon.encode(text)
    assert tokenizer(text)["input_ids"] == ids and tokenizer.decode(ids) == text
    tokens = torch.tensor([ids[:12]])
    with torch.no_grad():
        expected = model(tokens).logits
        assert (predictor.model.output(predictor.model(tokens)) - expected).abs().max() < 1e-5


def test_an_imported_model_is_fine_tuned_and_goes_out_again(tmp_path: Path) -> None:
    import_folder(folder(tmp_path), tmp_path / "run")
    data = tmp_path / "text.txt"
    data.write_text("\n".join(published.TEXTS * 20))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"task:\n  kind: language\n  data: {data}\nmodel:\n  kind: gpt\n"
        f"train:\n  start: {tmp_path}/run\n  steps: 2\n  batch_tokens: 64\n"
    )
    api.train(recipe, out=tmp_path / "tuned")
    export_run(tmp_path / "tuned", tmp_path / "again")
    GPT2LMHeadModel.from_pretrained(tmp_path / "again")
