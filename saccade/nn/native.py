"""The processor's own code: `cpp/native.cpp`, compiled on the machine where it runs and kept there for the next time.

Compiling takes four to nine seconds, once. Where there is no compiler, or it fails, or SACCADE_NATIVE=0 is set,
everything is computed by torch instead; SACCADE_NATIVE=x86-64-v3, or another name that the compiler knows, makes code
for that processor in place of the one at hand. Numbers are torch's, and so are the threads.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from saccade.nn.pages import AGAIN, BLOCKS
from saccade.nn.structures import Loss, Map, Memory

SOURCES = Path(__file__).with_name("cpp")  # native.cpp, and what it includes
COMPILERS = ("c++", "g++", "clang++")
# not -ffast-math: loading the library would change torch's arithmetic, and a row's sums would depend on its neighbours
FLAGS = ("-std=c++17", "-O3", "-fopenmp", "-shared", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
# where there are so many: compilers choose 256, but Intel's processors take 512 bits in the same time
WIDE = "-mprefer-vector-width=512"
X86 = "x86_64", "AMD64"
PATIENCE = 120  # seconds for a compiler
LOG = logging.getLogger(__name__)
# logits of a loss that exist at a time: tables of many rows are read seldom, those of few stay in the caches
MOST_ROWS, LEAST_ROWS, LOGITS_AT_ONCE = 384, 48, 1 << 24


@functools.cache
def library() -> ctypes.CDLL | None:
    """What was compiled, now or before; None where that cannot be."""
    if _made_for() == "0":
        return None
    compiler = os.environ.get("CXX") or next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    try:
        file = _compiled(compiler)
        try:
            return _declared(ctypes.CDLL(str(file)))
        except OSError:  # damaged, or made for another system that shares the folder
            file.unlink()
            return _declared(ctypes.CDLL(str(_compiled(compiler))))
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
        return None


def _compiled(compiler: str) -> Path:
    """The library's file: named by all that it depends on, and complete from the moment it is there. A compiler that
    failed is not tried again: what it said lies in its place."""
    sources = [file.read_bytes() for file in sorted((*SOURCES.glob("*.h"), *SOURCES.glob("*.cpp")))]
    flags = [*FLAGS, f"-march={_made_for()}", *([WIDE] if platform.machine() in X86 else [])]
    of = "\n".join([*flags, compiler, platform.machine(), *platform.libc_ver(), _processor()])
    name = hashlib.blake2b(b"".join((*sources, of.encode())), digest_size=10).hexdigest()
    file, failed = (_cache() / f"native-{name}.{kind}" for kind in ("so", "failed"))
    if failed.exists():
        raise RuntimeError(f"{failed}: {compiler} failed before")
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        LOG.info("compiling code for this processor, once: some seconds")
        with tempfile.TemporaryDirectory(dir=file.parent) as place:
            made = Path(place) / file.name
            command = [*shlex.split(compiler), *flags, str(SOURCES / "native.cpp"), "-o", str(made)]
            try:
                subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=PATIENCE)
            except subprocess.SubprocessError as error:
                told = getattr(error, "stderr", None) or b""
                failed.write_bytes(f"{error}\n".encode() + told)
                LOG.info("that failed, so torch computes; why is in %s: delete it for another try", failed)
                raise
            made.replace(file)
    return file


def _made_for() -> str:
    """The processor, as compilers name it; 0 for none."""
    asked = os.environ.get("SACCADE_NATIVE", "")
    return "native" if asked in ("", "1") else asked


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saccade"


def _processor() -> str:
    """What the processor can do: code made for one must not be run by another that shares the folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _declared(made: ctypes.CDLL) -> ctypes.CDLL:
    counting = "panel", "lanes", "has_bytes", "has_pairs", "levels", "transformer_step", "transformer_stretch"
    for name in counting:
        getattr(made, name).restype = ctypes.c_int64
    made.depth_in_bytes.argtypes, made.depth_in_bytes.restype = [ctypes.c_int64], ctypes.c_int64
    for name in ("pack_floats", "pack_bytes"):
        getattr(made, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    made.apply.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64]
    made.transformer_step.argtypes = [*[ctypes.c_void_p] * 2, ctypes.c_int64]
    made.transformer_stretch.argtypes = [*[ctypes.c_void_p] * 3, ctypes.c_int64]
    for name in ("cross_entropy", "short_attention"):
        getattr(made, name).argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    made.remember.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    made.log_softmax.argtypes = [ctypes.c_void_p, *[ctypes.c_int64] * 3]
    made.continuations.argtypes = [*[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 5, ctypes.c_void_p, ctypes.c_int64]
    for name in (
        "pack_floats",
        "pack_bytes",
        "apply",
        "log_softmax",
        "continuations",
        "cross_entropy",
        "short_attention",
        "remember",
    ):
        getattr(made, name).restype = None
    return made


class NativeLinear:
    """W x + b by our own code, of a float32 W or of one in eight bits."""

    def __init__(self, made: ctypes.CDLL, weight: Tensor, bias: Tensor | None, *, in_bytes: bool):
        outputs, inputs = weight.shape
        panels = -(-outputs // made.panel())
        self.made, self.outputs = made, outputs
        self.bias = None if bias is None else _padded(bias, panels * made.panel())
        self.scale: Tensor | None = None
        weight = weight.contiguous()
        if in_bytes:
            scale, numbers = in_eight_bits(weight)
            self.scale = _padded(scale, panels * made.panel())
            self.packed = BLOCKS.room(panels * made.panel() * made.depth_in_bytes(inputs), torch.uint8)
            made.pack_bytes(numbers.data_ptr(), self.packed.data_ptr(), outputs, inputs)
        else:
            self.packed = BLOCKS.room(panels * made.panel() * inputs, torch.float32)
            made.pack_floats(weight.data_ptr(), self.packed.data_ptr(), outputs, inputs)
        self.map = Map(inputs, outputs, in_bytes, *map(pointer, (self.packed, self.scale, self.bias)))
        self.address = ctypes.addressof(self.map)

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or x.device.type != "cpu" or x.shape[-1] != self.map.inputs:
            told = f"{x.dtype}, {tuple(x.shape)} on {x.device}"
            raise ValueError(f"needs float32 vectors of {self.map.inputs} numbers on the processor; got {told}")
        x = x.contiguous()
        y = AGAIN.room(*x.shape[:-1], self.outputs)
        self.made.apply(self.address, x.data_ptr(), y.data_ptr(), x.numel() // x.shape[-1], torch.get_num_threads())
        return y


def in_eight_bits(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A scale for each output of W, and numbers of which they make nearly W."""
    scale = (weight.abs().amax(1) / 127).clamp(min=1e-30)
    return scale, (weight / scale[:, None]).round().to(torch.int8)


def remember(linear: NativeLinear, states: Tensor, mask: Tensor | None, keys: Tensor, values: Tensor) -> None:
    """Keys and values (B, H, S, K) of states (B, S, D) that are real, by one map; of others they are 0."""
    (sentences, heads, cells, width), real = keys.shape, None if mask is None else mask.contiguous()
    if states.shape != (sentences, cells, linear.map.inputs) or linear.outputs != 2 * heads * width:
        raise ValueError(f"states {tuple(states.shape)} do not fit keys {tuple(keys.shape)}")
    states = states.contiguous()
    sizes = sentences, cells, heads, width
    memory = Memory(linear.address, states.data_ptr(), *sizes, *map(pointer, (real, keys, values)))
    linear.made.remember(ctypes.addressof(memory), torch.get_num_threads())


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the last axis of (R, V), which may be written over the logits: in a large beam, where a second
    table of this size does not fit into the caches, that takes a tenth off the time of a step."""
    locked = logits.is_inference()  # torch would let no rule write to it
    if locked or not is_plain(logits) or (made := library()) is None:
        return logits.log_softmax(-1)
    made.log_softmax(logits.data_ptr(), *logits.shape, torch.get_num_threads())
    return logits


class RowLosses(NamedTuple):
    """Sums over rows of `losses.TokenLoss`, and gradients of the smoothed one where they were asked for."""

    smoothed: Tensor
    surprise: Tensor
    correct: Tensor
    gradients: tuple[Tensor | None, ...]  # by the rows, the weight and the bias


def cross_entropy(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    smoothing: float,
    *,
    low: torch.dtype,
    wanted: Sequence[bool],
) -> RowLosses | None:
    """Label-smoothed cross-entropy of x (N, D) behind W (V, D) and b, with the products in the precision `low`; None
    where torch has to do it."""
    given = x, weight, bias
    usual = all(each is None or (each.device.type == "cpu" and each.dtype == torch.float32) for each in given)
    if not usual or low not in (torch.float32, torch.bfloat16) or (made := library()) is None:
        return None
    if low == torch.bfloat16 and not made.has_pairs():
        return None
    (rows, width), words = x.shape, len(weight)
    kept = [None if each is None else each.detach().contiguous() for each in given]
    gradients = [
        torch.zeros_like(each) if each is not None and asked else None for each, asked in zip(kept, wanted, strict=True)
    ]
    losses, correct = torch.empty(2, rows, dtype=torch.float64), torch.empty(rows, dtype=torch.int64)
    at_once = min(MOST_ROWS, max(LEAST_ROWS, LOGITS_AT_ONCE // words))
    target = target.long().contiguous()
    read, written = map(pointer, (*kept, target)), map(pointer, (*gradients, *losses, correct))
    loss = Loss(rows, width, words, at_once, *read, smoothing, *written)
    made.cross_entropy(ctypes.addressof(loss), low == torch.bfloat16, torch.get_num_threads())
    smoothed, surprise = losses.sum(1).float()
    return RowLosses(smoothed, surprise, correct.sum(), tuple(gradients))


def is_plain(x: Tensor) -> bool:
    """Whether our own code may read and write its numbers."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and x.is_contiguous() and not x.requires_grad


def pointer(tensor: Tensor | None) -> int | None:
    """Where its numbers lie."""
    return None if tensor is None else tensor.data_ptr()


def _padded(numbers: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(numbers, (0, size - len(numbers))).contiguous()
