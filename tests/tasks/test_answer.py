"""Questions about images: one look for all of them, answers and refusals, scores with controls, maps of words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.api import make_task
from saccade.config import parse_recipe
from saccade.decode import Beam
from saccade.errors import SaccadeError
from saccade.maps.record import record
from saccade.maps.render import Grid, save_maps
from saccade.predictor import Predictor
from saccade.tasks.answer import AnswerQuestions
from saccade.tasks.base import Answer
from tests.squares import SIZE, squares, write_squares

RECIPE = """
task: {{kind: answer, data: {data}, size: 16, pieces: 300}}
model: {{kind: stacked_attention, width: 8, image: {{kind: cnn, width: 4, stages: 2}}}}
"""
TRANSFORMER = ("model.kind=vqa_transformer", "model.heads=2", "model.hidden=12", "model.layers=2", "model.width=8")
MODELS = {"stacked attention": (), "transformer": TRANSFORMER}
EVERY = pytest.mark.parametrize("name", MODELS)
WHAT = "what colour is the left square?"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = {"train": squares(12), "valid": squares(6, seed=1), "test": squares(5, seed=2)}
    return write_squares(tmp_path_factory.mktemp("squares") / "data", parts)


@pytest.fixture
def task_of(tmp_path: Path):  # type: ignore[no-untyped-def]
    def make(data: Path, *settings: str) -> AnswerQuestions:
        task = make_task(parse_recipe(RECIPE.format(data=data), "recipe", settings))
        assert isinstance(task, AnswerQuestions)
        task.notes = task.prepare(tmp_path)  # type: ignore[attr-defined]
        return task

    return make


def predictor_of(task: AnswerQuestions) -> Predictor:
    """A model that was never trained, and that differs much from input to input."""
    torch.manual_seed(1)
    model = task.model().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.4)
    return Predictor(task, model, task.recipe)


class Told:
    """A model's place taken by somebody who answers as told: from an image's pixels and a question's text."""

    def __init__(self, task: AnswerQuestions, answer):  # type: ignore[no-untyped-def]
        self.task, self.answer = task, answer

    def __call__(self, _, looks):  # type: ignore[no-untyped-def]
        texts = [(image, self.task.vocabulary.decode(ids)) for image, ids in looks]
        return [(Answer(self.answer(image, text), 1.0),) for image, text in texts]


@EVERY
def test_an_image_is_seen_once_for_all_its_questions_and_alone_for_each(task_of, data: Path, name: str) -> None:
    task = task_of(data, *MODELS[name])
    model = predictor_of(task).model
    few = task.examples("train")[:3]
    batch = task.collate(few, range(3))
    assert batch.images.shape == (3, 3, SIZE, SIZE)
    assert batch.about.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert batch.counts == {"loss": 15, "accuracy": 15}
    together = model(batch.images, batch.about, batch.tokens, batch.mask)
    for row in (0, 7, 14):
        ids = batch.tokens[row : row + 1, : int(batch.mask[row].sum())]
        alone = model(batch.images[batch.about[row]][None], torch.tensor([0]), ids)
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-4)


def test_answers_are_ranked_and_what_is_missing_refused_one_by_one(task_of, data: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    file = data.parent / "images" / "test0.png"
    inputs = [
        f"{file}: {WHAT}",
        f"{tmp_path / 'broken.png'}: {WHAT}",
        "nowhere.png\twhat is it?",
        f"valid1.png: {WHAT.upper()}",
        "what colour is it?",
        f"{file}:",
        f"{file}: {'why ' * 100}",
    ]
    predictor = predictor_of(task_of(data))
    found = predictor.predict(inputs, Beam(3, best=3))
    assert [each.input for each in found] == inputs
    assert [len(each.answers) for each in found] == [3, 0, 0, 3, 0, 0, 0]
    for each, reason in zip(
        found[1:3] + found[4:], ("broken", "nowhere", "an image before", "a question after", "longest is"), strict=False
    ):
        assert reason in each.refusal
    scores = [answer.score for answer in found[0].answers]
    assert scores == sorted(scores, reverse=True) and sum(scores) <= 1
    assert predictor.predict([f"valid1.png: {WHAT}"])[0].text == found[3].text


def test_words_that_were_never_asked_are_read_all_the_same(task_of, data: Path) -> None:
    (found,) = predictor_of(task_of(data)).predict(["valid0.png: ¿cuántos zorros?"])
    assert found.text


def test_evaluation_tells_the_eyes_from_the_ears(task_of, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who answers the truth loses it with other images and with other questions; the baselines do not look."""
    task = task_of(data)
    truth = {
        (each.image.tobytes(), task.vocabulary.decode(ids)): question.answer
        for each in task.examples("test")
        for ids, question in zip(each.tokens, each.questions, strict=True)
    }
    monkeypatch.setattr(task, "_ranked", Told(task, lambda image, text: truth[image.tobytes(), text]))
    scores = task.evaluate(task.model(), "test")
    assert [score.name for score in scores] == [
        "accuracy", "macro F1", "baseline accuracy", "question-only baseline accuracy", "control accuracy",
        "control accuracy", "accuracy, there", "accuracy, colour",
    ]  # fmt: skip
    right, _, usual, prior, other_images, other_questions, there, colour = (score.value for score in scores)
    assert right == there == colour == 100
    assert usual < 70 and prior < 80
    assert other_images < 80 and other_questions < 60
    assert scores[2].signature == "always yes"
    assert all(score.interval is not None for score in scores)


def test_nobody_keeps_the_own_image_in_the_control(task_of, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(data)
    seen = []
    monkeypatch.setattr(task, "_ranked", Told(task, lambda image, text: seen.append(image.tobytes()) or "yes"))
    task.evaluate(task.model(), "test")
    count = sum(len(each.questions) for each in task.examples("test"))
    own, other = seen[:count], seen[count : 2 * count]
    assert sorted(own) == sorted(other)
    assert not any(one == another for one, another in zip(own, other, strict=True))


@pytest.mark.parametrize(("sees", "control"), [("question", "asked other questions"), ("image", "shown other images")])
@EVERY
def test_who_is_blind_or_deaf_answers_the_same_whatever_is_there(
    task_of, data: Path, name: str, sees: str, control: str
) -> None:
    task = task_of(data, *MODELS[name], f"model.sees={sees}")
    predictor = predictor_of(task)
    inputs = [f"valid{image}.png: {question}" for image in (0, 1) for question in (WHAT, "is there a red square?")]
    first, asked, shown, _ = (each.answers[0].score for each in predictor.predict(inputs))
    assert (first == shown) is (sees == "question")
    assert (first == asked) is (sees == "image")
    assert [score.signature for score in predictor.evaluate() if score.name == "control accuracy"] == [control]


def test_words_look_at_cells_and_then_the_question_does(task_of, data: Path, tmp_path: Path) -> None:
    predictor = predictor_of(task_of(data))
    over, weighed = predictor.look(f"valid0.png: {WHAT}")
    words = tuple(WHAT.removesuffix("?").split())
    assert over.rows.labels == (*words, "[question, look 1]", "[question, look 2]")
    assert isinstance(over.columns, Grid) and (over.columns.height, over.columns.width) == (4, 4)
    assert np.array_equal(over.columns.image, squares(6, seed=1)[0].pixels())
    assert predictor.predict([f"valid0.png: {WHAT}"])[0].text in over.name
    assert weighed.columns.labels == words
    for each in (over, weighed):
        torch.testing.assert_close(each.weights.sum(-1), torch.ones(1, len(each.rows)))
    in_pieces = predictor.look("valid0.png: is there a zebra", pieces=True)
    assert len(in_pieces[0].rows) > 6
    assert predictor.look("valid0.png: is there a zebra")[0].rows.labels[:4] == ("is", "there", "a", "zebra")
    save_maps([over, weighed], tmp_path / "map.png")


def test_what_is_shown_of_a_word_is_what_the_model_used(task_of, data: Path) -> None:
    task = task_of(data)
    predictor = predictor_of(task)
    picture = task.examples("valid")[0]
    shown = predictor.look(f"{picture.name}: {picture.questions[0].text}", pieces=True)[0]
    batch = task.collate([picture], [0])
    with record(predictor.model) as recording:
        predictor.model(batch.images, batch.about[:1], torch.tensor([picture.tokens[0]]))
    torch.testing.assert_close(shown.weights[0, :-2], recording["joint.ask"][0, 0])


def test_a_transformer_shows_the_answer_and_each_word_over_the_image_in_every_block(task_of, data: Path) -> None:
    settings = (*TRANSFORMER, "model.image={kind: vit, patch: 4, width: 8, layers: 2}")
    maps = predictor_of(task_of(data, *settings)).look(f"valid0.png: {WHAT}")
    rows = ("[answer]", *WHAT.removesuffix("?").split())
    assert maps[0].rows.labels == rows and len(maps[0].columns) == 16
    over, within = ([each for each in maps if each.name.endswith(end)] for end in ("the image", "the question"))
    assert len(over) == len(within) == 2 and over[0].heads == 2
    for image, question in zip(over, within, strict=True):
        torch.testing.assert_close(image.weights.sum(-1) + question.weights.sum(-1), torch.ones(2, len(rows)))
    assert maps[-1].name.startswith("image block 2")


def test_who_does_not_see_has_no_map_over_the_image(task_of, data: Path) -> None:
    (weighed,) = predictor_of(task_of(data, "model.sees=question")).look(f"valid0.png: {WHAT}")
    assert weighed.name == "how much each word counts"
    over, _ = predictor_of(task_of(data, "model.sees=image")).look(f"valid0.png: {WHAT}")
    assert over.rows.labels[0] == "(any question)"


def test_half_an_input_cannot_be_looked_at_and_no_answer_be_forced(task_of, data: Path) -> None:
    with pytest.raises(SaccadeError, match="a question after the image is missing"):
        predictor_of(task_of(data)).look("valid0.png:")
    with pytest.raises(SaccadeError, match="writes no answer that could be 'red'"):
        predictor_of(task_of(data)).look(f"valid0.png: {WHAT}", "red")


def test_broken_images_and_long_questions_are_told(task_of, tmp_path: Path) -> None:
    table = write_squares(tmp_path / "data", {"train": squares(4), "valid": squares(2)})
    (table.parent / "images" / "train1.png").write_bytes(b"torn")
    with table.open("a") as file:
        file.write(f"train2.png\ttrain\tthere\t{'is it there ' * 30}\tno\n")
    task = task_of(table)
    assert len(task.examples("train")) == 3
    assert max(len(ids) for each in task.examples("train") for ids in each.tokens) == 40
    assert task.notes[0] == "5 different answers"
    assert "1 of 4" in task.notes[1] and "train1.png" in task.notes[1]
    assert task.notes[2] == "questions are cut after 40 pieces, 1 of 21"
    with pytest.raises(SaccadeError, match=r"train1\.png: not an image.*; task\.broken=skip would leave it out"):
        task_of(table, "task.broken=refuse")


def test_an_answer_that_was_never_trained_is_wrong_and_told(task_of, tmp_path: Path) -> None:
    table = write_squares(tmp_path / "data", {"train": squares(4), "valid": squares(2)})
    with table.open("a") as file:
        file.write("valid0.png\tvalid\tthere\tis it there\tmaybe\n")
    task = task_of(table)
    predictor = predictor_of(task)
    assert "9.1 have an answer that no training question has" in predictor.evaluate()[0].signature
    loss = task.loss(predictor.model, task.collate(task.examples("valid"), range(2)))
    assert torch.isfinite(loss["loss"].sum)


def test_what_was_prepared_is_read_back(task_of, data: Path, tmp_path: Path) -> None:
    task, again = task_of(data), make_task(parse_recipe(RECIPE.format(data=data), "recipe"))
    again.load(tmp_path)
    assert again.answers == task.answers == ("blue", "green", "no", "red", "yes")
    (tmp_path / "answers.json").write_text("{")
    with pytest.raises(SaccadeError, match=r"answers\.json: cannot read the answers"):
        again.load(tmp_path)


def test_the_score_is_of_all_validation_questions(task_of, data: Path) -> None:
    scores = predictor_of(task_of(data)).score()
    assert scores.main == "accuracy" and len(scores.samples) == 30
    assert scores.samples[0][0] == "valid0.png: what colour is the left square?"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("model.kind=bahdanau",), "'bahdanau' cannot answer questions about images; there are stacked_attention, vqa"),
        (("model.kind=fitted",), "fitted"),
        (("model.width=6",), "a width that 4 divides; got 6"),
        (("model.sees=nothing",), "sees"),
        (("task.valid=1", "task.data=nowhere.tsv"), "nowhere"),
    ],
)
def test_what_cannot_answer_is_refused(task_of, data: Path, settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(SaccadeError, match=message):
        task_of(data, *settings)


def test_a_frozen_encoder_looks_once_and_sees_the_same(task_of, data: Path) -> None:
    settings = ("model.image={kind: efficientnet, width: 8}", "task.size=64")
    task = task_of(data, *settings)
    picture = task.examples("valid")[0]
    assert picture.image.dtype == torch.float16 and picture.image.shape == (4, 1280)
    predictor = predictor_of(task)
    by_name = [predictor.predict([f"{picture.name}: {each.text}"])[0].text for each in picture.questions]
    assert by_name == [answer for name, answer, _ in predictor.score().samples if name.startswith(f"{picture.name}:")]
