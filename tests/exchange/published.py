"""Small folders as Hugging Face's library writes them, with a tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from saccade import api
from saccade.config import dump_recipe, parse_recipe
from saccade.train.run import Run
from saccade.train.trainer import named_tensors

TEXTS = ["the cat sat on the mat", "a dog ran to the old house", "do cats sit? they do, and dogs run home."] * 3


def save(model: Any, folder: Path, tokenizer: Tokenizer | None = None, **settings: Any) -> Path:
    """Random weights, larger than their initial law has them, so that a mistake anywhere shows."""
    disturb(model)
    model.eval().save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def disturb(model: torch.nn.Module, deviation: float = 0.1) -> None:
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=draw), alpha=deviation)


def byte_pieces(size: int = 290, *, specials: tuple[str, ...] = ("<|endoftext|>",)) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=list(specials), show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def word_pieces(size: int = 90) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=specials, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def ids(vocabulary: int, length: int, *, rows: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Random ids, and a mask that hides some at the end of each row but the first."""
    tokens = torch.randint(vocabulary, (rows, length), generator=torch.Generator().manual_seed(2))
    return tokens, torch.arange(length) < torch.tensor([length, *(length // 2 + n for n in range(rows - 1))])[:, None]


def require_same_files(left: Path, right: Path) -> None:
    """Names, shapes, kinds of numbers and bits of all tensors."""
    one, other = load_file(left / "model.safetensors"), load_file(right / "model.safetensors")
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype and torch.equal(tensor, other[name]), name


def changed(folder: Path, change: Callable[[dict], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def cut_in_two(folder: Path) -> None:
    """One file of weights becomes two with an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-1-of-2.safetensors": names[: len(names) // 2], "model-2-of-2.safetensors": names[len(names) // 2 :]}
    for file, some in parts.items():
        save_file({name: tensors[name] for name in some}, folder / file, {"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: file for file, some in parts.items() for name in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def drawn_run(recipe: str, out: Path, vocabulary: Callable[[Path], object], *, deviation: float = 0.0) -> api.Predictor:
    """A run of ours that was never trained; its weights are disturbed so much, biases and norms among them."""
    settings = parse_recipe(recipe, "recipe")
    run = Run.create(out, dump_recipe(settings))
    vocabulary(run.vocab)
    task = api.make_task(settings)
    task.load(run.vocab)
    torch.manual_seed(1)
    model = task.model()
    disturb(model, deviation)
    run.save_final(named_tensors(model), {"vocabulary": run.vocab_hash()})
    return api.load(out)
