"""Reading words: lists and their images, words that are drawn, the protocol of word accuracy, answers, maps."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from saccade.config import parse_recipe
from saccade.data.rendered import RenderedWords, Renderer
from saccade.data.words import WordImages, framed
from saccade.decode import Beam, Hypothesis
from saccade.errors import SaccadeError
from saccade.maps.render import Grid, save_maps
from saccade.metrics import word_accuracy
from saccade.predictor import Predictor
from saccade.tasks.read import ReadWords, _fonts_at_hand
from saccade.verify import verify

MODEL = "model: {kind: show_attend_tell, width: 8, hidden: 12, image: {kind: cnn, width: 4, stages: 3}}"
DRAWN = f"task: {{kind: read, rendered: 40, letters: abc, longest: 5, valid_examples: 8, width: 48}}\n{MODEL}"
TRANSFORMER = "model={kind: caption_transformer, width: 12, heads: 2, image: {kind: cnn, width: 4, stages: 3}}"
PATCHES = "model={kind: caption_transformer, width: 12, heads: 2, image: {kind: vit, patch: 8, width: 8, layers: 1}}"
TEXTS = ("Exit", "SALE", "No. 5", "Café", "SALE", "road", "RUE", "über", "A1", "Platz")


def font() -> Path:
    return next(path for path in _fonts_at_hand() if path.name == "DejaVuSans.ttf")


def crop(text: str, seed: int = 0) -> np.ndarray:
    return Renderer([font()], size=(20, 50), roughness=0.5).draw(text, np.random.default_rng(seed))


def write_words(folder: Path, part: str, texts: tuple[str, ...], *, title: bool = True) -> None:
    """A list with its images in an archive of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{part}_{number}.png" for number in range(len(texts))]
    with zipfile.ZipFile(folder / f"{part}.zip", "w") as archive:
        for number, (name, text) in enumerate(zip(names, texts, strict=True)):
            with archive.open(name, "w") as file:
                Image.fromarray(crop(text, number)).save(file, format="PNG")
    lines = ["file\ttext"] * title + [f"{name}\t{text}" for name, text in zip(names, texts, strict=True)]
    (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words") / "data"
    write_words(folder, "train", TEXTS * 4)
    write_words(folder, "test", TEXTS[:6])
    return folder


@pytest.fixture
def task_of(tmp_path: Path):  # type: ignore[no-untyped-def]
    def make(*settings: str, recipe: str = DRAWN) -> ReadWords:
        task = ReadWords(parse_recipe(recipe, "recipe", settings))
        task.prepare(tmp_path)
        return task

    return make


def of_data(data: Path, *settings: str) -> tuple[str, ...]:
    return f"task.data={data}", "task.valid=0.2", "task.longest=25", *settings


def predictor_of(task: ReadWords) -> Predictor:
    """A model that was never trained, and differs much from token to token."""
    torch.manual_seed(1)
    model = task.model().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.4)
    return Predictor(task, model, task.recipe)


# Lists and images.


def test_a_folder_is_read_by_its_lists_and_validation_is_cut_from_training(data: Path) -> None:
    words = WordImages(str(data), valid=0.2, size=(16, 40))
    train, valid, test = (words.read(part)[0] for part in ("train", "valid", "test"))
    assert len(train) + len(valid) == 40 and 0 < len(valid) < 20
    assert not {each.name for each in train} & {each.name for each in valid}
    assert [each.text for each in test] == list(TEXTS[:6])
    assert all(each.image.shape == (16, 40, 3) for each in train)


def test_the_lists_of_test_words_are_not_opened_for_training(data: Path, tmp_path: Path) -> None:
    write_words(tmp_path, "train", TEXTS)
    (tmp_path / "test.tsv").write_text("no tab in this line\n", encoding="utf-8")
    words = WordImages(str(tmp_path), valid=3)
    words.read("train")
    words.read("valid")
    with pytest.raises(SaccadeError, match=r"test\.tsv:1"):
        words.read("test")


def test_a_list_of_ones_own_has_its_images_beside_it(tmp_path: Path) -> None:
    (tmp_path / "crops").mkdir()
    for number in range(30):
        Image.fromarray(crop("ab", number)).save(tmp_path / "crops" / f"{number}.png")
    lines = "".join(f"crops/{number}.png\tab\n" for number in range(30))
    (tmp_path / "mine.tsv").write_text(lines, encoding="utf-8")
    words = WordImages(str(tmp_path / "mine.tsv"), valid=0.3)
    assert sum(len(words.read(part)[0]) for part in ("train", "valid")) == 30  # the first line is no title here
    with pytest.raises(SaccadeError, match="no part called test"):
        words.read("test")


def test_a_list_may_name_the_folder_that_is_called_like_it(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    for number in range(9):
        Image.fromarray(crop("ab", number)).save(tmp_path / "train" / f"{number}.png")
    lines = "".join(f"train/{number}.png\tab\n" for number in range(9))
    (tmp_path / "train.tsv").write_text(f"file\ttext\n{lines}", encoding="utf-8")
    (tmp_path / "test.tsv").write_text("file\ttext\n", encoding="utf-8")
    words = WordImages(str(tmp_path), valid=0.4)
    assert sum(len(words.read(part)[0]) for part in ("train", "valid")) == 9
    with pytest.raises(SaccadeError, match=r"test\.tsv: no words in it"):
        words.read("test")


def test_a_validation_list_is_used_as_it_is(tmp_path: Path) -> None:
    write_words(tmp_path, "train", TEXTS, title=False)
    write_words(tmp_path, "valid", TEXTS[:2])
    words = WordImages(str(tmp_path))
    assert [len(words.read(part)[0]) for part in ("train", "valid")] == [10, 2]


def test_images_that_are_broken_or_missing_are_left_out_counted_and_named(tmp_path: Path) -> None:
    write_words(tmp_path / "data", "train", TEXTS * 4)
    with zipfile.ZipFile(tmp_path / "data" / "train.zip", "a") as archive:
        archive.writestr("torn.png", b"no image")
    with (tmp_path / "data" / "train.tsv").open("a") as file:
        file.write("torn.png\ttorn\nnowhere.png\tnowhere\n")
    recipe = parse_recipe(DRAWN, "recipe", of_data(tmp_path / "data", "task.valid=1"))
    (tmp_path / "vocabulary").mkdir()
    notes = ReadWords(recipe).prepare(tmp_path / "vocabulary")
    assert "images that cannot be read are left out, 2 of" in notes[0]
    assert "torn.png" in notes[0] and "nowhere.png" in notes[0]
    refusing = parse_recipe(DRAWN, "recipe", of_data(tmp_path / "data", "task.valid=1", "task.broken=refuse"))
    with pytest.raises(SaccadeError, match=r"torn\.png: not an image.*; task\.broken=skip would leave it out"):
        ReadWords(refusing).prepare(tmp_path / "vocabulary")


@pytest.mark.parametrize(
    ("line", "message"),
    [("a.png", r"train\.tsv:2: a line is an image, a tab"), ("a.png\tone\na.png\ttwo", "several texts: one and two")],
)
def test_a_list_that_cannot_be_meant_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "train.tsv").write_text(f"file\ttext\n{line}\n", encoding="utf-8")
    with pytest.raises(SaccadeError, match=message):
        WordImages(str(tmp_path)).read("train")


def test_words_are_stretched_and_those_that_run_downwards_turned() -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 20:] = 255
    assert framed(wide, (8, 12))[:, 9:].min() > 200 and framed(wide, (8, 12))[:, :6].max() < 50
    downwards = np.rot90(wide, -1)  # its end is at the bottom
    assert np.array_equal(framed(downwards, (8, 12)), framed(wide, (8, 12)))
    high = np.zeros((14, 10, 3), np.uint8)
    high[7:] = 255
    assert framed(high, (8, 12))[6:].min() > 200  # not so high that it would be lying


# Words that are drawn.


def rendered(total: int = 30, roughness: float = 1.0, seed: int = 1) -> RenderedWords:
    renderer = Renderer(_fonts_at_hand(), roughness=roughness)
    return RenderedWords(renderer, total, "abcdef", words=("Exit", "sale"), lengths=(2, 4), seed=(seed,))


def test_what_is_drawn_depends_on_seed_and_number_alone() -> None:
    few, many, others = rendered(), rendered(1000), rendered(seed=2)
    for number in (3, 0, 29):
        assert few[number].text == many[number].text
        assert np.array_equal(few[number].image, many[number].image)
        assert np.array_equal(few[number].image, few[number].image)
    assert [each.text for each in few] != [each.text for each in others]
    assert len({each.image.tobytes() for each in few}) == 30
    assert few[0].image.shape == (32, 100, 3)


def test_words_of_the_list_and_random_strings_are_drawn_in_several_cases() -> None:
    texts = [each.text for each in rendered(400)]
    assert {"Exit", "EXIT", "sale", "SALE", "Sale"} <= set(texts)
    strings = [text for text in texts if text.lower() not in ("exit", "sale")]
    assert 0.3 < len(strings) / len(texts) < 0.5
    assert {len(text) for text in strings} == {2, 3, 4}


def test_without_roughness_letters_are_black_on_white_and_legible() -> None:
    """Another text is another image, the same text in the same font the same one."""
    renderer = Renderer([font()], roughness=0.0)
    one, again, other = (
        renderer.draw(text, np.random.default_rng(seed)) for text, seed in (("ab", 1), ("ab", 2), ("ba", 1))
    )
    assert np.abs(one.astype(int) - again).max() == 0
    assert np.abs(one.astype(int) - other).mean() > 20
    assert one.min() < 30 and np.median(one) > 200


def test_no_box_is_drawn_for_a_letter_that_a_font_does_not_have() -> None:
    renderer = Renderer(_fonts_at_hand())
    assert renderer.able("Café No. 5") and not renderer.able("字")
    with pytest.raises(SaccadeError, match=r"no font has all letters of '字'.*task\.fonts"):
        renderer.draw("字", np.random.default_rng(0))


def test_a_repeated_photo_is_changed_a_little_and_always_alike(task_of, data: Path) -> None:
    task = task_of(*of_data(data, "task.repeat=3", "task.rendered=0"))
    examples, photos = task.examples("train"), task.words("train")
    assert len(examples) == 3 * len(photos)
    first, again = examples[0].word, examples[len(photos)].word
    assert first.name == again.name and first.text == again.text
    assert np.array_equal(again.image, again.image) and not np.array_equal(first.image, again.image)


# The protocol.


def test_word_accuracy_counts_letters_and_digits_of_words_with_three_of_them() -> None:
    references = ["Exit!", "No. 5", "A1", "Café", "..."]
    answers = ["EXIT", "no5", "wrong", "cafe", "wrong"]
    score = word_accuracy(answers, references)
    assert score.value == pytest.approx(100 * 2 / 3)  # A1 and ... are too short, é is not e
    assert score.signature == "of 3 of 5 words" and score.interval is not None
    assert word_accuracy(answers, references, shortest=1).value == pytest.approx(50)
    with pytest.raises(SaccadeError, match="none of 1 references has 3"):
        word_accuracy(["a"], ["a"])


def test_evaluation_has_exact_words_baseline_and_control(task_of, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is right but for case scores fully by the protocol, and not exactly."""
    task = task_of(*of_data(data))
    told = [
        task.vocabulary.encode(each.text.upper() if number else each.text)
        for number, each in enumerate(task.words("test"))
    ]

    def truth(model, images, method=None):  # type: ignore[no-untyped-def]
        return [[Hypothesis(tuple(ids), 0.0, (), "eos")] for ids in told]

    monkeypatch.setattr(task, "_answers", truth)
    scores = task.evaluate(task.model(), "test")
    values = {score.name: score.value for score in scores}
    assert [score.name for score in scores][:3] == ["word accuracy", "exact words", "CER"]
    assert values["word accuracy"] == 100 and 0 < values["exact words"] < 100
    assert values["word accuracy of always 'SALE'"] == pytest.approx(100 * 2 / 6)
    assert values["exact words of always 'SALE'"] == pytest.approx(100 * 2 / 6)
    assert values["word accuracy with images shuffled against texts"] < 50
    assert all(score.interval is not None for score in scores)


# The task.


@pytest.mark.parametrize("settings", [(), (TRANSFORMER,), (PATCHES,)], ids=["recurrent", "transformer", "patches"])
def test_every_reader_obeys_the_laws_on_images_that_are_no_squares(task_of, settings: tuple[str, ...]) -> None:
    laws = verify(predictor_of(task_of(*settings)))
    assert [law.name for law in laws if not law.holds] == []


def test_cells_of_an_image_that_is_no_square_know_their_row_and_column(task_of) -> None:
    task = task_of()
    sight, images = task.model().eval().encoder, task.collate(task.examples("valid")[:1], [0]).source
    added = sight(images).states - sight.image(images).states  # (1, 24, 16): four rows, six columns
    row, column = added[0].unflatten(0, (4, 6)).chunk(2, dim=-1)
    torch.testing.assert_close(row, row[:, :1].expand_as(row))
    torch.testing.assert_close(column, column[:1].expand_as(column))
    assert not torch.allclose(row[0], row[1]) and not torch.allclose(column[:, 0], column[:, 1])


def test_without_data_the_parts_are_drawn_from_different_seeds(task_of) -> None:
    task = task_of()
    train, valid, test = ([each.text for each in task.words(part)] for part in ("train", "valid", "test"))
    assert (len(train), len(valid), len(test)) == (40, 8, 8)
    assert valid != test and valid != train[:8]
    assert set("".join(train)) <= set("abcABC")


def test_training_mixes_photos_and_drawn_words_and_validation_is_of_photos(task_of, data: Path) -> None:
    task = task_of(*of_data(data))
    examples = task.examples("train")
    photos = len(task.words("train"))
    assert len(examples) == photos + 40
    assert examples[photos].word.name == "rendered 0"
    assert all(each.word.name.startswith("train_") for each in task.examples("valid"))
    assert {"É", "é", "Ü", "a"} <= set(task.vocabulary.characters)  # words are drawn in capitals, too
    batch = task.collate([examples[0], examples[photos]], [0, photos])
    assert batch.source.shape == (2, 3, 32, 48)


def test_case_is_kept_and_characters_never_seen_have_no_id(task_of, data: Path, tmp_path: Path) -> None:
    task = task_of(*of_data(data))
    assert task.vocabulary.decode(task.vocabulary.encode("Exit")) == "Exit"
    write_words(tmp_path / "other", "train", TEXTS)
    write_words(tmp_path / "other", "valid", ("abΩ", "cab"))
    assert len(task_of(*of_data(tmp_path / "other")).examples("valid")[0].target) == 3


def test_a_word_list_says_what_is_drawn_and_what_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("bus\n字\nmuch too long\n", encoding="utf-8")
    task = ReadWords(parse_recipe(DRAWN, "recipe", [f"task.words={tmp_path / 'words.txt'}"]))
    notes = task.prepare(tmp_path)
    assert "words that are too long or in no font are not rendered, 2 of 3" in notes
    assert {"bus", "BUS", "Bus"} <= {each.text for each in task.words("train")}


def test_files_are_read_and_unreadable_ones_refused_one_by_one(task_of, tmp_path: Path) -> None:
    Image.fromarray(crop("ab")).save(tmp_path / "crop.png")
    (tmp_path / "torn.png").write_bytes(b"no image")
    inputs = [str(tmp_path / "crop.png"), str(tmp_path / "torn.png"), "nowhere" * 1000, "rendered 3"]
    found = predictor_of(task_of()).predict(inputs, Beam(4, best=3))
    assert [len(each.answers) for each in found] == [3, 0, 0, 3]
    assert "torn.png" in found[1].refusal and "nowhere" in found[2].refusal
    for each in (found[0], found[3]):
        assert [answer.score for answer in each.answers] == sorted((a.score for a in each.answers), reverse=True)
        assert len({answer.text for answer in each.answers}) == 3


def test_letters_look_at_cells_of_the_crop(task_of, tmp_path: Path) -> None:
    predictor = predictor_of(task_of())
    (attention,) = predictor.look("rendered 3", "cab")
    assert attention.rows.labels == ("c", "a", "b", "<end>")
    assert isinstance(attention.columns, Grid)
    assert (attention.columns.height, attention.columns.width) == (4, 6)
    assert np.array_equal(attention.columns.image, predictor.task.words("valid")[3].image)
    torch.testing.assert_close(attention.weights.sum(-1), torch.ones(1, 4))
    assert predictor.look("rendered 3", "cab", pieces=True)[0].rows.labels[0] == "▁"
    save_maps(predictor.look("rendered 3"), tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 1000
    with pytest.raises(SaccadeError, match=r"nowhere\.png"):
        predictor.look("nowhere.png")


def test_the_score_is_of_validation_words(task_of) -> None:
    scores = predictor_of(task_of("task.valid_examples=5")).score()
    assert scores.main == "words" and len(scores.samples) == 5
    assert set(scores.values) == {"words", "exact", "cer", "cut"}


def test_what_was_prepared_is_read_back(task_of, tmp_path: Path) -> None:
    task, again = task_of(), ReadWords(parse_recipe(DRAWN, "recipe"))
    again.load(tmp_path)
    assert again._frequent == task._frequent != ""
    assert again.vocabulary.characters == task.vocabulary.characters


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("model={kind: bahdanau}",), "'bahdanau' cannot read; there are show_attend_tell, caption_transformer"),
        (("decode.coverage_penalty=0.2",), "coverage_penalty"),
        (("task.rendered=0",), "there is nothing to read"),
        (("task.shortest=6",), "shortest 6 is above longest 5"),
        (("task.letters='a b'",), "have no space among them; got 'a b'"),
        (("task.letters='a字'",), "no font has all of task.letters"),
        (("task.fonts=nowhere.ttf",), r"nowhere\.ttf: not a font"),
        (("task.data=nowhere.txt",), r"nowhere\.txt: words come as a \.tsv"),
        ((PATCHES, "task.width=50"), "32 x 50 pixels cannot be cut into squares of model.patch 8.*32 x 48"),
    ],
)
def test_what_cannot_be_read_is_refused(task_of, settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(SaccadeError, match=message):
        task_of(*settings).model()
