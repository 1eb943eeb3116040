"""XLNet both ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, XLNetConfig, XLNetLMHeadModel, XLNetModel

from saccade import api
from saccade.data.lexicon import Lexicon
from saccade.errors import SaccadeError
from saccade.exchange.huggingface import export_run, import_folder
from saccade.models.xlnet import PermutedLanguageModel
from tests.exchange import published

SMALL = {"d_model": 18, "n_head": 3, "n_layer": 2, "d_inner": 33, "vocab_size": 101}
MARKS = {f"{name}_token": f"<{name}>" for name in ("pad", "unk", "cls", "sep", "mask")}


def pieces() -> Tokenizer:
    """A vocabulary of the sort that XLNet has: the most probable pieces, spaces written as ▁."""
    words = sorted({f"▁{word}" for text in published.TEXTS for word in text.split()})
    letters = sorted({letter for text in published.TEXTS for letter in text.replace(" ", "▁")})
    listed = [*MARKS.values(), *words, *letters]
    tokenizer = Tokenizer(models.Unigram([(piece, -float(len(piece) < 2)) for piece in listed], unk_id=1))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(list(MARKS.values()))
    return tokenizer


def folder(place: Path, kind: type = XLNetLMHeadModel, **settings: object) -> Path:
    return published.save(kind(XLNetConfig(**{**SMALL, **settings})), place / "theirs", pieces(), **MARKS)


def orders(length: int, rows: int = 3) -> torch.Tensor:
    """Half the tokens are context, the others come in an order of their own in each row."""
    rank = torch.stack([torch.randperm(length, generator=torch.Generator().manual_seed(row)) for row in range(rows)])
    return (rank - length // 2).clamp(min=-1)


def theirs_says(model: XLNetLMHeadModel, tokens: torch.Tensor, mask: torch.Tensor, rank: torch.Tensor) -> torch.Tensor:
    """Logits of every token, given those of lower rank; context sees all context."""
    hidden = (rank[:, None] >= rank[:, :, None]) & ~((rank[:, None] == -1) & (rank[:, :, None] == -1))
    every = torch.eye(tokens.shape[1]).expand(len(tokens), -1, -1)
    given = {"attention_mask": mask.float(), "perm_mask": hidden.float(), "target_mapping": every}
    return model.eval()(tokens, **given).logits


def ours_says(
    model: PermutedLanguageModel, tokens: torch.Tensor, mask: torch.Tensor, rank: torch.Tensor
) -> torch.Tensor:
    return model.output(model(tokens, mask, rank))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_layer": 1, "ff_activation": "relu", "n_head": 1, "d_model": 10},
        {"n_layer": 3, "n_head": 9, "layer_norm_eps": 1e-2, "ff_activation": "gelu_new"},
    ],
)
def test_tokens_are_predicted_in_any_order_as_theirs_predicts_them(settings: dict, tmp_path: Path) -> None:
    theirs = folder(tmp_path, **settings)
    import_folder(theirs, tmp_path / "run")
    tokens, mask = published.ids(101, 11)
    rank = orders(11)
    with torch.no_grad():
        expected = theirs_says(XLNetLMHeadModel.from_pretrained(theirs), tokens, mask, rank)
        found = ours_says(api.load(tmp_path / "run").model, tokens, mask, rank)
    asked = mask & (rank >= 0)
    assert asked.any() and (found - expected)[asked].abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    published.require_same_files(theirs, tmp_path / "ours")


def test_a_body_alone_in_two_files_gives_its_states_and_goes_back_alone(tmp_path: Path) -> None:
    theirs = folder(tmp_path, XLNetModel)
    original = XLNetModel.from_pretrained(theirs).eval()
    whole = published.save(XLNetModel(XLNetConfig(**SMALL)), tmp_path / "whole")
    published.cut_in_two(theirs)
    import_folder(theirs, tmp_path / "run")
    tokens, mask = published.ids(101, 11)
    with torch.no_grad():
        expected = original(tokens, attention_mask=mask.float()).last_hidden_state
        found = api.load(tmp_path / "run").model.encoder(tokens, mask).states
    assert (found - expected)[mask].abs().max() < 1e-5
    export_run(tmp_path / "run", tmp_path / "ours")
    again = XLNetModel.from_pretrained(tmp_path / "ours").state_dict()
    assert again.keys() == XLNetModel.from_pretrained(whole).state_dict().keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in original.state_dict().items())


def test_a_gap_is_filled_as_probably_as_theirs_would(tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    import_folder(theirs, tmp_path / "run")
    predictor = api.load(tmp_path / "run")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(theirs)
    left, right = (tokenizer(part, add_special_tokens=False)["input_ids"] for part in ("the cat", " on the mat"))
    ids = [tokenizer.cls_token_id, *left, tokenizer.mask_token_id, *right, tokenizer.sep_token_id]
    gap = 1 + len(left)
    rank = torch.full((1, len(ids)), -1)
    rank[0, gap] = 0
    with torch.no_grad():
        given = torch.tensor([ids]), torch.ones_like(rank, dtype=torch.bool), rank
        log_p = theirs_says(XLNetLMHeadModel.from_pretrained(theirs), *given)[0, gap].log_softmax(-1)
    begins = {id_ for piece, id_ in tokenizer.get_vocab().items() if piece.startswith("▁")}
    best = max(begins, key=lambda id_: float(log_p[id_]))
    answer = predictor.predict(["the cat [MASK] on the mat"])[0].answers[0]
    assert answer.text.split() == ["the", "cat", tokenizer.convert_ids_to_tokens(best)[1:], "on", "the", "mat"]
    assert abs(answer.score - float(log_p[best])) < 1e-4
    assert predictor.look("the cat [MASK] on the mat")


def test_a_model_of_ours_is_read_by_transformers_and_knows_no_segments(tmp_path: Path) -> None:
    recipe = "task: {kind: permuted, data: x, window: 20}\nmodel: {kind: xlnet, width: 12, heads: 3, layers: 2}"
    lexicon = Lexicon.learn(published.TEXTS, "pieces", size=300)
    predictor = published.drawn_run(recipe, tmp_path / "run", lexicon.save, deviation=0.1)
    export_run(tmp_path / "run", tmp_path / "theirs")
    theirs = XLNetLMHeadModel.from_pretrained(tmp_path / "theirs")
    tokens, mask = published.ids(len(lexicon), 11)
    rank = orders(11)
    with torch.no_grad():
        found = ours_says(predictor.model, tokens, mask, rank)
        asked = mask & (rank >= 0)
        assert (found - theirs_says(theirs, tokens, mask, rank))[asked].abs().max() < 1e-5
        assert not any(
            layer.rel_attn.seg_embed.any() or layer.rel_attn.r_s_bias.any() for layer in theirs.transformer.layer
        )
        one = theirs(tokens, token_type_ids=torch.arange(11).expand(3, -1) // 6).logits
        assert (one - theirs(tokens).logits).abs().max() < 1e-5
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path / "theirs")
    marks = lexicon.marks
    assert tokenizer("the cat sat")["input_ids"] == [marks.start, *lexicon.encode("the cat sat"), marks.end]


@pytest.mark.parametrize(("setting", "value"), [("attn_type", "uni"), ("clamp_len", 4), ("bi_data", True)])
def test_what_ours_cannot_do_is_refused(setting: str, value: object, tmp_path: Path) -> None:
    theirs = folder(tmp_path, **{setting: value})
    with pytest.raises(SaccadeError, match=f"{setting} is {value!r}"):
        import_folder(theirs, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_segments_that_are_missing_are_named_with_all_else(tmp_path: Path) -> None:
    theirs = folder(tmp_path)

    def spoil(tensors: dict) -> None:
        del tensors["transformer.layer.1.rel_attn.seg_embed"]
        tensors["transformer.layer.0.rel_attn.qq"] = tensors.pop("transformer.layer.0.rel_attn.q")

    published.changed(theirs, spoil)
    with pytest.raises(SaccadeError, match=r"(?s)rel_attn\.q.*seg_embed|seg_embed.*rel_attn\.q"):
        import_folder(theirs, tmp_path / "run")


def test_heads_that_no_model_can_have_are_refused(tmp_path: Path) -> None:
    theirs = folder(tmp_path)
    config = json.loads((theirs / "config.json").read_text())
    (theirs / "config.json").write_text(json.dumps({**config, "n_head": 0}))
    with pytest.raises(SaccadeError, match=r"config\.json: heads: Input should be greater than or equal to 1"):
        import_folder(theirs, tmp_path / "run")
