"""Runs that were never trained, and the same weights in the tools of others: what writing is measured with.

Every model is exported by `saccade export`, which compares what was written with what we say before it gets its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from saccade import api
from saccade.config import dump_recipe, parse_recipe
from saccade.errors import SaccadeError, to_install
from saccade.exchange import ctranslate2, huggingface
from saccade.predictor import Predictor
from saccade.train.run import Run
from saccade.train.trainer import named_tensors

Work = Callable[[], object]


@dataclass(frozen=True)
class Contestant:
    """One tool in one precision."""

    tool: str
    precision: str

    def __str__(self) -> str:
        return f"{self.tool} {self.precision}"


SACCADE = tuple(Contestant("saccade", precision) for precision in ("float32", "int8"))
CTRANSLATE2 = tuple(Contestant("CTranslate2", precision) for precision in ("float32", "int8"))
LLAMA = tuple(Contestant("llama.cpp", precision) for precision in ("float32", "int8"))
HUGGING_FACE = Contestant("Hugging Face", "float32")
PACKAGES = {"CTranslate2": "ctranslate2", "Hugging Face": "transformers"}
OF_LANGUAGE_MODELS = {**PACKAGES, "llama.cpp": "llama-cpp-python"}


def installed(packages: Mapping[str, str] = PACKAGES) -> dict[str, str]:
    """The tools that can be compared with, and their versions."""
    found = {}
    for tool, package in packages.items():
        try:
            found[tool] = version(package)
        except PackageNotFoundError:
            continue
    if not found:
        raise SaccadeError(f"there is nothing to compare with: {to_install('huggingface,ctranslate2')}")
    return found


def byte_pairs(size: int) -> Tokenizer:
    """A tokenizer of so many pieces, learned from nothing: the bytes, and pairs of them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [pair for pair, _ in zip(product(alphabet, alphabet), range(size - len(alphabet)), strict=False)]
    pieces = [*alphabet, *("".join(pair) for pair in pairs)]
    tokenizer = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(pieces)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def drawn(recipe: str, vocabulary: Any, place: Path) -> Predictor:
    """A run with weights as they are drawn, seed 1, and a vocabulary."""
    settings = parse_recipe(recipe, "bench")
    run = Run.create(place / "run", dump_recipe(settings))
    vocabulary.save(run.vocab)
    task = api.make_task(settings)
    task.load(run.vocab)
    torch.manual_seed(1)
    run.save_final(named_tensors(task.model()), {"vocabulary": run.vocab_hash()})
    return api.load(run.path)


def folders(place: Path) -> tuple[Path, Path]:
    """Where the run of a place is in the formats of Hugging Face and of CTranslate2."""
    return place / "huggingface", place / "ctranslate2"


def exported(place: Path) -> None:
    """The run of a place in these folders, where there is somebody to read them."""
    tools, exports = installed(), (huggingface.export_run, ctranslate2.export_run)
    for tool, folder, export in zip(("Hugging Face", "CTranslate2"), folders(place), exports, strict=True):
        if tool in tools:
            export(place / "run", folder)


def quiet_transformers() -> Any:
    """The library, without its progress bars and advice."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def spelled(folder: Path, name: str) -> list[str]:
    """The tokens of a CTranslate2 folder, by their ids."""
    return list(json.loads((folder / name).read_text(encoding="utf-8")))


def ctranslate2_ways(kind: str, folder: Path, precision: str, counts: Sequence[int]) -> list[tuple[Any, int]]:
    """Its models of a kind, each with the number of parts that a batch is to have: so many threads share one, or have
    one each."""
    import ctranslate2

    load = getattr(ctranslate2, kind)
    ways = [*((1, threads) for threads in counts), (counts[-1], 1)]
    return [
        (load(str(folder), compute_type=precision, inter_threads=parts, intra_threads=threads), parts)
        for parts, threads in ways
    ]


def with_threads(threads: int, work: Work) -> Work:
    """The same work by so many of torch's threads."""

    def threaded() -> object:
        torch.set_num_threads(threads)
        return work()

    return threaded
