"""XLNet (Yang et al. 2019): XLNetLMHeadModel and XLNetModel are our `xlnet`, and so are ours theirs.

They write a projection as (width, heads, width of a head). What they add to scores by segments we have not: it is
nothing where no segments are given, and is kept for them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from torch import Generator, Tensor

from saccade.config import Recipe
from saccade.config.language import PermutedSettings, XLNetSettings
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
from saccade.exchange.rules import Rule, Table, drawn, linear, same, shaped, tied, unused
from saccade.models.xlnet import PermutedLanguageModel

WINDOW = 512  # that it was published with; distances have no end
THEIRS, OURS = "transformer.layer.{n}", "encoder.stack.blocks.{n}"
SCORE = f"{OURS}.attention.score"


def body(heads: int) -> list[Rule]:
    def asked(theirs: str, ours: str) -> list[Rule]:
        return shaped(
            f"{THEIRS}.rel_attn.{theirs}",
            ours,
            there=lambda matrix: matrix.T.unflatten(1, (heads, -1)),
            here=lambda cube: cube.flatten(1).T,
        )

    return [
        *same("transformer.word_embedding.weight", "encoder.embedding.weight"),
        *shaped("transformer.mask_emb", "question", there=lambda t: t[None, None], here=lambda t: t[0, 0]),
        *asked("q", f"{OURS}.attention.query.weight"),
        *asked("k", f"{OURS}.attention.key.weight"),
        *asked("v", f"{OURS}.attention.value.weight"),
        *asked("r", f"{SCORE}.distance.weight"),
        *shaped(
            f"{THEIRS}.rel_attn.o",
            f"{OURS}.attention.output.weight",
            there=lambda matrix: matrix.unflatten(1, (heads, -1)),
            here=lambda cube: cube.flatten(1),
        ),
        *same(f"{THEIRS}.rel_attn.r_w_bias", f"{SCORE}.content_bias"),
        *same(f"{THEIRS}.rel_attn.r_r_bias", f"{SCORE}.distance_bias"),
        *unused(f"{THEIRS}.rel_attn.r_s_bias", f"{SCORE}.content_bias"),
        *unused(f"{THEIRS}.rel_attn.seg_embed", f"{SCORE}.content_bias", 2),
        *linear(f"{THEIRS}.rel_attn.layer_norm", f"{OURS}.around_attention.norm"),
        *linear(f"{THEIRS}.ff.layer_norm", f"{OURS}.around_feed_forward.norm"),
        *linear(f"{THEIRS}.ff.layer_1", f"{OURS}.feed_forward.expand"),
        *linear(f"{THEIRS}.ff.layer_2", f"{OURS}.feed_forward.contract"),
    ]


HEAD = (*same("lm_loss.bias", "output.bias"), *tied("lm_loss.weight", "transformer.word_embedding.weight"))


def table(recipe: Recipe) -> Table:
    return Table.of(body(recipe.model.heads), HEAD, prefix="transformer.")  # type: ignore[union-attr]


def bare_table(recipe: Recipe) -> Table:
    return Table.of(body(recipe.model.heads), drawn("output.bias"), prefix="transformer.")  # type: ignore[union-attr]


def recipe(config: Config, names: Collection[str]) -> Recipe:  # noqa: ARG001
    config.require("attn_type", "bi")
    config.require("bi_data", False)
    config.require("tie_word_embeddings", True)
    if config.number("clamp_len", -1) > 0:
        config.require("clamp_len", -1)
    model = XLNetSettings(
        width=config.number("d_model", 1024),
        heads=config.number("n_head", 16),
        hidden=config.number("d_inner", 4096),
        layers=config.number("n_layer", 24),
        epsilon=config.real("layer_norm_eps", 1e-12),
        activation=config.choice("ff_activation", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        dropout=config.real("dropout", 0.1),
    )
    config.require("d_head", model.width // model.heads)
    return Recipe(task=PermutedSettings(data=NO_DATA, window=WINDOW), model=model)


def config_of(recipe: Recipe, sizes: Sizes) -> dict[str, Any]:
    model = recipe.model
    assert isinstance(model, XLNetSettings) and sizes.marks is not None
    activation = their_activation(model.activation)
    require_plain("XLNet", {f"activation {model.activation}": activation is None})
    return {
        "vocab_size": sizes.vocabulary,
        "d_model": model.width,
        "n_layer": model.layers,
        "n_head": model.heads,
        "d_head": model.width // model.heads,
        "d_inner": model.hidden or 4 * model.width,
        "ff_activation": activation,
        "attn_type": "bi",
        "layer_norm_eps": model.epsilon,
        "dropout": model.dropout,
        "bos_token_id": sizes.marks["start"],
        "eos_token_id": sizes.marks["end"],
        "pad_token_id": sizes.marks["pad"],
        "tie_word_embeddings": True,
    }


def probe(model: PermutedLanguageModel, recipe: Recipe, sizes: Sizes, draw: Generator) -> Tensor:
    """What is said of every token, given those before it."""
    tokens, mask = random_ids(recipe, sizes, draw)
    rank = mask.cumsum(1)
    return model.output(model(tokens, mask, rank))[mask]


LANGUAGE = Architecture("XLNetLMHeadModel", "xlnet", table, recipe, probe, config_of, framed=True)
BARE = replace(LANGUAGE, name="XLNetModel", table=bare_table, bare=True)
