"""A checkpoint: a directory of tensors that is either complete and verifiable, or not there.

    .tmp-NAME-PID/: write and fsync each file, manifest.json last -> fsync it -> rename it to NAME/ -> fsync its parent

The manifest holds the size and SHA-256 of every file: safetensors alone loads a flipped bit without complaint.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from saccade.errors import RunError
from saccade.train.tensors import DamagedError, encode, is_finite, nature, read_tensors, readable

FORMAT = 1
MANIFEST = "manifest.json"
STATE = "state.json"

# The tensors of each part, and the state.
Contents = tuple[dict[str, dict[str, Tensor]], dict[str, Any]]


@dataclass(frozen=True)
class Checkpoint:
    """What a training needs to go on."""

    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    random: dict[str, Tensor]
    state: dict[str, Any]  # JSON: string keys, lists rather than tuples


class Disk:
    """Every change that must survive a crash passes here, so that a test can make any one of them fail."""

    def write(self, file: BinaryIO, data: bytes | memoryview) -> None:
        file.write(data)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def remove(self, path: Path) -> None:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


disk = Disk()


# Writing


def write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> dict[str, Any]:
    """Write and fsync a new file; return its size and hash."""
    size, digest = 0, hashlib.sha256()
    with path.open("xb") as file:
        for piece in pieces:
            disk.write(file, piece)
            digest.update(piece)
            size += len(piece)
        file.flush()
        disk.sync(file.fileno())
    return {"size": size, "sha256": digest.hexdigest()}


def replace_file(path: Path, data: bytes) -> None:
    """Give a file new content, all or nothing."""
    temporary = temporary_beside(path)
    with explained(path, len(data)):
        try:
            write_file(temporary, [data])
            disk.rename(temporary, path)
            sync_directory(path.parent)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def as_json(value: Mapping[str, Any], path: Path, indent: int | None = None) -> bytes:
    try:
        return json.dumps(value, indent=indent).encode()
    except (TypeError, ValueError) as error:
        raise RunError(f"cannot write {path} as JSON: {error}") from error


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        disk.sync(descriptor)
    finally:
        os.close(descriptor)


def temporary_beside(path: Path) -> Path:
    """Beside the target and not in TMPDIR: a rename is atomic only inside one filesystem."""
    return path.with_name(f".tmp-{path.name}-{os.getpid()}")


def aside(path: Path) -> Path:
    """Where the old directory is for the instant between two renames; readers look here when `path` is absent."""
    return path.with_name(f".old-{path.name}")


def commit(target: Path, parts: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any], step: int | None) -> None:
    """Write a checkpoint directory, replacing one of the same name; after any failure what was there is still there."""
    text = as_json(state, target / STATE, indent=1)
    temporary = temporary_beside(target)
    need = len(text) + sum(t.numel() * t.element_size() for tensors in parts.values() for t in tensors.values())
    with explained(target, need):
        try:
            temporary.mkdir()
            files = {f"{part}.safetensors": encode(tensors) for part, tensors in parts.items()}
            written = {name: write_file(temporary / name, pieces) for name, pieces in files.items()}
            written[STATE] = write_file(temporary / STATE, [text])
            manifest = {"format": FORMAT, "written_by": _version(), "step": step, "files": written}
            write_file(temporary / MANIFEST, [json.dumps(manifest, indent=1).encode()])
            sync_directory(temporary)
            _move(temporary, target)
            sync_directory(target.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _move(temporary: Path, target: Path) -> None:
    if target.exists():
        disk.rename(target, aside(target))  # a directory cannot be renamed over a full one
    try:
        disk.rename(temporary, target)
    except BaseException:
        if aside(target).exists():
            with suppress(OSError):  # readers find the one aside as well
                aside(target).rename(target)
        raise


@contextmanager
def explained(path: Path, need: int = 4096) -> Iterator[None]:
    """Turn a failure to write `path` into an error for people."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            place = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
            what = "disk full" if error.errno == errno.ENOSPC else "disk quota exceeded"
            have = readable(shutil.disk_usage(place).free)
            raise RunError(
                f"{what}: need {readable(need)}, have {have} at {path}; "
                "what was saved before is intact: free some space, then --resume"
            ) from error
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error


def _version() -> str:
    try:
        return metadata.version("saccade")
    except metadata.PackageNotFoundError:  # run from a source tree
        return "unknown"


# Reading


def read(directory: Path, parts: Sequence[str], *, step: int | None, allow_nonfinite: bool = False) -> Contents:
    """Verify and load some parts of a checkpoint, and its state; DamagedError says what is wrong, in one line."""
    manifest = _manifest(directory)
    if manifest.get("step") != step:
        raise DamagedError(f"{directory}: holds step {manifest.get('step')}, as its {MANIFEST} says: rename it back")
    for name in (*(f"{part}.safetensors" for part in parts), STATE):
        _verify(directory / name, manifest["files"].get(name))
    tensors = {part: read_tensors(directory / f"{part}.safetensors") for part in parts}
    bad = [] if allow_nonfinite else [name for name, value in tensors.get("model", {}).items() if not is_finite(value)]
    if bad:
        more = f" and {len(bad) - 1} more tensors" if len(bad) > 1 else ""
        where = f"{directory / 'model.safetensors'}: NaN or infinity in {bad[0]!r}{more}"
        raise DamagedError(f"{where} (predict, look and verify open it with --allow-nonfinite)")
    try:
        state = json.loads((directory / STATE).read_text("utf-8"))
    except ValueError as error:
        raise DamagedError(f"{directory / STATE}: not JSON: {error}") from error
    return tensors, state


def _manifest(directory: Path) -> dict[str, Any]:
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path}: not JSON: {error}") from error
    number = manifest.get("format") if isinstance(manifest, dict) else None
    if isinstance(number, int) and number > FORMAT:
        raise RunError(  # not damaged: falling back to an older step would throw away what a newer saccade trained
            f"{path}: format {number} is newer than {FORMAT}, the newest that this saccade reads; "
            f"it was written by saccade {manifest.get('written_by')}: install that version or a later one"
        )
    if number != FORMAT or not isinstance(manifest.get("files"), dict):
        raise DamagedError(f"{path}: not a manifest of format {FORMAT}")
    return manifest


def _verify(path: Path, entry: object) -> None:
    if not isinstance(entry, dict) or not {"size", "sha256"} <= entry.keys():
        raise DamagedError(f"{path}: not listed in {MANIFEST}")
    try:
        found = path.stat().st_size
        if found != entry["size"]:
            raise DamagedError(f"{path}: expected {entry['size']} bytes, found {found}{nature(path)}")
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror}") from error
    if digest != entry["sha256"]:
        raise DamagedError(
            f"{path}: the content changed after it was saved: "
            f"expected SHA-256 {str(entry['sha256'])[:16]}..., found {digest[:16]}...{nature(path)}"
        )
