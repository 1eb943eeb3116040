"""A file of named tensors in the safetensors format: written piece by piece, read with errors for people."""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from saccade.errors import RunError, did_you_mean

HEADER_LIMIT = 100_000_000  # that of the safetensors library

# The names that the safetensors format gives to torch's types.
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.complex64: "C64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class DamagedError(RunError):
    """A checkpoint that cannot be used as it is; an older one may do."""


def encode(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """Yield a safetensors file piece by piece: no second copy of the model in memory, and mode bits that follow umask.

    Tensors that share storage are written once per name, so that a tied model needs no list of its ties to be saved.
    """
    # Wide types first: every tensor then stays aligned. Other programs want to see who wrote the file: "pt" is torch.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in order:
        tensor = tensors[name]
        if tensor.dtype not in DTYPES or name in header:
            raise RunError(f"safetensors cannot hold a tensor called {name!r} of type {tensor.dtype}")
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in order:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)  # a 0-dim tensor cannot be viewed as bytes
        yield flat.view(torch.uint8).numpy().data


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Load a safetensors file; what is not one is refused in one line that says what it is instead."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            header = int.from_bytes(start, "little")
            if len(start) < 8 or header > size - 8:
                claim = f": its header claims {readable(header)}, the file has {size} bytes" if len(start) == 8 else ""
                raise DamagedError(f"{path}: not a checkpoint{nature(path) or claim or f' ({size} bytes)'}")
            announced = _data_bytes(file.read(header)) if header <= HEADER_LIMIT else None
        if announced is not None and 8 + header + announced != size:
            raise DamagedError(f"{path}: expected {8 + header + announced} bytes by its header, found {size}")
        return load_file(path)
    except OSError as error:
        raise DamagedError(f"{path}: {error.strerror or error}") from error
    except (SafetensorError, ValueError, RuntimeError) as error:
        raise DamagedError(f"{path}: not a valid safetensors file: {' '.join(str(error).split())}") from error


def _data_bytes(header: bytes) -> int | None:
    """How many bytes of tensors a header announces; None when that cannot be told and the library must judge."""
    try:
        entries = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
        return max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


def nature(path: Path) -> str:
    """Say what a file looks like that should have been tensors or JSON; "" when it may well be that."""
    with path.open("rb") as file:
        start = file.read(256)
    if not start:
        return " (an empty file)"
    if path.suffix != ".safetensors" or start[8:9] == b"{":  # 8 bytes of length, then the header
        return ""
    if start.startswith((b"PK", b"\x80")):
        return " (a pickle or zip file; these are never opened, because a pickle can run code)"
    return "" if b"\0" in start else " (a text file)"


def is_finite(tensor: Tensor) -> bool:
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    if tensor.element_size() == 1:  # isfinite does not know the 8-bit floats
        tensor = tensor.float()
    return bool(tensor.isfinite().all())


def require_match(found: Mapping[str, Tensor], expected: Mapping[str, Sequence[int]], what: str) -> None:
    """Refuse tensors whose names or shapes are not the expected ones, with one list of all differences.

    Call it before anything is loaded: torch takes the optimizer state of another model without a word.
    """
    absent = sorted(expected.keys() - found.keys())
    extra = sorted(found.keys() - expected.keys())
    shapes = [
        f"{name} is {tuple(found[name].shape)}, expected {tuple(expected[name])}"
        for name in sorted(expected.keys() & found.keys())
        if tuple(found[name].shape) != tuple(expected[name])
    ]
    groups = {
        "missing": absent,
        "unexpected": [name + did_you_mean(name, absent) for name in extra[:10]] + extra[10:],
        "wrong shape": shapes,
    }
    lines = [f"  {group} ({len(items)}): {_listed(items)}" for group, items in groups.items() if items]
    if lines:
        raise RunError("\n".join([f"{what} does not fit; nothing was loaded:", *lines]))


def _listed(items: Sequence[str]) -> str:
    more = f", and {len(items) - 10} more" if len(items) > 10 else ""
    return ", ".join(items[:10]) + more


def readable(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
