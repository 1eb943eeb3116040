"""Classifying images: data of one's own, answers with probabilities, scores with baselines, maps over the image."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade import api
from saccade.config import load_recipe
from saccade.decode import Beam
from saccade.errors import SaccadeError
from saccade.maps.render import Grid
from saccade.tasks.classify_images import ClassifyImages
from tests.data.test_pictures import write_idx
from tests.shapes import SHAPES, drawn, write_classes

TINY = (
    "task.names=[]",
    "task.valid=0.25",
    "model.patch=6",
    "model.width=16",
    "model.heads=2",
    "model.hidden=16",
    "model.layers=2",
    "train.threads=1",
    "train.steps=30",
    "train.schedule.warmup=5",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classes(tmp_path_factory.mktemp("data") / "shapes.zip", 30)


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> api.Predictor:
    test = write_classes(data.parent / "test.zip", 10, seed=9)
    settings = [f"task.data={data}", f"task.test={test}", *TINY]
    return api.train("classify-images-quick", out=tmp_path_factory.mktemp("runs") / "a", settings=settings)


@pytest.fixture
def picture(tmp_path: Path) -> str:
    path = tmp_path / "mine.png"
    drawn("circle", "red", np.random.default_rng(1)).resize((50, 40)).save(path)
    return str(path)


def task_of(data: Path, *settings: str) -> ClassifyImages:
    return ClassifyImages(load_recipe("classify-images-quick", [f"task.data={data}", *TINY, *settings]))


def test_size_and_parts_are_decided_from_the_data(data: Path, tmp_path: Path) -> None:
    task = task_of(data)
    recipe, reasons = task.fitted()
    assert recipe.task.size == 24
    assert "of 4 classes to train on" in reasons[0]
    assert "images are made 24 x 24" in reasons[1]
    task.prepare(tmp_path)
    train, valid = task.examples("train"), task.examples("valid")
    assert len(train) + len(valid) == 120
    assert {each.name for each in train}.isdisjoint(each.name for each in valid)
    assert task.labels == tuple(sorted(SHAPES))
    assert train[0].augment
    assert not valid[0].augment
    again = task_of(data, "model.patch=5")
    assert again.fitted()[0].task.size == 20


def test_only_training_images_are_moved_about(data: Path, tmp_path: Path) -> None:
    task = task_of(data, "task.augment.shift=5")
    task.fitted()
    task.prepare(tmp_path)
    train, valid = task.examples("train")[:8], task.examples("valid")[:8]
    one, other = (task.collate(train, range(8)).images for _ in range(2))
    assert not torch.equal(one, other)
    one, other = (task.collate(valid, range(8)).images for _ in range(2))
    assert torch.equal(one, other)
    assert task.collate(valid, range(8)).counts == {"loss": 8, "accuracy": 8}


def test_the_same_image_is_never_on_both_sides(tmp_path: Path) -> None:
    path = tmp_path / "twice.zip"
    with zipfile.ZipFile(write_classes(tmp_path / "once.zip", 20)) as once, zipfile.ZipFile(path, "w") as twice:
        for name in once.namelist():
            folder, _, file = name.partition("/")
            for copy in ("a", "b"):
                twice.writestr(f"{folder}/{copy}{file}", once.read(name))
    task = task_of(path)
    task.fitted()
    task.prepare(tmp_path)
    train, valid = ({each.pixels.tobytes() for each in task.examples(part)} for part in ("train", "valid"))
    assert valid
    assert train.isdisjoint(valid)


def test_a_crop_is_what_is_trained_with_answered_and_looked_at(data: Path, tmp_path: Path) -> None:
    middle = np.asarray(drawn("circle", "red", np.random.default_rng(1)))
    (tmp_path / "pets" / "cat").mkdir(parents=True)
    wide = tmp_path / "pets" / "cat" / "wide.png"
    Image.fromarray(np.pad(middle, ((0, 0), (30, 30), (0, 0)))).save(wide)
    task = task_of(data, "task.fit=crop", "task.size=24", f"task.test={tmp_path / 'pets'}")
    task.prepare(tmp_path)
    assert np.array_equal(task._data("test").pixels[0], middle)
    assert np.array_equal(task.look(task.model().eval(), str(wide))[0].columns.image, middle)


def test_a_broken_image_ends_a_training_that_asks_for_it(tmp_path: Path) -> None:
    data = write_classes(tmp_path / "shapes.zip", 6)
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr("circle/torn.png", b"torn")
    assert "1 of 25" in " ".join(_prepared(task_of(data), tmp_path))
    with pytest.raises(SaccadeError, match=r"shapes\.zip: circle/torn\.png: not an image that can be read"):
        _prepared(task_of(data, "task.broken=refuse"), tmp_path)


def test_a_validation_image_is_answered_by_its_name_whatever_was_asked_before(trained: api.Predictor) -> None:
    task, model = ClassifyImages(trained.recipe), trained.model
    task.labels = trained.task.labels
    name = trained.task.examples("valid")[0].name
    first, absent, endless = task.predict(model, [name, "no such image", "a" * 5000])
    assert first.text in SHAPES
    assert "no such image" in str(absent.refusal) and endless.refusal
    task.evaluate(model, "test")
    assert task.predict(model, [name])[0] == first
    assert task.look(model, name)


def _prepared(task: ClassifyImages, directory: Path) -> Sequence[str]:
    task.fitted()
    return task.prepare(directory)


def test_labels_come_ranked_with_their_probabilities(trained: api.Predictor, picture: str, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    found = trained.predict([picture, str(tmp_path / "broken.png"), str(tmp_path / "missing.png")], Beam(9, best=9))
    answers = found[0].answers
    assert {answer.text for answer in answers} == set(SHAPES)
    assert sum(answer.score for answer in answers) == pytest.approx(1)
    assert [answer.score for answer in answers] == sorted((answer.score for answer in answers), reverse=True)
    assert found[0].refusal is None
    assert "broken.png: not an image" in (found[1].refusal or "")
    assert "missing.png" in (found[2].refusal or "")
    assert found[1].answers == ()
    assert len(trained.predict([picture])[0].answers) == 1


def test_scores_come_with_baseline_control_and_what_is_confused(trained: api.Predictor) -> None:
    scores = trained.evaluate("test")
    names = ["accuracy", "macro F1", "baseline accuracy", "control accuracy", "control macro F1"]
    assert [score.name for score in scores[:5]] == names
    assert scores[0].signature == "of 40 images"
    assert scores[2].value == 25
    assert all(score.interval is not None for score in scores)
    assert {score.name for score in scores[5:]} == set(SHAPES)
    assert [score.value for score in scores[5:]] == sorted(score.value for score in scores[5:])
    assert sum(score.value for score in scores[5:]) / 4 == pytest.approx(scores[0].value)
    wrong = next(score for score in scores[5:] if score.value < 100)
    assert wrong.signature.startswith("taken for ")
    table = trained.task.confusion(trained.model, "test")
    assert table.counts.sum() == 40
    assert 100 * table.counts.diagonal().sum() / 40 == pytest.approx(scores[0].value)


def test_without_a_test_part_there_is_no_test_score(data: Path, tmp_path: Path) -> None:
    run = api.train(
        "classify-images-quick", out=tmp_path / "run", settings=[f"task.data={data}", *TINY, "train.steps=1"]
    )
    with pytest.raises(SaccadeError, match=r"no part called test, only train; task.test may name"):
        run.evaluate("test")


def test_a_vision_transformer_shows_what_its_answer_is_made_of(trained: api.Predictor, picture: str) -> None:
    summary, *layers = trained.look(picture)
    answer = trained.predict([picture])[0].text
    assert summary.name == f"what made it {answer}"
    assert isinstance(summary.columns, Grid)
    assert (summary.columns.height, summary.columns.width) == (4, 4)
    assert summary.columns.image.shape == (24, 24, 3)
    assert float(summary.weights.sum()) == pytest.approx(1)
    assert [each.name for each in layers] == ["image block 1, self-attention", "image block 2, self-attention"]
    assert [each.heads for each in layers] == [2, 2]
    assert all(float(each.weights.sum()) < 2 for each in layers)  # what the class token has of itself is not shown
    with pytest.raises(SaccadeError, match=r"nowhere.png"):
        trained.look("nowhere.png")
    with pytest.raises(SaccadeError, match="writes no answer that could be 'red'"):
        trained.look(picture, "red")
    name = trained.score().samples[0][0]  # as a report looks at what was scored
    assert trained.look(name)[0].columns.image.shape == (24, 24, 3)


def test_a_network_with_self_attention_shows_its_cells_and_one_without_shows_nothing(
    data: Path, picture: str, tmp_path: Path
) -> None:
    common = [f"task.data={data}", "task.valid=0.25", "model.kind=cnn", "model.width=4", "train.steps=1"]
    with_it = api.train("classify-images-quick", out=tmp_path / "a", settings=[*common, "model.attention=true"])
    (only,) = with_it.look(picture)
    assert only.rows == only.columns
    assert len(only.rows) == 9
    without = api.train("classify-images-quick", out=tmp_path / "b", settings=common)
    assert without.look(picture) == []


def test_numbers_of_an_idx_file_get_their_names_and_its_images_can_be_looked_at(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    grey = random.integers(256, size=(60, 12, 12))
    for part, count in (("train", 60), ("t10k", 20)):
        write_idx(tmp_path / f"{part}-images-idx3-ubyte.gz", grey[:count])
        write_idx(tmp_path / f"{part}-labels-idx1-ubyte.gz", np.arange(count) % 3)
    settings = [f"task.data={tmp_path}", *TINY, "task.names=[bag, shoe, hat]", "train.steps=2"]
    trained = api.train("classify-images-quick", out=tmp_path / "run", settings=settings)
    assert {score.name for score in trained.evaluate("test")[5:]} == {"bag", "shoe", "hat"}
    name, answer, _ = trained.score().samples[0]
    assert name.startswith("train-images-idx3-ubyte.gz ")
    assert trained.look(name)[0].name == f"what made it {answer}"


def test_broken_images_are_told_and_left_out(tmp_path: Path) -> None:
    data = write_classes(tmp_path / "shapes.zip", 8)
    with zipfile.ZipFile(data, "a") as archive:
        archive.writestr("circle/bad.png", b"\x89PNG cut")
    training = api.begin("classify-images-quick", out=tmp_path / "run", settings=[f"task.data={data}", *TINY])
    assert any("images that cannot be read are left out, 1 of 33: circle/bad.png" in note for note in training.reasons)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["model.kind=transformer"], "model.kind 'transformer' cannot classify images; there are vit, cnn"),
        (["task.valid=0.0001"], "0 for validation; give more images, or another task.valid"),
        (["task.size=25"], "cannot be cut into squares of model.patch 6"),
    ],
)
def test_what_cannot_be_trained_is_said_before(settings: list[str], message: str, data: Path, tmp_path: Path) -> None:
    kept = [each for each in TINY if not (settings[0].startswith("model.kind") and each.startswith("model"))]
    with pytest.raises(SaccadeError, match=message):
        api.begin("classify-images-quick", out=tmp_path / "run", settings=[f"task.data={data}", *kept, *settings])
    assert not (tmp_path / "run").exists()


def test_one_class_leaves_nothing_to_choose(tmp_path: Path) -> None:
    (tmp_path / "data" / "cat").mkdir(parents=True)
    for number in range(40):
        Image.new("RGB", (12, 12), (number, 0, 0)).save(tmp_path / "data" / "cat" / f"{number}.png")
    with pytest.raises(SaccadeError, match="one class only, 'cat'"):
        api.begin("classify-images-quick", out=tmp_path / "run", settings=[f"task.data={tmp_path / 'data'}", *TINY])


def test_a_label_of_the_test_part_that_was_never_trained_is_named(data: Path, tmp_path: Path) -> None:
    (tmp_path / "test" / "star").mkdir(parents=True)
    Image.new("RGB", (12, 12)).save(tmp_path / "test" / "star" / "1.png")
    settings = [f"task.data={data}", f"task.test={tmp_path / 'test'}", *TINY, "train.steps=1"]
    run = api.train("classify-images-quick", out=tmp_path / "run", settings=settings)
    with pytest.raises(SaccadeError, match="label 'star' is in no training image"):
        run.evaluate("test")


def test_a_label_of_the_validation_part_that_is_not_trained_is_named_before(tmp_path: Path) -> None:
    for place in ("train/cat", "train/dog", "valid/cat", "valid/star"):
        (tmp_path / "data" / place).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (12, 12), (number, 0, 0)).save(tmp_path / "data" / place / f"{number}.png")
    with pytest.raises(SaccadeError, match="label 'star' is in no training image"):
        api.begin("classify-images-quick", out=tmp_path / "run", settings=[f"task.data={tmp_path / 'data'}", *TINY])


def test_a_resumed_run_goes_on_bit_for_bit(data: Path, tmp_path: Path) -> None:
    settings = [f"task.data={data}", *TINY, "task.augment.flip=true", "train.steps=6", "train.save_every=3"]
    whole = api.train("classify-images-quick", out=tmp_path / "whole", settings=settings)
    training = api.begin("classify-images-quick", out=tmp_path / "parts", settings=settings)
    events = training.events()
    while training.trainer.step < 3 or not (tmp_path / "parts" / "step-000003").exists():
        next(events)
    events.close()
    resumed = api.resume(tmp_path / "parts")
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other)
