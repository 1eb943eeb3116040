"""Runs as ONNX: every family says and writes there what it does here, and what does not is refused."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from typer.testing import CliRunner

from saccade import api
from saccade.cli import app
from saccade.data.lexicon import Lexicon
from saccade.data.toy import symbol_names
from saccade.data.vocab import END, PAD, START, Characters, Pieces, Symbols
from saccade.decode import Beam, Greedy, never, search
from saccade.errors import SaccadeError
from saccade.exchange import onnx as exporting
from saccade.exchange import onnx_search
from saccade.exchange.onnx import export_run
from saccade.exchange.onnx_check import checked
from saccade.exchange.onnx_inputs import questions
from saccade.exchange.onnx_search import Writer
from saccade.train.run import Run
from saccade.train.trainer import named_tensors
from tests.corridors import lattice
from tests.exchange import published

DOCUMENT = Path(__file__).parents[2] / "docs/exchange.md"
PIECES = Pieces.learn(published.TEXTS, 300)
LETTERS = Characters("abc")
SMALL = "width: 8, hidden: 6"
BLOCKS = "width: 8, heads: 2, hidden: 12"
CNN = "{kind: cnn, width: 4, stages: 1}"


def beside(vocabulary: Any = None, **files: Any) -> Callable[[Path], None]:
    """A function that saves a vocabulary, if there is one, and JSON files."""

    def save(folder: Path) -> None:
        if vocabulary is not None:
            vocabulary.save(folder)
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))

    return save


def two_sides(folder: Path) -> None:
    for name in ("commands", "actions"):
        (folder / name).mkdir()
        Symbols(["a", "b", "c"] if name == "actions" else ["d", "e"]).save(folder / name)


def lexicon() -> Lexicon:
    return Lexicon.learn(published.TEXTS, "characters", size=300)


USUAL = {"most_frequent": "a"}
REVERSE = beside(Symbols(symbol_names(8)))

# task and model of a recipe, and what stands in the vocabulary's folder
TRANSLATOR = (
    "{kind: translate, source: x, pieces: 300}",
    f"{{kind: transformer, {BLOCKS}, encoder_layers: 1, decoder_layers: 1, positions: learned, longest: 40}}",
    PIECES.save,
)
WRITERS: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "bahdanau": (
        "{kind: follow, data: x}",
        f"{{kind: bahdanau, {SMALL}, cell: gru}}",
        two_sides,
    ),
    "sutskever": ("{kind: reverse, symbols: 8}", f"{{kind: sutskever, {SMALL}, cell: rnn, context: each}}", REVERSE),
    "convolutional": (
        "{kind: sort, symbols: 8}",
        "{kind: convolutional, width: 8, layers: 2, heads: 2, longest: 40}",
        REVERSE,
    ),
    "show_attend_tell": (
        "{kind: caption, data: x, size: 8, longest: 6, pieces: 300}",
        f"{{kind: show_attend_tell, {SMALL}, image: {CNN}}}",
        beside(PIECES, captions=USUAL),
    ),
    "listen_attend_spell": (
        "{kind: transcribe, data: x, features: 3}",
        f"{{kind: listen_attend_spell, {SMALL}, listener: 5, halvings: 2}}",
        beside(LETTERS, transcripts=USUAL),
    ),
    "speech_transformer": (
        "{kind: transcribe, data: x, features: 3}",
        f"{{kind: speech_transformer, {BLOCKS}, encoder_layers: 1, decoder_layers: 1}}",
        beside(LETTERS, transcripts=USUAL),
    ),
    "listen_attend_walk": (
        "{kind: walk, data: x, test_map: fir}",
        f"{{kind: listen_attend_walk, {SMALL}}}",
        beside(Symbols(["<unknown>", "go", "left"]), maps={"oak": lattice("oak", 2)}),
    ),
}
LANGUAGE = {
    "gpt": f"{{kind: gpt, {BLOCKS}, layers: 1, positions: rotary, kv_heads: 1}}",
    "recurrent": f"{{kind: recurrent, {SMALL}, layers: 2, attend: true, heads: 2}}",
}
ANSWERERS: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "bert": (
        "{kind: masked, data: x, unit: characters, window: 16}",
        f"{{kind: bert, {BLOCKS}, layers: 1}}",
        lexicon().save,
    ),
    "xlnet": (
        "{kind: permuted, data: x, unit: characters, window: 16}",
        f"{{kind: xlnet, {BLOCKS}, layers: 1}}",
        lexicon().save,
    ),
    "classifier of text": (
        "{kind: classify, data: [x], unit: characters, longest: 12, pool: attention}",
        f"{{kind: gpt, {BLOCKS}, layers: 1}}",
        beside(lexicon(), labels=["no", "yes"]),
    ),
    "vit": (
        "{kind: classify_images, data: x, size: 8}",
        f"{{kind: vit, patch: 4, {BLOCKS}, layers: 1}}",
        beside(labels=["no", "yes"]),
    ),
    "clip": (
        "{kind: contrast, data: x, size: 8, pieces: 300}",
        f"{{kind: clip, width: 5, image: {CNN}, text: {{{BLOCKS}, layers: 1}}}}",
        PIECES.save,
    ),
    "answerer": (
        "{kind: answer, data: x, size: 8, pieces: 300}",
        f"{{kind: stacked_attention, width: 8, image: {CNN}}}",
        beside(PIECES, answers=["no", "yes"]),
    ),
    "actor": (
        "{kind: interact, side: 5}",
        f"{{kind: show_attend_interact, {BLOCKS}, image: {CNN}}}",
        beside(actions=USUAL),
    ),
    "kernel": (
        "{kind: regress, data: x}",
        "{kind: kernel, embedding: learned, hidden: 4}",
        beside(table={"center": [0, 0, 0], "spread": [1, 1, 1], "examples": 7}),
    ),
}


def made(place: Path, case: tuple[str, str, Callable[[Path], None]]) -> api.Predictor:
    """A run of random weights, large enough that a mistake anywhere shows."""
    task, model, vocabulary = case
    predictor = published.drawn_run(f"task: {task}\nmodel: {model}", place / "run", vocabulary, deviation=0.3)
    if hasattr(predictor.model, "targets"):  # examples that are a part of the model, and zeros so far
        predictor.model.examples.normal_()
        predictor.model.targets.normal_()
        run = Run.open(place / "run")
        run.save_final(named_tensors(predictor.model), {"vocabulary": run.vocab_hash()})
    return predictor


def exported(place: Path, case: tuple[str, str, Callable[[Path], None]]) -> api.Predictor:
    predictor = made(place, case)
    assert export_run(place / "run", place / "out")[-1] == f"checked against onnxruntime {onnxruntime.__version__}"
    return predictor


def sources_for(writer: Writer, predictor: api.Predictor) -> list[np.ndarray]:
    """Three of other lengths each; images all alike."""
    draw = np.random.default_rng(3)
    shape = writer.graphs["encoder"]["inputs"][0]["shape"]
    if shape[1] != "source":
        return [draw.uniform(-1, 1, shape[1:]).astype("f") for _ in range(3)]
    if len(shape) == 3:
        return [draw.normal(size=(length, shape[2])).astype("f") for length in (13, 5, 1)]
    below = predictor.model.encoder.embedding.vocabulary
    return [draw.integers(3, below, length) for length in (11, 6, 2)]


def padded(sources: list[np.ndarray]) -> tuple[torch.Tensor, ...]:
    if sources[0].ndim == 3:
        return (torch.from_numpy(np.stack(sources)),)
    mask = torch.arange(max(map(len, sources))) < torch.tensor([len(each) for each in sources])[:, None]
    rows = [torch.from_numpy(each) for each in sources]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), mask


def near(theirs: np.ndarray, ours: torch.Tensor) -> bool:
    return bool(np.abs(theirs - ours.numpy()).max() <= 1e-4 * max(1.0, float(ours.abs().max())))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return torch.from_numpy(logits).log_softmax(-1).numpy()


@torch.no_grad()
def written_here(model: Any, sources: list[np.ndarray], limits: list[int], method: Any) -> list[Any]:
    past = model.begin(model.encode(*padded(sources)), max(limits))
    found = search(model.step, past, start=START, end=END, limits=limits, method=method, rules=[never([PAD, START])])
    return [best[0] for best in found]


def require_same(predictor: api.Predictor, folder: Path) -> None:
    """Log-probabilities at every step with padding beside them, and what greedy and beam search write."""
    model, writer = predictor.model, Writer(folder)
    sources = sources_for(writer, predictor)
    memory, states = writer.read(sources)
    tokens = torch.randint(3, model.output.weight.shape[0], (3, 6), generator=torch.Generator().manual_seed(4))
    with torch.no_grad():
        past = model.begin(model.encode(*padded(sources)), 6)
        for last in tokens.split(1, dim=1):
            ours, past = model.step(last, past)
            theirs, states = writer.step(last.numpy(), memory, states)
            assert near(log_softmax(theirs), ours)
    limits = [writer.limit(source) for source in sources]
    for width, method in ((1, Greedy()), (3, Beam(3, length_penalty=0.7))):
        found = writer.write(sources, beam=width, length_penalty=0.7)
        for answer, best in zip(found, written_here(model, sources, limits, method), strict=True):
            assert answer.tokens == best.tokens and answer.ended == (best.stopped == "eos")
            assert abs(answer.score - best.score) < 1e-3


@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_says_at_every_step_and_writes_what_it_does_here(name: str, tmp_path: Path) -> None:
    require_same(exported(tmp_path, WRITERS[name]), tmp_path / "out")


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> tuple[api.Predictor, Path]:
    """A run that the command exported, and the folder."""
    place = tmp_path_factory.mktemp("translator")
    predictor = made(place, TRANSLATOR)
    result = CliRunner().invoke(app, ["export", str(place / "run"), str(place / "out"), "--to", "onnx"])
    assert result.exit_code == 0 and "checked against onnxruntime" in result.output
    return predictor, place / "out"


def test_a_translator_says_at_every_step_and_writes_what_it_does_here(translator: tuple[api.Predictor, Path]) -> None:
    predictor, folder = translator
    require_same(predictor, folder)
    writer, texts = Writer(folder), ["the cat sat on the mat", "dogs", "they run home."]
    for method, width in ((Greedy(), 1), (Beam(4), 4)):
        found = writer.write([PIECES.encode(text) for text in texts], beam=width)
        assert [PIECES.decode(each.tokens) for each in found] == [e.text for e in predictor.predict(texts, method)]


def test_an_exported_folder_translates_alone_by_the_example_in_the_document(
    translator: tuple[api.Predictor, Path], tmp_path: Path
) -> None:
    predictor, folder = translator
    example = re.search(r"```python\n(import sys\n.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert example is not None
    script = tmp_path / "example.py"
    script.write_text(example[1].replace("FOLDER", str(folder)) + 'assert "torch" not in sys.modules\n')
    told = subprocess.run([sys.executable, str(script)], capture_output=True, check=True, encoding="utf-8").stdout
    assert told.strip() == predictor.predict(["Il pleut."], Beam(4))[0].text.strip()


def test_a_graph_tells_nothing_of_the_machine_that_wrote_it(translator: tuple[api.Predictor, Path]) -> None:
    for name in ("encoder.onnx", "decoder.onnx"):
        content = (translator[1] / name).read_bytes()
        assert b".py" not in content and str(Path.cwd()).encode() not in content and b"saccade" not in content


def test_a_folder_that_says_other_things_step_by_step_is_refused(translator: tuple[api.Predictor, Path]) -> None:
    predictor, folder = translator
    other = deepcopy(predictor.model)
    with (
        torch.no_grad(),
        pytest.raises(SaccadeError, match=r"refused: decoder\.onnx has other log-probabilities at step 1, by"),
    ):
        other.decoder.embedding.weight.mul_(1.1)
        checked(replace(predictor, model=other), folder, writes=True)


def test_a_search_that_writes_other_tokens_is_refused(
    translator: tuple[api.Predictor, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor, folder = translator
    monkeypatch.setattr(onnx_search, "_largest", lambda values, count: np.argsort(values)[-1 - count : -1])
    with torch.no_grad(), pytest.raises(SaccadeError, match="refused: other tokens are written, less probable here"):
        checked(predictor, folder, writes=True)


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_language_model_reads_a_prompt_at_once_and_goes_on_as_here(name: str, tmp_path: Path) -> None:
    case = "{kind: language, data: x, unit: characters, window: 16}", LANGUAGE[name], lexicon().save
    predictor = exported(tmp_path, case)
    writer, prompts = Writer(tmp_path / "out"), ["the cat sat", "a"]
    given = [predictor.task.lexicon.encode(text) for text in prompts]
    with torch.no_grad():
        tokens = torch.tensor([given[0], given[0][::-1]])
        ours, _ = predictor.model.step(tokens, predictor.model.begin(2, 16))
        theirs, states = writer.step(tokens[:, :4].numpy(), {}, writer.states(2))
        theirs, _ = writer.step(tokens[:, 4:].numpy(), {}, states)
    assert near(log_softmax(theirs), ours)
    found = writer.write(given, beam=1, limits=[6, 6])
    for answer, best in zip(found, predictor.generate(prompts, tokens=6, method=Greedy()), strict=True):
        assert answer.tokens == best.answers[0].hypothesis.tokens
    assert len(writer.write([given[0]], beam=1)[0].tokens) == 16 - len(given[0]) + 1  # to the end of the window
    with pytest.raises(ValueError, match="a prompt must have 1 to 16 tokens; got 17"):
        writer.write([given[0][:1] * 17])


@pytest.mark.parametrize("name", ANSWERERS)
def test_what_answers_in_one_go_gives_the_numbers_it_gives_here(name: str, tmp_path: Path) -> None:
    predictor = exported(tmp_path, ANSWERERS[name])
    contract = json.loads((tmp_path / "out/saccade.json").read_text())
    for part, question in questions(predictor).items():
        session = onnxruntime.InferenceSession(str(tmp_path / "out" / contract["graphs"][part]["file"]))
        given = [each.drawn({"rows": 5, "source": 7}, torch.Generator().manual_seed(5)) for each in question.inputs]
        names = [each["name"] for each in contract["graphs"][part]["inputs"]]
        theirs = session.run(None, dict(zip(names, (each.numpy() for each in given), strict=True)))
        with torch.no_grad():
            ours = question.ask(predictor.model, *given)
        assert all(near(one, other) for one, other in zip(theirs, ours, strict=True))
        assert float(torch.cat([each.flatten() for each in ours]).std()) > 1e-3  # or anything would be near


def test_a_folder_that_says_other_things_is_refused_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, ANSWERERS["kernel"])
    write = exporting.write_graph

    def broken(module: Any, *rest: Any, **named: Any) -> None:
        next(module.model.parameters()).add_(0.05)
        write(module, *rest, **named)

    monkeypatch.setattr(exporting, "write_graph", broken)
    with pytest.raises(SaccadeError, match=r"refused: model\.onnx has other y, by"):
        export_run(tmp_path / "run", tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "cache"] == ["run"]


def test_what_cannot_be_traced_or_run_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, ANSWERERS["kernel"])

    def guess(model: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x if x.sum() > 0 else -x,)

    monkeypatch.setattr("saccade.models.kernel.KernelRegression.forward", guess)
    with pytest.raises(SaccadeError, match=r"refused: model\.onnx cannot be traced"):
        export_run(tmp_path / "run", tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(exporting, "write_graph", lambda module, slots, outputs, path, **_: path.write_bytes(b"?"))
    with pytest.raises(SaccadeError, match=r"refused: onnxruntime .*Protobuf"):
        export_run(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_the_packages_it_is_said_what_to_install_or_that_nothing_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, ANSWERERS["kernel"])
    monkeypatch.setattr(exporting, "write_graph", lambda *_, **__: None)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        assert "not checked against onnxruntime" in export_run(tmp_path / "run", tmp_path / "out")[-1]
    monkeypatch.setattr(
        exporting, "find_spec", lambda name: None if name == "onnxscript" else importlib.util.find_spec(name)
    )
    with pytest.raises(SaccadeError, match=r"onnxscript must be installed .* pip install -e '\.\[onnx\]'"):
        export_run(tmp_path / "run", tmp_path / "other")


def test_what_the_loop_does_not_know_of_a_recipe_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, model, vocabulary = WRITERS["sutskever"]
    recipe = f"task: {task}\nmodel: {model}\ndecode: {{beam: 2, no_repeat: 2}}"
    published.drawn_run(recipe, tmp_path / "run", vocabulary)
    monkeypatch.setattr(exporting, "write_graph", lambda *_, **__: None)
    monkeypatch.setattr(exporting, "checked", lambda *_, **__: "")
    assert "search.py does not know decode.no_repeat" in export_run(tmp_path / "run", tmp_path / "out")
    assert json.loads((tmp_path / "out/saccade.json").read_text())["search"]["beam"] == 2
