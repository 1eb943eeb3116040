"""Models that translate, both ways: Marian is our post-norm Transformer, Pegasus our pre-norm one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    MarianConfig,
    MarianMTModel,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedTokenizerFast,
)

from saccade import api
from saccade.data.vocab import Pieces
from saccade.decode import Greedy
from saccade.errors import SaccadeError
from saccade.exchange.huggingface import export_run, import_folder
from saccade.exchange.tokens import write_pieces
from tests.exchange import published

PIECES = Pieces.learn(published.TEXTS, 290)
SIZES = {"d_model": 24, "vocab_size": len(PIECES), "max_position_embeddings": 32, "init_std": 0.2}
SIZES |= {f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in (("attention_heads", 3), ("ffn_dim", 17))}
SIZES |= {"encoder_layers": 2, "decoder_layers": 1, "pad_token_id": 0, "decoder_start_token_id": 1, "eos_token_id": 2}
SIZES |= {"forced_eos_token_id": None, "bos_token_id": 1}
KINDS = {"marian": (MarianConfig, MarianMTModel), "pegasus": (PegasusConfig, PegasusForConditionalGeneration)}


def folder(place: Path, kind: str, **settings: object) -> Path:
    config, model = KINDS[kind]
    own = {"decoder_vocab_size": len(PIECES)} if kind == "marian" else {}
    made = model(config(**{**SIZES, **own, **settings}))
    with torch.no_grad():
        made.final_logits_bias.normal_(generator=torch.Generator().manual_seed(4))
        positions = [side.embed_positions.weight.clone() for side in (made.model.encoder, made.model.decoder)]
    theirs = place / "theirs"
    published.save(made, theirs)
    with torch.no_grad():  # the formula's, which `save` has moved as well
        for side, table in zip((made.model.encoder, made.model.decoder), positions, strict=True):
            side.embed_positions.weight.copy_(table)
    made.save_pretrained(theirs)
    write_pieces(theirs, PIECES, 32)
    return theirs


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("marian", {}),
        ("marian", {"scale_embedding": True, "activation_function": "relu", "encoder_layers": 1, "decoder_layers": 3}),
        ("marian", {"share_encoder_decoder_embeddings": False}),
        ("marian", {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False}),
        ("pegasus", {}),
        ("pegasus", {"scale_embedding": True, "tie_word_embeddings": False}),
    ],
)
def test_the_logits_are_theirs_and_the_file_goes_back(kind: str, settings: dict, tmp_path: Path) -> None:
    theirs = folder(tmp_path, kind, **settings)
    import_folder(theirs, tmp_path / "run")
    model = api.load(tmp_path / "run").model
    source, mask = published.ids(len(PIECES), 9)
    target, _ = published.ids(len(PIECES), 7)
    with torch.no_grad():
        original = KINDS[kind][1].from_pretrained(theirs).eval()
        expected = original(source, attention_mask=mask.long(), decoder_input_ids=target).logits
        assert (model.output(model(source, mask, target)) - expected).abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    before, after = (load_file(path / "model.safetensors") for path in (theirs, tmp_path / "ours"))
    computed = {name for name in before if "embed_positions" in name}
    unused = {"model.shared.weight"} if not settings.get("tie_word_embeddings", True) else set()
    assert before.keys() - after.keys() <= computed | unused and not after.keys() - before.keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_translated_as_theirs_does(kind: str, tmp_path: Path) -> None:
    theirs = folder(tmp_path, kind)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run", settings=["decode.limit_factor=0.01", "decode.limit_extra=6"])
    original = KINDS[kind][1].from_pretrained(theirs).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(theirs)
    for text in ("the cat sat on the mat", "dogs run"):
        given = {"input_ids": torch.tensor([tokenizer(text)["input_ids"]])}
        found = original.generate(
            **given, max_new_tokens=6, do_sample=False, num_beams=1, bad_words_ids=[[0], [1]], length_penalty=0.0
        )[0]
        expected = [id_ for id_ in found[1:].tolist() if id_ > 2]
        answer = predictor.predict([text], Greedy())[0].answers[0]
        assert answer.hypothesis is not None and list(answer.hypothesis.tokens) == expected
    assert predictor.look("the cat sat")


@pytest.mark.parametrize(("order", "tie"), [("post", "output"), ("post", "none"), ("pre", "all")])
def test_a_model_of_ours_is_read_by_transformers(order: str, tie: str, tmp_path: Path) -> None:
    model = (
        f"{{kind: transformer, width: 24, heads: 3, encoder_layers: 1, decoder_layers: 2, order: {order}, tie: {tie}}}"
    )
    recipe = f"task: {{kind: translate, source: x, pieces: 300}}\nmodel: {model}"
    predictor = published.drawn_run(recipe, tmp_path / "run", PIECES.save)
    export_run(tmp_path / "run", tmp_path / "theirs")
    theirs = KINDS["marian" if order == "post" else "pegasus"][1].from_pretrained(tmp_path / "theirs").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    text = "the cats do, and a dog?"
    assert tokenizer(text)["input_ids"] == PIECES.encode(text)
    assert tokenizer.decode(PIECES.encode(text)) == text
    source, mask = published.ids(len(PIECES), 9)
    target, _ = published.ids(len(PIECES), 7)
    with torch.no_grad():
        expected = theirs(source, attention_mask=mask.long(), decoder_input_ids=target).logits
        assert (predictor.model.output(predictor.model(source, mask, target)) - expected).abs().max() < 1e-5


def test_other_special_ids_and_other_sines_are_refused(tmp_path: Path) -> None:
    theirs = folder(tmp_path, "pegasus")
    published.changed(theirs, lambda tensors: tensors["model.encoder.embed_positions.weight"].add_(1))
    with pytest.raises(SaccadeError, match="not the table that its formula gives"):
        import_folder(theirs, tmp_path / "run")
    config = json.loads((theirs / "config.json").read_text())
    (theirs / "config.json").write_text(json.dumps({**config, "decoder_start_token_id": 0}))
    with pytest.raises(SaccadeError, match=r"are \[0, 0, 2\]; only models with \[0, 1, 2\]"):
        import_folder(theirs, tmp_path / "run")


def test_what_marian_does_not_know_is_said_at_once(tmp_path: Path) -> None:
    model = "{kind: transformer, width: 24, heads: 3, order: post, positions: rotary, activation: geglu}"
    published.drawn_run(
        f"task: {{kind: translate, source: x, pieces: 300}}\nmodel: {model}", tmp_path / "run", PIECES.save
    )
    with pytest.raises(SaccadeError, match="Marian has no positions rotary, no activation geglu"):
        export_run(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_beam_and_the_longest_text_come_with_the_folder(tmp_path: Path) -> None:
    theirs = folder(tmp_path, "marian")
    (theirs / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 20}))
    (theirs / "generation_config.json").write_text(json.dumps({"num_beams": 6}))
    import_folder(theirs, tmp_path / "run")
    recipe = api.load(tmp_path / "run").recipe
    assert (recipe.decode.beam, recipe.task.longest) == (6, 20)
    for name in ("generation_config.json", "tokenizer_config.json"):
        (theirs / name).unlink()
    import_folder(theirs, tmp_path / "plain")
    recipe = api.load(tmp_path / "plain").recipe
    assert (recipe.decode.beam, recipe.task.longest) == (1, 32)


TRANSLATE = "task: {kind: translate, source: x, pieces: 300}\nmodel: {kind: transformer, width: 24, heads: 3, "
TRANSLATE += "encoder_layers: 1, decoder_layers: 2, order: post, tie: all}\ndecode: "


@pytest.mark.parametrize("search", [{"no_repeat": 1}, {"minimum_length": 6}, {"no_repeat": 2, "minimum_length": 4}])
def test_what_means_the_same_in_their_search_goes_along_and_comes_back(search: dict, tmp_path: Path) -> None:
    ours = published.drawn_run(f"{TRANSLATE}{json.dumps(search)}", tmp_path / "run", PIECES.save, deviation=0.3)
    assert len(export_run(tmp_path / "run", tmp_path / "theirs")) == 1  # nothing is left out
    theirs = MarianMTModel.from_pretrained(tmp_path / "theirs").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    for text in ("the cat sat on the mat", "dogs run"):
        answer = ours.predict([text])[0].answers[0].hypothesis
        found = theirs.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=len(answer.tokens) + 1)[0]
        assert tuple(found[1:].tolist())[: len(answer.tokens)] == answer.tokens
    import_folder(tmp_path / "theirs", tmp_path / "again")
    assert api.load(tmp_path / "again").recipe.decode == ours.recipe.decode


def test_what_a_folder_does_not_say_of_the_search_is_told(tmp_path: Path) -> None:
    """Their length_penalty is another formula, so that a beam is always ranked otherwise."""
    searches = {
        "{}": [],
        "{beam: 4}": ["the folder does not carry decode.length_penalty"],
        "{length_penalty: 0.3}": ["the folder does not carry decode.length_penalty"],
        "{no_repeat: 2, prefix: a, limit_extra: 3}": ["the folder does not carry decode.limit_extra, decode.prefix"],
    }
    for number, (search, told) in enumerate(searches.items()):
        published.drawn_run(TRANSLATE + search, tmp_path / f"run{number}", PIECES.save)
        assert export_run(tmp_path / f"run{number}", tmp_path / f"theirs{number}")[1:] == told
        assert "length_penalty" not in (tmp_path / f"theirs{number}/generation_config.json").read_text()
