"""Reading text, subwords, names, and what is found wrong with data."""

from __future__ import annotations

import gzip
import lzma
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.check import check_pairs
from saccade.data.names import NAMES, others_like, renamed, shared_name
from saccade.data.readers import Encoding, TextPair, hold_out, read_lines, read_pairs, references_of
from saccade.data.vocab import END, PAD, START, Pieces
from saccade.errors import SaccadeError
from tests.numbers import corpus


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    return Pieces.learn((text for pair in corpus() for text in pair), 400)


def test_plain_gzip_and_xz_read_alike(tmp_path: Path) -> None:
    text = "un\r\ndeux\n\ntrois"
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (tmp_path / "a.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "a.xz").write_bytes(lzma.compress(text.encode()))
    for name in ("a.txt", "a.gz", "a.xz"):
        assert list(read_lines(tmp_path / name)) == ["un", "deux", "", "trois"]


def test_bytes_that_are_not_utf8_are_named_by_file_line_and_byte(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes("bien\ntrès".encode() + b" mal \xe9\nencore\n")
    with pytest.raises(SaccadeError, match=r"bad.txt:2: byte 11 of the line is not UTF-8 \(0xe9\)"):
        list(read_lines(tmp_path / "bad.txt"))


@pytest.mark.parametrize("ending", ["txt", "gz", "xz"])
def test_lines_that_are_not_utf8_are_replaced_or_left_out_and_counted(ending: str, tmp_path: Path) -> None:
    pack = {"txt": bytes, "gz": gzip.compress, "xz": lzma.compress}[ending]
    source, target = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    source.write_bytes(pack(b"un\nd\xe9ux\ntrois\n\xff\xfe\ncinq\n"))
    target.write_bytes(pack(b"one\ntwo\nthr\xe9e\nfour\nfive\n"))
    with pytest.raises(SaccadeError, match=rf"a\.{ending}:2: byte 2 of the line is not UTF-8"):
        list(read_pairs(source, target))

    skip = Encoding("skip")
    pairs = list(read_pairs(source, target, encoding=skip))
    assert pairs == [TextPair("un", "one"), TextPair("cinq", "five")]
    assert [pair.line for pair in pairs] == [1, 5]
    assert skip.touched == {str(source): 2, str(target): 1}
    assert skip.notes()[0] == f"{source}: lines that are not UTF-8, left out on both sides: 2"

    replace = Encoding("replace")
    pairs = list(read_pairs(source, target, encoding=replace))
    assert [pair.source for pair in pairs] == ["un", "d\ufffdux", "trois", "\ufffd\ufffd", "cinq"]
    assert pairs[2].target == "thr\ufffde"
    assert replace.touched == skip.touched
    assert "U+FFFD" in replace.notes()[1]


def test_a_bad_line_of_a_table_is_left_out_with_both_its_sides(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"un\tone\nd\xe9ux\ttwo\ntrois\tthree\n")
    encoding = Encoding("skip")
    pairs = list(read_pairs(tmp_path / "a.tsv", None, encoding=encoding))
    assert [(pair.target, pair.line) for pair in pairs] == [("one", 1), ("three", 3)]
    assert encoding.touched == {str(tmp_path / "a.tsv"): 1}


@pytest.mark.parametrize(
    ("name", "content"), [("a.gz", b"not gzip"), ("a.xz", b"not xz"), ("b.gz", gzip.compress(b"x" * 99, mtime=0)[:-9])]
)
def test_a_broken_archive_is_an_error_for_people(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SaccadeError, match=f"{name}: cannot read"):
        list(read_lines(tmp_path / name))
    with pytest.raises(SaccadeError, match="absent: cannot read: No such file"):
        list(read_lines(tmp_path / "absent"))


def test_files_of_different_length_are_refused_with_both_counts(tmp_path: Path) -> None:
    one, other = written(tmp_path / "a", ["x"] * 3), written(tmp_path / "b", ["y"] * 2)
    with pytest.raises(SaccadeError, match=r"a has 3 lines and .*b has 2"):
        list(read_pairs(one, other))


def test_a_table_is_read_by_its_columns(tmp_path: Path) -> None:
    table = written(tmp_path / "a.tsv", ["hello\tbonjour\tx", "yes\toui"])
    assert list(read_pairs(table, None, columns=(2, 1))) == [TextPair("bonjour", "hello"), TextPair("oui", "yes")]
    with pytest.raises(SaccadeError, match=r"a.tsv:2: 2 columns between tabs, and column 3"):
        list(read_pairs(table, None, columns=(1, 3)))


def test_no_sentence_of_either_side_is_in_both_parts() -> None:
    pairs = [TextPair(f"s{number % 700}", f"t{number % 3000}") for number in range(4000)]
    train, valid = hold_out(pairs)
    assert len(valid) > 20 and len(train) + len(valid) < 4000
    assert not {pair.source for pair in train} & {pair.source for pair in valid}
    assert not {pair.target for pair in train} & {pair.target for pair in valid}
    assert hold_out(pairs) == (train, valid)


def test_where_few_targets_are_shared_by_many_pairs_none_is_lost() -> None:
    pairs = [TextPair(f"s{number}", f"t{number % 4}") for number in range(2000)]
    train, valid = hold_out(pairs)
    assert len(train) + len(valid) == 2000 and len(valid) > 20


def test_translations_of_one_sentence_are_its_references() -> None:
    pairs = [TextPair("a", "1"), TextPair("b", "2"), TextPair("a", "3"), TextPair("a", "1")]
    assert references_of(pairs) == {"a": ["1", "3"], "b": ["2"]}


TEXTS = st.text() | st.sampled_from(
    ["", " ", "  two  spaces ", "\x00\ufeff\u200b", "e\u0301" * 50, "\u202eabc", "</s><pad>"]
)


@given(text=TEXTS)
@settings(max_examples=200, deadline=None)
def test_any_text_comes_back_from_its_pieces(text: str, pieces: Pieces) -> None:
    ids = pieces.encode(text)
    assert pieces.decode(ids) == text
    assert not {PAD, START, END} & set(ids)
    assert len(pieces.pieces(ids)) == len(ids)


def test_text_cannot_spell_a_special_token(pieces: Pieces) -> None:
    ids = pieces.encode("<pad> <start> <end> </s>")
    assert min(ids) > END
    assert pieces.decode([START, *ids, END]) == "<pad> <start> <end> </s>"


def test_half_a_character_is_replaced_and_never_raises(pieces: Pieces) -> None:
    assert "\ufffd" in pieces.decode(pieces.encode("a \ud800 b"))


def test_endless_words_neither_hang_the_learning_nor_take_part_in_it() -> None:
    texts = [pair[0] for pair in corpus()]
    endless = "".join(random.Random(1).choices("abcdefghij", k=200_000))
    learned = Pieces.learn([*texts, f"Il y en a {endless} trois."], 400)
    assert learned.spellings() == Pieces.learn([*texts, "Il y en a trois."], 400).spellings()
    assert learned.decode(learned.encode(endless)) == endless


def test_pieces_are_saved_and_loaded_as_they_were(pieces: Pieces, tmp_path: Path) -> None:
    pieces.save(tmp_path)
    again = Pieces.load(tmp_path)
    assert len(again) == len(pieces) == 400
    assert again.encode("Il y en a trois cent.") == pieces.encode("Il y en a trois cent.")
    (tmp_path / Pieces.FILE).write_text("{}")
    with pytest.raises(SaccadeError, match=r"tokenizer\.json: cannot read the vocabulary"):
        Pieces.load(tmp_path)


def test_pieces_are_put_together_to_the_users_own_words(pieces: Pieces) -> None:
    assert pieces.pieces(pieces.encode("Tom veut"))[0] == "▁Tom"
    for text in ("Tom en veut vingt-trois.", "x  y", "  été  ", "Jane, (non) !", "日本 語"):
        ids = [START, *pieces.encode(text), END]
        words = pieces.words(ids)
        assert [label for label, _ in words] == ["<start>", *text.split(), "<end>"], text
        assert [place for _, places in words for place in places] == list(range(len(ids)))


def test_names_are_swapped_on_both_sides_and_vowels_stay_vowels() -> None:
    pair = TextPair("Le chien de Tom aime Tom.", "Tom's dog likes Tom.")
    assert shared_name(pair) == "Tom"
    assert renamed(pair, "Tom", "Paul") == TextPair("Le chien de Paul aime Paul.", "Paul's dog likes Paul.")
    assert shared_name(TextPair("Tom et Marc", "Tom and Mark")) is None
    assert shared_name(TextPair("Tomate", "Tomato")) is None
    told, plain = TextPair("Tom a perdu sa clé.", "Tom lost his key."), TextPair("C'est Tom.", "It's Tom.")
    assert {"Paul", "Jane"} <= set(others_like("Tom", plain))
    assert "Paul" in others_like("Tom", told)
    assert not {"Jane", "Adam", "Tom"} & set(others_like("Tom", told))  # his key stays his key, de Tom stays de
    assert not {"Adam", "Tom"} & set(others_like("Tom", plain))
    assert "Jane" in others_like("Mary", told)
    assert "Emma" in others_like("Anna", told)
    assert not {"Mary", "Adam"} & set(others_like("Anna", told))
    assert len(set(NAMES)) == len(NAMES) > 200


def test_check_finds_what_is_wrong(tmp_path: Path) -> None:
    good = [(f"phrase numéro {n}", f"sentence number {n}") for n in range(100)]
    few = [written(tmp_path / side, [pair[n] for pair in good[2:5]]) for n, side in enumerate(("f.fr", "f.en"))]
    assert not check_pairs(few[0], few[1]).trainable
    bad = [*good, ("", "empty"), ("same", "same"), good[0], ("x", "a far longer side than the other"), ("\ufffd", "y")]
    source, target = (written(tmp_path / side, [pair[n] for pair in bad]) for n, side in enumerate(("a.fr", "a.en")))
    valid = [written(tmp_path / side, [good[5][n]]) for n, side in enumerate(("v.fr", "v.en"))]
    report = check_pairs(source, target, against=[(valid[0], valid[1])])
    found = {finding.what.split(" of /")[0]: finding.count for finding in report.findings}
    assert found["an empty side"] == found["the same on both sides"] == found["pairs that occur before"] == 1
    assert found["one side far longer than the other"] == 1
    assert found["characters that were lost before (U+FFFD)"] == 1
    assert [f.count for f in report.findings if "that training sees" in f.what] == [1]
    assert report.trainable
    assert not check_pairs(written(tmp_path / "e1", []), written(tmp_path / "e2", [])).trainable
    assert not check_pairs(written(tmp_path / "e1", ["", ""]), written(tmp_path / "e2", ["", ""])).trainable


def test_check_counts_control_characters_and_shows_no_row_of_what_is_not_so(tmp_path: Path) -> None:
    good = [(f"phrase numéro {n}", f"sentence\tnumber {n}") for n in range(100)]
    bad = [*good, ("un \x00 nul", "a nul"), ("rouge", "\x1b[31mred"), ("a\x85b", "next line")]
    source, target = (written(tmp_path / side, [pair[n] for pair in bad]) for n, side in enumerate(("a.fr", "a.en")))
    found = {finding.what: finding for finding in check_pairs(source, target).findings}
    assert found["control characters, such as NUL and escape"].count == 3
    assert found["control characters, such as NUL and escape"].severity == "look"
    assert "\x1b" not in "".join(found["control characters, such as NUL and escape"].examples)
    assert "no pairs at all" not in found
    empty = written(tmp_path / "e", [])
    assert check_pairs(empty, empty).findings[0].what == "no pairs at all"


def test_check_sees_that_lines_have_slipped(tmp_path: Path) -> None:
    pairs = [(f"la page {n} du livre", f"the page {n} of the book") for n in range(200)]
    source = written(tmp_path / "a", [one for one, _ in pairs])
    straight = written(tmp_path / "b", [other for _, other in pairs])
    slipped = written(tmp_path / "c", ["a line too many", *(other for _, other in pairs[:-1])])
    what = "stretches where the lines seem shifted"
    other_way = written(tmp_path / "d", [*(other for _, other in pairs[1:]), "a line too few before"])
    for target, expected in ((straight, 0), (slipped, 4), (other_way, 4)):
        assert [f.count for f in check_pairs(source, target).findings if f.what == what] == [expected]


def test_check_takes_monstrous_lines_as_they_come(tmp_path: Path) -> None:
    good = [(f"phrase numéro {n}", f"sentence number {n}") for n in range(200)]
    pairs = [*good, ("mot " * 250_000, "a word"), ("x" * 200_000, "y" * 200_000)]
    source, target = (written(tmp_path / side, [pair[n] for pair in pairs]) for n, side in enumerate(("a.fr", "a.en")))
    report = check_pairs(source, target)
    found = {finding.what: finding for finding in report.findings}
    assert found["longer than 400 characters"].count == 2
    assert max(len(example) for finding in report.findings for example in finding.examples) < 200
    assert report.trainable
