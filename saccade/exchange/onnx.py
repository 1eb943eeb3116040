"""Runs as folders of ONNX graphs, which onnxruntime and others run without torch.

    models that write:              encoder.onnx, decoder.onnx (one step, with its cache), search.py
    models that answer in one go:   model.onnx; image.onnx and text.onnx of those that compare

saccade.json says what the graphs take and give. Where onnxruntime is installed it has to say what our model says before
the folder gets its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from saccade import api
from saccade.data.vocab import END
from saccade.errors import SaccadeError, to_install
from saccade.exchange.architecture import labels_left_out
from saccade.exchange.folder import new_folder, write_json
from saccade.exchange.onnx_check import checked
from saccade.exchange.onnx_contract import VOCABULARY, left_out_of_search, way_of_writing, ways_in_and_out
from saccade.exchange.onnx_graph import (
    PAST,
    ROWS,
    SOURCE,
    AnswerGraph,
    DecoderGraph,
    EncoderGraph,
    Leaves,
    Slot,
    caches_among,
    cut_to,
    write_graph,
)
from saccade.exchange.onnx_inputs import (
    IMAGES,
    QUESTIONS,
    TEXTS,
    longest_source,
    questions,
    read_by_encoder,
    stride_of,
)
from saccade.exchange.onnx_recurrent import for_tracing
from saccade.predictor import Predictor
from saccade.train.checkpoint import write_file
from saccade.train.run import Run

CONTRACT, LOOP = "saccade.json", "search.py"
FORMAT = 1
NEEDED = ("onnx", "onnxscript")  # what writes a graph
WRITING = (*TEXTS, *IMAGES, "transcribe", "language")
TRIALS = ({ROWS: 3, PAST: 3}, {ROWS: 2, PAST: 4})  # of other sizes each, by which axes are told apart


def export_run(path: str | Path, folder: str | Path) -> list[str]:
    """Write a run as a folder of ONNX graphs; refused, with nothing left behind, where they say other things."""
    if absent := [name for name in NEEDED if find_spec(name) is None]:
        raise SaccadeError(f"{' and '.join(absent)} must be installed to write ONNX: {to_install('onnx')}")
    predictor, run = api.load(path), Run.open(path)
    kind = predictor.recipe.task.kind
    writes = kind in WRITING
    if not writes and kind not in QUESTIONS:
        raise SaccadeError(f"there is no ONNX for the task {kind}; there is for {', '.join((*WRITING, *QUESTIONS))}")
    predictor.model.eval()
    with new_folder(Path(folder)) as temporary, torch.no_grad():
        contract = {
            "format": FORMAT,
            "task": kind,
            "model": predictor.recipe.model.kind,
            "graphs": (_write_writer if writes else _write_answerer)(predictor, temporary),
            **ways_in_and_out(predictor),
            **(way_of_writing(predictor) if writes else {}),
        }
        write_json(temporary / CONTRACT, contract)
        shutil.copytree(run.vocab, temporary / VOCABULARY)
        if writes:
            write_file(temporary / LOOP, [Path(__file__).with_name("onnx_search.py").read_bytes()])
        result = checked(predictor, temporary, writes=writes)
    notes = [f"{each.name}: {each.stat().st_size / 1e6:.1f} MB" for each in sorted(Path(folder).glob("*.onnx"))]
    if writes and (names := left_out_of_search(predictor)):
        notes.append(f"{LOOP} does not know {', '.join(names)}")
    return [*notes, *labels_left_out(predictor), result]


def _write_answerer(predictor: Predictor, folder: Path) -> dict[str, Any]:
    """A graph for each question."""
    twin, draw, found = for_tracing(predictor.model), Generator().manual_seed(1), {}
    sizes = {**TRIALS[0], SOURCE: longest_source(predictor.model)}
    for name, question in questions(predictor).items():
        slots = [each.slot(sizes, draw) for each in question.inputs]
        write_graph(AnswerGraph(twin, question.ask), slots, question.outputs, folder / f"{name}.onnx")
        found[name] = _described(name, slots, question.outputs)
    return found


def _write_writer(predictor: Predictor, folder: Path) -> dict[str, Any]:
    """An encoder where there is one, and one step of the decoder."""
    model: Any = predictor.model
    kind, stride, longest = predictor.recipe.task.kind, stride_of(predictor), longest_source(model)
    alone, twin, draw = kind == "language", for_tracing(model), Generator().manual_seed(1)
    trials, reading = [], []
    for number, sizes in enumerate(TRIALS):
        lengths = {**sizes, SOURCE: max(1, longest - number) * stride}
        read = [] if alone else [each.slot(lengths, draw) for each in read_by_encoder(predictor)]
        past = model.begin(sizes[ROWS] if alone else model.encode(*(each.example for each in read)), sizes[PAST])
        trials.append((past.memory, cut_to(past, sizes[PAST])))
        reading.append(read)
    memory, states = Leaves(trials[0][0]), Leaves(trials[0][1])
    remembered = _slots("memory", "memory", [memory.of(trial) for trial, _ in trials])
    behind = _slots("state", PAST, [states.of(trial) for _, trial in trials])
    found: dict[str, Any] = {}
    if not alone:
        given = [place for place, cached in enumerate(caches_among(trials[0][1])) if not cached]
        outputs = [each.name for each in (*remembered, *(behind[place] for place in given))]
        graph, least = EncoderGraph(twin, memory, states, given), 3 if kind == "walk" else None  # a pose, and words
        write_graph(graph, reading[0], outputs, folder / "encoder.onnx", multiple=stride, least=least)
        found["encoder"] = _described("encoder", reading[0], outputs) | {"multiple": stride}
    steps, axis = (TRIALS[1][PAST], "steps") if alone else (1, 1)  # a prompt is read at once
    tokens = Slot("tokens", torch.full((TRIALS[0][ROWS], steps), END), (ROWS, axis))
    inputs, outputs = [tokens, *remembered, *behind], ["logits", *(f"next.{n}" for n in range(len(behind)))]
    write_graph(DecoderGraph(twin, memory, states), inputs, outputs, folder / "decoder.onnx")
    return found | {"decoder": _described("decoder", inputs, outputs)}


def _slots(name: str, axis: str, trials: Sequence[Sequence[Tensor]]) -> list[Slot]:
    """Tensors of two trials -> inputs; whatever is of another size in the other trial is the `axis`."""
    found = []
    for number, (one, other) in enumerate(zip(*trials, strict=True)):
        sizes = zip(one.shape[1:], other.shape[1:], strict=True)
        found.append(Slot(f"{name}.{number}", one, (ROWS, *(size if size == its else axis for size, its in sizes))))
    return found


def _described(name: str, inputs: Sequence[Slot], outputs: Sequence[str]) -> dict[str, Any]:
    return {"file": f"{name}.onnx", "inputs": [each.described for each in inputs], "outputs": list(outputs)}
