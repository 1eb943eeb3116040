"""Whether onnxruntime says what our models say: random inputs of several lengths, with padding in a batch and alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from saccade.data.vocab import START
from saccade.errors import SaccadeError
from saccade.exchange.onnx_graph import ROWS, SOURCE
from saccade.exchange.onnx_inputs import longest_source, questions, read_by_encoder, stride_of
from saccade.predictor import Predictor

TOLERANCE = 1e-4  # between numbers of onnxruntime and ours, relative to the largest
STEPS = 4  # tokens that are written in a trial


def checked(predictor: Predictor, folder: Path, *, writes: bool) -> str:
    """Refuse a folder that says other things; in words, what was asked."""
    try:
        import onnxruntime
    except ImportError:
        return "not checked against onnxruntime: the package onnxruntime is not installed"
    with for_people_too(f"the export is refused: onnxruntime {onnxruntime.__version__}"):
        if writes:
            _check_writer(predictor, folder)
        else:
            _check_answerer(predictor, folder)
    return f"checked against onnxruntime {onnxruntime.__version__}"


@contextmanager
def for_people_too(what: str) -> Iterator[None]:
    """What onnxruntime itself raises, after words that say what could not be done."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("onnxruntime"):  # its errors have no class in common
            raise
        raise SaccadeError(f"{what}: {' '.join(str(error).split())}") from error


def _check_answerer(predictor: Predictor, folder: Path) -> None:
    """The same numbers."""
    import onnxruntime

    draw, longest = Generator().manual_seed(2), longest_source(predictor.model)
    for name, question in questions(predictor).items():
        session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
        for sizes in ({ROWS: 4, SOURCE: longest}, {ROWS: 1, SOURCE: 1}):
            given = {each.name: each.drawn(sizes, draw) for each in question.inputs}
            ours = question.ask(predictor.model, *given.values())
            theirs = session.run(list(question.outputs), {key: each.numpy() for key, each in given.items()})
            for output, one, other in zip(question.outputs, ours, theirs, strict=True):
                _require_near(f"{name}.onnx has other {output}", one, torch.from_numpy(other))


def _check_writer(predictor: Predictor, folder: Path) -> None:
    """The same logits at every step, whatever is written; and by greedy search the same tokens, or as probable ones."""
    from saccade.exchange.onnx_search import Arrays, Writer

    model: Any = predictor.model
    writer, draw = Writer(folder), Generator().manual_seed(2)
    alone, size, longest = "encoder" not in writer.sessions, model.output.weight.shape[0], longest_source(model)
    shortest = 2 if predictor.recipe.task.kind == "walk" else 1  # a pose, and a word
    # a prompt is read at once
    steps = [longest // 2 or 1 if alone else 1, *[1] * (STEPS - 1)][: longest // 2 + 1]
    sources: list[Tensor] = []
    for rows, length in ((3, longest), (1, shortest)):
        if alone:
            memory: Arrays = {}
            states, past = writer.states(rows), model.begin(rows, longest)
            sources.append(torch.randint(size, (length // 2 or 1,), generator=draw))
        else:
            sizes = {ROWS: rows, SOURCE: length * stride_of(predictor)}
            read = {each.name: each.drawn(sizes, draw) for each in read_by_encoder(predictor)}
            memory, states = writer.encode({name: each.numpy() for name, each in read.items()})
            past = model.begin(model.encode(*read.values()), longest)
            masks = read.get("mask", [...] * rows)
            sources += [row[mask] for row, mask in zip(read["source"], masks, strict=True)]
        for number, count in enumerate(steps, start=1):
            tokens = torch.randint(size, (rows, count), generator=draw)
            ours, past = model.step(tokens, past)
            theirs, states = writer.step(tokens.numpy(), memory, states)
            log_p = torch.from_numpy(theirs).log_softmax(-1)
            _require_near(f"decoder.onnx has other log-probabilities at step {number}", ours, log_p)
    limits = [min(STEPS, longest // 2 or 1)] * len(sources)
    never, end = writer.contract["ids"]["never"], writer.contract["ids"]["end"]
    found = writer.write([source.numpy() for source in sources], beam=1, limits=limits)
    for source, limit, answer in zip(sources, limits, found, strict=True):
        tokens_ = [*answer.tokens, *([end] if answer.ended else [])]
        if not answer.ended and len(tokens_) != limit:
            raise SaccadeError(f"the export is refused: {len(tokens_)} tokens were written, and not {limit}")
        log_p = _log_probabilities(model, source, tokens_, alone=alone)
        log_p[:, never] = -torch.inf
        chosen = log_p.gather(-1, torch.tensor(tokens_)[:, None])[:, 0]
        _require_near("other tokens are written, less probable here", log_p.amax(-1), chosen)


def _log_probabilities(model: Any, source: Tensor, tokens: Sequence[int], *, alone: bool) -> Tensor:
    """Of every token at each place of an answer to a source that has no padding -> (T, V)."""
    before = list(tokens[:-1])
    if alone:
        states = model(torch.tensor([[*source.tolist(), *before]]))
    else:
        states = model(source[None], None, torch.tensor([[START, *before]]))
    return model.output(states[0, -len(tokens) :]).log_softmax(-1)


def _require_near(what: str, ours: Tensor, theirs: Tensor) -> None:
    apart = float((ours - theirs).abs().max()) if ours.shape == theirs.shape else torch.inf
    if not apart <= TOLERANCE * max(1.0, float(ours.abs().max())):
        raise SaccadeError(f"the export is refused: {what}, by {apart:.1e}")
