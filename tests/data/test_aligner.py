"""Words aligned from the pairs alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.data.aligner import Aligner, read_links, words_of
from saccade.data.readers import TextPair
from saccade.errors import SaccadeError
from tests.numbers import corpus


def aligner() -> Aligner:
    return Aligner.learn([TextPair(source, target) for source, target in corpus()])


def test_words_that_translate_each_other_are_linked() -> None:
    pair = TextPair("Tom en veut douze.", "Tom wants twelve.")
    links = aligner().links(pair)
    assert (0, 0) in links
    assert (3, 2) in links
    assert [j for _, j in links] == [0, 1, 2]  # "en veut" only ever comes as one: either may be "wants"


def test_words_never_seen_are_linked_to_nothing() -> None:
    learned = aligner()
    assert learned.links(TextPair("xyz douze.", "zyx twelve.")) == [(1, 1)]
    assert learned.links(TextPair("", "twelve.")) == []


def test_the_words_are_those_of_the_text_between_spaces() -> None:
    assert words_of("« Oui », dit-il ...") == ["«", "oui", "»,", "dit-il", "..."]


def test_links_are_read_from_a_file_and_errors_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("0-0 1-2\n\n2-1\n")
    assert list(read_links(tmp_path / "links")) == [[(0, 0), (1, 2)], [], [(2, 1)]]
    (tmp_path / "links").write_text("0-0\n1:2\n")
    with pytest.raises(SaccadeError, match=r"links:2: '1:2' are no links"):
        list(read_links(tmp_path / "links"))
