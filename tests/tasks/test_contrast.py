"""Contrasting images and texts: batches, what is refused, recall and its chance, labels nobody trained, search."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from rich.console import Console
from tokenizers import pre_tokenizers

from saccade import api, cli
from saccade.cli import terminal
from saccade.config import load_recipe
from saccade.data.lexicon import CLIP_MERGES
from saccade.decode import Beam
from saccade.errors import SaccadeError
from saccade.maps.render import Grid
from saccade.tasks import contrast
from saccade.tasks.contrast import Contrast
from saccade.tasks.space import chance_of
from tests.shapes import SHAPES, drawn, write_captions, write_classes

TINY = (
    "task.size=24",
    "task.pieces=300",
    "model.width=16",
    "model.image.kind=vit",
    "model.image.patch=8",
    "model.image.width=16",
    "model.image.heads=2",
    "model.image.hidden=16",
    "model.image.layers=2",
    "model.image.class_token=false",
    "model.text.width=16",
    "model.text.heads=2",
    "model.text.hidden=16",
    "model.text.layers=1",
    "train.threads=1",
    "train.steps=20",
    "train.schedule.warmup=5",
    "train.batch_tokens=16",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_captions(tmp_path_factory.mktemp("data") / "captions", 64, 32)


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "a"
    labelled = write_classes(data.parent / "classes.zip", 5)
    api.train("contrast-quick", out=path, settings=[f"task.data={data}", f"task.zero_shot={labelled}", *TINY])
    return path


@pytest.fixture(scope="module")
def trained(run: Path) -> api.Predictor:
    return api.load(run)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images to be searched, one of them broken."""
    random, path = np.random.default_rng(4), tmp_path / "photos"
    (path / "deep").mkdir(parents=True)
    for number in range(70):  # more than are looked at together
        drawn("circle", "red", random).save(path / "deep" / f"{number:02}.png")
    (path / "bad.png").write_bytes(b"junk")
    (path / "notes.txt").write_text("no image")
    return path


def prepared(data: Path, directory: Path, *settings: str) -> Contrast:
    task = Contrast(load_recipe("contrast-quick", [f"task.data={data}", *TINY, *settings]))
    task.fitted()
    task.prepare(directory)
    return task


def test_a_batch_has_different_images_with_one_caption_each_drawn_anew(data: Path, tmp_path: Path) -> None:
    task = prepared(data, tmp_path)
    examples = task.examples("train")
    assert len({each.name for each in examples}) == len(examples) == 64
    assert {len(each.tokens) for each in examples} == {2}
    torch.manual_seed(1)
    drawn_tokens = {tuple(task.collate(examples[:1], [0]).tokens[0].tolist()) for _ in range(20)}
    assert drawn_tokens == {tuple(ids) for ids in examples[0].tokens}
    torch.manual_seed(5)
    one = task.collate(examples[:8], range(8))
    torch.manual_seed(5)
    again = task.collate(examples[:8], range(8))
    assert torch.equal(one.tokens, again.tokens)
    assert one.images.shape == (8, 3, 24, 24)
    assert one.counts == {"loss": 8, "accuracy": 8}


def test_a_scale_that_has_grown_too_large_is_taken_back_before_the_next_update(data: Path, tmp_path: Path) -> None:
    task = prepared(data, tmp_path)
    model = task.model()
    with torch.no_grad():
        model.log_scale.fill_(9.0)
    loss = task.loss(model, task.collate(task.examples("train")[:4], range(4)))
    assert float(model.log_scale.detach().exp()) == pytest.approx(100, rel=1e-5)
    assert loss["loss"].sum.requires_grad
    assert loss["accuracy"].weight == 0


def test_lines_of_one_image_are_one_example(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    lines = []
    for number in range(40):
        drawn("square", "blue", random).save(tmp_path / f"{number}.png")
        lines += [f"{number}.png\tA square, number {number}.", f"{number}.png\tblue {number}"]
    (tmp_path / "list.tsv").write_text("\n".join(lines))
    (tmp_path / "run").mkdir()
    task = prepared(tmp_path / "list.tsv", tmp_path / "run", "task.valid=8")
    train, valid = task.examples("train"), task.examples("valid")
    assert len(train) + len(valid) == 40
    assert valid
    assert {len(each.captions) for each in train} == {2}
    assert {each.name for each in train}.isdisjoint(each.name for each in valid)


def test_long_captions_are_cut_and_capitals_do_not_matter(data: Path, tmp_path: Path) -> None:
    task = prepared(data, tmp_path, "task.longest=3")
    assert {len(ids) for each in task.examples("train") for ids in each.tokens} == {3}
    space = task.space(task.model())
    assert space.tokens(["A Red CIRCLE"]) == space.tokens(["a red circle"])
    with pytest.raises(SaccadeError, match="the text is empty"):
        space.tokens(["  "])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.accumulate=2", r"train.accumulate=2 would cut a batch into parts"),
        ("train.split_when_full=true", r"train.split_when_full=True would cut a batch into parts"),
    ],
)
def test_a_batch_that_would_be_cut_is_refused(setting: str, message: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=message):
        api.begin("contrast-quick", out=tmp_path / "run", settings=[f"task.data={data}", *TINY, setting])
    assert Contrast.indivisible


def test_a_published_vocabulary_puts_marks_around_a_caption(data: Path, tmp_path: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [f"{left} {right}" for left in letters for right in letters][:CLIP_MERGES]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    task = prepared(data, tmp_path, f"task.vocabulary={tmp_path}", "task.longest=5", "model.text.causal=true")
    (ids,) = task.space(task.model()).tokens(["A red circle on the left"])
    assert len(ids) == 5 and (ids[0], ids[-1]) == (49406, 49407)
    again = Contrast(task.recipe)
    again.load(tmp_path)
    assert again.space(task.model()).tokens(["a red circle on the left"]) == [ids]
    with pytest.raises(SaccadeError, match="longest 2 leaves no place between two marks"):
        prepared(data, tmp_path, f"task.vocabulary={tmp_path}", "task.longest=2")


def test_another_model_is_refused_by_name(data: Path, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"model.kind 'vit' cannot contrast images and texts; there are clip"):
        api.begin("contrast-quick", out=tmp_path / "run", settings=[f"task.data={data}", "model.kind=vit"])


def test_scores_come_both_ways_with_chance_control_and_labels_nobody_trained(trained: api.Predictor) -> None:
    scores = trained.evaluate("valid")
    names = [f"{way} R@{k}" for way in ("text to image", "image to text") for k in (10, 5, 1)]
    assert [score.name for score in scores] == [
        *names,
        "baseline text to image R@10",
        *(f"control {name}" for name in names),
        "zero-shot accuracy",
        "zero-shot baseline",
        "zero-shot control",
    ]
    assert scores[0].signature == "chance 31.2; 64 texts, 32 images"
    assert scores[5].signature.startswith("chance 3.1;")  # two right ones among 64
    assert scores[6].value == pytest.approx(100 * 10 / 32)
    assert scores[0].value > scores[6].value
    assert scores[0].value > scores[7].value
    assert scores[3].value > scores[10].value
    assert scores[-2].value == 25
    decisive = trained.score()
    assert decisive.main == "text to image R@10"
    assert decisive.decisive == pytest.approx(scores[0].value)
    with pytest.raises(SaccadeError, match="no part called test"):
        trained.evaluate("test")


def test_chance_is_what_a_blind_choice_finds() -> None:
    assert chance_of(np.array([1, 1]), 4, 1) == pytest.approx(25)
    assert chance_of(np.array([2]), 4, 2) == pytest.approx(100 * (1 - 1 / 6))
    assert chance_of(np.array([1]), 3, 10) == pytest.approx(100)


def test_labels_nobody_trained_are_as_probable_as_their_texts_are_near(trained: api.Predictor) -> None:
    images = [np.array(drawn(shape, "red", np.random.default_rng(3))) for shape in SHAPES]
    shares = trained.task.zero_shot(trained.model, images, SHAPES, template="a red {} on the left")
    assert shares.shape == (4, 4)
    torch.testing.assert_close(shares.sum(1), torch.ones(4))
    space = trained.task.space(trained.model)
    near = space.images(images) @ space.texts([f"a red {shape} on the left" for shape in SHAPES]).T
    assert torch.equal(near.argmax(1), shares.argmax(1))


def test_an_image_is_answered_with_known_captions(trained: api.Predictor, folder: Path) -> None:
    good, bad = trained.predict([str(folder / "deep" / "00.png"), str(folder / "bad.png")], Beam(3, best=3))
    known = {text for each in trained.task.examples("valid") for text in each.captions}
    assert len(good.answers) == 3
    assert {answer.text for answer in good.answers} <= known
    assert good.answers[0].score >= good.answers[1].score
    assert "bad.png: not an image" in (bad.refusal or "")


def test_a_text_without_an_image_is_refused_by_name(trained: api.Predictor) -> None:
    one, other = trained.predict(["a red circle", "two {}"])
    assert one.refusal == "there is no image among the inputs that 'a red circle' could be compared with"
    assert "'two {}'" in (other.refusal or "")


def test_look_shows_which_image_a_text_chooses(trained: api.Predictor, folder: Path) -> None:
    own = trained.task.examples("valid")[3]
    chosen, *rest = trained.look(own.captions[0])
    assert chosen.name == "which image each text chooses"
    assert chosen.weights.shape == (1, 9, 9)
    assert chosen.rows.labels[0] == own.captions[0]
    assert chosen.columns.labels[0] == own.name
    assert np.array_equal(chosen.columns.images[0], own.image)
    torch.testing.assert_close(chosen.weights.sum(-1), torch.ones(1, 9))
    assert [each.name for each in rest] == ["text block 1, self-attention"]
    target = folder / "deep" / "01.png"
    chosen, text, *image = trained.look("A red circle!", str(target), pieces=True)
    assert chosen.columns.labels[0] == "01.png"
    assert len(chosen.columns.images) == len(chosen.columns)
    assert len(text.rows) > 4
    assert [each.name for each in image] == [
        "what the image is known by",
        "image block 1, self-attention",
        "image block 2, self-attention",
    ]
    assert all(isinstance(each.columns, Grid) for each in image)
    with pytest.raises(SaccadeError, match=r"bad.png"):
        trained.look("A red circle", str(folder / "bad.png"))


def saccade(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    monkeypatch.setattr(terminal, "out", Console(file=out, highlight=False))
    monkeypatch.setattr(terminal, "err", Console(file=err, highlight=False))
    monkeypatch.setattr("sys.argv", ["saccade", *arguments])
    monkeypatch.setattr("warnings.showwarning", lambda *message: None)
    with pytest.raises(SystemExit) as leaving:
        cli.main()
    return int(leaving.value.code or 0), out.getvalue(), err.getvalue()


def test_search_ranks_images_and_names_what_it_cannot_read(
    run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = saccade(monkeypatch, "search", str(run), "a red circle", str(folder), "--n", "3")
    assert code == 0
    rows = [line.split("\t") for line in out.splitlines()]
    assert len(rows) == 3
    assert [float(cosine) for cosine, _ in rows] == sorted((float(cosine) for cosine, _ in rows), reverse=True)
    assert all(name.startswith("deep/") for _, name in rows)
    assert "bad.png: not an image" in err
    code, out, _ = saccade(monkeypatch, "search", str(run), "a red circle", str(folder), "--n", "100")
    assert len(out.splitlines()) == 70


def test_search_draws_what_it_found(run: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    picture = tmp_path / "new" / "found.png"
    code, out, _ = saccade(
        monkeypatch, "search", str(run), "a $red_ circle", str(folder), "--n", "7", "--out", str(picture)
    )
    assert code == 0 and len(out.splitlines()) == 7
    with Image.open(picture) as drawn_:
        assert drawn_.width > 900 and np.asarray(drawn_.convert("L")).std() > 5
    code, out, err = saccade(monkeypatch, "search", str(run), "red", str(folder), "--out", str(tmp_path / "found.doc"))
    assert code == 2 and not out and "cannot draw .doc" in err


def test_search_follows_links_and_passes_over_pipes(
    run: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "link.png").symlink_to(folder / "deep" / "00.png")
    (folder / "lost.png").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe.png")
    code, out, err = saccade(monkeypatch, "search", str(run), "a red circle", str(folder), "--n", "100")
    assert code == 0
    assert len(out.splitlines()) == 71 and "\tlink.png" in out
    assert "pipe.png: not a plain file" in err and "lost.png: cannot read: No such file" in err


def test_search_sees_the_middle_of_an_image_where_training_did(data: Path, tmp_path: Path) -> None:
    task = prepared(data, tmp_path, "task.fit=crop")
    photos = tmp_path / "photos"
    photos.mkdir()
    middle = drawn("circle", "red", np.random.default_rng(4))
    middle.save(photos / "middle.png")
    ImageOps.expand(middle, (30, 0), "white").save(photos / "wide.png")
    (found,) = task.space(task.model()).search("a red circle", photos)
    assert found.images[0][1] == pytest.approx(found.images[1][1], abs=1e-6)


def test_search_says_what_it_lacks(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = saccade(monkeypatch, "search", str(run), "a red circle", str(tmp_path / "empty"))
    assert code == 2
    assert "no image in it" in err
    (tmp_path / "empty" / "a.png").write_bytes(b"junk")
    code, _, err = saccade(monkeypatch, "search", str(run), "a red circle", str(tmp_path / "empty"))
    assert code == 2
    assert "none of the images can be read" in err
    other = tmp_path / "other"
    api.train("reverse", out=other, settings=["train.steps=1", "task.train_examples=20", "task.valid_examples=2"])
    code, _, err = saccade(monkeypatch, "search", str(other), "a red circle", str(tmp_path))
    assert code == 2
    assert "was trained to reverse; a run of contrast can search images" in err


def test_a_frozen_encoder_looks_once_and_only_at_images_that_stay_as_they_are(tmp_path: Path) -> None:
    data = write_captions(tmp_path / "captions", 4, 2)
    few = [each for each in TINY if not each.startswith("model.image")]

    def task(*settings: str) -> Contrast:
        made = Contrast(load_recipe("contrast-quick", [f"task.data={data}", *few, "task.size=32", *settings]))
        made.prepare(tmp_path)
        return made

    once = task()
    batch = once.collate(once.examples("train"), range(4))
    assert batch.images.shape == (4, 1, 1280)
    assert batch.images.dtype == torch.float32
    each_time = task("task.augment.flip=true")
    assert each_time.collate(each_time.examples("train"), range(4)).images.shape == (4, 3, 32, 32)
    model = once.model().eval()
    seen = once.space(model).images([each.image for each in once.examples("train")])
    looked = once.space(model).images([each.image for each in each_time.examples("train")])
    torch.testing.assert_close(seen, looked, rtol=0, atol=1e-2)  # half precision


def test_broken_and_missing_images_are_told(tmp_path: Path) -> None:
    data = write_captions(tmp_path / "captions", 8, 4)
    with (data / "captions.jsonl").open("a") as file:
        file.write(json.dumps({"file": "gone.png", "split": "train", "captions": ["x"]}) + "\n")
    training = api.begin("contrast-quick", out=tmp_path / "run", settings=[f"task.data={data}", *TINY])
    assert any("left out, 1 of 9" in note and "'gone.png'" in note for note in training.reasons)


def test_a_training_that_refuses_broken_images_ends_with_code_two_and_the_first_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_captions(tmp_path / "captions", 8, 4)
    with (data / "captions.jsonl").open("a") as file:
        file.write(json.dumps({"file": "gone.png", "split": "train", "captions": ["x"]}) + "\n")
    settings = [part for each in (*TINY, "task.broken=refuse") for part in ("--set", each)]
    given = ["train", "contrast-quick", "--data", str(data), "--out", str(tmp_path / "run"), *settings]
    code, _, err = saccade(monkeypatch, *given)
    assert code == 2
    told = "".join(err.split("\n"))
    assert "has no file 'gone.png'" in told and "task.broken=skip would leave it out" in told


def test_broken_images_for_zero_shot_are_refused_too(data: Path, tmp_path: Path) -> None:
    (tmp_path / "classes" / "circle").mkdir(parents=True)
    drawn("circle", "red", np.random.default_rng(4)).save(tmp_path / "classes" / "circle" / "good.png")
    (tmp_path / "classes" / "circle" / "bad.png").write_bytes(b"junk")
    task = prepared(data, tmp_path, f"task.zero_shot={tmp_path / 'classes'}", "task.broken=refuse")
    with pytest.raises(SaccadeError, match=r"circle/bad\.png: not an image .* task\.broken=skip would leave it out"):
        task._zero_shot_scores(task.model())


def test_a_picture_of_another_size_is_made_to_fit(trained: api.Predictor, tmp_path: Path) -> None:
    Image.new("L", (200, 90), 128).save(tmp_path / "grey.png")
    assert trained.predict([str(tmp_path / "grey.png")])[0].refusal is None


def test_a_long_file_name_is_shown_by_its_end() -> None:
    assert contrast._end_of("000000001180.jpg") == "…0001180.jpg"
    assert contrast._end_of("a.jpg") == "a.jpg"
