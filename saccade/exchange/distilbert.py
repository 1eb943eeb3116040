"""DistilBERT (Sanh et al. 2019): half the layers of BERT, one kind of text only, no pooler."""

from __future__ import annotations

from collections.abc import Collection

from saccade.config import Recipe
from saccade.config.language import BERTSettings, MaskedSettings
from saccade.exchange import bert
from saccade.exchange.architecture import ACTIVATIONS, NO_DATA, Architecture
from saccade.exchange.folder import Config
from saccade.exchange.rules import Table, linear, same, tied, zero

THEIRS, OURS = "distilbert.transformer.layer.{n}", "encoder.stack.blocks.{n}"
BODY = (
    *same("distilbert.embeddings.word_embeddings.weight", "encoder.embedding.weight"),
    *same("distilbert.embeddings.position_embeddings.weight", "encoder.embedding.positions.table"),
    *zero("encoder.segments.weight"),
    *linear("distilbert.embeddings.LayerNorm", "encoder.norm"),
    *linear(f"{THEIRS}.attention.q_lin", f"{OURS}.attention.query"),
    *linear(f"{THEIRS}.attention.k_lin", f"{OURS}.attention.key"),
    *linear(f"{THEIRS}.attention.v_lin", f"{OURS}.attention.value"),
    *linear(f"{THEIRS}.attention.out_lin", f"{OURS}.attention.output"),
    *linear(f"{THEIRS}.sa_layer_norm", f"{OURS}.around_attention.norm"),
    *linear(f"{THEIRS}.ffn.lin1", f"{OURS}.feed_forward.expand"),
    *linear(f"{THEIRS}.ffn.lin2", f"{OURS}.feed_forward.contract"),
    *linear(f"{THEIRS}.output_layer_norm", f"{OURS}.around_feed_forward.norm"),
)
HEAD = (
    *linear("vocab_transform", "transform.dense"),
    *linear("vocab_layer_norm", "transform.norm"),
    *same("vocab_projector.bias", "output.bias"),
    *tied("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),
)
TABLE = Table.of(BODY, HEAD, prefix="distilbert.")
BARE_TABLE = Table.of(BODY, bert.NO_HEADS, prefix="distilbert.")


def recipe(config: Config, names: Collection[str]) -> Recipe:  # noqa: ARG001
    config.require("sinusoidal_pos_embds", False)
    config.require("tie_word_embeddings", True)
    model = BERTSettings(
        width=config.number("dim", 768),
        heads=config.number("n_heads", 12),
        hidden=config.number("hidden_dim", 3072),
        layers=config.number("n_layers", 6),
        segments=1,
        activation=config.choice("activation", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        dropout=config.real("dropout", 0.1),
    )
    return Recipe(task=MaskedSettings(data=NO_DATA, window=config.number("max_position_embeddings", 512)), model=model)


MASKED = Architecture("DistilBertForMaskedLM", "distilbert", lambda _: TABLE, recipe, bert.probe_heads, masks=True)
BARE = Architecture(
    "DistilBertModel",
    "distilbert",
    lambda _: BARE_TABLE,
    recipe,
    bert.probe_masked,
    bare=True,
    notes=bert.BARE.notes,
)
