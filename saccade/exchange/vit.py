"""The Vision Transformer (Dosovitskiy et al. 2021): ViTForImageClassification is our `vit` with a class token."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from saccade.config import Recipe
from saccade.config.images import ClassifyImagesSettings, Fit, ViTSettings
from saccade.errors import SaccadeError
from saccade.exchange.architecture import ACTIVATIONS, NO_DATA, Architecture, Sizes, require_plain, their_activation
from saccade.exchange.folder import Config, read_json
from saccade.exchange.rules import Rule, Table, linear, same, shaped
from saccade.models.shapes import EncoderOnly

PICTURES, PROCESSOR = "preprocessor_config.json", "processor_config.json"
CHANNELS = 3
BILINEAR, BICUBIC = 2, 3  # numbers of `resample`
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
    pictures = of_pictures(config.path.parent)
    mean, deviation = colours(pictures, MIDDLE, MIDDLE)
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
    size, fit = config.number("image_size", 224), fit_of(pictures, cropped=False)
    return Recipe(task=ClassifyImagesSettings(data=NO_DATA, size=size, fit=fit), model=model)


def notes(config: Config) -> list[str]:
    pictures, size = of_pictures(config.path.parent), config.number("image_size", 224)
    return otherwise_prepared(pictures, size, cropped=False, resample=BILINEAR)


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


def of_pictures(folder: Path) -> Config:
    """What a folder says of how images become numbers; nothing where it does not."""
    path = next((path for name in (PICTURES, PROCESSOR) if (path := folder / name).is_file()), None)
    said = Config(path or folder / PICTURES, read_json(path) if path else {})
    return said if said.values.get("image_processor") is None else said.inside("image_processor")


def colours(pictures: Config, mean: Colour, deviation: Colour) -> tuple[Colour, Colour]:
    """Mean and deviation of the pixels, from 0 to 1, that a folder says it wants; where it does not, those given."""
    factor = pictures.real("rescale_factor", 1 / 255)
    if not pictures.truth("do_rescale", True) or abs(factor * 255 - 1) > 1e-6:
        raise SaccadeError(f"{pictures.path}: do_rescale and rescale_factor must make pixels from 0 to 1 of bytes")
    if not pictures.truth("do_normalize", True):
        return (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    return _of_channels(pictures, "image_mean", mean), _of_channels(pictures, "image_std", deviation)


def _of_channels(pictures: Config, key: str, usual: Colour) -> Colour:
    """A number for each channel, or one for all."""
    value = pictures.values.get(key)
    found = usual if value is None else value if isinstance(value, list) else [value] * CHANNELS
    if len(found) != CHANNELS or any(isinstance(each, bool) or not isinstance(each, int | float) for each in found):
        raise SaccadeError(f"{pictures.path}: {key} must be {CHANNELS} numbers, or one for all; got {value!r}")
    return tuple(map(float, found))  # type: ignore[return-value]


def fit_of(pictures: Config, *, cropped: bool) -> Fit:
    """How images of another shape are made square; `cropped`, theirs cuts unless it is told otherwise."""
    return "crop" if pictures.truth("do_center_crop", cropped) else "stretch"


def otherwise_prepared(pictures: Config, size: int, *, cropped: bool, resample: int) -> list[str]:
    """How images of another size become other numbers than with theirs, which has those defaults."""
    keys = ("size", "crop_size") if fit_of(pictures, cropped=cropped) == "crop" else ("size",)
    said = {key: value for key in keys if (value := pictures.values.get(key)) is not None}
    sides = {key: set(value.values()) if isinstance(value, dict) else {value} for key, value in said.items()}
    notes = [
        f"{pictures.path}: {key} is {said[key]}; images are made {size} pixels wide and high at once here"
        for key in said
        if sides[key] != {size}
    ]
    if pictures.values and (found := pictures.number("resample", resample)) != BICUBIC:
        notes.append(f"{pictures.path}: resample is {found}; images are always resized by {BICUBIC}, bicubic, here")
    return notes


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
    notes=notes,
)
