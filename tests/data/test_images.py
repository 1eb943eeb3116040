"""Pixels of every kind of file come out upright, opaque and in three colours; what cannot be read is named."""

from __future__ import annotations

import gzip
import io
import os
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from saccade.data.images import FORMATS, MOST_PIXELS, read_idx, read_image, resized
from saccade.errors import SaccadeError

LOSSLESS = ("BMP", "PNG", "PPM", "TIFF")
ORIENTATION = 0x0112
PIXELS = np.random.default_rng(7).integers(0, 256, (5, 8, 3), dtype=np.uint8)
SMOOTH = np.kron(PIXELS[:2, :3], np.ones((16, 16, 1), np.uint8))  # (32, 48, 3): kind to lossy formats


def encoded(pixels: np.ndarray, kind: str, mode: str = "", **options: Any) -> bytes:
    image, file = Image.fromarray(pixels), io.BytesIO()
    (image.convert(mode) if mode else image).save(file, kind, **options)
    return file.getvalue()


def difference(one: np.ndarray, other: np.ndarray) -> int:
    assert one.shape == other.shape
    return int(np.abs(one.astype(int) - other.astype(int)).max())


@pytest.mark.parametrize("kind", LOSSLESS)
def test_lossless_files_give_their_pixels(kind: str, tmp_path: Path) -> None:
    content = encoded(PIXELS, kind)
    (tmp_path / "image").write_bytes(content)
    for source in (content, tmp_path / "image"):
        found = read_image(source)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, PIXELS)
        found[:] = 0  # may be written to, as torch wants it


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_lossy_files_give_nearly_their_pixels(kind: str) -> None:
    options = {"subsampling": 0} if kind == "JPEG" else {}
    assert np.abs(read_image(encoded(SMOOTH, kind, quality=95, **options)).astype(int) - SMOOTH).mean() < 6


def test_an_image_of_one_pixel_is_an_image() -> None:
    assert read_image(encoded(PIXELS[:1, :1], "PNG")).tolist() == [[PIXELS[0, 0].tolist()]]


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("turn", range(1, 9))
def test_images_are_turned_upright(kind: str, turn: int) -> None:
    stored = {  # what a camera that was held so would store
        1: PIXELS,
        2: PIXELS[:, ::-1],
        3: PIXELS[::-1, ::-1],
        4: PIXELS[::-1],
        5: PIXELS.transpose(1, 0, 2),
        6: np.rot90(PIXELS),
        7: PIXELS[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(PIXELS, -1),
    }[turn]
    exif = Image.Exif()
    exif[ORIENTATION] = turn
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    content = encoded(np.ascontiguousarray(stored), kind, exif=exif, **options)
    np.testing.assert_array_equal(read_image(content), PIXELS)


def test_a_photo_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    assert read_image(encoded(SMOOTH, "JPEG", exif=exif)).shape == (48, 32, 3)


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_transparency_is_laid_over_white(kind: str) -> None:
    alpha = np.array([0, 255, 51, 204, 102, 0, 255, 153], np.uint8)
    layered = np.concatenate([PIXELS, np.broadcast_to(alpha[:, None], (5, 8, 1))], axis=2)
    expected = PIXELS * (alpha[:, None] / 255) + 255 * (1 - alpha[:, None] / 255)
    found = read_image(encoded(layered, kind))
    assert np.abs(found - expected).max() <= 1
    assert (found[:, 0] == 255).all()
    np.testing.assert_array_equal(found[:, 1], PIXELS[:, 1])


def test_transparent_entries_of_palettes_and_of_grey_are_white() -> None:
    grey = np.array([[10, 20, 30]], np.uint8)
    for mode in ("L", "P"):
        found = read_image(encoded(grey, "PNG", mode, transparency=20))
        assert found[0, :, 0].tolist() == [10, 255, 30]
    deep = (grey.astype(np.uint16)) * 257
    assert read_image(encoded(deep, "PNG", transparency=20 * 257))[0, :, 0].tolist() == [10, 255, 30]


@pytest.mark.parametrize(("mode", "kind"), [("L", "PNG"), ("L", "JPEG"), ("LA", "PNG"), ("1", "PNG"), ("1", "TIFF")])
def test_grey_becomes_three_equal_colours(mode: str, kind: str) -> None:
    board = np.kron(np.array([[0, 1], [1, 0]], np.uint8), np.full((8, 8), 255, np.uint8))
    found = read_image(encoded(board, kind, mode))
    assert difference(found, np.repeat(board[..., None], 3, axis=2)) == 0


@pytest.mark.parametrize("kind", ["GIF", "PNG", "BMP"])
def test_palettes_become_colours(kind: str) -> None:
    np.testing.assert_array_equal(
        read_image(encoded(PIXELS, kind, "P")), np.array(Image.fromarray(PIXELS).convert("P").convert("RGB"))
    )
    assert len(np.unique(read_image(encoded(PIXELS, kind, "P")).reshape(-1, 3), axis=0)) > 5


@pytest.mark.parametrize(("kind", "worst"), [("TIFF", 0), ("JPEG", 12)])
def test_printing_colours_become_screen_colours(kind: str, worst: int) -> None:
    options = {"quality": 100, "subsampling": 0} if kind == "JPEG" else {}
    assert difference(read_image(encoded(SMOOTH, kind, "CMYK", **options)), SMOOTH) <= worst


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_grey_of_16_bits_is_scaled_and_not_cut(kind: str) -> None:
    deep = np.array([[0, 128, 129, 256, 32_767, 65_406, 65_407, 65_535]], np.uint16)
    found = read_image(encoded(deep, kind))
    assert found[0, :, 0].tolist() == [0, 0, 1, 1, 127, 254, 255, 255]
    assert (found == found[..., :1]).all()


@pytest.mark.parametrize(
    ("value", "number"), [(np.float32(0.5), "0.5"), (np.int32(70_000), "70000"), (np.int32(-1), "-1")]
)
def test_numbers_that_have_no_known_range_are_refused(value: np.generic, number: str) -> None:
    with pytest.raises(SaccadeError, match=rf"map\.tif: values from {number} to {number}; grey of up to 16 bits"):
        read_image(encoded(np.full((2, 2), value), "TIFF"), "map.tif")


@pytest.mark.parametrize("kind", ["GIF", "PNG", "TIFF", "WEBP"])
def test_several_pictures_in_one_file_are_refused_unless_the_first_is_asked_for(kind: str) -> None:
    options: dict[str, Any] = {"lossless": True} if kind == "WEBP" else {}
    others = [Image.fromarray(np.ascontiguousarray(255 - PIXELS)), Image.fromarray(PIXELS[::-1].copy())]
    content = encoded(PIXELS, kind, save_all=True, append_images=others, **options)
    with pytest.raises(
        SaccadeError, match=rf"clip: {kind} with several pictures in it; give one, or ask for the first"
    ):
        read_image(content, "clip")
    found = read_image(content, "clip", first_frame=True)
    assert difference(found, PIXELS) < (60 if kind == "GIF" else 1)
    np.testing.assert_array_equal(found, read_image(encoded(PIXELS, kind, **options)))


def test_a_photo_with_a_preview_behind_it_is_one_photo() -> None:
    """Telephones write these under the name of JPEG."""
    preview = Image.fromarray(SMOOTH[::4, ::4])
    content = encoded(SMOOTH, "MPO", save_all=True, append_images=[preview])
    assert read_image(content).shape == SMOOTH.shape


def claiming(width: int, height: int) -> bytes:
    """A PNG file whose header promises pixels, and nothing behind it: reading on would fail otherwise."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + header
        + struct.pack(">I", zlib.crc32(header))
        + struct.pack(">I", 9)
        + b"IDAT"
    )


@pytest.mark.parametrize("side", [7_072, 10_000, 13_000, 40_000])
def test_too_many_pixels_are_refused_before_they_are_decoded(side: int) -> None:
    assert side * side > MOST_PIXELS
    with pytest.raises(SaccadeError, match=r"bomb\.png: .*50,000,000") as refused:
        read_image(claiming(side, side), "bomb.png")
    assert "exceeds limit" not in str(refused.value)  # the decoder has another one
    with pytest.raises(SaccadeError, match="cannot read the image"):  # as many as are allowed: it is looked at
        read_image(claiming(10_000, 5_000), "large.png")


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    with pytest.raises(SaccadeError, match=r"empty\.png: an empty file"):
        read_image(tmp_path / "empty.png")
    with pytest.raises(SaccadeError, match=r"zip: 7\.jpg: an empty file"):
        read_image(b"", "zip: 7.jpg")


@pytest.mark.parametrize(
    "content", [b"not an image", b"\0" * 999, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"]
)
def test_what_is_no_image_is_named(content: bytes) -> None:
    with pytest.raises(
        SaccadeError, match=r"junk\.jpg: not an image that can be read: damaged, or none of BMP, .*WEBP"
    ):
        read_image(content, "junk.jpg")


@pytest.mark.parametrize("kind", FORMATS)
def test_half_a_file_is_named(kind: str) -> None:
    content = encoded(np.kron(PIXELS, np.ones((9, 9, 1), np.uint8)), kind)
    with pytest.raises(SaccadeError, match=r"cut\.img: (cannot read the image|not an image)"):
        read_image(content[: len(content) // 2], "cut.img")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"absent\.png: cannot read the image: No such file"):
        read_image(tmp_path / "absent.png")
    with pytest.raises(SaccadeError, match=r"cannot read the image: Is a directory"):
        read_image(tmp_path)


def test_what_is_no_plain_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "link.png").symlink_to("/dev/null")
    for read in (read_image, read_idx):
        for name in ("link.png", "pipe.png"):
            with pytest.raises(SaccadeError, match=rf"{name}: not a plain file$"):
                read(tmp_path / name)


def test_a_warning_of_the_decoder_gets_the_name_of_the_file() -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    exif[0x010E] = "a description that is longer than four bytes"
    content = encoded(PIXELS, "PNG", exif=exif.tobytes()[:-30])
    with pytest.warns(UserWarning, match=r"^odd\.png: "):
        read_image(content, "odd.png")


SAMPLES = [encoded(PIXELS, kind, "P" if kind == "GIF" else "") for kind in FORMATS]


@given(data=st.data(), content=st.sampled_from(SAMPLES))
@settings(max_examples=300, deadline=None)
def test_any_damage_gives_pixels_or_an_error_for_people(data: st.DataObject, content: bytes) -> None:
    raw = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = read_image(bytes(raw[: data.draw(st.integers(1, len(raw)))]), "damaged.img")
        except SaccadeError as error:
            assert "damaged.img" in str(error)
        else:
            assert found.dtype == np.uint8 and found.ndim == 3 and found.shape[2] == 3


# IDX


def idx(array: np.ndarray, *, kind: int = 8, shape: tuple[int, ...] | None = None) -> bytes:
    shape = array.shape if shape is None else shape
    return bytes((0, 0, kind, len(shape))) + struct.pack(f">{len(shape)}I", *shape) + array.tobytes()


@pytest.mark.parametrize("shape", [(4,), (4, 3, 2), (0, 3)])
def test_idx_files_give_their_array(shape: tuple[int, ...], tmp_path: Path) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    (tmp_path / "x.gz").write_bytes(gzip.compress(idx(array)))
    (tmp_path / "x-idx-ubyte").write_bytes(idx(array))
    for name in ("x.gz", "x-idx-ubyte"):
        found = read_idx(tmp_path / name)
        np.testing.assert_array_equal(found, array)
        assert found.dtype == np.uint8 and found.flags.writeable


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file of unsigned bytes; it begins with nothing"),
        (b"\0\0\x08", "not an IDX file of unsigned bytes; it begins with 00 00 08"),
        (b"\0\0\x08\0", "not an IDX file"),
        (b"\x89PNG", "not an IDX file of unsigned bytes; it begins with 89 50 4e 47"),
        (idx(np.zeros(3, np.uint8), kind=0x0D), "not an IDX file of unsigned bytes; it begins with 00 00 0d 01"),
        (b"\0\0\x08\x02\0\0\0\x01", "cut short inside the lengths of its 2 axes"),
        (idx(np.zeros(3, np.uint8), shape=(2, 2)), r"promises 4 numbers (2, 2), and only 3 are there"),
        (idx(np.zeros(5, np.uint8), shape=(2, 2)), r"promises 4 numbers (2, 2), and more are there"),
        (idx(np.zeros(5, np.uint8), shape=(1 << 31, 2)), "promises 4,294,967,296 numbers (2147483648, 2), and only 5"),
        (idx(np.zeros(5, np.uint8), shape=(1 << 31,) * 9), "8,000,000,000 are allowed at most"),
    ],
)
@pytest.mark.parametrize("name", ["x.gz", "x-idx-ubyte"])
def test_idx_files_that_do_not_keep_their_promise_are_refused(
    content: bytes, message: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(gzip.compress(content) if name == "x.gz" else content)
    with pytest.raises(SaccadeError) as caught:
        read_idx(tmp_path / name)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")


def test_broken_and_missing_idx_files_are_named(tmp_path: Path) -> None:
    whole = gzip.compress(idx(np.random.default_rng(1).integers(0, 256, (50, 9), dtype=np.uint8)))
    for content in (whole[:200], b"not gzip", whole[:-4] + b"\0\0\0\0"):
        (tmp_path / "x.gz").write_bytes(content)
        with pytest.raises(SaccadeError, match=r"x\.gz: cannot read: "):
            read_idx(tmp_path / "x.gz")
    with pytest.raises(SaccadeError, match=r"absent\.gz: cannot read: No such file"):
        read_idx(tmp_path / "absent.gz")


# Sizes


@pytest.mark.parametrize(
    ("size", "shape"), [(4, (4, 4, 3)), ((6, 3), (6, 3, 3)), ((1, 1), (1, 1, 3)), ((50, 70), (50, 70, 3))]
)
def test_images_take_the_size_that_is_asked_for(size: int | tuple[int, int], shape: tuple[int, ...]) -> None:
    found = resized(PIXELS, size)
    assert found.shape == shape and found.dtype == np.uint8 and found.flags.writeable


def test_the_same_size_is_the_same_image() -> None:
    np.testing.assert_array_equal(resized(PIXELS, (5, 8)), PIXELS)
    np.testing.assert_array_equal(resized(PIXELS[..., 0], (5, 8)), PIXELS[..., 0])


def test_a_smaller_image_is_an_average_and_not_a_selection() -> None:
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    assert difference(resized(board, 8)[1:-1, 1:-1], np.full((6, 6), 127)) <= 2


@pytest.mark.parametrize(
    ("shape", "size", "rows", "columns"),
    [
        ((4, 10), 4, slice(0, 4), slice(3, 7)),  # wide
        ((11, 4), 4, slice(3, 7), slice(0, 4)),  # high
        ((4, 4), 4, slice(0, 4), slice(0, 4)),
        ((6, 12), (3, 2), slice(0, 6), slice(4, 8)),  # another shape than a square
        ((1, 9), (9, 1), slice(0, 1), slice(4, 5)),  # never nothing
    ],
)
def test_a_crop_is_the_largest_middle_of_the_wanted_shape(
    shape: tuple[int, int], size: int | tuple[int, int], rows: slice, columns: slice
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    np.testing.assert_array_equal(resized(pixels, size, "crop"), resized(pixels[rows, columns], size))


def test_a_crop_keeps_a_circle_round() -> None:
    across, down = np.meshgrid(np.arange(90) - 44.5, np.arange(60) - 29.5)
    circle = ((np.hypot(across, down) < 20) * 255).astype(np.uint8)
    for fit, round_ in (("crop", True), ("stretch", False)):
        found = resized(circle, 30, fit) > 127  # type: ignore[arg-type]
        assert (found.any(0).sum() == found.any(1).sum()) == round_


@pytest.mark.parametrize("size", [0, (3, 0), (-1, 4), (100_000, 100_000)])
def test_impossible_sizes_are_refused(size: int | tuple[int, int]) -> None:
    with pytest.raises(SaccadeError, match=r"cannot be resized to -?\d+ x \d+"):
        resized(PIXELS, size)
