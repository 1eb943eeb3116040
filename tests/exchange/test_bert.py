"""BERT both ways, with each of its heads and without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

from saccade import api
from saccade.data.lexicon import Lexicon
from saccade.errors import SaccadeError
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
    assert tokenizer("the cat sat")["input_ids"] == lexicon.encode("the cat sat")
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
