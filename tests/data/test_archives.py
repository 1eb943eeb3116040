"""Folders, zips and tars read alike; what leads outside, is broken, or is too large is refused by name."""

from __future__ import annotations

import gc
import io
import lzma
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade.data import archives
from saccade.data.archives import open_files
from saccade.errors import SaccadeError

CONTENT = {"b.txt": b"bee", "a/deep/c.bin": bytes(range(256)) * 9, "a/1.txt": b"", "a/2.txt": b"two" * 400}
TARS = {"x.tar": "w", "x.tar.gz": "w:gz", "x.tgz": "w:gz", "x.tar.xz": "w:xz"}
KINDS = ["folder", "x.zip", *TARS]


def member(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data), kind, link
    return info, data


def tarred(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, TARS[path.name]) as tar:  # type: ignore[call-overload]
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return path


def zipped(path: Path, content: Iterable[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in content:
            file.writestr(name, data)
    return path


def packed(place: Path, kind: str, content: dict[str, bytes]) -> Path:
    """The content as a folder or as an archive, in the order given and with entries for the folders too."""
    if kind == "folder":
        for name, data in content.items():
            (place / kind / name).parent.mkdir(parents=True, exist_ok=True)
            (place / kind / name).write_bytes(data)
        return place / kind
    if kind == "x.zip":
        return zipped(place / kind, [("a/", b""), *content.items()])
    return tarred(
        place / kind, [member("./", kind=tarfile.DIRTYPE), *(member(f"./{n}", d) for n, d in content.items())]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_folders_and_archives_read_alike(kind: str, tmp_path: Path) -> None:
    path = packed(tmp_path, kind, CONTENT)
    with open_files(path) as files:
        assert files.names() == sorted(CONTENT)
        assert {name: files.read(name) for name in reversed(files.names())} == CONTENT
        assert dict(files.items()) == CONTENT


@pytest.mark.parametrize("kind", KINDS)
def test_files_may_be_read_without_with_and_nothing_is_left_open(kind: str, tmp_path: Path) -> None:
    path = packed(tmp_path, kind, CONTENT)
    assert open_files(path).read("b.txt") == b"bee"
    for name, _ in open_files(path).items():
        assert name in CONTENT
        break
    gc.collect()  # an open file would be warned about here
    assert not [each for each in Path("/proc/self/fd").glob("*") if os.path.realpath(each).startswith(str(path))]


def test_a_packed_tar_streams_in_its_own_order_and_is_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path, "x.tar.xz", CONTENT)
    opened = []

    def counted(path: Path, mode: str) -> lzma.LZMAFile:
        opened.append(path)
        return lzma.LZMAFile(path, mode)

    monkeypatch.setitem(archives._UNPACK, ".tar.xz", counted)
    assert [name for name, _ in open_files(path).items()] == list(CONTENT)
    assert len(opened) == 1
    files = open_files(path)
    for name in reversed(files.names()):
        files.read(name)
    assert len(opened) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_name_is_named_with_the_nearest(kind: str, tmp_path: Path) -> None:
    with (
        open_files(packed(tmp_path, kind, CONTENT)) as files,
        pytest.raises(SaccadeError, match=rf"{kind}: has no file 'a/3.txt' \(did you mean 'a/\d.txt'\?\)"),
    ):
        files.read("a/3.txt")
    with pytest.raises(SaccadeError, match=r"has no file '\.\./x"):
        open_files(packed(tmp_path, kind, CONTENT)).read("../x")


@pytest.mark.parametrize("name", ["../out.txt", "a/../../out.txt", "a/..", "..\\out.txt", "a\\..\\x"])
@pytest.mark.parametrize("kind", ["x.zip", "x.tar", "x.tar.gz"])
def test_names_that_lead_outside_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    refuses(entry(tmp_path / kind, name), f"{name!r} in it is a name that leads outside")


@pytest.mark.parametrize("name", ["/etc/passwd", "C:\\x", "C:x", "\\\\host\\share\\x", "\\x"])
@pytest.mark.parametrize("kind", ["x.zip", "x.tar"])
def test_absolute_names_are_refused(kind: str, name: str, tmp_path: Path) -> None:
    refuses(entry(tmp_path / kind, name), f"{name!r} in it is an absolute name")


@pytest.mark.parametrize("kind", ["x.zip", "x.tar"])
def test_a_name_that_is_there_twice_is_refused(kind: str, tmp_path: Path) -> None:
    twice = [("a", b"1"), ("./a", b"2")]
    path = tmp_path / kind
    refuses(
        zipped(path, twice) if kind == "x.zip" else tarred(path, (member(*each) for each in twice)),
        "'a' in it is there twice",
    )


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_links_in_a_tar_are_refused(kind: bytes, tmp_path: Path) -> None:
    refuses(tarred(tmp_path / "x.tar", [member("a", b"1"), member("b", kind=kind, link="a")]), "'b' in it is a link")


@pytest.mark.parametrize("kind", [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.GNUTYPE_SPARSE])
def test_what_is_no_plain_file_in_a_tar_is_refused(kind: bytes, tmp_path: Path) -> None:
    refuses(tarred(tmp_path / "x.tar", [member("a", kind=kind)]), "'a' in it is no plain file")


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("b")
    link.external_attr = 0o120777 << 16
    refuses(zipped(tmp_path / "x.zip", [(link, b"/etc/passwd")]), "'b' in it is a link")


def test_links_in_a_folder_lead_to_files_wherever_they_are(tmp_path: Path) -> None:
    folder = packed(tmp_path, "folder", CONTENT)
    (tmp_path / "outside").write_bytes(b"out")
    (folder / "a" / "inner").symlink_to(folder / "b.txt")
    (folder / "a" / "outer").symlink_to("../../outside")
    with open_files(folder) as files:
        assert files.names() == sorted([*CONTENT, "a/inner", "a/outer"])
        assert dict(files.items()) == {**CONTENT, "a/inner": b"bee", "a/outer": b"out"}


@pytest.mark.parametrize(("target", "why"), [("/nowhere", "cannot read: No such"), ("/dev/null", "not a plain file")])
def test_what_is_no_file_in_a_folder_is_refused_alone_and_when_it_is_read(
    target: str, why: str, tmp_path: Path
) -> None:
    folder = packed(tmp_path, "folder", CONTENT)
    (folder / "a" / "link").symlink_to(target)
    os.mkfifo(folder / "pipe")
    with open_files(folder) as files:
        assert files.names() == sorted([*CONTENT, "a/link", "pipe"])
        with pytest.raises(SaccadeError, match=f"folder/a/link: {why}"):
            files.read("a/link")
        with pytest.raises(SaccadeError, match="folder/pipe: not a plain file"):
            files.read("pipe")
        assert {name: files.read(name) for name in CONTENT} == CONTENT


def test_a_link_to_a_folder_is_told_and_not_followed(tmp_path: Path) -> None:
    folder = packed(tmp_path, "folder", CONTENT)
    (folder / "a" / "round").symlink_to(folder)
    with pytest.warns(UserWarning, match="folder/a/round: a link to a folder, which is not followed"):
        assert open_files(folder).names() == sorted(CONTENT)


def test_an_archive_that_is_no_plain_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "x.zip").symlink_to("/dev/null")
    with pytest.raises(SaccadeError, match=r"x\.zip: not a plain file"):
        open_files(tmp_path / "x.zip")


@pytest.mark.parametrize("kind", ["x.zip", *TARS])
def test_an_archive_that_unpacks_to_too_much_is_refused(kind: str, tmp_path: Path) -> None:
    path = packed(tmp_path, kind, {"small": b"1", "zeros": bytes(1_000_000)})
    assert len(open_files(path).read("zeros")) == 1_000_000
    refuses(path, f"{kind}: unpacks to more than 900,000 bytes", most_bytes=900_000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_too_large_is_refused_alone_with_its_size(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path, kind, CONTENT)
    monkeypatch.setattr(archives, "LARGEST", 1_200)
    with open_files(path) as files:
        with pytest.raises(
            SaccadeError, match=r"a/deep/c\.bin: 2,304 bytes; files of at most 1,200 are read"
        ) as caught:
            files.read("a/deep/c.bin")
        assert str(path) in str(caught.value)
        assert files.read("a/2.txt") == b"two" * 400
        with pytest.raises(SaccadeError, match=r"a/deep/c\.bin: 2,304 bytes"):
            dict(files.items())


def test_a_file_of_holes_is_not_read_into_memory(tmp_path: Path) -> None:
    (tmp_path / "zz.png").touch()
    os.truncate(tmp_path / "zz.png", 1 << 40)
    with pytest.raises(SaccadeError, match=r"zz\.png: 1,099,511,627,776 bytes; files of at most 1,073,741,824"):
        open_files(tmp_path).read("zz.png")


def test_a_header_cannot_claim_more_than_may_be_unpacked(tmp_path: Path) -> None:
    """A long name is read into memory before the member is seen: its length must be capped too."""
    path = tarred(tmp_path / "x.tar.xz", [member("a" * 200_000, b"1")])
    refuses(path, "unpacks to more than 100,000 bytes", most_bytes=100_000)
    sizes = tarred(tmp_path / "x.tar", [member("a", b"1" * 700)])
    raw = bytearray(sizes.read_bytes())
    info = tarfile.TarInfo("a")
    for size, why in (
        (1 << 40, r"x\.tar: a: 1,099,511,627,776 bytes; files of"),
        (1 << 30, "it ends after 9,728 of"),
        (-1, "a size of -1 bytes"),
        (-512, "a size of -512 bytes"),
    ):
        info.size = size
        raw[:512] = info.tobuf(tarfile.GNU_FORMAT)
        sizes.write_bytes(raw)
        refuses(sizes, "x.tar: ")
        with pytest.raises(SaccadeError, match=why):
            dict(open_files(sizes).items())


@pytest.mark.parametrize("kind", ["x.zip", *TARS])
@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: b"junk" * 500, lambda raw: raw[: len(raw) // 2], lambda raw: raw[:600]]
)
def test_a_broken_archive_is_named(kind: str, damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = packed(tmp_path, kind, {f"{n}": os.urandom(700) for n in range(9)})
    path.write_bytes(damage(path.read_bytes()))
    refuses(path, f"{kind}: cannot read: ")


@pytest.mark.parametrize("kind", TARS)
def test_a_damaged_header_is_not_taken_for_the_end(kind: str, tmp_path: Path) -> None:
    plain = bytearray(packed(tmp_path, "x.tar", CONTENT).read_bytes())
    place = plain.index(b"a/1.txt")
    plain[place] ^= 1
    path = tmp_path / kind
    with archives._UNPACK[kind.removeprefix("x")](path, "wb") as file:
        file.write(plain)
    refuses(path, "damaged or cut short after a/deep/c.bin")
    with archives._UNPACK[kind.removeprefix("x")](path, "wb") as file:
        file.write(plain[: place - 2])  # at a border of files: nothing is cut in two, and yet the rest is missing
    refuses(path, "damaged or cut short after a/deep/c.bin")


def test_a_file_whose_checksum_fails_is_named_with_its_archive(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("good", b"good")
        file.writestr("bad", b"before")
    path.write_bytes(path.read_bytes().replace(b"before", b"behind"))
    with open_files(path) as files:
        assert files.read("good") == b"good"
        with pytest.raises(SaccadeError, match=r"x\.zip: bad: cannot read: Bad CRC-32"):
            files.read("bad")


def test_a_file_that_cannot_be_unpacked_is_named_with_its_archive(tmp_path: Path) -> None:
    path = zipped(tmp_path / "x.zip", [("bad", b"abcdefgh" * 500)])
    raw = bytearray(path.read_bytes())
    raw[33:43] = b"\xff" * 10  # behind the 30 bytes of a header and the name
    path.write_bytes(raw)
    with open_files(path) as files, pytest.raises(SaccadeError, match=r"x\.zip: bad: cannot read: Error -3 while"):
        files.read("bad")


def test_what_is_missing_or_of_another_kind_is_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"absent\.zip: cannot read: No such file"):
        open_files(tmp_path / "absent.zip")
    (tmp_path / "x.rar").write_bytes(b"Rar!")
    with pytest.raises(SaccadeError, match=r"x\.rar: neither a folder nor one of \.zip, \.tar, \.tar\.gz"):
        open_files(tmp_path / "x.rar")


@given(data=st.data(), kind=st.sampled_from(["x.zip", "x.tar", "x.tar.gz", "x.tar.xz"]))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_damage_gives_the_content_or_an_error_for_people(data: st.DataObject, kind: str, tmp_path: Path) -> None:
    whole = packed(tmp_path, kind, CONTENT).read_bytes()
    raw = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / kind).write_bytes(raw[: data.draw(st.integers(1, len(raw)))])
    for reading in (lambda files: dict(files.items()), lambda files: [files.read(name) for name in files.names()]):
        with open_files(tmp_path / kind, most_bytes=10_000_000) as files:
            try:
                reading(files)
            except SaccadeError as error:
                assert kind in str(error)


def entry(path: Path, name: str) -> Path:
    good = ("good", b"1")
    if path.suffix == ".zip":
        return zipped(path, [good, (name, b"2")])
    return tarred(path, [member(*good), member(name, b"2")])


def refuses(path: Path, message: str, **limits: int) -> None:
    """By every way of reading."""
    for reading in (lambda files: files.names(), lambda files: files.read("good"), lambda files: dict(files.items())):
        with open_files(path, **limits) as files, pytest.raises(SaccadeError) as caught:
            reading(files)
        assert message in str(caught.value)
        assert str(path) in str(caught.value)
