"""llama.cpp as a contestant: a GPT-2 folder of Hugging Face as a GGUF file, and its library that goes on from prompts.

Its package is compiled where it is installed, for the processor that is there: `pip install -e '.[llama]'`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

BLOCK = {  # of a block: their name of a map or norm, and that of Hugging Face
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
GROUP = 32  # numbers that share a scale in 8 bits


def write_gguf(folder: Path, file: Path, precision: str) -> None:
    """The weights as they are, or in 8 bits (Q8_0) where rows can be cut into groups; tokens have no text."""
    import gguf

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = load_file(folder / "model.safetensors")
    writer = gguf.GGUFWriter(file, "gpt2")
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_block_count(config["n_layer"])
    writer.add_feed_forward_length(config["n_inner"] or 4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("none")

    def add(name: str, tensor: torch.Tensor, *, exact: bool = False) -> None:
        numbers = tensor.contiguous().numpy()
        if precision == "int8" and not exact and numbers.ndim == 2 and numbers.shape[1] % GROUP == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, numbers)

    add("token_embd.weight", weights["transformer.wte.weight"])
    add("position_embd.weight", weights["transformer.wpe.weight"], exact=True)
    for theirs, ours in (
        ("output_norm", "ln_f"),
        *((f"blk.{n}.{theirs}", f"h.{n}.{ours}") for n in range(config["n_layer"]) for theirs, ours in BLOCK.items()),
    ):
        add(f"{theirs}.weight", weights[f"transformer.{ours}.weight"].t())  # norms have nothing to turn
        add(f"{theirs}.bias", weights[f"transformer.{ours}.bias"])
    if "lm_head.weight" in weights:
        add("output.weight", weights["lm_head.weight"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load(file: Path) -> Any:
    """A model of the library, which says nothing more."""
    import llama_cpp

    logging.getLogger("llama-cpp-python").setLevel(logging.CRITICAL)
    llama_cpp.llama_backend_init()
    return llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())


def continuation(model: Any, prompts: list[list[int]], tokens: int, threads: int) -> Callable[[], list[list[int]]]:
    """How so many tokens are written after each of some prompts of one length, greedily and side by side."""
    import llama_cpp

    rows, length = len(prompts), len(prompts[0])
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = rows * (length + tokens)
    settings.n_batch = settings.n_ubatch = rows * length
    settings.n_seq_max = rows
    settings.n_threads = settings.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(model, settings)
    sampler = llama_cpp.llama_sampler_init_greedy()
    batch = llama_cpp.llama_batch_init(rows * length, 0, 1)

    def read(columns: list[list[int]], first: int) -> list[int]:
        """The next token of each row, after those of `columns` (rows x t) have been read at `first` and behind."""
        batch.n_tokens = place = 0
        last = []
        for row, ids in enumerate(columns):
            for number, token in enumerate(ids):
                batch.token[place], batch.pos[place] = token, first + number
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
                batch.logits[place] = number + 1 == len(ids)
                place += 1
            last.append(place - 1)
        batch.n_tokens = place
        if llama_cpp.llama_decode(context, batch):
            raise RuntimeError("llama.cpp could not read the batch")
        return [llama_cpp.llama_sampler_sample(sampler, context, place) for place in last]

    def work() -> list[list[int]]:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        written = [[token] for token in read(prompts, 0)]
        for number in range(tokens - 1):
            following = read([row[-1:] for row in written], length + number)
            written = [[*row, token] for row, token in zip(written, following, strict=True)]
        return written

    return work
