"""A run beside a folder in the format of others, on a user's own inputs: `saccade verify RUN --against FOLDER`.

A folder of Hugging Face is read as by `saccade import`, graphs of ONNX are run in the place of our model, inside the
same search, and CTranslate2 is asked itself. What cannot be asked on given inputs is asked on drawn ones, as an export
does before it gives a folder its name.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade import api
from saccade.decode import Greedy
from saccade.errors import SaccadeError
from saccade.exchange import ctranslate2, huggingface, onnx
from saccade.exchange.folder import CONFIG, Config, read_json
from saccade.exchange.onnx_check import checked as onnx_checked
from saccade.exchange.onnx_check import for_people_too
from saccade.models.shapes import Memory
from saccade.nn.cache import Past
from saccade.nn.choice import Asked
from saccade.predictor import Predictor
from saccade.tasks.base import Prediction
from saccade.train.trainer import named_tensors
from saccade.verify import Law

TOLERANCE = 1e-4  # of a score


def against(predictor: Predictor, folder: Path, inputs: Sequence[str]) -> list[Law]:
    """What differs between a run and a folder, whatever its format."""
    if (folder / onnx.CONTRACT).is_file():
        return _against_onnx(predictor, folder, inputs)
    if (folder / ctranslate2.FILE).is_file():
        return _against_ctranslate2(predictor, folder, inputs)
    if (folder / CONFIG).is_file():
        return _against_huggingface(predictor, folder, inputs)
    names = f"{onnx.CONTRACT}, {ctranslate2.FILE} or {CONFIG}"
    raise SaccadeError(f"{folder}: there is no {names} in it: no format that is known")


def _against_huggingface(predictor: Predictor, folder: Path, inputs: Sequence[str]) -> list[Law]:
    with tempfile.TemporaryDirectory() as place:
        huggingface.import_folder(folder, Path(place) / "run")
        # a folder does not say all of how answers are searched: both are asked alike
        search = predictor.recipe.decode.model_dump(mode="json")
        other = api.load(
            Path(place) / "run",
            settings=[f"decode.{key}={json.dumps(each, ensure_ascii=False)}" for key, each in search.items()],
        )
    ours, theirs = named_tensors(predictor.model), named_tensors(other.model)
    apart = sum(not _alike(ours.get(name), theirs.get(name)) for name in ours.keys() | theirs.keys())
    return [Law("tensors that differ", float(apart), 0.0), *_answers(predictor, inputs, other.predict(inputs))]


def _alike(one: Tensor | None, other: Tensor | None) -> bool:
    """Bit for bit; what is not there is as if it were zero."""
    if one is None or other is None:
        return not any(each.any() for each in (one, other) if each is not None)
    return torch.equal(one, other.to(one.dtype))


def _against_onnx(predictor: Predictor, folder: Path, inputs: Sequence[str]) -> list[Law]:
    _require("onnxruntime", folder)
    contract, kind = Config(folder / onnx.CONTRACT, read_json(folder / onnx.CONTRACT)), predictor.recipe.task.kind
    if (task := contract.text("task")) != kind:
        raise SaccadeError(f"{contract.path}: task is {task!r}, and that of the run {kind!r}")
    if not contract.inside("graphs").values:
        raise SaccadeError(f"{contract.path}: there are no graphs")
    if kind not in onnx.WRITING or kind == "language":
        return [_drawn(lambda: onnx_checked(predictor, folder, writes=kind in onnx.WRITING))]
    if predictor.recipe.decode.coverage_penalty:
        raise SaccadeError(f"{folder}: nobody can look into graphs, as decode.coverage_penalty of the run asks to")
    with for_people_too(f"{folder}: onnxruntime"):
        stand_in: Any = Graphs(folder)
        theirs = predictor.task.predict(stand_in, inputs, None)
    return _answers(predictor, inputs, theirs)


def _against_ctranslate2(predictor: Predictor, folder: Path, inputs: Sequence[str]) -> list[Law]:
    _require("ctranslate2", folder)
    if predictor.recipe.task.kind != "translate":
        return [_drawn(lambda: ctranslate2.check(predictor, folder))]
    pieces = predictor.task.pieces  # type: ignore[attr-defined]
    if unlike := ctranslate2.pieces_apart(folder, pieces):
        return [Law("pieces of the vocabulary that differ", float(unlike), 0.0)]
    predictions = predictor.predict(inputs, Greedy())
    ours = [each for each in predictions if each.answers]
    if not ours:
        raise SaccadeError(f"there is nothing to compare: {predictions[0].refusal}")
    sources = [pieces.encode(each.input) for each in ours]
    hypotheses = [found for each in ours if (found := each.answers[0].hypothesis) is not None]
    try:
        written, scored = ctranslate2.translated(folder, sources, [each.tokens for each in hypotheses])
    except RuntimeError as error:  # a text longer than it has positions for, say
        raise SaccadeError(f"{folder}: CTranslate2: {error}") from error
    ends = [len(one) if two.stopped == "eos" else len(two.tokens) for one, two in zip(written, hypotheses, strict=True)]
    other = sum(tuple(one[:end]) != two.tokens for one, two, end in zip(written, hypotheses, ends, strict=True))
    pairs = zip(scored, hypotheses, strict=True)
    apart = max((abs(one - sum(two.token_scores)) for one, two in pairs if two.stopped == "eos"), default=0.0)
    return [Law("answers that differ", float(other), 0.0), Law("log-probability of an answer", apart, TOLERANCE)]


def _answers(predictor: Predictor, inputs: Sequence[str], theirs: Sequence[Prediction]) -> list[Law]:
    """Of the inputs that either answers: other texts, and the largest difference of a score."""
    pairs = list(zip(predictor.predict(inputs), theirs, strict=True))
    other = [one.text != two.text or one.refusal != two.refusal for one, two in pairs]
    scores = [
        abs(one.answers[0].score - two.answers[0].score)
        for (one, two), differs in zip(pairs, other, strict=True)
        if not differs and one.answers and one.answers[0].score is not None and two.answers[0].score is not None
    ]
    return [
        Law("answers that differ", float(sum(other)), 0.0),
        Law("score of an answer", max(scores, default=0.0), TOLERANCE),
    ]


def _drawn(asked: Callable[[], str]) -> Law:
    """What an export asks of drawn inputs: it says what was asked, or raises what it found."""
    try:
        with torch.no_grad():
            return Law(f"drawn inputs: {asked()}", 0.0, 0.0)
    except SaccadeError as error:
        return Law(f"drawn inputs: {error}", math.inf, 0.0)


def _require(package: str, folder: Path) -> None:
    if find_spec(package) is None:
        raise SaccadeError(f"{folder}: to ask it, install {package} (pip install {package})")


class Graphs:
    """The graphs of a folder as a model that our search can ask."""

    training = False

    def __init__(self, folder: Path):
        from saccade.exchange.onnx_search import Writer

        self.writer = Writer(folder)

    def eval(self) -> Graphs:
        return self

    def train(self, mode: bool = True) -> Graphs:  # noqa: ARG002
        return self

    def encode(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        """The first states go along as a memory's, of which nothing else is asked."""
        names = {each["name"] for each in self.writer.graphs["encoder"]["inputs"]}
        real = torch.ones(source.shape[:2], dtype=torch.bool) if mask is None else mask
        given = {"source": source.numpy()} | ({"mask": real.numpy()} if "mask" in names else {})
        return Memory(_tensors(self.writer.encode(given)))

    def begin(self, memory: Memory, limit: int) -> Past:  # noqa: ARG002
        read: Any = memory.states
        return Past(read[1], read[0], torch.zeros(len(next(iter(read[0].values()))), dtype=torch.long))

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        fold = len(tokens) // len(next(iter(past.memory.values())))
        memory = {name: each.repeat_interleave(fold, 0).numpy() for name, each in past.memory.items()}
        states = {name: each.numpy() for name, each in past.state.items()}
        logits, following = self.writer.step(tokens.numpy(), memory, states)
        return torch.from_numpy(logits).log_softmax(-1), past.advanced(_tensors(following), tokens.shape[1])

    def stretch(self, past: Past, asked: Asked) -> None:
        """Graphs are asked step by step."""


def _tensors(arrays: Any) -> Any:
    if isinstance(arrays, tuple):
        return tuple(_tensors(each) for each in arrays)
    return {name: torch.from_numpy(np.ascontiguousarray(each)) for name, each in arrays.items()}
