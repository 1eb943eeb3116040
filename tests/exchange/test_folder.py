"""Folders of others: whatever is wrong with one, a line says what and where, and nothing is left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner, Result

from saccade import api
from saccade.cli import app
from saccade.errors import SaccadeError
from saccade.exchange import huggingface
from saccade.exchange.folder import write_weights
from saccade.exchange.huggingface import export_run, import_folder
from tests.exchange import published

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = published.byte_pieces(270)
    end = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(n_embd=6, n_head=2, n_layer=1, n_positions=8, vocab_size=270, **end)
    return published.save(GPT2LMHeadModel(config), tmp_path / "theirs", tokenizer, eos_token="<|endoftext|>")


def refusal(folder: Path) -> str:
    """Why it is refused; and nothing is left where the run would be."""
    out = folder.parent / "run"
    with pytest.raises(SaccadeError) as caught:
        import_folder(folder, out)
    assert not out.exists()
    return str(caught.value)


def test_a_file_in_two_parts_is_the_same_model(folder: Path, tmp_path: Path) -> None:
    import_folder(folder, tmp_path / "whole")
    published.cut_in_two(folder)
    import_folder(folder, tmp_path / "cut")
    published.require_same_files(tmp_path / "whole/final", tmp_path / "cut/final")


@pytest.mark.parametrize("name", ["../evil.safetensors", "/etc/passwd", "a\\b", "..", "", 7, "c:x"])
def test_an_index_that_leads_out_of_the_folder_is_refused(name: object, folder: Path) -> None:
    published.cut_in_two(folder)
    index = json.loads((folder / INDEX).read_text())
    first = min(index["weight_map"])
    index["weight_map"][first] = name
    (folder / INDEX).write_text(json.dumps(index))
    save_file({"x": torch.ones(1)}, folder.parent / "evil.safetensors")
    assert "no plain file name" in refusal(folder)


def test_a_part_without_what_the_index_says_is_refused_by_name(folder: Path) -> None:
    published.cut_in_two(folder)
    save_file({"x": torch.ones(1)}, folder / "model-1-of-2.safetensors")
    assert "model-1-of-2.safetensors: has no 'transformer.h.0.attn.c_attn.bias'" in refusal(folder)
    (folder / "model-1-of-2.safetensors").unlink()
    assert "model-1-of-2.safetensors: No such file" in refusal(folder)


def test_all_that_does_not_fit_is_said_at_once_with_the_nearest_names(folder: Path) -> None:
    def change(tensors: dict) -> None:
        tensors["transformer.h.0.mlp.c_fx.bias"] = tensors.pop("transformer.h.0.mlp.c_fc.bias")
        tensors["transformer.h.7.ln_1.bias"] = torch.ones(6)
        tensors["transformer.ln_f.weight"] = torch.ones(5)

    published.changed(folder, change)
    said = refusal(folder)
    assert "missing (1): transformer.h.0.mlp.c_fc.bias" in said
    assert "'transformer.h.0.mlp.c_fc.bias'?" in said and "transformer.h.7.ln_1.bias" in said
    assert "transformer.ln_f.weight is (5,), expected (6,)" in said


def test_masks_and_a_tied_output_in_old_files_are_no_news(folder: Path, tmp_path: Path) -> None:
    def change(tensors: dict) -> None:
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 8, 8)
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()

    published.changed(folder, change)
    import_folder(folder, tmp_path / "run")
    published.changed(folder, lambda tensors: tensors["lm_head.weight"].add_(1))
    with pytest.raises(SaccadeError, match=r"lm_head.weight should be the same as transformer\.wte\.weight"):
        import_folder(folder, tmp_path / "other")


def test_not_a_number_is_refused_with_file_and_tensor(folder: Path) -> None:
    published.changed(folder, lambda tensors: tensors["transformer.wpe.weight"].fill_(torch.nan))
    assert "model.safetensors: NaN or infinity in 'transformer.wpe.weight'" in refusal(folder)


def test_a_file_cut_short_is_refused_with_its_size(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:-10])
    assert f"found {len(whole) - 10}" in refusal(folder)
    (folder / WEIGHTS).write_bytes(b"")
    assert "an empty file" in refusal(folder)
    (folder / WEIGHTS).unlink()
    assert "there is neither model.safetensors nor pytorch_model.bin" in refusal(folder)


def test_a_pickle_of_tensors_is_read_and_one_that_would_run_code_is_not(folder: Path, tmp_path: Path) -> None:
    import_folder(folder, tmp_path / "safe")
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    import_folder(folder, tmp_path / "pickled")
    published.require_same_files(tmp_path / "safe/final", tmp_path / "pickled/final")

    class Hostile:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(tmp_path / "marker"),)

    torch.save({"x": Hostile()}, folder / "pytorch_model.bin")
    assert "a pickle can run code" in refusal(folder)
    assert not (tmp_path / "marker").exists()
    (folder / "pytorch_model.bin").write_bytes(b"hello")
    assert "pytorch_model.bin" in refusal(folder)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("architectures", ["GPT2LMHeadMode"], "did you mean 'GPT2LMHeadModel'?"),
        ("activation_function", "mish", "activation_function is 'mish'; known are gelu"),
        ("scale_attn_by_inverse_layer_idx", True, "only False is known"),
        ("n_head", "two", "n_head is 'two', which is no int"),
        ("n_head", 4, "heads 4 does not divide width 6"),
        ("vocab_size", 200, "the tokenizer has an id 269, and the model 200 ids"),
    ],
)
def test_a_config_that_we_cannot_follow_is_refused_in_words(key: str, value: object, said: str, folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, key: value}))
    assert said in refusal(folder)


def test_without_a_tokenizer_or_with_a_broken_one_it_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    assert "tokenizer.json: cannot read" in refusal(folder)
    (folder / "tokenizer.json").unlink()
    assert "there is no tokenizer" in refusal(folder)
    (folder / "config.json").write_text("[1]")
    assert "config.json: must be a JSON object" in refusal(folder)


def test_an_export_that_differs_is_refused_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_folder(folder, tmp_path / "run")

    def spoiled(place: Path, tensors: dict) -> None:
        write_weights(place, {name: tensor + (name == "transformer.wpe.weight") for name, tensor in tensors.items()})

    monkeypatch.setattr(huggingface, "write_weights", spoiled)
    with pytest.raises(SaccadeError, match=r"refused: decoder\.embedding\.positions\.table came back otherwise"):
        export_run(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".tmp-*"))


def test_an_export_goes_into_no_folder_that_has_something_in_it(folder: Path, tmp_path: Path) -> None:
    import_folder(folder, tmp_path / "run")
    with pytest.raises(SaccadeError, match="is not an empty folder"):
        export_run(tmp_path / "run", folder)


def test_half_precision_comes_and_goes_as_it_is(folder: Path, tmp_path: Path) -> None:
    GPT2LMHeadModel.from_pretrained(folder).half().save_pretrained(folder)
    import_folder(folder, tmp_path / "run")
    export_run(tmp_path / "run", tmp_path / "out")
    published.require_same_files(folder, tmp_path / "out")
    assert load_file(tmp_path / "out" / WEIGHTS)["transformer.wpe.weight"].dtype == torch.float16


def test_the_commands_go_there_and_back(folder: Path, tmp_path: Path) -> None:
    def saccade(*words: str) -> Result:
        return CliRunner().invoke(app, words)

    run, ours = str(tmp_path / "run"), str(tmp_path / "ours")
    assert "GPT2LMHeadModel" in saccade("import", str(folder), run).output
    assert saccade("export", run, ours, "--to", "huggingface").exit_code == 0
    published.require_same_files(folder, tmp_path / "ours")
    wrong = saccade("export", run, str(tmp_path / "more"), "--to", "hugginface")
    assert "did you mean 'huggingface'?" in str(wrong.exception)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n", "git-lfs has to fetch: git lfs pull"),
        (b"<html>not found</html>", "not a file of tensors (a text file)"),
    ],
)
def test_a_text_in_the_place_of_a_pickle_is_called_one(content: bytes, why: str, folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(content)
    said = refusal(folder)
    assert said.startswith(f"{folder}/pytorch_model.bin: ") and why in said and "run code" not in said


def test_a_sparse_tensor_is_named(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"].to_sparse()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert "'transformer.wpe.weight' is torch.sparse_coo, and only dense tensors are known" in refusal(folder)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"a b c", "merges.txt:3: must be two pieces that are merged; got 'a b c'"),
        (b"\xff a", "merges.txt:3: not UTF-8"),
    ],
)
def test_a_line_of_merges_that_cannot_be_read_is_named(line: bytes, why: str, folder: Path) -> None:
    write_merges(folder)
    (folder / "merges.txt").write_bytes(b"#version: 0.2\nt h\n" + line + b"\n")
    assert why in refusal(folder)


def test_merges_of_another_vocabulary_are_refused(folder: Path) -> None:
    write_merges(folder)
    (folder / "merges.txt").write_text("qq zz\n")
    assert f"{folder}: pieces and merges that do not belong together: " in refusal(folder)


@pytest.mark.parametrize("spaced", [False, True])
def test_pieces_and_merges_are_read_with_or_without_a_space_before_a_text(
    spaced: bool, folder: Path, tmp_path: Path
) -> None:
    write_merges(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": spaced}))
    import_folder(folder, tmp_path / "run")
    lexicon = api.load(tmp_path / "run").task.lexicon
    assert lexicon.encode("the") == lexicon.encode(" the" if spaced else "the")
    assert (lexicon.encode("the") == lexicon.encode(" the")) == spaced


def write_merges(folder: Path) -> None:
    """The tokenizer as GPT-2 was published with it."""
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["merges"]))
    (folder / "tokenizer.json").unlink()
