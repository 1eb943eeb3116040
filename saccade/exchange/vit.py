"""The Vision Transformer (Dosovitskiy et al. 2021): ViTForImageClassification is our `vit` with a class token."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from saccade.config import Recipe
from saccade.config.images import ClassifyImagesSettings, ViTSettings
from saccade.errors import SaccadeError
from saccade.exchange.architecture import ACTIVATIONS, NO_DATA, Architecture, Sizes, require_plain, their_activation
from saccade.exchange.folder import Config, read_json
from saccade.exchange.rules import Rule, Table, linear, same, shaped
from saccade.models.shapes import EncoderOnly

PICTURES, PROCESSOR = "preprocessor_config.json", "processor_config.json"
CHANNELS, BICUBIC = 3, 3
MIDDLE = (0.5, 0.5, 0.5)  # of mean and deviation: pixels from -1 to 1

Colour = tuple[float, float, float]


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
    config.require("qkv_bias", True)
    config.require("num_channels", CHANNELS)
    mean, deviation = colours(config.path.parent, MIDDLE, MIDDLE)
    model = ViTSettings(
        patch=config.number("patch_size", 16),
        width=config.number("hidden_size", 768),
        heads=config.number("num_attention_heads", 12),
        hidden=config.number("intermediate_size", 3072),
        layers=config.number("num_hidden_layers", 12),
        class_position=True,
        activation=config.choice("hidden_act", ACTIVATIONS, "gelu"),  # type: ignore[arg-type]
        mean=mean,
        deviation=deviation,
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
        "first_norm": model.first_norm,
    }
    require_plain("ViT", wrong)
    return {
        "hidden_size": model.width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "intermediate_size": model.hidden,
        "hidden_act": their_activation(model.activation),
        "hidden_dropout_prob": model.dropout,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": model.epsilon or 1e-5,
        "image_size": task.size,
        "patch_size": model.patch,
        "num_channels": CHANNELS,
        "qkv_bias": True,
    }


def of_pictures(folder: Path) -> tuple[Path, dict[str, Any]]:
    """What a folder says of how images become numbers, and in which file; nothing where it does not."""
    path = next((path for name in (PICTURES, PROCESSOR) if (path := folder / name).is_file()), None)
    if path is None:
        return folder / PICTURES, {}
    said: dict[str, Any] = read_json(path)
    return path, said.get("image_processor", said)


def colours(folder: Path, mean: Colour, deviation: Colour) -> tuple[Colour, Colour]:
    """Mean and deviation of the pixels, from 0 to 1, that a folder says it wants; where it does not, those given."""
    path, said = of_pictures(folder)
    if not said.get("do_rescale", True) or abs(said.get("rescale_factor", 1 / 255) * 255 - 1) > 1e-6:
        raise SaccadeError(f"{path}: do_rescale and rescale_factor must make pixels from 0 to 1 of bytes")
    if not said.get("do_normalize", True):
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    found = [said.get(key) or usual for key, usual in (("image_mean", mean), ("image_std", deviation))]
    for key, value in zip(("image_mean", "image_std"), found, strict=True):
        if len(value) != CHANNELS or not all(isinstance(each, int | float) for each in value):
            raise SaccadeError(f"{path}: {key} must be {CHANNELS} numbers; got {value!r}")
    middle, spread = (tuple(map(float, value)) for value in found)
    return middle, spread  # type: ignore[return-value]


def pictures_for(processor: str, settings: ViTSettings, task: Any) -> dict[str, dict[str, Any]]:
    """The file that says how pixels become numbers: whole images made square, or their middle, as here."""
    side = {"height": task.size, "width": task.size}
    said = {"image_processor_type": processor, "do_resize": True, "size": side}
    said |= {"resample": BICUBIC, "do_center_crop": False, "do_rescale": True, "do_normalize": True}
    if task.fit == "crop":  # which only this one of theirs can do
        said |= {"image_processor_type": "CLIPImageProcessor", "do_center_crop": True}
        said |= {"size": {"shortest_edge": task.size}, "crop_size": side}
    return {PICTURES: {**said, "image_mean": list(settings.mean), "image_std": list(settings.deviation)}}


def pictures(recipe: Recipe) -> dict[str, dict[str, Any]]:
    assert isinstance(recipe.model, ViTSettings)
    return pictures_for("ViTImageProcessor", recipe.model, recipe.task)


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
