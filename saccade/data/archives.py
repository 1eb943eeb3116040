"""A folder, a zip or a tar seen as one thing: names in order, and the bytes behind each.

Nothing is ever unpacked under its name. An archive with names that lead outside or links in it, or one that unpacks to
too much, is refused before anything in it is read. A folder is the user's own: a link in it leads to a file wherever
that is, and what is no plain file is refused when it is read, alone; so is a file anywhere that is too large.
"""

from __future__ import annotations

import gzip
import lzma
import os
import stat
import tarfile
import tempfile
import warnings
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, NoReturn, Self, TypeVar

from saccade.errors import SaccadeError, did_you_mean

MOST_BYTES = 8_000_000_000  # that an archive may unpack to
LARGEST = 1 << 30  # bytes of a single file: all of it is read into memory
READ_AT_ONCE = 1 << 24  # bytes: what a header promises must not take memory before it is there

_UNPACK: dict[str, Callable[..., Any]] = {
    ".tar": open,
    ".tar.gz": gzip.open,
    ".tgz": gzip.open,
    ".tar.xz": lzma.open,
    ".txz": lzma.open,
}
Entry = TypeVar("Entry")


class FileStore:
    """Interface: a sorted mapping from names to bytes. Files are opened when needed, closed by `with` or in the end."""

    def __init__(self, path: Path):
        self.path = path
        self._opened = ExitStack()
        weakref.finalize(self, self._opened.close)

    def names(self) -> list[str]:
        """All names, sorted, with / between folders."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """What stands behind a name."""
        raise NotImplementedError

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every name with its bytes, one after the other, in whatever order is quick."""
        for name in self.names():
            yield name, self.read(name)

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_files(path: str | Path, *, most_bytes: int = MOST_BYTES) -> FileStore:
    """A folder, or a .zip, .tar, .tar.gz or .tar.xz file that unpacks to no more than `most_bytes`."""
    path = Path(path)
    with _reading(path):
        is_folder = plain_file(path).is_dir()
    if is_folder:
        return _Folder(path)
    if path.suffix.lower() == ".zip":
        return _Zip(path, most_bytes)
    for ending, unpack in _UNPACK.items():
        if path.name.lower().endswith(ending):
            return _Tar(path, most_bytes, unpack)
    raise SaccadeError(f"{path}: neither a folder nor one of {', '.join(('.zip', *_UNPACK))}")


def plain_file(path: Path) -> Path:
    """The path, if it leads to a file that can be read at once: a named pipe would keep its reader waiting for ever. (A
    folder passes, and is refused when it is opened.)"""
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise SaccadeError(f"{path}: not a plain file")
    return path


class _Folder(FileStore):
    @cached_property
    def _files(self) -> dict[str, Path]:
        files = {}
        with _reading(self.path):
            for folder, folders, others in os.walk(self.path, onerror=_raised):
                for file in (Path(folder, each) for each in others):
                    files[file.relative_to(self.path).as_posix()] = file
                for inner in (Path(folder, each) for each in folders):
                    if inner.is_symlink():  # it may lead to a folder around this one
                        warnings.warn(f"{inner}: a link to a folder, which is not followed", stacklevel=1)
        return dict(sorted(files.items()))

    def names(self) -> list[str]:
        return list(self._files)

    def read(self, name: str) -> bytes:
        file = _found(self._files, name, self.path)
        with _reading(file):
            _check_size(plain_file(file).stat().st_size, f"{file}")
            return file.read_bytes()


class _Zip(FileStore):
    def __init__(self, path: Path, most_bytes: int):
        super().__init__(path)
        self.most_bytes = most_bytes

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        with _reading(self.path):
            return self._opened.enter_context(zipfile.ZipFile(self.path))

    @cached_property
    def _files(self) -> dict[str, zipfile.ZipInfo]:
        files: dict[str, zipfile.ZipInfo] = {}
        total = 0
        for entry in self._zip.infolist():
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise _refused(self.path, entry.filename, "a link")
            name = _inner(entry.filename, files, self.path)
            if entry.is_dir():
                continue
            files[name] = entry
            total += entry.file_size  # true or the file's checksum fails: no more than this is ever read of it
            if total > self.most_bytes:
                raise _too_large(self.path, self.most_bytes)
        return dict(sorted(files.items()))

    def names(self) -> list[str]:
        return list(self._files)

    def read(self, name: str) -> bytes:
        entry = _found(self._files, name, self.path)
        _check_size(entry.file_size, f"{self.path}: {name}")
        with _reading(self.path, name):
            return self._zip.read(entry)


class _Tar(FileStore):
    """A packed tar can only be read in order: `items` does that, once; `read` first unpacks it to a temporary file."""

    def __init__(self, path: Path, most_bytes: int, unpack: Callable[..., Any]):
        super().__init__(path)
        self.most_bytes, self.unpack = most_bytes, unpack

    @cached_property
    def _file(self) -> _Capped:
        with _reading(self.path):
            file = self._opened.enter_context(self.unpack(self.path, "rb"))
            if not self.path.name.lower().endswith(".tar"):
                packed = _Capped(file, self.path, self.most_bytes)
                file = self._opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
                while part := packed.read(1 << 20):
                    file.write(part)
                file.seek(0)
        return _Capped(file, self.path, self.most_bytes)

    @cached_property
    def _files(self) -> dict[str, tuple[int, int]]:
        """Where the bytes of each name begin, and how many there are."""
        with _reading(self.path):
            return dict(sorted((name, (member.offset_data, member.size)) for name, member in _members(self._file)))

    def names(self) -> list[str]:
        return list(self._files)

    def read(self, name: str) -> bytes:
        begin, size = _found(self._files, name, self.path)
        _check_size(size, f"{self.path}: {name}")
        with _reading(self.path, name):
            return self._file.part(begin, size)

    def items(self) -> Iterator[tuple[str, bytes]]:
        """Every name with its bytes, in the order of the archive."""
        with _reading(self.path), self.unpack(self.path, "rb") as file:
            capped = _Capped(file, self.path, self.most_bytes)
            for name, member in _members(capped):
                _check_size(member.size, f"{self.path}: {name}")
                yield name, capped.part(member.offset_data, member.size)


class _Capped:
    """An unpacked stream that ends in an error after so many bytes, and knows the last block that was read of it."""

    def __init__(self, file: IO[bytes], path: Path, most_bytes: int):
        self.file, self.path, self.most_bytes = file, path, most_bytes
        self.last = b""

    def read(self, size: int) -> bytes:
        if size < 0:
            raise tarfile.ReadError(f"a header gives a size of {size:,} bytes")
        wanted, parts = min(size, self.most_bytes + 1 - self.file.tell()), []
        while wanted and (part := self.file.read(min(wanted, READ_AT_ONCE))):
            wanted -= len(part)
            parts.append(part)
        self.last = b"".join(parts)
        if self.file.tell() > self.most_bytes:
            raise _too_large(self.path, self.most_bytes)
        return self.last

    def seek(self, place: int) -> int:
        if place > self.most_bytes:
            raise _too_large(self.path, self.most_bytes)
        return self.file.seek(place)

    def tell(self) -> int:
        return self.file.tell()

    def part(self, begin: int, size: int) -> bytes:
        self.seek(begin)
        part = self.read(size)
        if len(part) < size:
            raise EOFError(f"it ends after {len(part):,} of {size:,} bytes")
        return part


def _members(file: _Capped) -> Iterator[tuple[str, tarfile.TarInfo]]:
    """The files of a tar in its order, by their checked names."""
    seen: dict[str, Any] = {}
    stream: Any = file  # it needs no more of a file than _Capped has
    with tarfile.open(fileobj=stream, mode="r:") as tar:
        for member in tar:
            if member.issym() or member.islnk():
                raise _refused(file.path, member.name, "a link")
            name = _inner(member.name, seen, file.path)
            if member.isdir():
                continue
            if not member.isreg() or member.issparse():
                raise _refused(file.path, member.name, "no plain file")
            seen[name] = member
            yield name, member
    # tarfile takes a damaged header for the end and says nothing: half of a data set would be missing
    if file.last != bytes(tarfile.BLOCKSIZE):
        after = f" after {next(reversed(seen))}" if seen else ""
        raise tarfile.ReadError(f"damaged or cut short{after}")


def _inner(name: str, seen: dict[str, Any], path: Path) -> str:
    """The name as it is used, or an error if it leads outside or was there before."""
    parts = PureWindowsPath(name)  # knows both kinds of slashes, and drives
    if parts.anchor:
        raise _refused(path, name, "an absolute name")
    if ".." in parts.parts:
        raise _refused(path, name, "a name that leads outside")
    name = PurePosixPath(name).as_posix()  # ./a is a
    if name in seen:
        raise _refused(path, name, "there twice")
    return name


def _raised(error: OSError) -> NoReturn:
    raise error  # os.walk would pass over a folder that it may not read


def _found(files: dict[str, Entry], name: str, path: Path) -> Entry:
    if name not in files:
        raise SaccadeError(f"{path}: has no file {name!r}{did_you_mean(name, files)}")
    return files[name]


def _check_size(size: int, where: str) -> None:
    if size > LARGEST:
        raise SaccadeError(f"{where}: {size:,} bytes; files of at most {LARGEST:,} are read")


def _refused(path: Path, name: str, why: str) -> SaccadeError:
    return SaccadeError(f"{path}: refused, because {name!r} in it is {why}")


def _too_large(path: Path, most_bytes: int) -> SaccadeError:
    return SaccadeError(f"{path}: unpacks to more than {most_bytes:,} bytes, the most that is allowed")


@contextmanager
def _reading(path: Path, name: str = "") -> Iterator[None]:
    """What the libraries say of a file that is missing or broken, with its name."""
    where = f"{path}: {name}" if name else f"{path}"
    try:
        yield
    except OSError as error:
        raise SaccadeError(f"{where}: cannot read: {error.strerror or error}") from error
    except (
        EOFError,
        ValueError,
        RuntimeError,
        zlib.error,
        lzma.LZMAError,
        zipfile.BadZipFile,
        tarfile.TarError,
    ) as error:
        raise SaccadeError(f"{where}: cannot read: {error}") from error
