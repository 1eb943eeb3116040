"""Tokenizers that go out: transformers gives the ids that our tasks read, whatever the vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from saccade.data.cloze import framed
from saccade.data.lexicon import Lexicon, Marks, Unit
from saccade.data.vocab import Pieces
from saccade.errors import SaccadeError
from saccade.exchange import huggingface
from saccade.exchange.huggingface import export_run
from saccade.exchange.tokens import write_lexicon
from saccade.tasks.filling import read_gaps
from tests.exchange import published
from tests.exchange.test_marian import PIECES

UNITS: tuple[Unit, ...] = ("pieces", "words", "characters")
TEXTS = ["the cat sat on the mat", "a  dog ran,\nand cats"]
BERT = "model: {kind: bert, width: 12, heads: 3, layers: 1"
RECIPES = {
    "bert": f"task: {{kind: masked, data: x, window: 64}}\n{BERT}}}",
    "bert without segments": f"task: {{kind: masked, data: x, window: 64}}\n{BERT}, segments: 1}}",
    "bert of pairs": f"task: {{kind: masked, data: x, window: 64, next_sentence: true}}\n{BERT}}}",
    "bert that labels": f"task: {{kind: classify, data: x, longest: 64, pool: summary}}\n{BERT}, next_sentence: true}}",
    "xlnet": "task: {kind: permuted, data: x, window: 64}\nmodel: {kind: xlnet, width: 12, heads: 3, layers: 1}",
}
GPT = "task: {kind: language, data: x, window: 64}\nmodel: {kind: gpt, width: 12, heads: 3, layers: 1}"
MARIAN = "model: {kind: transformer, width: 24, heads: 3, encoder_layers: 1, decoder_layers: 1, order: post, tie: all}"


def exported(recipe: str, vocabulary: Lexicon | Pieces, place: Path) -> Path:
    def save(vocab: Path) -> None:
        vocabulary.save(vocab)
        (vocab / "labels.json").write_text('["good", "bad"]')

    published.drawn_run(recipe, place / "run", save, deviation=0.1)
    export_run(place / "run", place / "theirs")
    return place / "theirs"


def learned(unit: Unit) -> Lexicon:
    return Lexicon.learn([*published.TEXTS, *TEXTS], unit, size=300)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", RECIPES)
def test_texts_pairs_and_gaps_become_the_ids_that_our_tasks_read(name: str, unit: Unit, tmp_path: Path) -> None:
    lexicon = learned(unit)
    tokenizer = AutoTokenizer.from_pretrained(exported(RECIPES[name], lexicon, tmp_path))
    for text in TEXTS:
        assert tokenizer(text)["input_ids"] == framed([np.array(lexicon.encode(text))], lexicon.marks)[0].tolist()
    ids, segments = framed([np.array(lexicon.encode(text)) for text in TEXTS], lexicon.marks)
    pair = tokenizer(*TEXTS)
    assert pair["input_ids"] == ids.tolist()
    assert pair.get("token_type_ids", segments.tolist()) == segments.tolist()
    assert ("token_type_ids" in pair) == (name not in ("xlnet", "bert without segments"))
    if name != "bert that labels":
        for text in ("the cat <mask> on the <mask>", "<mask> dog", "the c<mask>t, and"):
            assert tokenizer(text)["input_ids"] == read_gaps(text, lexicon, 64).tokens[0].tolist()


def of_bert(place: Path) -> Lexicon:
    """A vocabulary as it was published: nothing in its file says which pieces are marks."""
    pieces = sorted(published.word_pieces().get_vocab().items(), key=lambda each: each[1])
    (place / "vocab.txt").write_text("".join(f"{piece}\n" for piece, _ in pieces))
    return Lexicon(Lexicon.published("bert", place).tokenizer, "bert", marks=Marks(0, 2, 3, 4))


def of_roberta(place: Path) -> Lexicon:
    pieces = published.byte_pieces(specials=("<s>", "<pad>", "</s>", "<unk>", "<mask>"))
    return Lexicon(pieces, "gpt2", marks=Marks(pad=1, start=0, end=2, mask=4))


@pytest.mark.parametrize("gap", ["[MASK]", "<mask>"])
def test_published_vocabularies_go_out_with_their_own_marks(gap: str, tmp_path: Path) -> None:
    lexicon = (of_bert if gap == "[MASK]" else of_roberta)(tmp_path)
    recipe = RECIPES["bert"].replace(
        "layers: 1", f"layers: 1, first_position: {lexicon.marks.pad * 2}"
    )  # after padding
    tokenizer = AutoTokenizer.from_pretrained(exported(recipe, lexicon, tmp_path))
    for text in (*TEXTS, f"the cat {gap} on {gap} mat"):
        assert tokenizer(text)["input_ids"] == read_gaps(text, lexicon, 64).tokens[0].tolist()


@pytest.mark.parametrize("name", [*RECIPES, "gpt"])
def test_a_model_takes_all_that_its_tokenizer_gives(name: str, tmp_path: Path) -> None:
    folder = exported({**RECIPES, "gpt": GPT}[name], learned("pieces"), tmp_path)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    given = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        together = model(**given).last_hidden_state
        for number, text in enumerate(TEXTS):
            ids = torch.tensor([tokenizer(text)["input_ids"]])
            alone = model(ids).last_hidden_state[0]
            assert (together[number, : len(alone)] - alone).abs().max() < 1e-5
        model(**tokenizer(*TEXTS, return_tensors="pt"))
    said = json.loads((folder / "tokenizer_config.json").read_text())["model_input_names"]  # the default has changed
    assert set(said) == set(given)


def test_a_model_that_translates_takes_all_that_its_tokenizer_gives(tmp_path: Path) -> None:
    folder = exported(f"task: {{kind: translate, source: x, pieces: 300}}\n{MARIAN}", PIECES, tmp_path)
    given = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    assert sorted(given) == ["attention_mask", "input_ids"]
    AutoModel.from_pretrained(folder)(**given, decoder_input_ids=torch.ones(2, 1, dtype=torch.long))


@pytest.mark.parametrize("unit", UNITS)
def test_ids_become_the_text_that_ours_become(unit: Unit, tmp_path: Path) -> None:
    lexicon = learned(unit)
    tokenizer = AutoTokenizer.from_pretrained(exported(GPT, lexicon, tmp_path))
    for text in ("the cat sat on the mat", "a dog\n\nran to\nthe old house", "\na dog \n"):
        ids = lexicon.encode(text)
        assert tokenizer.decode(ids) == lexicon.decode(ids)
    assert tokenizer.decode(lexicon.encode("the cat\nsat")) == "the cat\nsat"


def test_a_tokenizer_that_gives_other_ids_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unframed(folder: Path, lexicon: Lexicon, longest: int, **how: object) -> None:
        write_lexicon(folder, lexicon, longest)

    monkeypatch.setattr(huggingface, "write_lexicon", unframed)
    with pytest.raises(SaccadeError, match=r"tokenizer\.json makes \[.*\] of 'the cat.*', and the task reads \["):
        exported(RECIPES["bert"], learned("pieces"), tmp_path)
    assert not (tmp_path / "theirs").exists()


def test_a_space_before_a_gap_that_stays_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spaced(folder: Path, lexicon: Lexicon, longest: int, **how: object) -> None:
        write_lexicon(folder, lexicon, longest, **how)
        said = json.loads((folder / "tokenizer.json").read_text())
        said["added_tokens"] = [each | {"lstrip": False} for each in said["added_tokens"]]
        (folder / "tokenizer.json").write_text(json.dumps(said))

    monkeypatch.setattr(huggingface, "write_lexicon", spaced)
    with pytest.raises(SaccadeError, match="of 'the cat <mask> on <mask> mat', and the task reads"):
        exported(RECIPES["xlnet"], learned("pieces"), tmp_path)
