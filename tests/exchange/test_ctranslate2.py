"""Runs for CTranslate2: it scores and writes what we do, and whatever it cannot do is refused in words."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel
from typer.testing import CliRunner

from saccade import api
from saccade.cli import app
from saccade.data.lexicon import Lexicon, Marks, Unit
from saccade.data.vocab import END, PAD, START, Pieces
from saccade.decode import Greedy
from saccade.errors import SaccadeError
from saccade.exchange import ctranslate2_layout as layout
from saccade.exchange import huggingface
from saccade.exchange.ctranslate2 import export_run
from tests.exchange import published

PIECES = Pieces.learn(published.TEXTS, 300)
NEVER = [["<pad>"], ["<start>"]]
DOCUMENT = Path(__file__).parents[2] / "docs/exchange.md"


def translating(place: Path, **settings: object) -> api.Predictor:
    small = {"width": 24, "heads": 3, "hidden": 17, "encoder_layers": 1, "decoder_layers": 2}
    model = json.dumps({"kind": "transformer", **small, **settings})
    recipe = f"task: {{kind: translate, source: x, pieces: 300}}\nmodel: {model}"
    return published.drawn_run(recipe, place / "run", PIECES.save, deviation=0.15)


def writing(place: Path, unit: Unit = "pieces", **settings: object) -> api.Predictor:
    small = {"width": 24, "heads": 3, "layers": 2}
    model = json.dumps({"kind": "gpt", **small, **settings})
    lexicon = Lexicon.learn(published.TEXTS, unit, size=300)
    recipe = f"task: {{kind: language, data: x, unit: {unit}, pieces: 300, window: 24}}\nmodel: {model}"
    return published.drawn_run(recipe, place / "run", lexicon.save, deviation=0.15)


def encoding(place: Path, kind: str = "masked", **settings: object) -> api.Predictor:
    small = {"width": 21, "heads": 3, "hidden": 17, "layers": 2}
    model = json.dumps({"kind": "bert", **small, **settings})
    masked = {"data": "x", "window": 24, "next_sentence": settings.get("next_sentence", False)}
    task = json.dumps(
        {"kind": kind, **(masked if kind == "masked" else {"data": ["x"], "longest": 24, "pool": "summary"})}
    )
    lexicon = Lexicon.learn(published.TEXTS, "pieces", size=300)

    def vocabulary(directory: Path) -> None:
        lexicon.save(directory)
        (directory / "labels.json").write_text('["good", "bad"]')

    recipe = f"task: {task}\nmodel: {model}"
    return published.drawn_run(recipe, place / "run", vocabulary, deviation=0.15)


def numbers(array: ctranslate2.StorageView) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def random_texts(size: int, lengths: tuple[int, ...]) -> list[list[int]]:
    """Ids of real pieces."""
    draw = torch.Generator().manual_seed(7)
    return [torch.randint(4, size, (n,), generator=draw).tolist() for n in lengths]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"order": "post", "tie": "none", "output_bias": True},
        {"order": "post", "norm": "rms", "layout": "interleaved", "encoder_layers": 3, "decoder_layers": 1},
        {"tie": "all", "scaled": False, "activation": "gelu", "epsilon": 0.1},
        {"width": 21, "positions": "learned", "longest": 40, "activation": "silu"},
        {"positions": "rotary", "heads": 4, "kv_heads": 2, "activation": "swiglu", "norm": "rms"},
        {"positions": "rotary", "layout": "interleaved", "order": "post", "activation": "gelu_tanh"},
        {"positions": "none", "activation": "geglu", "kv_heads": 1},
    ],
)
def test_sentences_are_scored_and_translated_as_here(settings: dict, tmp_path: Path) -> None:
    predictor = translating(tmp_path, **settings)
    notes = export_run(tmp_path / "run", tmp_path / "out")
    assert notes[-1] == f"checked against CTranslate2 {ctranslate2.__version__}"
    tokens = json.loads((tmp_path / "out/shared_vocabulary.json").read_text())
    theirs = ctranslate2.Translator(str(tmp_path / "out"), compute_type="float32")
    sources, targets = random_texts(len(PIECES), (11, 4, 1)), random_texts(len(PIECES), (1, 7, 12))

    def spelled(texts: list[list[int]]) -> list[list[str]]:
        return [[tokens[id_] for id_ in text] for text in texts]

    model, how = predictor.model, {"max_decoding_length": 8, "min_decoding_length": 0, "suppress_sequences": NEVER}
    found = theirs.translate_batch(spelled(sources), beam_size=1, **how)
    scores = theirs.score_batch(spelled(sources), spelled(targets))
    for source, target, answer, score in zip(sources, targets, found, scores, strict=True):
        with torch.no_grad():
            states = model(torch.tensor([source]), None, torch.tensor([[START, *target]]))
            log_p = model.output(states)[0].log_softmax(-1)
        expected = log_p.gather(-1, torch.tensor([*target, END])[:, None])[:, 0]
        assert (torch.tensor(score.log_probs) - expected).abs().max() < 1e-4
        written: list[int] = []
        while len(written) < 8 and END not in written:
            with torch.no_grad():
                logits = model.output(model(torch.tensor([source]), None, torch.tensor([[START, *written]])))[0, -1]
            logits[[PAD, START]] = -torch.inf
            written.append(int(logits.argmax()))
        assert answer.hypotheses[0] == [tokens[id_] for id_ in written if id_ != END]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"width": 21, "layers": 3, "hidden": 17, "tie": False, "activation": "gelu", "epsilon": 0.1},
        {"positions": "sinusoidal", "activation": "relu", "unit": "characters"},
        {"positions": "rotary", "heads": 4, "kv_heads": 2, "norm": "rms", "activation": "swiglu"},
        {"positions": "rotary", "layout": "interleaved", "kv_heads": 1},
        {"positions": "none", "unit": "words"},
    ],
)
def test_texts_are_scored_and_go_on_as_here(settings: dict, tmp_path: Path) -> None:
    predictor = writing(tmp_path, **settings)
    export_run(tmp_path / "run", tmp_path / "out")
    tokens = json.loads((tmp_path / "out/vocabulary.json").read_text())
    theirs = ctranslate2.Generator(str(tmp_path / "out"), compute_type="float32")
    texts = random_texts(len(tokens), (12, 5, 2))
    scores = theirs.score_batch([[tokens[id_] for id_ in text] for text in texts])
    never = [*NEVER, ["<mask>"]]
    for text, score in zip(texts, scores, strict=True):
        with torch.no_grad():
            log_p = predictor.model.output(predictor.model(torch.tensor([text[:-1]])))[0].log_softmax(-1)
        expected = log_p.gather(-1, torch.tensor(text[1:])[:, None])[:, 0]
        assert (torch.tensor(score.log_probs) - expected).abs().max() < 1e-4
    prompt = "the cat sat"
    given = [tokens[id_] for id_ in predictor.task.lexicon.encode(prompt)]
    how = {"beam_size": 1, "min_length": 8, "max_length": 8, "include_prompt_in_result": False}
    found = theirs.generate_batch([given], suppress_sequences=never, **how)[0].sequences_ids[0]
    ours = predictor.generate([prompt], tokens=8, method=Greedy())[0].answers[0].hypothesis
    assert ours is not None and list(ours.tokens) == found


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("masked", {}),
        ("masked", {"next_sentence": True, "segments": 3, "epsilon": 0.1}),
        ("masked", {"order": "pre", "norm": "rms", "activation": "relu", "layers": 1, "segments": 1}),
        ("masked", {"first_position": 2, "activation": "quick_gelu", "width": 10, "heads": 1}),
        ("classify", {"next_sentence": True, "activation": "gelu_tanh", "layers": 3}),
    ],
)
def test_texts_have_the_states_and_the_summary_that_they_have_here(kind: str, settings: dict, tmp_path: Path) -> None:
    predictor = encoding(tmp_path, kind, **settings)
    notes = export_run(tmp_path / "run", tmp_path / "out")
    assert any("the encoder alone" in note for note in notes) and "checked against" in notes[-1]
    encoder = predictor.model.encoder if kind == "masked" else predictor.model.body
    texts = random_texts(300, (12, 5, 2))
    segments = [[n % settings.get("segments", 2) for n in range(len(text))] for text in texts]
    theirs = ctranslate2.Encoder(str(tmp_path / "out"), compute_type="float32")
    found = theirs.forward_batch(texts, token_type_ids=segments)
    states = numbers(found.last_hidden_state)
    assert (found.pooler_output is not None) == settings.get("next_sentence", False)
    for row, (text, parts) in enumerate(zip(texts, segments, strict=True)):
        with torch.no_grad():
            memory = encoder(torch.tensor([text]), None, torch.tensor([parts]))
        assert (states[row, : len(text)] - memory.states[0]).abs().max() < 1e-4
        if found.pooler_output is not None:
            assert (numbers(found.pooler_output)[row] - memory.summary[0, 0]).abs().max() < 1e-4
    tokens = json.loads((tmp_path / "out/vocabulary.json").read_text())
    plain = theirs.forward_batch([[tokens[id_] for id_ in texts[0]]])
    with torch.no_grad():
        assert (numbers(plain.last_hidden_state) - encoder(torch.tensor(texts[:1])).states).abs().max() < 1e-4


def test_an_imported_encoder_goes_on_to_ctranslate2(tmp_path: Path) -> None:
    marks = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    small = {"hidden_size": 21, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 33}
    original = BertModel(BertConfig(**small, vocab_size=101, max_position_embeddings=24))
    huggingface.import_folder(
        published.save(original, tmp_path / "theirs", published.word_pieces(), **marks), tmp_path / "run"
    )
    export_run(tmp_path / "run", tmp_path / "out")
    texts = random_texts(101, (9, 4))
    found = ctranslate2.Encoder(str(tmp_path / "out")).forward_batch(texts)
    with torch.no_grad():
        for row, text in enumerate(texts):
            said = original(torch.tensor([text]))
            assert (numbers(found.pooler_output)[row] - said.pooler_output[0]).abs().max() < 1e-4
            states = numbers(found.last_hidden_state)[row, : len(text)]
            assert (states - said.last_hidden_state[0]).abs().max() < 1e-4


@pytest.mark.parametrize(("part", "said"), [("states", "has other states"), ("summary", "sums texts up otherwise")])
def test_an_encoder_that_says_other_things_is_refused(
    part: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoding(tmp_path, next_sentence=True)
    monkeypatch.setitem(layout.ACTIVATIONS, "gelu" if part == "states" else "tanh", 0)
    with pytest.raises(SaccadeError, match=f"refused: CTranslate2 {said}, by"):
        export_run(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_shipped_model_translates_there_by_the_example_in_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    result = CliRunner().invoke(app, ["export", str(api.SHIPPED), str(tmp_path / "out"), "--to", "ctranslate2"])
    assert result.exit_code == 0 and "checked against CTranslate2" in result.output
    example = re.search(r"```python\n(import ctranslate2.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert example is not None
    exec(example[1].replace("FOLDER", str(tmp_path / "out")), {})
    assert capsys.readouterr().out == "It's raining.\n"
    assert api.load(api.SHIPPED).translate("Il pleut.") == "It's raining."


def test_a_table_that_is_used_twice_is_written_once(tmp_path: Path) -> None:
    sizes = {}
    for tie in ("all", "none"):
        translating(tmp_path / tie, tie=tie)
        export_run(tmp_path / tie / "run", tmp_path / tie / "out")
        sizes[tie] = (tmp_path / tie / "out/model.bin").stat().st_size
    assert sizes["none"] - sizes["all"] > 1.9 * len(PIECES) * 24 * 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"norm": "batch", "positions": "relative"}, "CTranslate2 has no norm batch, no positions relative$"),
        ({"combine": "concatenate", "tie": "none"}, "CTranslate2 has no combine concatenate"),
        ({"activation": "elu"}, "CTranslate2 has no activation elu"),
    ],
)
def test_settings_that_it_cannot_do_are_refused_by_name(settings: dict, said: str, tmp_path: Path) -> None:
    translating(tmp_path, **settings)
    with pytest.raises(SaccadeError, match=said):
        export_run(tmp_path / "run", tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["run"]


def test_distances_and_recurrent_models_are_refused_by_name(tmp_path: Path) -> None:
    writing(tmp_path / "gpt", positions="distances")
    with pytest.raises(SaccadeError, match="CTranslate2 has no positions distances"):
        export_run(tmp_path / "gpt/run", tmp_path / "out")
    recipe = "task: {kind: translate, source: x, pieces: 300}\nmodel: {kind: luong, width: 8, hidden: 8}"
    published.drawn_run(recipe, tmp_path / "luong", PIECES.save)
    with pytest.raises(SaccadeError, match="has no model luong for translate; there is translate with transformer"):
        export_run(tmp_path / "luong", tmp_path / "out")


def test_an_imported_vocabulary_keeps_its_marks_and_ids_that_no_text_has(tmp_path: Path) -> None:
    tokenizer = published.byte_pieces()
    end = tokenizer.token_to_id("<|endoftext|>")
    lexicon = Lexicon(tokenizer, "gpt2", marks=Marks(end, end, end, None), size=301)
    recipe = "task: {kind: language, data: x, window: 8}\nmodel: {kind: gpt, width: 8, heads: 2}"
    published.drawn_run(recipe, tmp_path / "run", lexicon.save, deviation=0.15)
    export_run(tmp_path / "run", tmp_path / "out")
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert {config[f"{name}_token"] for name in ("bos", "eos", "unk")} == {"<|endoftext|>"}
    tokens = json.loads((tmp_path / "out/vocabulary.json").read_text())
    assert len(tokens) == 301 and all(tokens[id_] == piece for piece, id_ in tokenizer.get_vocab().items())


def test_two_ids_of_one_spelling_are_refused(tmp_path: Path) -> None:
    lexicon = Lexicon.learn(["a <pad> word"], "words", size=300)
    recipe = "task: {kind: language, data: x, unit: words, window: 8}\nmodel: {kind: gpt, width: 8, heads: 2}"
    published.drawn_run(recipe, tmp_path / "run", lexicon.save)
    with pytest.raises(SaccadeError, match="two ids of the vocabulary are spelled '<pad>'"):
        export_run(tmp_path / "run", tmp_path / "out")


@pytest.mark.parametrize("make", [translating, writing])
def test_a_folder_that_says_other_things_is_refused_and_nothing_is_left(
    make: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path)
    monkeypatch.setitem(layout.ACTIVATIONS, "relu", 2)
    monkeypatch.setitem(layout.ACTIVATIONS, "gelu_tanh", 2)
    with pytest.raises(SaccadeError, match="refused: CTranslate2 has other log-probabilities, by"):
        export_run(tmp_path / "run", tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(layout, "VERSION", 99)
    with pytest.raises(SaccadeError, match=r"refused: CTranslate2 .*version"):
        export_run(tmp_path / "run", tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir() if entry.name != "cache"] == ["run"]


def test_without_the_library_an_export_says_that_it_was_not_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translating(tmp_path)
    export_run(tmp_path / "run", tmp_path / "checked")
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert "not checked against CTranslate2 itself" in export_run(tmp_path / "run", tmp_path / "out")[-1]
    for file in (tmp_path / "checked").iterdir():
        assert file.read_bytes() == (tmp_path / "out" / file.name).read_bytes()
    with pytest.raises(SaccadeError, match="exists and is not an empty folder"):
        export_run(tmp_path / "run", tmp_path / "out")
