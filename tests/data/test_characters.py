"""A vocabulary of characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.data.vocab import END, START, Characters
from saccade.errors import SaccadeError

TEXT = "naïve 東京"
LETTERS = Characters.learn([TEXT, "on"])


def test_a_text_of_known_characters_comes_back() -> None:
    ids = LETTERS.encode(TEXT)
    assert len(ids) == len(TEXT) + 1
    assert min(ids) == 3
    assert LETTERS.decode([START, *ids, END]) == TEXT
    assert LETTERS.decode(LETTERS.encode("")) == ""


def test_every_word_begins_with_a_space() -> None:
    pieces = LETTERS.pieces(LETTERS.encode("on no"))
    assert pieces == ["▁", "o", "n", "▁", "n", "o"]
    assert "".join(LETTERS.spellings()[number] for number in LETTERS.encode("on no")) == " on no"


def test_words_have_the_places_of_their_characters() -> None:
    ids = [START, *LETTERS.encode("on no"), END]
    assert LETTERS.words(ids) == [("<start>", [0]), ("on", [1, 2, 3]), ("no", [4, 5, 6]), ("<end>", [7])]
    space = LETTERS.encode("")
    assert LETTERS.words([*space, *space, *LETTERS.encode("o")[1:], *space]) == [("o", [0, 1, 2]), ("▁", [3])]


def test_an_unseen_character_is_refused_by_name_and_known_ones_can_be_kept() -> None:
    with pytest.raises(SaccadeError, match=r"'Q' of 'noQZ' is in no training text; the characters are ' aenov"):
        LETTERS.encode("noQZ")
    assert LETTERS.known("noQZ on") == "no on"


def test_the_same_characters_are_the_same_vocabulary(tmp_path: Path) -> None:
    assert Characters.learn(["on", TEXT]).characters == LETTERS.characters
    LETTERS.save(tmp_path)
    assert Characters.load(tmp_path).characters == LETTERS.characters
    assert len(Characters.load(tmp_path)) == len(LETTERS) == 3 + len(set(TEXT + "on"))
    (tmp_path / Characters.FILE).write_text("[", encoding="utf-8")
    with pytest.raises(SaccadeError, match="cannot read the vocabulary"):
        Characters.load(tmp_path)
