"""The layout of CTranslate2 (Klein et al. 2020, OpenNMT): what it calls our tensors, and the bytes of model.bin.

model.bin = version, name and revision of the layout, then each tensor with its name, shape and type, then aliases
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from saccade.config import Recipe
from saccade.config.language import BERTSettings, GPTSettings
from saccade.config.models import TransformerSettings
from saccade.exchange.architecture import longest_text
from saccade.models.bert import BERTEncoder
from saccade.models.transformer import TransformerDecoder, TransformerEncoder
from saccade.nn.attention import Attention
from saccade.nn.positions import Learned, Rotary
from saccade.nn.stack import Block

Variables = dict[str, Tensor]

VERSION = 6
TYPES = {torch.float32: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3}
ACTIVATIONS = {"relu": 0, "gelu_tanh": 1, "silu": 2, "gelu": 3, "quick_gelu": 4, "tanh": 5, "sigmoid": 6}
GATED = {"reglu": 0, "swiglu": 2, "geglu": 3, "glu": 6}
LONGEST = 1024  # positions of a table that we could go on with for ever; the library cuts inputs there anyway
ADD = 1  # how tokens and segments are merged


def variables(model: Any, recipe: Recipe) -> Variables:
    """All tensors and settings under the names of the layout."""
    found = (
        _of_encoder(encoder_of(model), recipe) if isinstance(recipe.model, BERTSettings) else _of_decoder(model, recipe)
    )
    return {name: each.detach().float() if each.is_floating_point() else each for name, each in sorted(found.items())}


def encoder_of(model: Any) -> BERTEncoder:
    """The body of a model of texts."""
    return getattr(model, "body", None) or model.encoder


def _of_encoder(encoder: BERTEncoder, recipe: Recipe) -> Variables:
    """An encoder alone, with the layer that sums a text up where there is one."""
    found = {
        **_under("encoder", _side(encoder, recipe, longest_text(recipe))),
        **_under("encoder/embeddings_0", {"weight": encoder.embedding.weight}),
        **_under("encoder/embeddings_1", {"weight": encoder.segments.weight}),
        **_under("encoder/layernorm_embedding", _norm(encoder.norm)),
        "encoder/embeddings_merge": torch.tensor(ADD, dtype=torch.int8),
    }
    if encoder.pooler is not None:
        found |= _under("pooler_dense", _linear(encoder.pooler))
        found["pooler_activation"] = torch.tensor(ACTIVATIONS["tanh"], dtype=torch.int8)
    return found


def _of_decoder(model: Any, recipe: Recipe) -> Variables:
    """A decoder, and an encoder where there is one."""
    decoder, longest = model.decoder, max(LONGEST, longest_text(recipe))
    projection = {"weight": model.output.weight} | ({} if model.output.bias is None else {"bias": model.output.bias})
    found = {
        **_under("decoder", _side(decoder, recipe, longest)),
        **_under("decoder/embeddings", {"weight": decoder.embedding.weight}),
        **_under("decoder/projection", projection),
        "decoder/alignment_layer": torch.tensor(-1, dtype=torch.int16),
        "decoder/alignment_heads": torch.tensor(0, dtype=torch.int16),  # the mean of all heads
        "decoder/start_from_zero_embedding": _truth(False),
    }
    if recipe.task.kind == "translate":
        found |= _under("encoder", _side(model.encoder, recipe, longest))
        found |= _under("encoder/embeddings_0", {"weight": model.encoder.embedding.weight})
    return found


def _side(side: TransformerEncoder | TransformerDecoder | BERTEncoder, recipe: Recipe, longest: int) -> Variables:
    """Positions, blocks and last norm of an encoder or decoder, and what they have in common."""
    model, embedding, stack = recipe.model, side.embedding, side.stack
    assert isinstance(model, TransformerSettings | GPTSettings | BERTSettings)
    found = {
        "num_heads": torch.tensor(model.heads, dtype=torch.int16),
        "pre_norm": _truth(stack.norm is not None),
        "activation": torch.tensor((ACTIVATIONS | GATED)[model.activation], dtype=torch.int8),
        "scale_embeddings": _truth(embedding.scaled),
    }
    if getattr(model, "positions", "learned") != "rotary":
        # without a table the library would add sines of its own, which are others
        places = embedding.positions
        count = places.longest if isinstance(places, Learned) else longest
        at = torch.arange(count)
        table = embedding.weight.new_zeros(count, model.width) if places is None else places(at, count)
        found["position_encodings/encodings"] = table
    if stack.norm is not None:
        found |= _under("layer_norm", _norm(stack.norm))
    for number, block in enumerate(stack.blocks):
        found |= _under(f"layer_{number}", _block(block))
    return found


def _block(block: Block) -> Variables:
    attention, feed_forward = block.attention, block.feed_forward
    found = {
        **_under("self_attention", _attention(attention)),
        **_under("self_attention/layer_norm", _norm(block.around_attention.norm)),
        **_under("self_attention/linear_0", _linear(attention.query, attention.key, attention.value)),
        **_under("self_attention/linear_1", _linear(attention.output)),
        **_under("ffn/layer_norm", _norm(block.around_feed_forward.norm)),
        **_under("ffn/linear_0", _linear(feed_forward.gate or feed_forward.expand)),
        **_under("ffn/linear_1", _linear(feed_forward.contract)),
    }
    if feed_forward.gate is not None:
        found |= _under("ffn/linear_0_noact", _linear(feed_forward.expand))
    if (cross := block.cross) is not None and block.around_cross is not None:
        found |= _under("attention/layer_norm", _norm(block.around_cross.norm))
        found |= _under("attention/linear_0", _linear(cross.query))
        found |= _under("attention/linear_1", _linear(cross.key, cross.value))
        found |= _under("attention/linear_2", _linear(cross.output))
    return found


def _attention(attention: Attention) -> Variables:
    """Settings that an attention has of its own."""
    found: Variables = {}
    if attention.kv_heads != attention.heads:
        found["num_heads_kv"] = torch.tensor(attention.kv_heads, dtype=torch.int32)
    if isinstance(attention.positions, Rotary):
        found["rotary_dim"] = torch.tensor(0, dtype=torch.int32)  # all columns
        found["rotary_interleave"] = _truth(attention.positions.layout == "interleaved")
        found["rotary_base"] = torch.tensor(10_000.0)
    return found


def _linear(*maps: nn.Module) -> Variables:
    """One linear map, or several as one."""
    return {part: torch.cat([getattr(each, part) for each in maps]) for part in ("weight", "bias")}


def _norm(norm: nn.Module) -> Variables:
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    found: Variables = {"gamma": norm.weight}
    return found | {"beta": norm.bias} if isinstance(norm, nn.LayerNorm) else found


def _truth(value: bool) -> Tensor:
    return torch.tensor(value, dtype=torch.int8)


def _under(scope: str, variables: Variables) -> Variables:
    return {f"{scope}/{name}": each for name, each in variables.items()}


def encoded(tensors: Variables, layout: str, revision: int) -> Iterator[bytes | memoryview]:
    """model.bin piece by piece; a table that is there already is written as an alias."""
    aliases: dict[str, str] = {}
    tables: Variables = {}
    for name, each in tensors.items():
        if each.dim() == 2:
            same = (other for other, table in tables.items() if torch.equal(table, each))
            first = next(same, None)
            if first is None:
                tables[name] = each
            else:
                aliases[name] = first
    yield struct.pack("<I", VERSION) + _string(layout) + struct.pack("<II", revision, len(tensors) - len(aliases))
    for name, each in tensors.items():
        if name not in aliases:
            size = each.numel() * each.element_size()
            shape = struct.pack(f"<B{each.dim()}I", each.dim(), *each.shape)
            yield _string(name) + shape + struct.pack("<BI", TYPES[each.dtype], size)
            yield each.contiguous().reshape(-1).view(torch.uint8).numpy().data
    yield struct.pack("<I", len(aliases)) + b"".join(map(_string, (part for pair in aliases.items() for part in pair)))


def _string(text: str) -> bytes:
    return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"
