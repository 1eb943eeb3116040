"""What a training of translation finds in its data: told before it begins, kept in the run, named when it fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from saccade import api
from saccade.config import load_recipe
from saccade.data.vocab import Pieces
from saccade.errors import RunWarning, SaccadeError
from saccade.models.shapes import parameter_count
from saccade.plan import plan
from saccade.tasks.translate import Example, Translate
from saccade.tasks.written import WrittenBatch
from saccade.train.run import Run
from tests.numbers import corpus

SMALL = (
    "task.pieces=300",
    "task.valid_examples=4",
    "model.kind=transformer",
    "model.width=16",
    "model.hidden=32",
    "model.heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "train.batch_tokens=512",
    "train.steps=2",
    "train.threads=1",
)


def settings(directory: Path, pairs: Sequence[tuple[str | bytes, str | bytes]], *more: str) -> list[str]:
    """Write the pairs into two files, and say so."""
    for name, side in (("a.fr", 0), ("a.en", 1)):
        texts = [pair[side] for pair in pairs]
        lines = [text if isinstance(text, bytes) else text.encode() for text in texts]
        (directory / name).write_bytes(b"".join(line + b"\n" for line in lines))
    return [f'task.source="{directory}/a.fr"', f'task.target="{directory}/a.en"', *SMALL, *more]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[str, str]]:
    return corpus()[:400]


def test_fewer_pieces_than_were_asked_for_are_told_and_the_model_is_as_large_as_what_was_learned(
    tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    chosen = settings(tmp_path, pairs, "task.pieces=8000")
    training = api.begin("translate", out=tmp_path / "run", settings=chosen)
    learned = len(Pieces.load(tmp_path / "run" / "vocab"))
    assert 300 < learned < 2000
    note = f"asked for 8,000 pieces, the text yields {learned:,}"
    assert note in training.reasons
    assert {"step": 0, "notes": [note]} in Run.open(tmp_path / "run").metrics()
    assert len(training.trainer.model.output.weight) == learned
    assert training.recipe.task.pieces == 8000
    assert "pieces: 8000" in (tmp_path / "run" / "recipe.yaml").read_text()
    assert plan(load_recipe("translate", chosen), probe=False).parameters == parameter_count(training.trainer.model)
    list(training.events())
    assert api.load(tmp_path / "run").predict(["Il y en a trois."])


def test_a_run_killed_before_its_first_save_notes_the_same_once_more(
    tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    training = api.begin("translate", out=tmp_path / "run", settings=settings(tmp_path, pairs, "task.pieces=8000"))
    before = Run.open(tmp_path / "run").metrics()
    again = api.resumed(tmp_path / "run")
    assert Run.open(tmp_path / "run").metrics() == before
    assert set(training.reasons) >= set(again.reasons) >= set(before[0]["notes"])


def test_when_nothing_is_amiss_nothing_is_noted(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    training = api.begin("translate", out=tmp_path / "run", settings=settings(tmp_path, pairs))
    pairs_of_each_part, precision = training.reasons
    assert "pairs to train on" in pairs_of_each_part
    assert precision.startswith("products in ")
    assert Run.open(tmp_path / "run").metrics() == []


def test_monstrous_lines_are_left_out_of_training_and_counted(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    monsters = [("mot " * 250_000, "a word"), ("x" * 200_000, "y"), ("z", "z" * 200_000)]
    usual = api.begin("translate", out=tmp_path / "usual", settings=settings(tmp_path, pairs))
    chosen = settings(tmp_path, [*pairs, *monsters], "task.swap_names=0.5", "task.bpe_dropout=0.5", "task.longest=60")
    training = api.begin("translate", out=tmp_path / "run", settings=chosen)
    assert "pairs longer than task.longest, 60 pieces, left out of training: 3" in training.reasons
    assert len(training.trainer.examples) == len(usual.trainer.examples)
    list(training.events())
    for name, line in (("v.fr", monsters[1][0]), ("v.en", "y")):
        (tmp_path / name).write_text(f"{line}\nun mot\n")
    told = [*chosen, f"task.valid_source={tmp_path}/v.fr", f"task.valid_target={tmp_path}/v.en"]
    reasons = api.begin("translate", out=tmp_path / "told", settings=told).reasons
    assert "sentences to validate on longer than task.longest, left out of its scores: 1" in reasons
    with pytest.raises(SaccadeError, match=r"every pair of .*a\.fr is longer than task\.longest, 2 pieces"):
        api.begin("translate", out=tmp_path / "none", settings=settings(tmp_path, pairs, "task.longest=2"))
    assert not (tmp_path / "none").exists()


def test_sentences_to_validate_on_that_are_all_too_long_are_noticed_at_once(
    tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    (tmp_path / "long.tsv").write_text("mot " * 80 + "\tword\n")
    chosen = settings(tmp_path, pairs, f'task.valid_source="{tmp_path}/long.tsv"', "task.longest=60")
    with pytest.raises(SaccadeError, match=r"every sentence to validate on is longer than task\.longest, 60 pieces"):
        api.begin("translate", out=tmp_path / "run", settings=chosen)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("longest", [12, 16, 100])
def test_the_count_of_long_pairs_is_that_of_the_examples_that_are_missing(
    longest: int, tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    recipe = load_recipe("translate", settings(tmp_path, pairs, f"task.longest={longest}"))
    task = Translate(recipe)
    (tmp_path / "vocab").mkdir()
    notes = task.prepare(tmp_path / "vocab")
    missing = len(task.pairs[0]) - len(task.examples("train"))
    assert (missing > 0) == (longest < 100)
    told = [note for note in notes if note.startswith("pairs longer")]
    assert len(told) == (missing > 0)
    assert all(note.endswith(f": {missing}") for note in told)


@pytest.mark.parametrize(("how", "kept"), [("replace", 402), ("skip", 400)])
def test_lines_that_are_not_utf8_are_touched_as_asked_and_told(
    how: str, kept: int, tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    bad = [(b"mal \xe9", "bad"), ("mal", b"b\xffd")]
    chosen = settings(tmp_path, [*pairs, *bad])
    with pytest.raises(SaccadeError, match=r"a\.fr:401: byte 5 of the line is not UTF-8 \(0xe9\)"):
        api.begin("translate", out=tmp_path / "run", settings=chosen)
    training = api.begin("translate", out=tmp_path / "run", settings=[*chosen, f"task.encoding_errors={how}"])
    for name in ("a.fr", "a.en"):
        touched = [reason for reason in training.reasons if reason.startswith(f"{tmp_path / name}: lines that are not")]
        assert len(touched) == 1 and touched[0].endswith(": 1")
    train, valid = training.trainer.task.pairs
    assert len(train) + len(valid) == kept - (len(pairs) - len(set(pairs)))


# Where an example comes from


class Fragile(Translate):
    """Cannot take one sentence, for whatever reason."""

    def collate(self, examples: Sequence[Example], numbers: Sequence[int]) -> WrittenBatch:
        for example in examples:
            if self.pieces.decode(example.source) == "Il y en a trente-trois.":
                raise ValueError("a pair that nobody can read")
        return super().collate(examples, numbers)


def test_an_example_that_cannot_be_used_is_named_by_file_and_line(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    before = [("", "empty"), ("une phrase bien trop longue " * 20, "far too long a sentence " * 20)]
    lines = [*before, *pairs]
    recipe = load_recipe("translate", settings(tmp_path, lines, "train.steps=50"))
    training = api.begin(recipe, out=tmp_path / "run", task=Fragile(recipe))
    line = 1 + [one for one, _ in lines].index("Il y en a trente-trois.")
    with pytest.raises(SaccadeError) as caught:
        list(training.events())
    message = str(caught.value)
    assert message.startswith("cannot train with example ")
    assert f"({tmp_path}/a.fr:{line}): a pair that nobody can read" in message


def test_every_example_knows_its_line(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    recipe = load_recipe("translate", settings(tmp_path, [("", "x"), *pairs], "task.longest=16"))
    task = Translate(recipe)
    task.prepare(tmp_path)
    examples = task.examples("train")
    assert 50 < len(examples) < len(task.pairs[0])
    lines = (tmp_path / "a.fr").read_text().splitlines()
    for number, example in enumerate(examples):
        assert lines[int(task.place(number).rpartition(":")[2]) - 1] == task.pieces.decode(example.source)


# Files that moved


def test_moved_files_are_followed_with_override_and_other_files_are_noticed(
    tmp_path: Path, pairs: list[tuple[str, str]]
) -> None:
    api.train("translate", out=tmp_path / "run", settings=settings(tmp_path, pairs))
    (tmp_path / "a.fr").rename(tmp_path / "b.fr")
    moved = [f'task.source="{tmp_path}/b.fr"']
    with pytest.raises(SaccadeError, match=r"task\.source: .*a\.fr -> .*b\.fr"):
        api.resumed(tmp_path / "run", settings=moved)
    assert api.resumed(tmp_path / "run", settings=moved, override=True).recipe.task.source == f"{tmp_path}/b.fr"
    assert not api.resumed(tmp_path / "run").reasons
    settings(tmp_path, pairs[:300])
    with pytest.warns(RunWarning, match="the training data is not what it was"):
        api.resumed(tmp_path / "run", settings=[f'task.source="{tmp_path}/a.fr"'], override=True)
