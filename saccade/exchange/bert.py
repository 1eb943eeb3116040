"""BERT (Devlin et al. 2019): a body alone, with the heads it was trained with, or with one that labels texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor

from saccade.config import Recipe
from saccade.config.classification import ClassifySettings
from saccade.config.language import BERTSettings, MaskedSettings
from saccade.exchange.architecture import (
    ACTIVATIONS,
    NO_DATA,
    Architecture,
    Sizes,
    longest_text,
    random_ids,
    require_plain,
    their_activation,
)
from saccade.exchange.folder import Config
from saccade.exchange.rules import Rule, Table, drawn, ignored, kept, linear, same, tied
from saccade.models.bert import MaskedLanguageModel
from saccade.models.text_classifier import TextClassifier


def body(ours: str, prefix: str = "bert") -> list[Rule]:
    """Embeddings and blocks of an encoder that we call `ours`."""
    theirs, block = f"{prefix}.encoder.layer.{{n}}", f"{ours}.stack.blocks.{{n}}"
    return [
        *same(f"{prefix}.embeddings.word_embeddings.weight", f"{ours}.embedding.weight"),
        *same(f"{prefix}.embeddings.position_embeddings.weight", f"{ours}.embedding.positions.table"),
        *same(f"{prefix}.embeddings.token_type_embeddings.weight", f"{ours}.segments.weight"),
        *linear(f"{prefix}.embeddings.LayerNorm", f"{ours}.norm"),
        *linear(f"{theirs}.attention.self.query", f"{block}.attention.query"),
        *linear(f"{theirs}.attention.self.key", f"{block}.attention.key"),
        *linear(f"{theirs}.attention.self.value", f"{block}.attention.value"),
        *linear(f"{theirs}.attention.output.dense", f"{block}.attention.output"),
        *linear(f"{theirs}.attention.output.LayerNorm", f"{block}.around_attention.norm"),
        *linear(f"{theirs}.intermediate.dense", f"{block}.feed_forward.expand"),
        *linear(f"{theirs}.output.dense", f"{block}.feed_forward.contract"),
        *linear(f"{theirs}.output.LayerNorm", f"{block}.around_feed_forward.norm"),
        *ignored(f"{prefix}.embeddings.position_ids"),
    ]


HEADS = (
    *linear("cls.predictions.transform.dense", "transform.dense"),
    *linear("cls.predictions.transform.LayerNorm", "transform.norm"),
    *same("cls.predictions.bias", "output.bias"),
    *tied("cls.predictions.decoder.bias", "cls.predictions.bias"),
    *tied("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    *linear("cls.seq_relationship", "next_sentence"),
)
NO_HEADS = drawn(
    *(
        f"{part}.{kind}"
        for part in ("transform.dense", "transform.norm", "next_sentence")
        for kind in ("weight", "bias")
    ),
    "output.bias",
)


def model_settings(config: Config, *, pooler: bool) -> BERTSettings:
    config.require("is_decoder", False)
    config.require("add_cross_attention", False)
    config.require("position_embedding_type", "absolute")
    config.require("tie_word_embeddings", True)
    return BERTSettings(
        width=config.number("hidden_size", 768),
        heads=config.number("num_attention_heads", 12),
        hidden=config.number("intermediate_size", 3072),
        layers=config.number("num_hidden_layers", 12),
        segments=config.number("type_vocab_size", 2),
        epsilon=config.real("layer_norm_eps", 1e-12),
        activation=config.choice("hidden_act", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        next_sentence=pooler,
        dropout=config.real("hidden_dropout_prob", 0.1),
    )


def masked_table(heads: Sequence[Rule], prefix: str = "bert") -> Callable[[Recipe], Table]:
    """With a pooler where the task has a use for it; where it has none, it is kept for them."""
    theirs = f"{prefix}.pooler.dense"

    def table(recipe: Recipe) -> Table:
        used = getattr(recipe.task, "next_sentence", False)
        pooler = linear(theirs, "encoder.pooler") if used else kept(f"{theirs}.weight", f"{theirs}.bias")
        return Table.of(body("encoder", prefix), pooler, heads, prefix=f"{prefix}.")

    return table


def masked_recipe(config: Config, names: Collection[str]) -> Recipe:
    pooler = any(name.endswith("pooler.dense.weight") for name in names)
    trained = "cls.seq_relationship.weight" in names or not any(name.startswith("cls.") for name in names)
    pooler = pooler and trained and config.number("type_vocab_size", 2) > 1
    window = config.number("max_position_embeddings", 512)
    return Recipe(
        task=MaskedSettings(data=NO_DATA, window=window, next_sentence=pooler),
        model=model_settings(config, pooler=pooler),
    )


def label_recipe(config: Config, names: Collection[str]) -> Recipe:  # noqa: ARG001
    longest = config.number("max_position_embeddings", 512)
    return Recipe(
        task=ClassifySettings(data=(NO_DATA,), longest=longest, pool="summary"),
        model=model_settings(config, pooler=True),
    )


def config_of(recipe: Recipe, sizes: Sizes) -> dict[str, Any]:
    model, task = recipe.model, recipe.task
    assert isinstance(model, BERTSettings) and sizes.marks is not None
    activation = their_activation(model.activation)
    wrong = {
        f"order {model.order}": model.order != "post",
        f"norm {model.norm}": model.norm != "layer",
        f"first_position {model.first_position}": model.first_position != 0,
        f"activation {model.activation}": activation is None,
    }
    if isinstance(task, ClassifySettings):
        wrong[f"pool {task.pool}, only summary"] = task.pool != "summary"
        wrong["low_rank matrices beside its own"] = task.low_rank > 0
    require_plain("BERT", wrong)
    return {
        "vocab_size": sizes.vocabulary,
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.hidden or 4 * model.width,
        "hidden_act": activation,
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": 0.0,
        "max_position_embeddings": longest_text(recipe),
        "type_vocab_size": model.segments,
        "layer_norm_eps": model.epsilon,
        "pad_token_id": sizes.marks["pad"],
        "tie_word_embeddings": True,
    }


def probe_masked(model: MaskedLanguageModel, recipe: Recipe, sizes: Sizes, draw: Generator) -> Tensor:
    tokens, mask = random_ids(recipe, sizes, draw)
    return model.encoder(tokens, mask).states[mask]


def probe_labels(model: TextClassifier, recipe: Recipe, sizes: Sizes, draw: Generator) -> Tensor:
    tokens, mask = random_ids(recipe, sizes, draw)
    return model(tokens, mask)


def probe_heads(model: MaskedLanguageModel, recipe: Recipe, sizes: Sizes, draw: Generator) -> Tensor:
    tokens, mask = random_ids(recipe, sizes, draw)
    memory = model.encoder(tokens, mask)
    said = [model.output(model.transform(memory.states[mask])).flatten()]
    return torch.cat(said if model.next_sentence is None else [*said, model.follows(memory).flatten()])


LABEL_TABLE = Table.of(
    body("body"), linear("bert.pooler.dense", "body.pooler"), linear("classifier", "head"), prefix="bert."
)
MASKED = Architecture(
    "BertForMaskedLM",
    "bert",
    masked_table(HEADS),
    masked_recipe,
    probe_heads,
    config_of,
    masks=True,
    framed=True,
)
PRETRAINING = replace(MASKED, name="BertForPreTraining")
BARE = Architecture(
    "BertModel",
    "bert",
    masked_table(NO_HEADS),
    masked_recipe,
    probe_masked,
    config_of,
    bare=True,
    notes=lambda _: ["it has no head that says what is hidden: a new one was drawn, which has to be trained first"],
)
LABELS = Architecture(
    "BertForSequenceClassification",
    "bert",
    lambda _: LABEL_TABLE,
    label_recipe,
    probe_labels,
    config_of,
    framed=True,
    labelled=True,
)
