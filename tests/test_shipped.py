"""The French-to-English model in the package: what it says, what it is made of, and what its card claims."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from saccade import api
from saccade.config import load_recipe, parse_recipe
from saccade.train.run import Run
from saccade.translation import alignment, translate_lines
from tests.facts import facts_of
from tests.test_cli import saccade  # noqa: F401 - a fixture

SENTENCE = "Jane visite l'Afrique en septembre."
CARD = (api.SHIPPED / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def model() -> api.Predictor:
    return api.load(api.SHIPPED)


def test_the_sentence_of_the_course_is_translated(saccade) -> None:  # noqa: F811
    assert saccade("translate", SENTENCE)[1] == "Jane visits Africa in September.\n"


def test_eight_bits_say_it_too_and_a_file_is_told_how_it_is_translated(saccade, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "lines").write_text(f"{SENTENCE}\n\nIl pleut.\n")
    code, out, err = saccade("translate", "--input", tmp_path / "lines", "--precision", "int8", "--threads", "1")
    assert (code, out) == (0, "Jane visits Africa in September.\n\nIt's raining.\n")
    assert "int8, 1 thread" in err
    code, _, err = saccade("translate", SENTENCE, "--precision", "int4")
    assert code == 2 and "there is no precision 'int4' (did you mean 'int8'?)" in err


def test_it_writes_with_packed_maps_and_is_looked_at_without(model: api.Predictor) -> None:
    assert model.translate(SENTENCE) == "Jane visits Africa in September."
    assert "PackedLinear" in {type(module).__name__ for module in model.writer.modules()}
    assert "PackedLinear" not in {type(module).__name__ for module in model.model.modules()}


def test_its_words_are_aligned(model: api.Predictor) -> None:
    (found,) = translate_lines(model, [SENTENCE])
    assert {"0-0", "1-1", "2-2", "4-4"} <= set(alignment(model, found.translations[0]).split())


@pytest.mark.parametrize("name", ["Jane", "Sven", "Wanda", "Hugo"])
def test_names_that_the_data_does_not_have_are_carried_over(model: api.Predictor, name: str) -> None:
    assert name in model.translate(f"{name} est à la maison.")


def test_plain_sentences_are_translated(model: api.Predictor) -> None:
    assert model.translate(["Je suis fatigué.", "Où est la gare ?", "Il pleut."]) == [
        "I'm tired.",
        "Where's the station?",
        "It's raining.",
    ]


def test_it_is_what_the_recipe_of_the_project_makes() -> None:
    trained = parse_recipe(Run.open(api.SHIPPED).recipe_text, "shipped")
    files = {"source": "train.tsv.xz", "valid_source": "valid.tsv.xz"}
    settled = "train.precision=bfloat16"  # what `auto` was where it was trained
    named = load_recipe("translate-fr-en", [*(f"task.{key}={value}" for key, value in files.items()), settled])
    assert trained == named


def test_neither_the_sentence_nor_a_variant_was_in_the_training_data() -> None:
    """By counts of the training file, which is too large to be here; where it is at hand it is counted again."""
    facts = json.loads((api.SHIPPED / "data.json").read_text(encoding="utf-8"))
    assert facts["lines"] == 161_718
    assert facts["with Jane"] == 0
    assert facts["with Afrique and septembre"] == facts["with Africa and September"] == 0
    assert facts["with visite and Afrique"] == facts["with visits and Africa"] == 0
    assert facts["sha256"] in CARD
    data = Path(__file__).parents[2] / "shared/data/tatoeba_eng_fra/train.tsv.xz"
    if data.exists():  # it is no part of the repository
        assert facts == facts_of(data)


def test_it_is_small_and_whole() -> None:
    files = [file for file in api.SHIPPED.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 25_000_000
    tensors, state = Run.open(api.SHIPPED).weights()
    assert state["vocabulary"] == Run.open(api.SHIPPED).vocab_hash()
    assert not any(Path(file).is_absolute() for file in re.findall(r"source: (\S+)", Run.open(api.SHIPPED).recipe_text))
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"torch.float16"}


def test_the_card_says_what_one_must_know() -> None:
    for fact in ("CC BY 2.0 FR", "tatoeba.org", "manythings.org/anki", "BLEU", "chrF", "Signatures", "minutes", "swap"):
        assert fact in CARD, fact
    assert re.search(r"valid.*\d\d\.\d ± \d\.\d", CARD)
    assert re.search(r"test.*\d\d\.\d ± \d\.\d", CARD)
