"""CLIP (Radford et al. 2021): CLIPModel is our `clip` with a class token on the one side and causal text on the other.

A text is known by its end mark, which is its last token here and the first of that id there.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from saccade.config import Recipe
from saccade.config.images import ClipSettings, ContrastSettings, TextEncoderSettings, ViTSettings
from saccade.data.lexicon import PUBLISHED, Lexicon
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
from saccade.exchange.rules import Rule, Table, ignored, linear, same
from saccade.exchange.tokens import read_lexicon
from saccade.exchange.vit import (
    BICUBIC,
    CHANNELS,
    colours,
    fit_of,
    of_pictures,
    otherwise_prepared,
    pictures_for,
    squares,
)
from saccade.models.shapes import DualEncoder

TEXT, VISION = "text_config", "vision_config"
# of pixels from 0 to 1, where a folder does not say otherwise
MEAN, DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
UNSAID = 2  # an end of text that old files name wrongly; the largest id of a text is meant


def blocks(theirs: str, ours: str) -> list[Rule]:
    theirs, ours = f"{theirs}.encoder.layers.{{n}}", f"{ours}.stack.blocks.{{n}}"
    return [
        *linear(f"{theirs}.layer_norm1", f"{ours}.around_attention.norm"),
        *linear(f"{theirs}.self_attn.q_proj", f"{ours}.attention.query"),
        *linear(f"{theirs}.self_attn.k_proj", f"{ours}.attention.key"),
        *linear(f"{theirs}.self_attn.v_proj", f"{ours}.attention.value"),
        *linear(f"{theirs}.self_attn.out_proj", f"{ours}.attention.output"),
        *linear(f"{theirs}.layer_norm2", f"{ours}.around_feed_forward.norm"),
        *linear(f"{theirs}.mlp.fc1", f"{ours}.feed_forward.expand"),
        *linear(f"{theirs}.mlp.fc2", f"{ours}.feed_forward.contract"),
    ]


TABLE = Table.of(
    same("clip.text_model.embeddings.token_embedding.weight", "right.embedding.weight"),
    same("clip.text_model.embeddings.position_embedding.weight", "right.embedding.positions.table"),
    blocks("clip.text_model", "right"),
    linear("clip.text_model.final_layer_norm", "right.stack.norm"),
    same("clip.vision_model.embeddings.class_embedding", "left.gather"),
    squares("clip.vision_model.embeddings.patch_embedding.weight", "left.patches.project.weight"),
    [
        Rule(
            "clip.vision_model.embeddings.position_embedding.weight",
            ("left.gather_at", "left.positions.cells.table"),
            lambda table: (table[0], table[1:]),
            lambda parts: torch.cat([parts[0][None], parts[1]]),
        )
    ],
    linear("clip.vision_model.pre_layrnorm", "left.first_norm"),
    blocks("clip.vision_model", "left"),
    linear("clip.vision_model.post_layernorm", "left.stack.norm"),
    same("clip.visual_projection.weight", "project_left.weight"),
    same("clip.text_projection.weight", "project_right.weight"),
    same("clip.logit_scale", "log_scale"),
    ignored("clip.text_model.embeddings.position_ids", "clip.vision_model.embeddings.position_ids"),
    prefix="clip.",
)


def part_of(config: Config, name: str) -> Config:
    """What is said of texts or of images; some files say it twice, and the second counts."""
    return config.inside(f"{name}_dict" if config.values.get(f"{name}_dict") else name)


def recipe(config: Config, names: Collection[str]) -> Recipe:  # noqa: ARG001
    text, vision = part_of(config, TEXT), part_of(config, VISION)
    vision.require("num_channels", CHANNELS)
    pictures = of_pictures(config.path.parent)
    mean, deviation = colours(pictures, MEAN, DEVIATION)
    model = ClipSettings(
        image=ViTSettings(
            patch=vision.number("patch_size", 32),
            width=vision.number("hidden_size", 768),
            heads=vision.number("num_attention_heads", 12),
            hidden=vision.number("intermediate_size", 3072),
            layers=vision.number("num_hidden_layers", 12),
            class_position=True,
            first_norm=True,
            activation=vision.choice("hidden_act", ACTIVATIONS, "quick_gelu"),  # type: ignore[arg-type]
            mean=mean,
            deviation=deviation,
            epsilon=vision.real("layer_norm_eps", 1e-5),
            dropout=0.0,
        ),
        text=TextEncoderSettings(
            width=text.number("hidden_size", 512),
            heads=text.number("num_attention_heads", 8),
            hidden=text.number("intermediate_size", 2048),
            layers=text.number("num_hidden_layers", 12),
            causal=True,
            positions="learned",
            activation=text.choice("hidden_act", ACTIVATIONS, "quick_gelu"),  # type: ignore[arg-type]
            epsilon=text.real("layer_norm_eps", 1e-5),
            dropout=0.0,
        ),
        pool="class",
        width=config.number("projection_dim", 512),
    )
    size, longest = vision.number("image_size", 224), text.number("max_position_embeddings", 77)
    fit = fit_of(pictures, cropped=True)
    return Recipe(task=ContrastSettings(data=NO_DATA, size=size, fit=fit, longest=longest), model=model)


def notes(config: Config) -> list[str]:
    pictures, size = of_pictures(config.path.parent), part_of(config, VISION).number("image_size", 224)
    return otherwise_prepared(pictures, size, cropped=True, resample=BICUBIC)


def lexicon(folder: Path, config: Config) -> Lexicon:
    """The tokenizer, whose end of text must be where they look for it. Marks are known by their names: ids of them in
    config.json are often of another tokenizer."""
    text, published = part_of(config, TEXT), PUBLISHED["clip"]
    size = text.number("vocab_size", published.end + 1)
    found = read_lexicon(folder, Config(config.path, {"vocab_size": size}))
    said = text.id("eos_token_id")
    end = published.end if said is None else said
    end = max(found.tokenizer.get_vocab().values()) if end == UNSAID else end
    if found.marks.end != end:
        raise SaccadeError(
            f"{folder}: texts end with the id {found.marks.end} for the tokenizer and {end} for the model"
        )
    return found


def config_of(recipe: Recipe, sizes: Sizes) -> dict[str, Any]:
    model, task = recipe.model, recipe.task
    assert isinstance(model, ClipSettings) and isinstance(task, ContrastSettings)
    image, text, marks = model.image, model.text, sizes.marks
    vit = image if isinstance(image, ViTSettings) else None
    wrong = {
        "vocabulary without marks around a text (set task.vocabulary)": marks is None,
        f"end of text with the id {UNSAID}": marks is not None and marks["end"] == UNSAID,
        f"pool {model.pool}": model.pool != "class",
        f"image encoder {image.kind}": vit is None,
        "images without a class_position": vit is not None and not vit.class_position,
        "images without a first_norm": vit is not None and not vit.first_norm,
        "grid positions of images": vit is not None and vit.positions != "learned",
        "text that is not causal": not text.causal,
        f"text positions {text.positions}": text.positions != "learned",
    }
    require_plain("CLIP", wrong)
    assert vit is not None and marks is not None
    return {
        "projection_dim": model.width,
        TEXT: {
            "model_type": "clip_text_model",
            "vocab_size": sizes.vocabulary,
            "max_position_embeddings": task.longest,
            "bos_token_id": marks["start"],
            "eos_token_id": marks["end"],
            "pad_token_id": marks["pad"],
            **_encoder(text, model.width),
        },
        VISION: {
            "model_type": "clip_vision_model",
            "image_size": task.size,
            "patch_size": vit.patch,
            "num_channels": CHANNELS,
            **_encoder(vit, model.width),
        },
    }


def _encoder(settings: TextEncoderSettings | ViTSettings, width: int) -> dict[str, Any]:
    return {
        "hidden_size": settings.width,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.hidden,
        "hidden_act": their_activation(settings.activation),
        "layer_norm_eps": settings.epsilon or 1e-5,
        "attention_dropout": 0.0,
        "projection_dim": width,
    }


def pictures(recipe: Recipe) -> dict[str, dict[str, Any]]:
    assert isinstance(recipe.model, ClipSettings) and isinstance(recipe.model.image, ViTSettings)
    return pictures_for("CLIPImageProcessor", recipe.model.image, recipe.task)


def probe(model: DualEncoder, recipe: Recipe, sizes: Sizes, draw: Generator) -> Tensor:
    side = getattr(recipe.task, "size", 0)
    images = model.embed_left(torch.randn(2, CHANNELS, side, side, generator=draw))
    return model(images, model.embed_right(*random_ids(recipe, sizes, draw)))


MODEL = Architecture(
    "CLIPModel",
    "clip",
    lambda _: TABLE,
    recipe,
    probe,
    config_of,
    lexicon=lexicon,
    framed=True,
    bare=True,
    files=pictures,
    notes=notes,
)
