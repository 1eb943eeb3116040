"""Token files are built once, and windows on them ask for every token."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from saccade.data import stream
from saccade.data.lexicon import Lexicon
from saccade.data.stream import Windows, chunks, token_file
from saccade.errors import SaccadeError

TEXT = "one two\n\nthree  four\n  five\n" * 20
LETTERS = Lexicon.learn([TEXT], "characters", size=100)


def test_chunks_join_to_the_whole_text_and_begin_with_something_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHUNK", 10)
    (tmp_path / "a.txt").write_text(TEXT)
    parts = list(chunks(tmp_path / "a.txt"))
    assert len(parts) > 10
    assert "".join(parts) == TEXT
    assert all(part[0].strip() for part in parts)


def test_pieces_of_the_parts_are_pieces_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK", 10)
    pieces = Lexicon.learn([TEXT], "pieces", size=300)
    (tmp_path / "a.txt").write_text(TEXT)
    assert token_file(tmp_path / "a.txt", pieces, cache=tmp_path / "cache").tolist() == pieces.encode(TEXT)


def test_a_token_file_is_built_once_and_anew_for_another_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, cache = tmp_path / "a.txt", tmp_path / "cache"
    source.write_text(TEXT)
    first = token_file(source, LETTERS, cache=cache)
    with monkeypatch.context() as patch:
        patch.setattr(stream, "chunks", lambda path: pytest.fail("it is read twice"))
        assert np.array_equal(token_file(source, LETTERS, cache=cache), first)
    source.write_text(TEXT + "one\n")
    assert len(token_file(source, LETTERS, cache=cache)) == len(first) + 4


def test_others_may_read_a_token_file_if_the_umask_lets_them(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    for umask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(umask)
        try:
            token_file(tmp_path / "a.txt", LETTERS, cache=tmp_path / str(umask))
        finally:
            os.umask(before)
        (place,) = (tmp_path / str(umask)).iterdir()
        assert stat.S_IMODE(place.stat().st_mode) == mode


def test_a_token_file_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: IO[bytes], _: np.ndarray) -> None:
        file.write(b"half")
        raise OSError("no space left")

    (tmp_path / "a.txt").write_text(TEXT)
    monkeypatch.setattr(np, "save", full)
    with pytest.raises(OSError, match="no space left"):
        token_file(tmp_path / "a.txt", LETTERS, cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())


def test_an_empty_text_and_a_missing_one_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(SaccadeError, match=r"empty\.txt: there is no text"):
        token_file(tmp_path / "empty.txt", LETTERS, cache=tmp_path)
    with pytest.raises(SaccadeError, match=r"missing\.txt"):
        token_file(tmp_path / "missing.txt", LETTERS, cache=tmp_path)


def test_sequential_windows_ask_for_every_token_but_the_first_once() -> None:
    tokens = np.arange(23, dtype=np.uint16)
    asked = [int(token) for window in Windows.sequential(tokens, 5) for token in window[1:]]
    assert asked == list(range(1, 23))


def test_windows_anywhere_are_whole_and_drawn_by_the_seed() -> None:
    tokens = np.arange(50, dtype=np.uint16)
    one, same, other = (Windows.anywhere(tokens, 6, seed=seed) for seed in (1, 1, 2))
    assert {len(window) for window in one} == {7}
    assert sorted(int(window[0]) for window in one) == list(range(44))
    assert np.array_equal(one.starts, same.starts) and not np.array_equal(one.starts, other.starts)
