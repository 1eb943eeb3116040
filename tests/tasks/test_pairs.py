"""What sequence-to-sequence tasks share: batches, and the searches that a recipe can ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from saccade import api
from saccade.config import load_recipe
from saccade.config.training import DecodeSettings
from saccade.data.vocab import END, START, Symbols
from saccade.decode import Beam, Greedy, Hypothesis, Including, Method, Sample
from saccade.errors import SaccadeError
from saccade.models.shapes import EncoderDecoder, Memory
from saccade.nn.cache import Past
from saccade.tasks import answers
from saccade.tasks.answers import Plan, method_of, validation_method
from saccade.tasks.base import Answer, Prediction, Task
from saccade.tasks.pairs import answer_pairs, collate_pairs
from tests.laws.models import sequence_model

SOURCES = [[3, 4, 5, 6], [7, 8], [9, 3, 4]]
LETTERS = Symbols("abcdefgh")  # with the specials, the eleven tokens of the models here


def answer(model: EncoderDecoder, settings: DecodeSettings, method: Method | None = None) -> list[list[Hypothesis]]:
    return answer_pairs(model, SOURCES, settings, LETTERS, method)


class Hurry(nn.Module):
    """An output that ends as soon as it may, or, with less than nothing, never."""

    def __init__(self, output: nn.Module, haste: float = 20.0):
        super().__init__()
        self.output, self.haste = output, haste

    def forward(self, states: Tensor) -> Tensor:
        logits = self.output(states)
        return logits + self.haste * nn.functional.one_hot(torch.tensor(END), logits.shape[-1])


def hurried(model: EncoderDecoder) -> EncoderDecoder:
    """The same model, of which no answer runs into its limit."""
    model.output = Hurry(model.output)
    return model


def test_batches_are_padded_and_count_what_is_to_be_predicted() -> None:
    batch = collate_pairs([([3, 4, 5], [6]), ([7], [8, 9])], [10, 11])
    assert batch.source.tolist() == [[3, 4, 5], [7, 0, 0]]
    assert batch.source_mask.tolist() == [[True] * 3, [True, False, False]]
    assert batch.target.tolist() == [[START, 6, END, 0], [START, 8, 9, END]]
    assert batch.counts["loss"] == int(batch.target_mask.sum()) == 5
    assert batch.numbers == (10, 11)
    with pytest.raises(SaccadeError, match="example 12 has an empty source"):
        collate_pairs([([], [3])], [12])


def test_answers_that_may_be_long_are_searched_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, begun = hurried(sequence_model("transformer")), list[int]()
    whole = answer(model, DecodeSettings(beam=2))
    begin = model.begin

    def counted(memory: Memory, limit: int) -> Past:
        begun.append(memory.rows)
        return begin(memory, limit)

    monkeypatch.setattr(model, "begin", counted)
    limit = 2 * 4 + 10  # of the longest source
    for most, parts in ((6 * limit, [3]), (4 * limit, [2, 1]), (1, [1, 1, 1])):
        monkeypatch.setattr(answers, "MOST_TOKENS", most)
        begun.clear()
        assert answer(model, DecodeSettings(beam=2)) == whole
        assert begun == parts


def test_answers_come_back_in_the_order_asked_whatever_their_length() -> None:
    model = sequence_model("transformer")
    together = answer(model, DecodeSettings())
    assert [each[0].tokens for each in together] == [
        answer_pairs(model, [source], DecodeSettings(), LETTERS)[0][0].tokens for source in SOURCES
    ]


@pytest.mark.parametrize("name", ["bahdanau", "convolutional", "transformer"])
def test_the_rules_of_a_recipe_are_kept(name: str) -> None:
    settings = DecodeSettings(beam=3, minimum_length=4, no_repeat=1)
    for (best,) in answer(sequence_model(name), settings):
        assert len(best.tokens) >= 4 or best.stopped != "eos"
        assert len(set(best.tokens)) == len(best.tokens)


@pytest.mark.parametrize("name", ["bahdanau", "luong", "convolutional", "transformer"])
def test_a_coverage_penalty_only_reorders_what_the_beam_found(name: str) -> None:
    model = sequence_model(name)
    every = answer(model, DecodeSettings(), Beam(4, best=4))
    chosen = answer(model, DecodeSettings(coverage_penalty=5.0), Beam(4, best=1))
    for found, (best,) in zip(every, chosen, strict=True):
        before = {each.tokens: each for each in found}
        assert best.tokens in before
        assert best.score <= before[best.tokens].score + 1e-9
    same = answer(model, DecodeSettings(coverage_penalty=1e-12), Beam(4, best=4))
    assert [[each.tokens for each in found] for found in same] == [[each.tokens for each in found] for found in every]


def test_what_must_be_included_is_ranked_as_the_recipe_says() -> None:
    asked = DecodeSettings(must_include=("b",), length_penalty=0.3)
    method = Plan.of(asked, LETTERS).method
    assert isinstance(method, Including) and method.beam.length_penalty == 0.3
    model = sequence_model("transformer")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)  # freshly drawn models look everywhere alike
    every = answer(model, asked, Beam(8, best=8, length_penalty=0.3))
    chosen = answer(model, asked.model_copy(update={"coverage_penalty": 50.0}), Beam(8, length_penalty=0.3))
    known = [{each.tokens for each in found} for found in every]
    assert all(best.tokens in found for found, (best,) in zip(known, chosen, strict=True))
    assert any(best.tokens != found[0].tokens for found, (best,) in zip(every, chosen, strict=True))


def test_without_attention_there_is_no_coverage_to_speak_of() -> None:
    model = sequence_model("sutskever once")
    plain, penalised = (answer(model, DecodeSettings(beam=2, coverage_penalty=c)) for c in (0.0, 1.0))
    assert [each[0].tokens for each in plain] == [each[0].tokens for each in penalised]


def test_a_beam_of_one_in_a_recipe_is_greedy_search() -> None:
    assert method_of(DecodeSettings()).width == 1
    assert method_of(DecodeSettings(beam=4)).width == 4


def test_checkpoints_are_told_apart_by_a_search_of_their_own() -> None:
    assert validation_method(DecodeSettings(beam=5)) == Greedy()
    assert validation_method(DecodeSettings(valid_beam=3, length_penalty=0.6)) == Beam(3, length_penalty=0.6)


def looking(kind: str, folder: Path) -> Task:
    """A task that writes, with a vocabulary that knows a few words."""
    data = folder / "pairs.tsv"
    data.write_text("".join(f"red {word}\t{word} red\n" for word in ("dog", "house", "tree")))
    settings = {"reverse": [], "follow-quick": [f"task.data={data}"]}
    settings["translate"] = [f"task.source={data}", f"task.valid_source={data}", "task.pieces=300", "model.kind=luong"]
    task = api.make_task(load_recipe(kind, settings[kind]))
    task.prepare(folder)
    return task


@pytest.mark.parametrize("kind", ["reverse", "follow-quick", "translate"])
def test_a_look_replays_what_was_written_token_by_token(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, written = looking(kind, tmp_path), [4, 3, 5]
    found = Prediction("red dog", (Answer("dog", 0.0, Hypothesis(tuple(written), 0.0, (), "eos")),))
    monkeypatch.setattr(task, "predict", lambda *_: [found])
    maps = task.look(task.model(), "a b" if kind == "reverse" else "red dog", pieces=True)
    vocabulary = {"reverse": "vocabulary", "translate": "pieces"}.get(kind)
    target = task.vocabularies[1] if vocabulary is None else getattr(task, vocabulary)
    assert maps[0].rows.labels == (*target.pieces(written), "<end>")
    monkeypatch.setattr(task, "predict", lambda *_: [Prediction("red dog", refusal="too long")])
    with pytest.raises(SaccadeError, match="too long"):
        task.look(task.model(), "a b" if kind == "reverse" else "red dog")


def test_training_mode_comes_back_after_prediction() -> None:
    model = sequence_model("transformer").train()
    answer(model, DecodeSettings())
    assert model.training


@pytest.mark.parametrize("name", ["luong", "convolutional", "transformer"])
def test_an_answer_begins_contains_and_avoids_what_a_recipe_says(name: str) -> None:
    settings = DecodeSettings(beam=3, prefix="b c", must_include=("f g",), must_not_include=("a", "h h"))
    for (best,) in answer(hurried(sequence_model(name)), settings):
        text = LETTERS.decode(best.tokens)
        assert text.startswith("b c")
        assert "a" not in text
        assert "h h" not in text
        assert "f g" in text
        assert best.stopped == "eos"


def test_what_must_be_included_cannot_be_sampled() -> None:
    settings = DecodeSettings(must_include=("f g",))
    with pytest.raises(SaccadeError, match="cannot be sampled"):
        answer(sequence_model("transformer"), settings, Sample())


def test_a_wish_that_is_met_anyway_changes_nothing() -> None:
    model = sequence_model("transformer")
    plain = answer(model, DecodeSettings(beam=4))
    words = [LETTERS.decode(best.tokens).split() for (best,) in plain]
    absent = sorted(set("abcdefgh") - {word for each in words for word in each})
    assert absent, "the models here use few of their letters"
    same = answer(model, DecodeSettings(beam=4, must_not_include=tuple(absent[:1])))
    assert [each[0].tokens for each in same] == [each[0].tokens for each in plain]


def test_one_text_in_a_recipe_is_a_list_of_one() -> None:
    assert DecodeSettings.model_validate({"must_include": "x"}).must_include == ("x",)
    assert DecodeSettings.model_validate({"must_include": ["x", "y"]}).must_include == ("x", "y")
    with pytest.raises(ValueError, match="at least 1 character"):
        DecodeSettings.model_validate({"must_not_include": [""]})


@pytest.mark.parametrize("kind", ["convolutional", "transformer"])
def test_an_answer_that_does_not_end_stops_where_learned_places_end(kind: str) -> None:
    learned = ["model.positions=learned"] if kind == "transformer" else []
    chosen = [f"model.kind={kind}", "model.width=8", "model.heads=2", "model.longest=9", *learned]
    task = api.make_task(load_recipe("reverse", chosen))
    model = task.model().eval()
    model.output = Hurry(model.output, haste=-1e4)
    found = answer_pairs(model, [[4, 5, 6, 7, 8]], DecodeSettings(limit_factor=5), task.vocabulary, Beam(2))
    assert [(len(each.tokens), each.stopped) for each in found[0]] == [(9, "length")]
