"""Vocabularies of running text: nothing is lost, nothing can be spelled that is no text."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.lexicon import CLIP_MERGES, Lexicon
from saccade.errors import SaccadeError

TEXT = "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\n  Speak, speak.\n"
PIECES = Lexicon.learn([TEXT] * 3, "pieces", size=300)


@given(st.text())
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back_from_pieces(text: str) -> None:
    assert PIECES.decode(PIECES.encode(text)) == text.encode("utf-8", "replace").decode()


def test_characters_keep_every_one_of_the_training_text() -> None:
    letters = Lexicon.learn([TEXT], "characters", size=1000)
    assert letters.decode(letters.encode(TEXT)) == TEXT
    assert len(letters.encode(TEXT)) == len(TEXT)


def test_a_character_never_seen_is_unknown_and_shown_so() -> None:
    letters = Lexicon.learn([TEXT], "characters", size=1000)
    assert letters.encode("é") == [letters.unknown]
    assert letters.decode(letters.encode("aéa")) == "a\ufffda"


def test_words_keep_lines_and_forget_rare_words() -> None:
    words = Lexicon.learn(["the cat the dog\nthe cat\n"], "words", size=4 + 4)
    assert words.decode(words.encode("the cat\nthe bird")) == "the cat\nthe <unk>"
    assert words.words(words.encode("the cat")) == [("the", [0]), ("cat", [1])]


@pytest.mark.parametrize("spelled", ["<pad>", "<start>", "<end>", "<mask>"])
def test_no_text_spells_a_special_id(spelled: str) -> None:
    assert not set(PIECES.encode(spelled)) & PIECES.marks.names.keys()


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert PIECES.decode(PIECES.encode("a\ud800b")).startswith("a\ufffd")


def test_pieces_of_a_word_are_shown_as_one_word() -> None:
    ids = PIECES.encode("proceed further\nnow")
    assert [word for word, _ in PIECES.words(ids)] == ["proceed", "further", "↵", "now"]
    assert [place for _, places in PIECES.words(ids) for place in places] == list(range(len(ids)))


def test_a_vocabulary_comes_back_from_its_folder(tmp_path: Path) -> None:
    PIECES.save(tmp_path)
    again = Lexicon.load(tmp_path)
    assert again.encode(TEXT) == PIECES.encode(TEXT)
    assert (again.unit, again.marks, len(again)) == (PIECES.unit, PIECES.marks, len(PIECES))


def test_a_broken_vocabulary_is_named(tmp_path: Path) -> None:
    PIECES.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(SaccadeError, match=r"tokenizer\.json"):
        Lexicon.load(tmp_path)


def test_a_published_vocabulary_keeps_its_own_ids(tmp_path: Path) -> None:
    """The format of GPT-2's files: merges in their order, ids from the JSON, compressed or not."""
    alphabet = {chr(byte): byte for byte in range(33, 127)} | {"Ġ": 200, "he": 201, "Ġhe": 202}
    with gzip.open(tmp_path / "encoder.json.gz", "wt", encoding="utf-8") as file:
        json.dump(alphabet, file)
    (tmp_path / "vocab.bpe").write_text("#version: 0.2\nh e\nĠ he\n", encoding="utf-8")
    gpt2 = Lexicon.published("gpt2", tmp_path)
    assert gpt2.encode("he he") == [201, 202]
    assert gpt2.decode([201, 202]) == "he he"
    assert gpt2.marks.end == 50256


def test_word_pieces_are_those_of_the_list(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nplay\n##ing\n!\n", encoding="utf-8")
    bert = Lexicon.published("bert", tmp_path)
    assert bert.encode("Playing!") == [2, 3, 4]
    assert [word for word, _ in bert.words([2, 3, 4])] == ["playing", "!"]
    assert bert.encode("zebra") == [bert.unknown]


def test_words_of_clip_end_with_their_mark(tmp_path: Path) -> None:
    lines = ["#version: 0.2", "h e</w>", "t he</w>"]
    (tmp_path / "bpe_simple_vocab_16e6.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    clip = Lexicon.published("clip", tmp_path)
    assert clip.encode("The  he") == [512 + 1, 512]
    assert clip.encode("\u201cthe\u201d &amp;amp; \u2018&lt;he\u2019 ﬁｘ\x00") == clip.encode("\"the\" & '<he' fix")
    assert CLIP_MERGES == 48894


def test_a_folder_without_the_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"vocab\.txt"):
        Lexicon.published("bert", tmp_path)


def test_a_vocabulary_that_grows_breaks_no_word_that_had_its_own_piece() -> None:
    known = Lexicon.learn(["a zebra and a zebra\n" * 50], "pieces", size=300)
    (whole,) = known.encode(" zebra")
    larger, _ = known.extended([" zeb zeb zeb zebra quagga quaggas\n"], 9)
    assert larger.encode(" zebra") == [whole]
    assert len(larger.encode(" quaggas")) == 1
    assert len(larger.encode(" zeb")) > 1
