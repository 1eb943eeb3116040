"""GPT-2 (Radford et al. 2019): GPT2LMHeadModel and GPT2Model are our `gpt`, and so are our plain ones theirs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from torch import Generator, Tensor

from saccade.config import Recipe
from saccade.config.language import GPTSettings, LanguageSettings
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
from saccade.exchange.rules import Table, fused, ignored, linear, same, tied, turned
from saccade.models.shapes import LanguageModel

THEIRS, OURS = "transformer.h.{n}", "decoder.stack.blocks.{n}"
BODY = (
    *same("transformer.wte.weight", "decoder.embedding.weight"),
    *same("transformer.wpe.weight", "decoder.embedding.positions.table"),
    *linear(f"{THEIRS}.ln_1", f"{OURS}.around_attention.norm"),
    *fused(f"{THEIRS}.attn.c_attn", [f"{OURS}.attention.{part}" for part in ("query", "key", "value")]),
    *turned(f"{THEIRS}.attn.c_proj", f"{OURS}.attention.output"),
    *linear(f"{THEIRS}.ln_2", f"{OURS}.around_feed_forward.norm"),
    *turned(f"{THEIRS}.mlp.c_fc", f"{OURS}.feed_forward.expand"),
    *turned(f"{THEIRS}.mlp.c_proj", f"{OURS}.feed_forward.contract"),
    *linear("transformer.ln_f", "decoder.stack.norm"),
    *ignored(f"{THEIRS}.attn.bias", f"{THEIRS}.attn.masked_bias"),
)
TABLE = Table.of(
    BODY,
    same("lm_head.weight", "output.own"),  # where it is not tied
    tied("lm_head.weight", "transformer.wte.weight"),
    prefix="transformer.",
)


def recipe(config: Config, names: Collection[str]) -> Recipe:  # noqa: ARG001
    config.require("scale_attn_weights", True)
    config.require("scale_attn_by_inverse_layer_idx", False)
    config.require("add_cross_attention", False)
    model = GPTSettings(
        width=config.number("n_embd", 768),
        heads=config.number("n_head", 12),
        hidden=config.values.get("n_inner"),
        layers=config.number("n_layer", 12),
        epsilon=config.real("layer_norm_epsilon", 1e-5),
        activation=config.choice("activation_function", ACTIVATIONS, "gelu_new"),  # type: ignore[arg-type]
        tie=config.truth("tie_word_embeddings", True),
        dropout=config.real("resid_pdrop", 0.1),
    )
    return Recipe(task=LanguageSettings(data=NO_DATA, window=config.number("n_positions", 1024)), model=model)


def config_of(recipe: Recipe, sizes: Sizes) -> dict[str, Any]:
    model, task = recipe.model, recipe.task
    assert isinstance(model, GPTSettings) and isinstance(task, LanguageSettings) and sizes.marks is not None
    activation = their_activation(model.activation)
    wrong = {
        f"positions {model.positions}": model.positions != "learned",
        f"norm {model.norm}": model.norm != "layer",
        f"kv_heads {model.kv_heads}": model.kv_heads not in (None, model.heads),
        f"activation {model.activation}": activation is None,
    }
    require_plain("GPT-2", wrong)
    return {
        "vocab_size": sizes.vocabulary,
        "n_positions": task.window,
        "n_embd": model.width,
        "n_layer": model.layers,
        "n_head": model.heads,
        "n_inner": model.hidden,
        "activation_function": activation,
        "resid_pdrop": model.dropout,
        "embd_pdrop": model.dropout,
        "attn_pdrop": 0.0,
        "layer_norm_epsilon": model.epsilon or 1e-5,
        "tie_word_embeddings": model.tie,
        "bos_token_id": sizes.marks["start"],
        "eos_token_id": sizes.marks["end"],
        "pad_token_id": sizes.marks["pad"],
    }


def probe(model: LanguageModel, recipe: Recipe, sizes: Sizes, draw: Generator) -> Tensor:
    tokens, _ = random_ids(recipe, sizes, draw)
    return model.output(model(tokens))


LANGUAGE = Architecture("GPT2LMHeadModel", "gpt2", lambda _: TABLE, recipe, probe, config_of)
BARE = replace(LANGUAGE, name="GPT2Model", bare=True)
