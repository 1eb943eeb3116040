"""BERT both ways, with each of its heads and without."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    PreTrainedTokenizerFast,
)

from saccade import api
from saccade.data.lexicon import Lexicon
from saccade.errors import SaccadeError
from saccade.exchange import huggingface, onnx
from saccade.exchange.huggingface import export_run, import_folder
from tests.exchange import published

MARKS = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
SMALL = {"hidden_size": 21, "num_attention_heads": 3, "num_hidden_layers": 2, "intermediate_size": 33}
SMALL |= {"vocab_size": 101, "max_position_embeddings": 24}


def folder(place: Path, kind: type, **settings: object) -> Path:
    model = kind(BertConfig(**{**SMALL, **settings}))
    return published.save(model, place / "theirs", published.word_pieces(), **MARKS)


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens, mask = published.ids(101, 11)
    return tokens, mask, torch.arange(11).expand(3, -1) // 6


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"num_hidden_layers": 1, "hidden_act": "relu"},
        {"num_hidden_layers": 3, "type_vocab_size": 5, "layer_norm_eps": 1e-2},
    ],
)
@pytest.mark.parametrize("kind", [BertForMaskedLM, BertForPreTraining])
def test_what_is_hidden_is_found_as_theirs_finds_it(kind: type, settings: dict, tmp_path: Path) -> None:
    theirs = folder(tmp_path, kind, **settings)
    import_folder(theirs, tmp_path / "run")
    model = api.load(tmp_path / "run").model
    tokens, mask, segments = inputs()
    with torch.no_grad():
        said = kind.from_pretrained(theirs).eval()(tokens, attention_mask=mask.long(), token_type_ids=segments)
        memory = model.encoder(tokens, mask, segments)
        found = model.output(model.transform(memory.states))
        expected = said.logits if kind is BertForMaskedLM else said.prediction_logits
        assert (found - expected)[mask].abs().max() < 1e-5
        if kind is BertForPreTraining:
            assert (model.follows(memory) - said.seq_relationship_logits).abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")


@pytest.mark.parametrize(("pooler", "segments"), [(True, 2), (False, 2), (True, 1)])
def test_a_body_alone_gives_its_states_and_goes_back_alone(pooler: bool, segments: int, tmp_path: Path) -> None:
    model = BertModel(BertConfig(**SMALL, type_vocab_size=segments), add_pooling_layer=pooler)
    theirs = published.save(model, tmp_path / "theirs", published.word_pieces(), **MARKS)
    notes = import_folder(theirs, tmp_path / "run")
    assert any("has to be trained" in note for note in notes)
    ours = api.load(tmp_path / "run").model
    tokens, mask, _ = inputs()
    with torch.no_grad():
        said = model(tokens, attention_mask=mask.long())
        memory = ours.encoder(tokens, mask)
    assert (memory.states - said.last_hidden_state)[mask].abs().max() < 1e-5
    if pooler and segments > 1:
        assert (memory.summary[:, 0] - said.pooler_output).abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")


def test_texts_get_the_labels_that_theirs_gives_them(tmp_path: Path) -> None:
    names = {0: "good", 1: "bad", 2: "neither"}
    theirs = folder(tmp_path, BertForSequenceClassification, id2label=names, label2id={v: k for k, v in names.items()})
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    original = BertForSequenceClassification.from_pretrained(theirs).eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(theirs)
    tokens, mask, _ = inputs()
    with torch.no_grad():
        expected = original(tokens, attention_mask=mask.long()).logits
        assert (predictor.model(tokens, mask) - expected).abs().max() < 1e-5
        for text in ("the cat sat", "dogs run home, and cats do"):
            ids = [tokenizer.cls_token_id, *tokenizer(text, add_special_tokens=False)["input_ids"]]
            share = original(torch.tensor([[*ids, tokenizer.sep_token_id]])).logits.softmax(-1)[0]
            answer = predictor.predict([text])[0].answers[0]
            assert answer.text == names[int(share.argmax())] and abs(answer.score - float(share.max())) < 1e-5
    assert predictor.look("the cat sat")
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")


def test_a_gap_is_filled_as_probably_as_theirs_would(tmp_path: Path) -> None:
    theirs = folder(tmp_path, BertForMaskedLM)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(theirs)
    words = tokenizer("the cat [MASK] on", add_special_tokens=False)["input_ids"]
    ids = [tokenizer.cls_token_id, *words, tokenizer.sep_token_id]
    gap = ids.index(tokenizer.mask_token_id)
    with torch.no_grad():
        log_p = BertForMaskedLM.from_pretrained(theirs).eval()(torch.tensor([ids])).logits[0, gap].log_softmax(-1)
    answer = predictor.predict(["the cat [MASK] on"])[0].answers[0]
    texts = [predictor.task.lexicon.decode([*ids[:gap], id_, *ids[gap + 1 :]]) for id_ in range(101)]
    assert min(abs(float(log_p[id_]) - answer.score) for id_, text in enumerate(texts) if text == answer.text) < 1e-4
    assert predictor.look("the cat [MASK] on")


def test_old_names_of_norms_and_tied_tensors_are_read(tmp_path: Path) -> None:
    theirs = folder(tmp_path, BertForMaskedLM)
    import_folder(theirs, tmp_path / "run")

    def old(tensors: dict) -> None:
        for name in [name for name in tensors if "LayerNorm" in name]:
            tensors[name.replace("weight", "gamma").replace("bias", "beta")] = tensors.pop(name)
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["bert.embeddings.position_ids"] = torch.arange(24)[None]

    published.changed(theirs, old)
    import_folder(theirs, tmp_path / "old")
    published.require_same_files(tmp_path / "run/final", tmp_path / "old/final")


def test_a_folder_that_does_not_say_what_it_is_is_known_by_its_tensors(tmp_path: Path) -> None:
    theirs = folder(tmp_path, BertForMaskedLM)
    config = json.loads((theirs / "config.json").read_text())
    del config["architectures"], config["model_type"]
    (theirs / "config.json").write_text(json.dumps(config))
    import_folder(theirs, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")
    assert json.loads((tmp_path / "ours/config.json").read_text()) == config
    published.changed(theirs, lambda tensors: [tensors.pop(name) for name in list(tensors) if name.startswith("bert.")])
    with pytest.raises(SaccadeError, match="there is no model_type"):
        import_folder(theirs, tmp_path / "other")


def test_a_text_that_spells_a_mark_is_text(tmp_path: Path) -> None:
    import_folder(folder(tmp_path, BertForMaskedLM), tmp_path / "run")
    lexicon = api.load(tmp_path / "run").task.lexicon
    assert not set(lexicon.encode("the [SEP] cat [MASK]")) & set(lexicon.marks.names)


def test_without_a_mask_nothing_can_be_hidden(tmp_path: Path) -> None:
    theirs = published.save(BertForMaskedLM(BertConfig(**{**SMALL, "vocab_size": 290})), tmp_path / "theirs")
    published.byte_pieces().save(str(theirs / "tokenizer.json"))
    with pytest.raises(SaccadeError, match="the tokenizer has no mask"):
        import_folder(theirs, tmp_path / "run")


def test_an_imported_body_is_fine_tuned_to_label_texts_and_goes_out(tmp_path: Path) -> None:
    model = BertModel(BertConfig(**SMALL))
    import_folder(published.save(model, tmp_path / "body", published.word_pieces(), **MARKS), tmp_path / "run")
    lines = [f"{text} {n}\t{'cats' if 'cat' in text else 'dogs'}" for n, text in enumerate(published.TEXTS * 8)]
    (tmp_path / "texts.tsv").write_text("\n".join(["text\tlabel", *lines]))
    (tmp_path / "recipe.yaml").write_text(
        f"task: {{kind: classify, data: {tmp_path}/texts.tsv, longest: 16, pool: summary}}\nmodel: {{kind: bert}}\n"
        f"train: {{start: {tmp_path}/run, steps: 2, batch_tokens: 200}}\n"
    )
    predictor = api.train(tmp_path / "recipe.yaml", out=tmp_path / "tuned")
    export_run(tmp_path / "tuned", tmp_path / "theirs")
    theirs = BertForSequenceClassification.from_pretrained(tmp_path / "theirs").eval()
    assert theirs.config.id2label == {0: "cats", 1: "dogs"}
    tokens, mask, _ = inputs()
    with torch.no_grad():
        assert (predictor.model(tokens, mask) - theirs(tokens, attention_mask=mask.long()).logits).abs().max() < 1e-5


@pytest.mark.parametrize("next_sentence", [False, True])
def test_a_model_of_ours_is_read_by_transformers(next_sentence: bool, tmp_path: Path) -> None:
    lexicon = Lexicon.learn(published.TEXTS, "pieces", size=300)
    task = f"{{kind: masked, data: x, window: 16, next_sentence: {str(next_sentence).lower()}}}"
    recipe = f"task: {task}\nmodel: {{kind: bert, width: 12, heads: 3, layers: 2}}"
    predictor = published.drawn_run(recipe, tmp_path / "run", lexicon.save)
    export_run(tmp_path / "run", tmp_path / "theirs")
    theirs = (BertForPreTraining if next_sentence else BertForMaskedLM).from_pretrained(tmp_path / "theirs").eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    marks = lexicon.marks
    assert tokenizer("the cat sat")["input_ids"] == [marks.start, *lexicon.encode("the cat sat"), marks.end]
    assert tokenizer.mask_token_id == lexicon.marks.mask
    tokens, mask = published.ids(len(lexicon), 11)
    with torch.no_grad():
        said = theirs(tokens, attention_mask=mask.long())
        expected = said.prediction_logits if next_sentence else said.logits
        found = predictor.model.output(predictor.model(tokens, mask))
        assert (found - expected)[mask].abs().max() < 1e-5


def test_what_bert_does_not_know_is_said(tmp_path: Path) -> None:
    recipe = "task: {kind: masked, data: x}\nmodel: {kind: bert, width: 12, heads: 3, order: pre, norm: rms}"
    published.drawn_run(recipe, tmp_path / "run", Lexicon.learn(published.TEXTS, "pieces", size=300).save)
    with pytest.raises(SaccadeError, match="BERT has no order pre, no norm rms"):
        export_run(tmp_path / "run", tmp_path / "theirs")


def test_a_pooler_without_a_use_is_kept_for_them(tmp_path: Path) -> None:
    theirs = folder(tmp_path, BertForMaskedLM)
    more = {"bert.pooler.dense.weight": torch.randn(21, 21), "bert.pooler.dense.bias": torch.randn(21)}
    published.changed(theirs, lambda tensors: tensors.update(more))
    import_folder(theirs, tmp_path / "run")
    assert not any("pooler" in name for name, _ in api.load(tmp_path / "run").model.named_parameters())
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")


@pytest.mark.parametrize("format_", [huggingface, onnx])
def test_texts_outside_all_classes_do_not_go_along_and_that_is_told(format_: ModuleType, tmp_path: Path) -> None:
    recipe = (
        "task: {kind: classify, data: x, longest: 16, pool: summary, outside: other, threshold: 0.75}\n"
        "model: {kind: bert, width: 12, heads: 3, layers: 1, next_sentence: true}"
    )

    def vocabulary(vocab: Path) -> None:
        Lexicon.learn(published.TEXTS, "words", size=30).save(vocab)
        (vocab / "labels.json").write_text('["good", "bad"]')

    told = "task.outside does not go along: the answer 'other' where no label has a probability of 0.75"
    published.drawn_run(recipe, tmp_path / "run", vocabulary)
    assert told in format_.export_run(tmp_path / "run", tmp_path / "theirs")
    published.drawn_run(recipe.replace(", threshold: 0.75", ""), tmp_path / "never", vocabulary)  # it never says so
    assert not any("outside" in note for note in format_.export_run(tmp_path / "never", tmp_path / "all"))


CHOICE = "problem_type is {!r}, and only null and 'single_label_classification' are known here"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"problem_type": "multi_label_classification"}, CHOICE.format("multi_label_classification")),
        ({"problem_type": "regression", "id2label": {"0": "stars"}}, CHOICE.format("regression")),
        ({"id2label": {"0": "stars"}}, "a choice needs two labels at least; id2label is {'0': 'stars'}"),
        ({"id2label": None, "num_labels": 1}, "a choice needs two labels at least; id2label is {'0': 'LABEL_0'}"),
    ],
)
def test_a_model_that_does_not_choose_one_of_its_labels_is_refused(said: dict, why: str, tmp_path: Path) -> None:
    theirs = folder(tmp_path, BertForSequenceClassification)
    configure(theirs, said)
    with pytest.raises(SaccadeError) as refusal:
        import_folder(theirs, tmp_path / "run")
    assert str(refusal.value) == f"{theirs}/config.json: {why}"
    assert not (tmp_path / "run").exists()
    configure(theirs, {"problem_type": "single_label_classification", "id2label": {"0": "good", "1": "bad"}})
    import_folder(theirs, tmp_path / "run")


def configure(theirs: Path, said: dict, name: str = "config.json") -> None:
    path = theirs / name
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **said}))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"num_attention_heads": 4}, "heads 4 does not divide width 21; the nearest that does is 3"),
        ({"num_attention_heads": 0}, "heads: Input should be greater than or equal to 1, got 0"),
        ({"num_hidden_layers": 0, "type_vocab_size": -1}, "layers: Input"),
        ({"architectures": [{}]}, "the architecture '{}' is not known here"),
        ({"architectures": ["BertForMaskedLM"], "max_position_embeddings": 1}, "window: Input"),
    ],
)
def test_values_that_no_model_can_have_are_said_in_one_line_with_their_file(
    said: dict, why: str, tmp_path: Path
) -> None:
    theirs = folder(tmp_path, BertForMaskedLM)
    configure(theirs, said)
    with pytest.raises(SaccadeError) as refusal:
        import_folder(theirs, tmp_path / "run")
    assert str(refusal.value).startswith(f"{theirs}/config.json: {why}") and "\n" not in str(refusal.value)


TEXT = "Le café 猫犬"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"strip_accents": False},
        {"tokenize_chinese_chars": False},
    ],
)
def test_a_list_of_pieces_is_read_as_its_settings_say(said: dict, tmp_path: Path) -> None:
    """As theirs reads it, whose tokenizer has the same settings."""
    theirs = folder(tmp_path, BertForMaskedLM)
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "le", "Le", "cafe", "café", "猫", "犬", "猫犬"]
    (theirs / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
    (theirs / "tokenizer.json").unlink()
    configure(theirs, said, "tokenizer_config.json")
    import_folder(theirs, tmp_path / "run")
    lexicon = api.load(tmp_path / "run").task.lexicon
    original = BertTokenizer(vocab={piece: n for n, piece in enumerate(pieces)}, **said)
    assert lexicon.encode(TEXT) == original(TEXT, add_special_tokens=False)["input_ids"]


def test_a_setting_of_a_tokenizer_that_is_no_truth_is_named(tmp_path: Path) -> None:
    theirs = folder(tmp_path, BertForMaskedLM)
    (theirs / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    (theirs / "tokenizer.json").unlink()
    configure(theirs, {"do_lower_case": "no"}, "tokenizer_config.json")
    with pytest.raises(SaccadeError, match=r"tokenizer_config\.json: do_lower_case is 'no', which is no bool"):
        import_folder(theirs, tmp_path / "run")
