"""RoBERTa (Liu et al. 2019): BERT whose positions begin at 2 and whose vocabulary is of bytes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from saccade.config import Recipe
from saccade.config.classification import ClassifySettings
from saccade.config.language import BERTSettings, MaskedSettings
from saccade.errors import SaccadeError
from saccade.exchange import bert
from saccade.exchange.architecture import NO_DATA, Architecture, Sizes, longest_text
from saccade.exchange.folder import Config
from saccade.exchange.rules import Table, linear, same, tied

FIRST = 2  # after the position of padding, which is its id, 1
HEAD = (
    *linear("lm_head.dense", "transform.dense"),
    *linear("lm_head.layer_norm", "transform.norm"),
    *same("lm_head.bias", "output.bias"),
    *tied("lm_head.decoder.bias", "lm_head.bias"),
    *tied("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
)
LABEL_TABLE = Table.of(
    bert.body("body", "roberta"),
    linear("classifier.dense", "body.pooler"),
    linear("classifier.out_proj", "head"),
    prefix="roberta.",
)


def model_settings(config: Config, *, pooler: bool) -> BERTSettings:
    if (pad := config.id("pad_token_id")) not in (None, FIRST - 1):
        raise SaccadeError(f"{config.path}: pad_token_id is {pad}, and only {FIRST - 1} is known here")
    return bert.model_settings(config, pooler=pooler).model_copy(update={"first_position": FIRST})


def masked_recipe(config: Config, names: Collection[str]) -> Recipe:  # noqa: ARG001 - no texts were told apart
    window = config.number("max_position_embeddings", 514) - FIRST
    return Recipe(task=MaskedSettings(data=NO_DATA, window=window), model=model_settings(config, pooler=False))


def label_recipe(config: Config, names: Collection[str]) -> Recipe:  # noqa: ARG001
    longest = config.number("max_position_embeddings", 514) - FIRST
    task = ClassifySettings(data=(NO_DATA,), longest=longest, pool="summary")
    return Recipe(task=task, model=model_settings(config, pooler=True))


def config_of(recipe: Recipe, sizes: Sizes) -> dict[str, Any]:
    assert isinstance(recipe.model, BERTSettings) and sizes.marks is not None
    if sizes.marks["pad"] != FIRST - 1:
        raise SaccadeError(f"RoBERTa pads with the id {FIRST - 1}, and this vocabulary with {sizes.marks['pad']}")
    plain = recipe.model_copy(update={"model": recipe.model.model_copy(update={"first_position": 0})})
    marks = {"bos_token_id": sizes.marks["start"], "eos_token_id": sizes.marks["end"]}
    return bert.config_of(plain, sizes) | marks | {"max_position_embeddings": longest_text(recipe) + FIRST}


MASKED = Architecture(
    "RobertaForMaskedLM",
    "roberta",
    bert.masked_table(HEAD, "roberta"),
    masked_recipe,
    bert.probe_heads,
    config_of,
    masks=True,
    framed=True,
)
BARE = Architecture(
    "RobertaModel",
    "roberta",
    bert.masked_table(bert.NO_HEADS, "roberta"),
    masked_recipe,
    bert.probe_masked,
    config_of,
    bare=True,
    notes=bert.BARE.notes,
)
LABELS = Architecture(
    "RobertaForSequenceClassification",
    "roberta",
    lambda _: LABEL_TABLE,
    label_recipe,
    bert.probe_labels,
    config_of,
    framed=True,
    labelled=True,
)
