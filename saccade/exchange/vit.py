"""The Vision Transformer (Dosovitskiy et al. 2021): ViTForImageClassification is our `vit` with a class token."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Generator, Tensor

from saccade.config import Recipe
from saccade.config.images import ClassifyImagesSettings, ViTSettings
from saccade.errors import SaccadeError
from saccade.exchange.architecture import NO_DATA, Architecture, Sizes, require_plain
from saccade.exchange.folder import Config, read_json
from saccade.exchange.rules import Rule, Table, linear, same, shaped
from saccade.models.shapes import EncoderOnly

PICTURES = "preprocessor_config.json"
CHANNELS, MIDDLE = 3, [0.5, 0.5, 0.5]  # pixels from -1 to 1


def squares(theirs: str, ours: str) -> list[Rule]:
    """The matrix of patches, which they write as a convolution: (width, channels, side, side)."""

    def there(matrix: Tensor) -> Tensor:
        side = math.isqrt(matrix.shape[1] // CHANNELS)
        return matrix.unflatten(1, (CHANNELS, side, side))

    return shaped(theirs, ours, there=there, here=lambda kernel: kernel.flatten(1))


def positions(*, class_position: bool) -> list[Rule]:
    """One table for the class token and the cells, (1, 1 + cells, width); where the token has no position, zeros."""
    theirs, cells = "vit.embeddings.position_embeddings", "encoder.positions.cells.table"

    def joined(parts: Sequence[Tensor]) -> Tensor:
        first = parts[0] if class_position else torch.zeros_like(parts[-1][0])
        return torch.cat([first[None], parts[-1]])[None]

    if class_position:
        return [Rule(theirs, ("encoder.gather_at", cells), lambda table: (table[0, 0], table[0, 1:]), joined)]
    return [Rule(theirs, (cells,), lambda table: (table[0, 1:],), joined)]


THEIRS, OURS = "vit.encoder.layer.{n}", "encoder.stack.blocks.{n}"
RULES = (
    shaped("vit.embeddings.cls_token", "encoder.gather", there=lambda t: t[None, None], here=lambda t: t[0, 0]),
    squares("vit.embeddings.patch_embeddings.projection.weight", "encoder.patches.project.weight"),
    same("vit.embeddings.patch_embeddings.projection.bias", "encoder.patches.project.bias"),
    linear(f"{THEIRS}.layernorm_before", f"{OURS}.around_attention.norm"),
    linear(f"{THEIRS}.attention.attention.query", f"{OURS}.attention.query"),
    linear(f"{THEIRS}.attention.attention.key", f"{OURS}.attention.key"),
    linear(f"{THEIRS}.attention.attention.value", f"{OURS}.attention.value"),
    linear(f"{THEIRS}.attention.output.dense", f"{OURS}.attention.output"),
    linear(f"{THEIRS}.layernorm_after", f"{OURS}.around_feed_forward.norm"),
    linear(f"{THEIRS}.intermediate.dense", f"{OURS}.feed_forward.expand"),
    linear(f"{THEIRS}.output.dense", f"{OURS}.feed_forward.contract"),
    linear("vit.layernorm", "encoder.stack.norm"),
    same("classifier.weight", "head.own"),
    same("classifier.bias", "head.bias"),
)


def table(recipe: Recipe) -> Table:
    class_position = getattr(recipe.model, "class_position", False)
    return Table.of(*RULES, positions(class_position=class_position), prefix="vit.")


def recipe(config: Config, names: Collection[str]) -> Recipe:  # noqa: ARG001
    config.require("hidden_act", "gelu")
    config.require("qkv_bias", True)
    config.require("num_channels", CHANNELS)
    pictures = config.path.parent / PICTURES
    said = read_json(pictures) if pictures.is_file() else {}
    for key in ("image_mean", "image_std"):
        if said.get(key, MIDDLE) != MIDDLE:
            raise SaccadeError(
                f"{pictures}: {key} is {said[key]}, and only {MIDDLE} is known here: pixels from -1 to 1"
            )
    model = ViTSettings(
        patch=config.number("patch_size", 16),
        width=config.number("hidden_size", 768),
        heads=config.number("num_attention_heads", 12),
        hidden=config.number("intermediate_size", 3072),
        layers=config.number("num_hidden_layers", 12),
        class_position=True,
        epsilon=config.real("layer_norm_eps", 1e-12),
        dropout=config.real("hidden_dropout_prob", 0.0),
    )
    return Recipe(task=ClassifyImagesSettings(data=NO_DATA, size=config.number("image_size", 224)), model=model)


def config_of(recipe: Recipe, sizes: Sizes) -> dict[str, Any]:  # noqa: ARG001
    model, task = recipe.model, recipe.task
    assert isinstance(model, ViTSettings) and isinstance(task, ClassifyImagesSettings)
    wrong = {
        f"positions {model.positions}": model.positions != "learned",
        "images without a class_token": not model.class_token,
    }
    require_plain("ViT", wrong)
    return {
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.hidden,
        "hidden_act": "gelu",
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": model.epsilon or 1e-5,
        "image_size": task.size,
        "patch_size": model.patch,
        "num_channels": CHANNELS,
        "qkv_bias": True,
    }


def pictures(recipe: Recipe) -> dict[str, dict[str, Any]]:
    side = getattr(recipe.task, "size", None)
    said = {"image_processor_type": "ViTImageProcessor", "do_resize": True, "size": {"height": side, "width": side}}
    return {PICTURES: {**said, "do_rescale": True, "do_normalize": True, "image_mean": MIDDLE, "image_std": MIDDLE}}


def probe(model: EncoderOnly, recipe: Recipe, sizes: Sizes, draw: Generator) -> Tensor:  # noqa: ARG001
    side = getattr(recipe.task, "size", 0)
    return model(torch.randn(2, CHANNELS, side, side, generator=draw))


LABELS = Architecture(
    "ViTForImageClassification",
    "vit",
    table,
    recipe,
    probe,
    config_of,
    vocabulary="none",
    labelled=True,
    files=pictures,
)
