"""A folder of Hugging Face: config.json beside the weights in one file or in several, and how one is written.

Weights are read from safetensors, or from a pickle that torch opens without running anything.
"""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.train.checkpoint import explained, sync_directory, temporary_beside, write_file
from saccade.train.tensors import encode, is_finite, read_tensors

CONFIG, WEIGHTS, PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
POINTER = b"version https://git-lfs"  # what such a file of git-lfs begins with
CHOICE = "single_label_classification"


@dataclass(frozen=True)
class Config:
    """config.json, with errors that name the file and the key."""

    path: Path
    values: Mapping[str, Any]

    def number(self, key: str, default: int | None = None) -> int:
        return self._of(key, int, default)

    def real(self, key: str, default: float) -> float:
        return float(self._of(key, (int, float), default))

    def text(self, key: str, default: str | None = None) -> str:
        return self._of(key, str, default)

    def truth(self, key: str, default: bool) -> bool:
        return self._of(key, bool, default)

    def id(self, key: str) -> int | None:
        """An id, the first of several, or none."""
        value = self.values.get(key)
        value = value[0] if isinstance(value, list) and value else value
        return value if isinstance(value, int) else None

    def inside(self, key: str) -> Config:
        """A part of it; where there is none of that name, nothing is said in it."""
        return Config(self.path, self._of(key, dict, {}))

    def beside(self, name: str) -> Config:
        """Another file of the folder; where there is none, nothing is said in it."""
        path = self.path.with_name(name)
        return Config(path, read_json(path) if path.is_file() else {})

    def require(self, key: str, only: Any) -> None:
        """Refuse another value than the one we can do; what is not said is that."""
        if (value := self.values.get(key, only)) != only:
            raise SaccadeError(f"{self.path}: {key} is {value!r}, and only {only!r} is known here")

    def choice(self, key: str, known: Mapping[str, str], default: str) -> str:
        value = self.text(key, default)
        if value not in known:
            raise SaccadeError(f"{self.path}: {key} is {value!r}; known are {', '.join(known)}")
        return known[value]

    def labels(self) -> list[str]:
        """id2label in the order of the ids; where they have no names, numbers. A model that does not choose one of
        them is refused."""
        named = self.values.get("id2label") or {str(n): f"LABEL_{n}" for n in range(self.number("num_labels", 2))}
        if not isinstance(named, dict) or {str(n) for n in range(len(named))} != set(map(str, named)):
            raise SaccadeError(f"{self.path}: id2label must name the labels 0, 1, 2 ...; got {named!r}")
        if (kind := self.values.get("problem_type")) not in (None, CHOICE):
            raise SaccadeError(f"{self.path}: problem_type is {kind!r}, and only null and {CHOICE!r} are known here")
        if len(named) < 2:
            raise SaccadeError(f"{self.path}: a choice needs two labels at least; id2label is {named!r}")
        return [str(named[str(n)]) for n in range(len(named))]

    def _of(self, key: str, kind: Any, default: Any) -> Any:
        value = self.values.get(key)
        value = default if value is None else value
        if value is None:
            raise SaccadeError(f"{self.path}: there is no {key}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise SaccadeError(f"{self.path}: {key} is {value!r}, which is no {getattr(kind, '__name__', 'number')}")
        return value


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise SaccadeError(f"{path}: cannot read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SaccadeError(f"{path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise SaccadeError(f"{path}: must be a JSON object; got {type(found).__name__}")
    return found


def read_config(folder: Path) -> Config:
    if not folder.is_dir():
        raise SaccadeError(f"{folder} is no folder; give one with {CONFIG} and {WEIGHTS}")
    return Config(folder / CONFIG, read_json(folder / CONFIG))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder, complete and finite, or an error that names file and tensor."""
    for name, read in ((WEIGHTS, read_tensors), (PICKLE, _read_pickle)):
        index = folder / f"{name}.index.json"
        if (folder / name).is_file():
            found = {each: (folder / name, tensor) for each, tensor in read(folder / name).items()}
        elif index.is_file():
            found = {}
            shards = _shards(index)
            for shard, named in shards.items():
                tensors = read(folder / shard)
                if absent := sorted(named - tensors.keys()):
                    raise SaccadeError(f"{folder / shard}: has no {absent[0]!r}, which {index.name} says it has")
                if extra := sorted(tensors.keys() - named):
                    raise SaccadeError(f"{folder / shard}: has {extra[0]!r}, of which {index.name} does not know")
                found |= {each: (folder / shard, tensor) for each, tensor in tensors.items()}
        else:
            continue
        for each, (file, tensor) in found.items():
            if not is_finite(tensor):
                raise SaccadeError(f"{file}: NaN or infinity in {each!r}")
        return {each: tensor for each, (_, tensor) in found.items()}
    there = ", ".join(sorted(entry.name for entry in folder.iterdir())[:10])
    raise SaccadeError(f"{folder}: there is neither {WEIGHTS} nor {PICKLE}, whole or with an index; there is {there}")


def _shards(index: Path) -> dict[str, set[str]]:
    """Which tensors each file has. A name that leads out of the folder is refused before anything is opened."""
    listed = read_json(index).get("weight_map")
    if not isinstance(listed, dict) or not listed:
        raise SaccadeError(f"{index}: has no weight_map")
    shards: dict[str, set[str]] = {}
    for tensor, name in listed.items():
        if not isinstance(name, str) or not name or name in (".", "..") or set(name) & set("/\\:\0"):
            raise SaccadeError(f"{index}: {name!r} is no plain file name, and nothing else may be in it")
        shards.setdefault(name, set()).add(tensor)
    return shards


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        with path.open("rb") as file:
            start = file.read(256)
        if start.startswith(POINTER):
            raise SaccadeError(f"{path}: a text file, which stands for one that git-lfs has to fetch: git lfs pull")
        if start and b"\0" not in start and not start.startswith((b"PK", b"\x80")):  # of zip files and of pickles
            raise SaccadeError(f"{path}: not a file of tensors (a text file)")
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise SaccadeError(
            f"{path}: refused: it holds more than tensors, and a pickle can run code; have it saved as {WEIGHTS}"
        ) from error
    except (OSError, RuntimeError, ValueError, KeyError, EOFError) as error:
        size = path.stat().st_size if path.exists() else 0
        raise SaccadeError(f"{path}: not a file of tensors ({size} bytes): {' '.join(str(error).split())}") from error
    if not isinstance(found, dict) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise SaccadeError(f"{path}: holds something else than named tensors")
    if sparse := [name for name, tensor in found.items() if tensor.layout is not torch.strided]:
        raise SaccadeError(f"{path}: {sparse[0]!r} is {found[sparse[0]].layout}, and only dense tensors are known here")
    return {str(name): tensor.contiguous() for name, tensor in found.items()}


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which gets its name when all is well and is gone otherwise."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise SaccadeError(f"{path} exists and is not an empty folder: choose another name")
    temporary = temporary_beside(path)
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.mkdir()
            yield temporary
            sync_directory(temporary)
            temporary.replace(path)
            sync_directory(path.parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    write_file(folder / WEIGHTS, encode(tensors))


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    write_file(path, [(json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()])
