"""Words cut otherwise each time they are read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.config import load_recipe
from saccade.data.cuts import VARIANTS, Cuts
from saccade.data.vocab import Pieces
from saccade.tasks.translate import GROWTH, Translate
from tests.numbers import corpus

TEXTS = [text for pair in corpus() for text in pair]


def cutting(pieces: Pieces, probability: float) -> Cuts:
    return Cuts(pieces.tokenizer, probability, lambda count: torch.randint(VARIANTS, (count,)).tolist())


@pytest.fixture(scope="module")
def pieces() -> Pieces:
    return Pieces.learn(TEXTS, 400)


@pytest.fixture(scope="module")
def cuts(pieces: Pieces) -> Cuts:
    return cutting(pieces, 0.3)


def test_with_no_merge_left_out_texts_are_cut_as_always(pieces: Pieces) -> None:
    assert pieces.encode_all(TEXTS, cutting(pieces, 0.0)) == pieces.encode_all(TEXTS)


def test_with_every_merge_left_out_only_single_bytes_remain(pieces: Pieces) -> None:
    [ids] = pieces.encode_all(["été"], cutting(pieces, 1.0))
    assert len(ids) == len(" été".encode())


@settings(max_examples=50, deadline=None)
@given(st.text())
def test_any_text_comes_back_however_it_is_cut(pieces: Pieces, cuts: Cuts, text: str) -> None:
    assert pieces.decode(pieces.encode_all([text], cuts)[0]) == text


def test_a_word_is_cut_in_several_ways_and_mostly_as_it_was_learned(pieces: Pieces) -> None:
    word, usual = "Ġquatre", [number - 3 for number in pieces.encode("quatre")]
    gentle = cutting(pieces, 0.1)
    ways = [tuple(gentle.cut(word, variant)) for variant in range(VARIANTS)]
    assert len(set(ways)) > 3
    assert max(set(ways), key=ways.count) == tuple(usual)


def test_the_same_random_state_gives_the_same_cuts_to_another_object(pieces: Pieces) -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(7)
        found.append(pieces.encode_all(TEXTS[:50], cutting(pieces, 0.3)))
    assert found[0] == found[1] != pieces.encode_all(TEXTS[:50], cutting(pieces, 0.3))


def test_a_word_that_was_added_to_the_vocabulary_stays_whole(pieces: Pieces) -> None:
    larger, _ = pieces.extended(["hippopotame hippopotame"], 1)
    texts = ["un hippopotame", "hippopotames, hippopotame !", "l'hippopotame"]
    [ids, *_] = larger.encode_all(texts, cutting(larger, 0.9))
    assert ids[-1] == larger.encode("hippopotame")[0] == len(larger) - 1
    assert larger.encode_all(texts, cutting(larger, 0.0)) == larger.encode_all(texts)


def test_an_added_word_is_spelled_in_the_letters_of_all_other_pieces(pieces: Pieces) -> None:
    larger, spelled = pieces.extended(["près près"], 1)
    spellings = larger.spellings()
    assert spellings[-1] == "".join(spellings[id_] for id_ in spelled[0])


def test_a_translator_reads_the_same_sentences_in_other_pieces_and_hardly_more_of_them(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"{left}\t{right}\n" for left, right in corpus()), encoding="utf-8")
    chosen = [f'task.source="{tmp_path}/pairs.tsv"', "task.pieces=400", "task.bpe_dropout=0.1"]
    task = Translate(load_recipe("translate", chosen))
    task.prepare(tmp_path)
    examples = task.examples("train")[:100]
    batches = [task.collate(examples, range(100)) for _ in range(3)]
    assert len({tuple(map(tuple, batch.source.tolist())) for batch in batches}) == 3
    usual = [task.pieces.decode(example.source) for example in examples]
    for batch in batches:
        assert [task.pieces.decode(row) for row in batch.source.tolist()] == usual
        assert max(batch.source.shape[1], batch.target_mask.shape[1]) <= GROWTH * max(map(task.length, examples))


@pytest.mark.parametrize("probability", [0.0, 0.1])
def test_a_name_is_swapped_in_the_shortest_sentence_too_however_long_the_other_is(
    probability: float, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text("".join(f"Tom {n}.\tTom {n}.!\n" for n in range(200)), encoding="utf-8")
    chosen = ["task.pieces=300", "task.swap_names=0.9999", f"task.bpe_dropout={probability}"]
    task = Translate(load_recipe("translate", [f'task.source="{tmp_path}/pairs.tsv"', *chosen]))
    task.prepare(tmp_path)
    examples = task.examples("train")[:50]
    batch = task.collate(examples, range(len(examples)))
    for rows in (batch.source, batch.target):
        assert not any("Tom" in task.pieces.decode(row) for row in rows.tolist())
