"""A GPT-2 folder as a GGUF file: the same numbers under llama.cpp's names, or close to them in 8 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from safetensors.torch import load_file

from saccade.bench import peers
from saccade.bench.llama import write_gguf
from saccade.data.lexicon import Lexicon
from saccade.exchange import huggingface


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("gpt2")
    task, model = "{kind: language, data: none, window: 8}", "{kind: gpt, width: 32, heads: 2, layers: 2}"
    peers.drawn(f"task: {task}\nmodel: {model}", Lexicon(peers.byte_pairs(300), "pieces"), place)
    huggingface.export_run(place / "run", place / "huggingface")
    return place / "huggingface"


def read(folder: Path, precision: str) -> tuple[dict[str, np.ndarray], Any]:
    file = folder.with_name(f"{precision}.gguf")
    write_gguf(folder, file, precision)
    found = gguf.GGUFReader(file)
    return {each.name: gguf.quants.dequantize(each.data, each.tensor_type) for each in found.tensors}, found


def test_all_numbers_are_there_turned_to_rows_of_outputs(folder: Path) -> None:
    theirs, found = read(folder, "float32")
    ours = load_file(folder / "model.safetensors")
    assert sum(each.size for each in theirs.values()) == sum(each.numel() for each in ours.values())
    np.testing.assert_array_equal(theirs["token_embd.weight"], ours["transformer.wte.weight"])
    np.testing.assert_array_equal(theirs["blk.1.attn_qkv.weight"], ours["transformer.h.1.attn.c_attn.weight"].T)
    np.testing.assert_array_equal(theirs["blk.0.ffn_norm.bias"], ours["transformer.h.0.ln_2.bias"])
    assert found.fields["gpt2.vocab_size"].contents() == len(theirs["token_embd.weight"])
    assert found.fields["gpt2.attention.head_count"].contents() == 2


def test_in_eight_bits_tables_are_near_and_the_rest_is_exact(folder: Path) -> None:
    exact, _ = read(folder, "float32")
    rounded, found = read(folder, "int8")
    kinds = {each.name: each.tensor_type.name for each in found.tensors}
    assert kinds["blk.0.ffn_up.weight"] == kinds["token_embd.weight"] == "Q8_0"
    assert kinds["position_embd.weight"] == kinds["output_norm.weight"] == kinds["blk.0.ffn_up.bias"] == "F32"
    for name, numbers in exact.items():
        step = np.abs(numbers).max() / 127 if kinds[name] == "Q8_0" else 0
        assert np.abs(rounded[name] - numbers).max() <= step, name
