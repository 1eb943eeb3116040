"""Captioning: captions that share an image, the loss on attention, answers for files, maps over the image."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.config import parse_recipe
from saccade.data.vocab import PAD
from saccade.decode import Beam, Hypothesis, Sample
from saccade.errors import RunWarning, SaccadeError
from saccade.formulas import doubly_stochastic_penalty
from saccade.maps.record import attentions, record
from saccade.maps.render import Grid
from saccade.predictor import Predictor
from saccade.tasks.caption import CaptionImages
from saccade.verify import verify
from tests.scenes import SIZE, scenes, write_scenes

RECIPE = """
task: {{kind: caption, data: {data}, size: 24, pieces: 300}}
model: {{kind: show_attend_tell, width: 8, hidden: 12, image: {{kind: cnn, width: 4, stages: 2}}}}
"""
GRID = "model.image={kind: cnn, width: 4, stages: 2}"
TRANSFORMER = ("model.kind=caption_transformer", "model.heads=2", "model.width=12", GRID)
MODELS = {
    "with attention": (),
    "deep, without a gate": ("model.layers=2", "model.gate=false", "model.cell=gru"),
    "without attention": ("model.attend=false",),
    "transformer": TRANSFORMER,
    "transformer on a vision transformer": (*TRANSFORMER, "model.image={kind: vit, patch: 8, width: 8, layers: 2}"),
    "on a vision transformer": ("model.image={kind: vit, patch: 8, width: 8, layers: 2}",),
    "on a grid that attends": ("model.image.attention=true",),
}
EVERY = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = {"train": scenes(12), "valid": scenes(6, seed=1), "test": scenes(5, seed=2)}
    return write_scenes(tmp_path_factory.mktemp("scenes") / "data", parts, both=True)


@pytest.fixture
def task_of(tmp_path: Path):  # type: ignore[no-untyped-def]
    def make(data: Path, *settings: str) -> CaptionImages:
        task = CaptionImages(parse_recipe(RECIPE.format(data=data), "recipe", settings))
        task.prepare(tmp_path)
        return task

    return make


def predictor_of(task: CaptionImages, *, lively: bool = False) -> Predictor:
    """A model that was never trained; a lively one differs more from token to token."""
    torch.manual_seed(1)
    model = task.model().eval()
    if lively:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.4)
    return Predictor(task, model, task.recipe)


def test_captions_of_an_image_are_examples_that_share_it(task_of, data: Path) -> None:
    task = task_of(data)
    first, second, third = task.examples("train")[:3]
    assert first.picture is second.picture
    assert first.picture is not third.picture
    assert first.picture.image.dtype == np.uint8
    texts = [task.vocabulary.decode(each.target) for each in (first, second)]
    assert texts == [text.lower() for text in first.picture.captions]
    assert [len(task.pictures(part)) for part in ("train", "valid", "test")] == [12, 6, 5]


@EVERY
def test_every_captioner_obeys_the_laws(task_of, data: Path, name: str) -> None:
    laws = verify(predictor_of(task_of(data, *MODELS[name]), lively=True))
    assert [law.name for law in laws if not law.holds] == []


def test_the_loss_on_attention_is_the_formula_and_ignores_padding(task_of, data: Path) -> None:
    task = task_of(data, "task.doubly_stochastic=0.5", "model.dropout=0.0")
    model = predictor_of(task, lively=True).model
    examples = sorted(task.examples("train"), key=lambda each: len(each.target))
    few = [examples[0], examples[-1]]
    batch = task.collate(few, range(2))
    assert (batch.target == PAD).any()
    loss = task.loss(model, batch)
    assert all(attention.tap is None for _, attention in attentions(model))
    assert batch.counts["doubly_stochastic"] == 2
    assert loss["doubly_stochastic"].weight == 0.5
    with record(model) as recording:
        model(batch.source, None, batch.target[:, :-1])
    (seen,) = recording
    alone = [
        doubly_stochastic_penalty(seen.weights[row, 0, : len(each.target) + 1]).sum() for row, each in enumerate(few)
    ]
    torch.testing.assert_close(loss["doubly_stochastic"].sum, sum(alone))
    loss["doubly_stochastic"].sum.backward()
    assert model.decoder.writer.attention.query.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("settings", [("model.attend=false",), ("task.doubly_stochastic=0",)])
def test_without_attention_or_weight_there_is_no_loss_on_it(task_of, data: Path, settings: tuple[str, ...]) -> None:
    task = task_of(data, *settings)
    batch = task.collate(task.examples("train")[:2], range(2))
    assert set(task.loss(task.model(), batch)) == set(batch.counts) == {"loss", "surprise", "accuracy"}


def test_the_loss_on_attention_of_a_transformer_is_of_the_mean_that_is_shown(task_of, data: Path) -> None:
    task = task_of(data, *TRANSFORMER)
    predictor = predictor_of(task, lively=True)
    batch = task.collate(task.examples("valid")[:1], [0])
    text = task.vocabulary.decode(task.examples("valid")[0].target)
    shown = predictor.look("valid0.png", text, pieces=True)[0]
    loss = task.loss(predictor.model, batch)["doubly_stochastic"].sum
    torch.testing.assert_close(loss, doubly_stochastic_penalty(shown.weights[0]).sum())


def test_files_are_described_and_unreadable_ones_refused_one_by_one(task_of, data: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    inputs = [str(data / "images" / "test0.png"), str(broken), "nowhere" * 1000, "valid1.png"]
    found = predictor_of(task_of(data), lively=True).predict(inputs, Beam(3, best=2))
    assert [each.input for each in found] == inputs
    assert [len(each.answers) for each in found] == [2, 0, 0, 2]
    assert "broken.png" in found[1].refusal and "nowhere" in found[2].refusal
    assert found[0].answers[0].score >= found[0].answers[1].score
    again = predictor_of(task_of(data), lively=True).predict(inputs[3:], Beam(3, best=2))
    assert again[0].text == found[3].text


def test_captions_may_be_drawn(task_of, data: Path) -> None:
    predictor = predictor_of(task_of(data))
    (drawn,) = predictor.predict(["valid0.png"], Sample(answers=3, seed=1))
    assert len({answer.text for answer in drawn.answers}) == 3
    assert all(len(answer.hypothesis.tokens) <= 33 for answer in drawn.answers)


def test_words_look_at_cells_of_the_image(task_of, data: Path) -> None:
    task = task_of(data)
    predictor = predictor_of(task)
    (attention,) = predictor.look(str(data / "images" / "valid0.png"), "A red Square")
    assert attention.rows.labels == ("a", "red", "square", "<end>")
    assert isinstance(attention.columns, Grid)
    assert (attention.columns.height, attention.columns.width) == (6, 6)
    assert np.array_equal(attention.columns.image, scenes(6, seed=1)[0].pixels())
    torch.testing.assert_close(attention.weights.sum(-1), torch.ones(1, 4))
    (in_pieces,) = predictor.look("valid0.png", "A red zebra", pieces=True)
    assert len(in_pieces.rows) > 4
    (own,) = predictor.look("valid0.png")
    assert own.rows.labels[-1] == "<end>"


def test_a_transformer_shows_every_layer_and_head_and_how_the_image_was_seen(task_of, data: Path) -> None:
    maps = predictor_of(task_of(data, *MODELS["transformer on a vision transformer"])).look(
        "valid0.png", "a red circle"
    )
    assert maps[0].name == "alignment: average of all cross-attentions"
    across = [each for each in maps[1:] if "cross" in each.name]
    assert [each.heads for each in across] == [2, 2]
    assert all(each.columns == maps[0].columns and len(each.columns) == 9 for each in across)
    within = [each for each in maps if each.name.startswith("decoder") and "self" in each.name]
    assert within[0].columns.labels == ("<start>", "a", "red", "circle")
    assert maps[-1].name.startswith("image block 2")
    assert any(each.name == "how the image was seen" for each in maps)


def test_a_captioner_without_attention_has_nothing_to_show(task_of, data: Path) -> None:
    assert predictor_of(task_of(data, "model.attend=false")).look("valid0.png", "a red circle") == []


def test_an_image_that_cannot_be_looked_at_is_an_error(task_of, data: Path) -> None:
    with pytest.raises(SaccadeError, match=r"nowhere\.png"):
        predictor_of(task_of(data)).look("nowhere.png")


def test_evaluation_has_baseline_and_control(task_of, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A captioner that says the truth scores high, the most frequent caption and shuffled truths do not."""
    task = task_of(data)
    told = iter([task.vocabulary.encode(each.captions[0].lower()) for each in task.pictures("test")])

    def truth(model, images, method=None):  # type: ignore[no-untyped-def]
        return [[Hypothesis(tuple(next(told)), 0.0, (), "eos")] for _ in images]

    monkeypatch.setattr(task, "_answers", truth)
    scores = task.evaluate(task.model(), "test")
    values = {score.name: score.value for score in scores}
    assert [score.name for score in scores][:6] == ["CIDEr-D", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L"]
    assert all(score.interval is not None for score in scores)
    assert values["BLEU-4"] == pytest.approx(100)
    (frequent,) = (name for name in values if name.startswith("CIDEr-D of always"))
    assert values["CIDEr-D"] > 3 * values["CIDEr-D with captions shuffled against images"]
    assert values["CIDEr-D"] > 3 * values[frequent]


def test_the_score_is_of_the_images_and_says_how_many_captions_differ(task_of, data: Path) -> None:
    task = task_of(data, "task.valid_examples=4")
    scores = predictor_of(task).score()
    assert scores.main == "cider_d"
    assert len(scores.samples) == 4
    assert 0.25 <= scores.values["different"] <= 1


def test_broken_images_and_long_captions_are_left_out_and_told(task_of, tmp_path: Path) -> None:
    folder = write_scenes(tmp_path / "data", {"train": scenes(4), "valid": scenes(2)})
    (folder / "images" / "train1.png").write_bytes(b"torn")
    long = json.dumps({"file": "train2.png", "captions": ["a circle " * 30], "split": "train"})
    with (folder / "captions.jsonl").open("a") as file:
        file.write(f"{long}\n")
    (tmp_path / "vocabulary").mkdir()
    task = task_of(folder)
    notes = task.prepare(tmp_path / "vocabulary")
    assert len(task.examples("train")) == 3
    assert "1 of 4" in notes[0] and "train1.png" in notes[0]
    assert notes[1] == "captions of more than 32 pieces are left out, 1 of 4"


def test_what_is_left_out_of_the_scores_is_told(task_of, tmp_path: Path) -> None:
    folder = write_scenes(tmp_path / "data", {"train": scenes(4), "valid": scenes(2), "test": scenes(3)})
    (folder / "images" / "test0.png").write_bytes(b"no image")
    with pytest.warns(RunWarning, match=r"1 of the part test are left out of its scores: test0\.png: not an image"):
        left = task_of(folder).pictures("test")
    assert "test0.png" not in {each.name for each in left}


def test_a_broken_image_ends_a_training_that_asks_for_it(task_of, tmp_path: Path) -> None:
    folder = write_scenes(tmp_path / "data", {"train": scenes(4), "valid": scenes(2)})
    assert len(task_of(folder, "task.broken=refuse").pictures("train")) == 4
    (folder / "images" / "train1.png").write_bytes(b"torn")
    with pytest.raises(SaccadeError, match=r"data: train1\.png: not an image that can be read"):
        task_of(folder, "task.broken=refuse")


def test_a_crop_is_what_is_trained_with_described_and_looked_at(task_of, tmp_path: Path) -> None:
    folder = write_scenes(tmp_path / "data", {"train": scenes(4), "valid": scenes(2)})
    middle = scenes(1, seed=5)[0].pixels()
    wide = str(folder / "images" / "valid0.png")
    Image.fromarray(np.pad(middle, ((0, 0), (SIZE, SIZE), (0, 0)))).save(wide)
    task = task_of(folder, "task.fit=crop")
    assert np.array_equal(task.pictures("valid")[0].image, middle)
    predictor = predictor_of(task, lively=True)
    for name in (wide, "valid0.png"):
        assert np.array_equal(predictor.look(name, "a red circle")[0].columns.image, middle)
    Image.fromarray(middle).save(tmp_path / "middle.png")
    cut, same = predictor.predict([wide, str(tmp_path / "middle.png")])
    assert cut.answers[0].score == pytest.approx(same.answers[0].score)
    assert not np.array_equal(task_of(folder).pictures("valid")[0].image, middle)


def test_what_was_prepared_is_read_back(task_of, data: Path, tmp_path: Path) -> None:
    task, again = task_of(data), CaptionImages(parse_recipe(RECIPE.format(data=data), "recipe"))
    again.load(tmp_path)
    assert again._frequent == task._frequent != ""
    assert len(again.vocabulary) == len(task.vocabulary)


def test_images_are_changed_in_training_only(task_of, data: Path) -> None:
    task = task_of(data, "task.augment.shift=4", "model.dropout=0.0", "model.image.dropout=0.0")
    model, batch = predictor_of(task).model, task.collate(task.examples("train")[:4], range(4))
    resting = [task.loss(model, batch)["loss"].sum for _ in range(2)]
    assert torch.equal(*resting)
    model.train()
    moved = [task.loss(model, batch)["loss"].sum for _ in range(2)]
    assert not torch.equal(*moved)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ("model.kind=bahdanau",),
            "'bahdanau' cannot describe images; there are show_attend_tell, caption_transformer",
        ),
        (("decode.coverage_penalty=0.2",), "coverage_penalty"),
        (("model.image.width=3",), "a width that 4 divides; got 6"),
    ],
)
def test_what_cannot_describe_images_is_refused(task_of, data: Path, settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(SaccadeError, match=message):
        task_of(data, *settings).model()


def test_a_frozen_encoder_looks_once_and_sees_the_same(task_of, data: Path) -> None:
    settings = ("model.image={kind: efficientnet, width: 8}", f"task.size={2 * SIZE}")
    task = task_of(data, *settings)
    picture = task.pictures("valid")[0]
    assert picture.image.dtype == torch.float16 and picture.image.shape == (4, 1280)
    predictor = predictor_of(task)
    by_name, in_part = predictor.predict([picture.name])[0].text, predictor.score().samples
    assert by_name in {answer for name, answer, _ in in_part if name == picture.name}
    shifted = task_of(data, *settings, "task.augment.shift=2")
    assert shifted.pictures("valid")[0].image.shape == (2 * SIZE, 2 * SIZE, 3)


def test_a_list_to_test_on_without_a_line_for_it_is_refused(task_of, data: Path, tmp_path: Path) -> None:
    lines = [line for line in (data / "captions.jsonl").read_text().splitlines() if '"test"' not in line]
    (tmp_path / "other.jsonl").write_text("\n".join(lines))
    with pytest.raises(SaccadeError, match=r"other\.jsonl: no line is of the part test; its parts: train, valid"):
        task_of(data, f"task.test={tmp_path / 'other.jsonl'}", f"task.images={data}")
