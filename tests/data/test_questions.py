"""Questions about images: tables, lists of easy-VQA, parts, and inputs of one line."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade.data.questions import Asked, AskedImages, Prior, Question, image_and_question, plain, read_table
from saccade.errors import SaccadeError


def png(shade: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), shade, np.uint8)).save(stream, "png")
    return stream.getvalue()


@pytest.fixture
def easy(tmp_path: Path) -> Path:
    """As easy-VQA is packed: images of both parts have the same names."""
    for part, count, shade in (("train", 40, 10), ("test", 3, 200)):
        with zipfile.ZipFile(tmp_path / f"{part}_images.zip", "w") as archive:
            for number in range(count):
                archive.writestr(f"{number}.png", png(shade))
        asked = [["what is it?", part, number] for number in range(count) for _ in range(2)]
        with gzip.open(tmp_path / f"{part}_questions.json.gz", "wt") as file:
            json.dump(asked, file)
    return tmp_path


def test_lists_of_json_have_the_images_of_their_part(easy: Path) -> None:
    data = AskedImages(str(easy), valid=0.3, size=4)
    assert {part: len(found) for part, found in data.parts.items()}["test"] == 3
    for part, shade in (("train", 10), ("valid", 10), ("test", 200)):
        there, broken = data.read(part)
        assert not broken
        assert all((pixels == shade).all() and len(asked.questions) == 2 for asked, pixels in there)


def test_no_image_is_both_trained_on_and_validated_with(easy: Path) -> None:
    parts = AskedImages(str(easy), valid=0.3).parts
    train, valid = ({each.image for each in parts[part]} for part in ("train", "valid"))
    assert not train & valid
    assert len(train | valid) == 40 and len(valid) > 3
    again = AskedImages(str(easy), valid=0.3).parts
    assert again["valid"] == parts["valid"]


def test_coco_qa_names_its_images_by_number(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "cocoqa.tsv.gz", "wt") as file:
        file.write("image_id\tsplit\ttype\tquestion\tanswer\n")
        file.write("42\ttrain\tcolor\twhat is the color of it\tred\n42\ttrain\tobject\twhat is it\tcat\n")
        file.write("7\tval\tobject\twhat is it\tdog\n")
    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.writestr("000000000042.jpg", png(1))
        archive.writestr("000000000007.jpg", b"torn")
    data = AskedImages(str(tmp_path), size=4)
    assert data.parts["train"] == [
        Asked(
            "000000000042.jpg",
            (Question("what is the color of it", "red", "color"), Question("what is it", "cat", "object")),
            "train",
        )
    ]
    assert data.read("train")[1] == []
    with pytest.raises(SaccadeError, match=r"no image of the part valid can be read: 000000000007\.jpg"):
        data.read("valid")
    with pytest.raises(SaccadeError, match="no part called test, only train, valid"):
        data.read("test")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image\tquestion\nx.png\twhy\n", r"own\.tsv:1: no column answer; .* image, question, answer"),
        ("", r"own\.tsv:1: no column image and no question and no answer"),
        ("image\tquestion\tanswer\nx.png\twhy\n", r"own\.tsv:2: 2 columns, and the first line names 3"),
        ("image\tquestion\tanswer\n\nx.png\t \tno\n", r"own\.tsv:3: no question"),
        ("image\tquestion\tanswer\tsplit\nx.png\twhy\tno\tlate\n", r"own\.tsv:2: split 'late' is not one of train"),
        ("image_id\tquestion\tanswer\nx.png\twhy\tno\n", r"own\.tsv:2: image_id 'x\.png' is not a number"),
        (
            "image\tquestion\tanswer\tsplit\nx.png\twhy\tno\ttrain\nx.png\twhen\tnow\ttest\n",
            r"own\.tsv:3: x\.png is in the part test, and in line 2 in train",
        ),
        ("image\tquestion\tanswer\n", "no questions in it"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "own.tsv"
    path.write_text(text)
    with pytest.raises(SaccadeError, match=message):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[["why", "so", "0"]]', "entry 1 is .* not .question, answer, number"),
        ("{", "not JSON"),
        ("[" * 200_000, "train_questions.json: not JSON"),
        ("{}", "not a list"),
    ],
)
def test_a_list_that_is_none_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "train_questions.json").write_text(text)
    with pytest.raises(SaccadeError, match=message):
        _ = AskedImages(str(tmp_path)).parts


def test_a_table_may_name_the_folder_of_its_images(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for name in ("1.png", "2.png"):
        (tmp_path / "images" / name).write_bytes(png(3))
    rows = "images/1.png\twhy?\tred\ttrain\nimages/2.png\twhy?\tblue\tvalid\n"
    (tmp_path / "questions.tsv").write_text(f"image\tquestion\tanswer\tsplit\n{rows}")
    data = AskedImages(str(tmp_path), size=4)
    assert [len(data.read(part)[0]) for part in ("train", "valid")] == [1, 1]


def test_a_folder_without_questions_says_what_it_would_hold(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"questions\.tsv, cocoqa\.tsv or train_questions\.json"):
        _ = AskedImages(str(tmp_path)).parts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("photo.jpg: what colour is it?", ("photo.jpg", "what colour is it?")),
        ("my photo.JPG : tell me: what?", ("my photo.JPG", "tell me: what?")),
        (r"C:\a.png: why", (r"C:\a.png", "why")),
        ("a.png.jpg:why", ("a.png.jpg", "why")),
        ("no ending\twhat is it: a or b?", ("no ending", "what is it: a or b?")),
    ],
)
def test_an_input_is_an_image_and_a_question(text: str, found: tuple[str, str]) -> None:
    assert image_and_question(text) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("what colour is it?", r"an image before the question is missing, as in 'photo\.jpg: what.*needs a tab"),
        ("photo.jpg ", "a question after the image is missing"),
        ("photo.jpg: ?", "a question after the image is missing"),
        ("photo.jpg\t", "a question after the image is missing"),
        ("\twhat is it", "an image before the question is missing"),
    ],
)
def test_half_an_input_is_refused_with_what_is_missing(text: str, message: str) -> None:
    with pytest.raises(SaccadeError, match=message):
        image_and_question(text)


def test_questions_are_read_without_capitals_and_marks() -> None:
    assert plain("What  colour is IT ? ") == "what colour is it"


def test_what_is_usual_after_the_same_words_is_answered_without_looking() -> None:
    asked = [("is it red?", "yes"), ("is it blue?", "no"), ("is it round?", "no"), ("what is it?", "cat")]
    prior = Prior(Question(text, answer) for text, answer in [*asked, ("what was it?", "dog"), ("what was it?", "dog")])
    assert prior.answer("Is it red") == "yes"
    assert prior.answer("is it green or what?") == "no"
    assert prior.answer("what was that?") == "dog"
    assert prior.answer("when?") == prior.most_frequent
