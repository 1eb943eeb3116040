"""Transformers that translate: Marian (Junczys-Dowmunt et al. 2018) is our post-norm one, Pegasus (Zhang et al. 2020)
our pre-norm one.

Both add sines and cosines in halves, which are computed and not learned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from saccade.config import Recipe
from saccade.config.models import TransformerSettings
from saccade.config.tasks import TranslateSettings
from saccade.config.training import DecodeSettings
from saccade.errors import SaccadeError
from saccade.exchange.architecture import (
    ACTIVATIONS,
    NO_DATA,
    Architecture,
    Sizes,
    random_ids,
    require_plain,
    their_activation,
)
from saccade.exchange.folder import Config
from saccade.exchange.rules import Rule, Table, computed, linear, same, shaped, tied
from saccade.exchange.tokens import SETTINGS
from saccade.models.shapes import EncoderDecoder
from saccade.nn.positions import Sinusoidal

SHARED = "model.shared.weight"
EPSILON = 1e-5  # of their norms, always
GENERATION = "generation_config.json"
# of the settings of a search, those that mean the same there; length_penalty does not
SEARCH = {"beam": "num_beams", "minimum_length": "min_new_tokens", "no_repeat": "no_repeat_ngram_size"}
LONGEST = 512  # positions that others will compute


def attention(theirs: str, ours: str) -> list[Rule]:
    names = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "output"}
    return [rule for name, own in names.items() for rule in linear(f"{theirs}.{name}", f"{ours}.{own}")]


def side(name: str) -> list[Rule]:
    """The blocks of the encoder or the decoder."""
    theirs, ours = f"model.{name}.layers.{{n}}", f"{name}.stack.blocks.{{n}}"
    return [
        *attention(f"{theirs}.self_attn", f"{ours}.attention"),
        *linear(f"{theirs}.self_attn_layer_norm", f"{ours}.around_attention.norm"),
        *attention(f"{theirs}.encoder_attn", f"{ours}.cross"),
        *linear(f"{theirs}.encoder_attn_layer_norm", f"{ours}.around_cross.norm"),
        *linear(f"{theirs}.fc1", f"{ours}.feed_forward.expand"),
        *linear(f"{theirs}.fc2", f"{ours}.feed_forward.contract"),
        *linear(f"{theirs}.final_layer_norm", f"{ours}.around_feed_forward.norm"),
        *linear(f"model.{name}.layer_norm", f"{name}.stack.norm"),  # of Pegasus
        *computed(f"model.{name}.embed_positions.weight", sines),
    ]


def sines(like: Tensor) -> Tensor:
    return Sinusoidal(like.shape[1])(torch.arange(len(like)), len(like))


def table(recipe: Recipe) -> Table:
    """By which of the token tables are one."""
    tie = getattr(recipe.model, "tie", "all")
    tables = [f"model.{name}.embed_tokens.weight" for name in ("encoder", "decoder")]
    if tie == "all":
        tokens = [*same(SHARED, "encoder.embedding.weight"), *tied("lm_head.weight", SHARED)]
        tokens += [rule for each in tables for rule in tied(each, SHARED)]
    else:
        tokens = [*same(tables[0], "encoder.embedding.weight"), *same(tables[1], "decoder.embedding.weight")]
        tokens += same("lm_head.weight", "output.own") if tie == "none" else tied("lm_head.weight", tables[1])
        tokens += [Rule(SHARED)]  # there and not used
    bias = shaped("final_logits_bias", "output.bias", there=lambda t: t[None], here=lambda t: t[0])
    return Table.of(tokens, bias, side("encoder"), side("decoder"), prefix="model.")


def recipe(config: Config, names: Collection[str]) -> Recipe:
    for key in ("ffn_dim", "attention_heads"):
        if (one := config.number(f"encoder_{key}")) != (other := config.number(f"decoder_{key}")):
            raise SaccadeError(
                f"{config.path}: encoder_{key} is {one} and decoder_{key} {other}; only like ones are known"
            )
    config.require("decoder_vocab_size", config.number("vocab_size"))
    words = config.truth("tie_word_embeddings", True)
    shared = config.truth("share_encoder_decoder_embeddings", True)
    longest = config.number("max_position_embeddings", LONGEST)
    model = TransformerSettings(
        width=config.number("d_model"),
        heads=config.number("encoder_attention_heads"),
        hidden=config.number("encoder_ffn_dim"),
        encoder_layers=config.number("encoder_layers"),
        decoder_layers=config.number("decoder_layers"),
        order="pre" if config.text("model_type") == "pegasus" else "post",
        activation=config.choice("activation_function", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        longest=longest,
        tie="none" if not words else "all" if shared else "output",
        scaled=config.truth("scale_embedding", False),
        output_bias="final_logits_bias" in names,
        dropout=config.real("dropout", 0.1),
    )
    generation = config.beside(GENERATION)
    decode = DecodeSettings(
        beam=generation.number(SEARCH["beam"], config.number(SEARCH["beam"], 1)),
        minimum_length=generation.number(SEARCH["minimum_length"], 0),
        no_repeat=generation.number(SEARCH["no_repeat"], 0) or None,
    )
    text = min(longest, int(config.beside(SETTINGS).real("model_max_length", longest)))
    return Recipe(task=TranslateSettings(source=NO_DATA, longest=text), model=model, decode=decode)


def config_of(recipe: Recipe, sizes: Sizes) -> dict[str, Any]:
    model = recipe.model
    assert isinstance(model, TransformerSettings) and sizes.marks is not None
    activation, pegasus = their_activation(model.activation), model.order == "pre"
    wrong = {
        f"positions {model.positions}": model.positions != "sinusoidal",
        f"layout {model.layout}": model.layout != "halves",
        f"norm {model.norm}": model.norm != "layer",
        f"epsilon {model.epsilon}": model.epsilon not in (None, EPSILON),
        f"combine {model.combine}": model.combine != "add",
        f"kv_heads {model.kv_heads}": model.kv_heads not in (None, model.heads),
        f"activation {model.activation}": activation is None,
        f"tie {model.tie} (model.tie=all, before training, fits)": pegasus and model.tie == "output",
    }
    require_plain("Pegasus" if pegasus else "Marian", wrong)
    said: dict[str, Any] = {"is_encoder_decoder": True, "d_model": model.width, "dropout": model.dropout}
    for name, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        said |= {f"{name}_layers": layers, f"{name}_attention_heads": model.heads, f"{name}_ffn_dim": model.hidden}
    if not pegasus:
        said |= {"share_encoder_decoder_embeddings": model.tie == "all", "decoder_vocab_size": sizes.vocabulary}
    return said | {
        "vocab_size": sizes.vocabulary,
        "activation_function": activation,
        "attention_dropout": model.attention_dropout,
        "max_position_embeddings": max(LONGEST, model.longest),
        "scale_embedding": model.scaled,
        "tie_word_embeddings": model.tie != "none",
        "pad_token_id": sizes.marks["pad"],
        "bos_token_id": sizes.marks["start"],
        "decoder_start_token_id": sizes.marks["start"],
        "eos_token_id": sizes.marks["end"],
        "forced_eos_token_id": None,
    }


def generation(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """What never comes in an answer, and how answers are searched."""
    marks = {"pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1, "eos_token_id": 2}
    search = {theirs: value for ours, theirs in SEARCH.items() if (value := getattr(recipe.decode, ours))}
    return {GENERATION: {**marks, "bad_words_ids": [[0], [1]], "max_length": LONGEST, **search}}


def probe(model: EncoderDecoder, recipe: Recipe, sizes: Sizes, draw: Generator) -> Tensor:
    source, mask = random_ids(recipe, sizes, draw)
    target, _ = random_ids(recipe, sizes, draw)
    return model.output(model(source, mask, target))


MARIAN = Architecture(
    "MarianMTModel",
    "marian",
    table,
    recipe,
    probe,
    config_of,
    vocabulary="pieces",
    files=generation,
    carried=SEARCH,
)
PEGASUS = replace(MARIAN, name="PegasusForConditionalGeneration", type="pegasus")
