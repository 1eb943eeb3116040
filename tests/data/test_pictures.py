"""Labelled and captioned images from folders, archives and lists: what counts as a label, a part, an image."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from saccade.data.archives import open_files
from saccade.data.captioned import CaptionedImages
from saccade.data.pictures import (
    Source,
    caption_list,
    held_out,
    images_beside,
    labelled_parts,
    read_captions,
    read_files,
    read_labelled,
    read_named,
    told,
    usual_side,
)
from saccade.errors import SaccadeError
from tests.shapes import write_classes


def png(colour: tuple[int, int, int] = (255, 0, 0), size: tuple[int, int] = (8, 8)) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", size, colour).save(stream, "png")
    return stream.getvalue()


def folder(path: Path, *names: str) -> Path:
    for name in names:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(png())
    return path


def tar(path: Path, *names: str) -> Path:
    with tarfile.open(path, "w:xz") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = len(png())
            archive.addfile(entry, io.BytesIO(png()))
    return path


def write_idx(path: Path, array: np.ndarray) -> Path:
    header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))
    return path


def test_the_folder_of_an_image_is_its_label(tmp_path: Path) -> None:
    data = read_labelled(Source(write_classes(tmp_path / "shapes.zip", 3)), size=12)
    assert data.pixels.shape == (12, 12, 12, 3)
    assert data.pixels.dtype == np.uint8
    assert data.labels == ("circle",) * 3 + ("cross",) * 3 + ("square",) * 3 + ("triangle",) * 3
    assert data.names[0] == "circle/0000.png"
    assert data.broken == ()


def test_parts_that_the_data_names_are_found_whatever_it_is_packed_in(tmp_path: Path) -> None:
    plain = folder(tmp_path / "plain", "train/cat/1.png", "test/cat/1.png", "val/dog/1.png")
    assert labelled_parts(plain) == {part: Source(plain / name) for part, name in _names(valid="val")}
    packed = tar(tmp_path / "packed.tar.xz", "train/cat/1.png", "test/cat/1.png", "validation/dog/1.png")
    assert labelled_parts(packed) == {part: Source(packed, name) for part, name in _names(valid="validation")}
    around = tar(tmp_path / "around.tar.xz", "pets/train/cat/1.png", "pets/test/cat/1.png", "pets/valid/dog/1.png")
    assert labelled_parts(around) == {part: Source(around, f"pets/{name}") for part, name in _names(valid="valid")}
    archives = tmp_path / "archives"
    archives.mkdir()
    for name in ("train", "test"):
        tar(archives / f"{name}.tar.xz", "cat/1.png")
    assert set(labelled_parts(archives)) == {"train", "test"}
    assert read_labelled(labelled_parts(around)["test"], size=8).names == ("pets/test/cat/1.png",)


def _names(valid: str) -> list[tuple[str, str]]:
    return [("test", "test"), ("train", "train"), ("valid", valid)]


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    vehicles = folder(tmp_path / "vehicles", "train/1.png", "plane/1.png")
    assert labelled_parts(vehicles) == {"train": Source(vehicles)}
    packed = tar(tmp_path / "vehicles.tar.xz", "train/1.png", "plane/1.png")
    assert labelled_parts(packed) == {"train": Source(packed)}
    assert set(read_labelled(Source(packed), size=8).labels) == {"train", "plane"}


def test_what_systems_leave_behind_is_passed_over_and_what_is_broken_is_named(tmp_path: Path) -> None:
    data = folder(tmp_path / "pets", "cat/1.png", "cat/._1.png", "__MACOSX/cat/1.png", ".cache/dog/1.png", "loose.png")
    (data / "cat" / "Thumbs.db").write_bytes(b"x")
    (data / "cat" / "2.png").write_bytes(png()[:30])
    (data / "cat" / "3.jpg").write_bytes(b"")
    found = read_labelled(Source(data), size=8)
    assert found.names == ("cat/1.png",)
    assert [why.split(":")[0] for why in found.broken] == ["cat/2.png", "cat/3.jpg"]
    (note,) = told(found.broken, 3, "images", most=1)
    assert note.startswith("images that cannot be read are left out, 2 of 3: cat/2.png:")
    assert note.endswith("; ...")
    assert told((), 3, "images") == []


def test_a_pipe_among_the_images_is_left_out_like_a_broken_one_and_a_link_is_followed(tmp_path: Path) -> None:
    data = folder(tmp_path / "pets", "cat/1.png", "dog/1.png")
    (data / "cat" / "2.png").symlink_to(data / "dog" / "1.png")
    (data / "cat" / "3.png").symlink_to("gone.png")
    os.mkfifo(data / "dog" / "2.png")
    assert usual_side(Source(data)) == 8
    found = read_labelled(Source(data), size=8)
    assert found.names == ("cat/1.png", "cat/2.png", "dog/1.png")
    assert [why.removeprefix(f"{data}/") for why in found.broken] == [
        "cat/3.png: cannot read: No such file or directory",
        "dog/2.png: not a plain file",
    ]


def test_broken_images_are_an_error_if_they_are_to_be(tmp_path: Path) -> None:
    data = folder(tmp_path / "pets", "cat/1.png", "dog/1.png")
    assert len(read_labelled(Source(data), size=8, broken="refuse")) == 2
    (data / "cat" / "2.png").write_bytes(b"torn")
    with pytest.raises(SaccadeError, match=r"pets: cat/2\.png: not an image.*; task\.broken=skip would leave it out"):
        read_labelled(Source(data), size=8, broken="refuse")
    lines = [{"file": f"cat/{n}.png", "captions": ["a cat"], "split": ("valid", "train")[n - 1]} for n in (1, 2)]
    lines += [{"file": "dog/1.png", "captions": ["a dog"], "split": "train"}]
    (data / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    listed = CaptionedImages(str(data), broken="refuse")
    assert len(listed.read("valid")[0]) == 1
    with pytest.raises(SaccadeError, match=r"cat/2\.png: not an image.*; task\.broken=skip"):
        listed.read("train")


def test_a_crop_reaches_files_archives_and_idx(tmp_path: Path) -> None:
    wide = np.zeros((4, 12, 3), np.uint8)
    wide[:, 4:8] = 255
    (tmp_path / "cat").mkdir()
    Image.fromarray(wide).save(tmp_path / "cat" / "1.png")
    with open_files(tmp_path) as files:
        read = [
            *read_named(files, ["cat/1.png"], size=4, fit="crop"),
            *read_files([tmp_path / "cat" / "1.png"], size=4, fit="crop"),
            *read_labelled(Source(tmp_path), size=4, fit="crop").pixels,
        ]
    write_idx(tmp_path / "images-idx3-ubyte.gz", wide[None, ..., 0])
    write_idx(tmp_path / "labels-idx1-ubyte.gz", np.zeros(1))
    read += list(read_labelled(Source(tmp_path / "images-idx3-ubyte.gz"), size=4, fit="crop").pixels)
    assert len(read) == 4
    assert all(isinstance(each, np.ndarray) and (each == 255).all() for each in read)


def test_data_without_one_readable_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(SaccadeError, match="classes are folders with images in them"):
        read_labelled(Source(tmp_path), size=8)
    (tmp_path / "cat" / "1.png").write_bytes(b"junk")
    with pytest.raises(SaccadeError, match=r"no image that can be read: cat/1\.png: not an image"):
        read_labelled(Source(tmp_path), size=8)
    with pytest.raises(SaccadeError, match="no image in a folder of its class"):
        usual_side(Source(tmp_path))


def test_idx_files_are_read_as_pairs_and_their_numbers_may_have_names(tmp_path: Path) -> None:
    grey = np.arange(3 * 4 * 4).reshape(3, 4, 4)
    images = write_idx(tmp_path / "train-images-idx3-ubyte.gz", grey)
    labels = write_idx(tmp_path / "train-labels-idx1-ubyte.gz", np.array([2, 0, 2]))
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", grey[:1])
    parts = labelled_parts(tmp_path)
    assert {part: source.path.name.split("-")[0] for part, source in parts.items()} == {
        "train": "train",
        "test": "t10k",
    }
    assert labelled_parts(images) == {"train": Source(images)}
    assert usual_side(parts["train"]) == 4
    data = read_labelled(parts["train"], size=4)
    assert data.labels == ("2", "0", "2")
    assert (data.pixels == grey[..., None]).all()
    assert data.pixels.shape == (3, 4, 4, 3)
    assert read_labelled(parts["train"], size=2, names=("bag", "shoe", "hat")).labels == ("hat", "bag", "hat")
    with pytest.raises(SaccadeError, match="label 2 has no name among the 2"):
        read_labelled(parts["train"], size=4, names=("bag", "shoe"))
    write_idx(labels, np.array([2, 0]))
    with pytest.raises(SaccadeError, match=r"images \(3, 4, 4\) do not fit their labels \(2,\)"):
        read_labelled(parts["train"], size=4)


def test_the_usual_side_is_that_of_most_images(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    for number, size in enumerate([(40, 30), (30, 50), (500, 400)]):
        (tmp_path / "cat" / f"{number}.png").write_bytes(png(size=size))
    assert usual_side(Source(tmp_path)) == 30


def test_like_keys_are_on_one_side_and_the_part_is_a_share_or_a_number() -> None:
    keys = [str(number // 2) for number in range(4000)]
    train, valid = held_out(keys, 0.1)
    assert sorted([*train, *valid]) == list(range(4000))
    assert {keys[number] for number in train}.isdisjoint(keys[number] for number in valid)
    assert 300 < len(valid) < 500
    assert held_out(keys, 400) == (train, valid)


def test_captions_are_read_from_lines_of_json(tmp_path: Path) -> None:
    lines = [
        {"file": "a.png", "split": "train", "captions": ["one", " two ", ""]},
        {"file": "./b.png", "split": "val", "caption": "three"},
        {"file": "c.png", "captions": []},
        {"file": "a.png", "split": "train", "captions": ["four"]},
    ]
    path = tmp_path / "captions.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(json.dumps(line) for line in lines).encode()))
    assert caption_list(tmp_path) == path
    first, second = read_captions(path)
    assert (first.image, first.captions, first.part, first.line) == ("a.png", ("one", "two", "four"), "train", 1)
    assert (second.image, second.captions, second.part) == ("b.png", ("three",), "valid")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[" * 200_000, "not JSON"),
        ('["a.png"]', "an object with file and captions"),
        ('{"file": "b.png", "captions": [1]}', "captions are a list of texts"),
        ('{"file": "b.png", "captions": ["x"], "split": "later"}', "split 'later' is not one of train"),
        ('{"file": "b.png", "captions": ["x"], "split": ["test"]}', r"split \['test'\] is not one of train"),
        ('{"file": "a.png", "captions": ["x"], "split": "test"}', "a.png is in the part test, and in line 1 in train"),
    ],
)
def test_a_wrong_line_of_captions_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "list.jsonl"
    path.write_text('{"file": "a.png", "captions": ["x"], "split": "train"}\n' + line + "\n")
    with pytest.raises(SaccadeError, match=f"list.jsonl:2: .*{message}"):
        read_captions(path)


def test_captions_are_read_from_a_table_and_images_lie_beside_it(tmp_path: Path) -> None:
    table = tmp_path / "captions.tsv"
    table.write_text("in/a.png\tone\nin/b.png\ttwo, too\n\nin/a.png\tthree\nin/c.png\t \n")
    found = read_captions(table)
    assert [(each.image, each.captions, each.part) for each in found] == [
        ("in/a.png", ("one", "three"), None),
        ("in/b.png", ("two, too",), None),
    ]
    assert images_beside(table, "in/a.png") == tmp_path
    (tmp_path / "images").mkdir()
    assert images_beside(table, "in/a.png") == tmp_path / "images"
    (tmp_path / "images.zip").write_bytes(b"")
    assert images_beside(table, "in/a.png") == tmp_path / "images.zip"
    table.write_text("a.png one\n")
    with pytest.raises(
        SaccadeError, match=r"captions.tsv:1: a line is an image, a tab and its caption; got 'a.png one'"
    ):
        read_captions(table)
    table.write_text("\n")
    with pytest.raises(SaccadeError, match="no captions in it"):
        read_captions(table)


@pytest.mark.parametrize("named", ["", "images/"])
def test_a_list_names_its_images_from_its_own_folder_or_from_the_folder_of_images(named: str, tmp_path: Path) -> None:
    folder(tmp_path / "images", *(f"{number}.png" for number in range(9)))
    table = tmp_path / "captions.tsv"
    table.write_text("".join(f"{named}{number}.png\tred\n" for number in range(9)))
    data = CaptionedImages(str(table), valid=0.4)
    assert sum(len(data.read(part)[0]) for part in ("train", "valid")) == 9
    data = CaptionedImages(str(table), images=str(tmp_path / named), valid=0.4)  # where the user says, and nowhere else
    with pytest.raises(SaccadeError, match="has no file"):
        data.read("train")
    folder(tmp_path, "0.png")  # what is in both places is that of the folder of images
    assert images_beside(table, "0.png") == tmp_path / "images"


def test_a_folder_without_a_list_of_captions_says_what_it_would_be_called(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"it would be called captions.jsonl"):
        caption_list(tmp_path)


def test_images_that_cannot_be_read_leave_their_reason_in_their_place(tmp_path: Path) -> None:
    data = folder(tmp_path, "a.png")
    with open_files(data) as files:
        good, bad = read_named(files, ["a.png", "b.png"], size=5)
    assert not isinstance(good, str)
    assert good.shape == (5, 5, 3)
    assert isinstance(bad, str)
    assert "has no file 'b.png'" in bad
    missing, found = read_files([tmp_path / "c.png", tmp_path / "a.png"], size=5)
    assert isinstance(missing, str)
    assert "c.png" in missing
    assert not isinstance(found, str)
