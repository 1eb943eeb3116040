"""Whole updates of one Transformer, by us and by others: the contestants of `saccade bench train`.

Every one is the model of Vaswani et al. (2017) with one table of tokens for source, target and output, and norms after
the residuals. Dropout is after the embedding, inside the feed-forward layers and after every sublayer; nobody drops
attention weights, so that everybody may use the fused kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.bench.peers import Work
from saccade.config import Recipe
from saccade.config.models import TransformerSettings
from saccade.config.tasks import RearrangeSettings
from saccade.config.training import TrainSettings
from saccade.data.vocab import SPECIALS
from saccade.errors import to_install
from saccade.nn.positions import Sinusoidal
from saccade.tasks.pairs import Pair, collate_pairs
from saccade.tasks.rearrange import Rearrange
from saccade.train.distributed import World
from saccade.train.optim import make_optimizer
from saccade.train.update import Updater

DROPOUT, SMOOTHING, CLIP, RATE = 0.1, 0.1, 1.0, 1e-4


@dataclass(frozen=True)
class Size:
    """Of a model, as many layers in the encoder as in the decoder, and of its batches."""

    layers: int
    width: int
    hidden: int
    heads: int
    vocabulary: int
    rows: int
    positions: int
    goal: float | None = None  # of saccade in float32, as a multiple of the best peer

    @property
    def tokens(self) -> int:
        return self.rows * self.positions


Prepared = tuple[nn.Module, Work]  # a model, and a call that makes one update of it


@dataclass(frozen=True)
class Contestant:
    """Something that trains a Transformer; it needs a library, which the named extra of the package brings."""

    label: str
    prepare: Callable[[Size], Prepared]
    ours: bool = False
    library: str = "torch"
    extra: str = ""


class Stock(nn.Module):
    """torch.nn.Transformer between one tied table of tokens, with sinusoidal positions."""

    def __init__(self, size: Size):
        super().__init__()
        self.table = nn.Embedding(size.vocabulary, size.width)
        nn.init.normal_(self.table.weight, std=size.width**-0.5)
        self.dropout = nn.Dropout(DROPOUT)
        self.body = nn.Transformer(
            size.width, size.heads, size.layers, size.layers, size.hidden, DROPOUT, batch_first=True
        )
        for module in self.body.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0  # on the weights it rules the fused kernel out
        places = Sinusoidal(size.width)(torch.arange(size.positions), size.positions).float()  # (T, D)
        self.places: Tensor
        self.register_buffer("places", places)
        self.later: Tensor
        self.register_buffer("later", nn.Transformer.generate_square_subsequent_mask(size.positions))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        states = self.body(self._embed(source), self._embed(target), tgt_mask=self.later, tgt_is_causal=True)
        return F.linear(states, self.table.weight)  # (B, T, V)

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.table(tokens) * math.sqrt(self.table.embedding_dim) + self.places)


def pairs_of(size: Size) -> list[Pair]:
    """Random sources and targets; with its end, a target has as many tokens to be predicted as a source has."""
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(len(SPECIALS), size.vocabulary, (2, size.rows, size.positions), generator=draw)
    return list(zip(ids[0].tolist(), ids[1, :, 1:].tolist(), strict=True))


def saccade_update(size: Size, precision: str) -> Prepared:
    """The update of the trainer, with the batches and the loss of a task."""
    recipe = Recipe(
        task=RearrangeSettings(kind="copy", symbols=size.vocabulary - len(SPECIALS)),
        model=TransformerSettings(
            width=size.width,
            heads=size.heads,
            hidden=size.hidden,
            encoder_layers=size.layers,
            decoder_layers=size.layers,
            order="post",
            tie="all",
            dropout=DROPOUT,
        ),
        train=TrainSettings(smoothing=SMOOTHING, clip=CLIP, precision=precision),  # type: ignore[arg-type]
    )
    task = Rearrange(recipe)
    model = task.model().train()
    optimizer = make_optimizer(model, recipe.train.optimizer)
    updater = Updater(task, model, optimizer, pairs_of(size), recipe.train, world=World())
    return model, lambda: updater.make(1, [range(size.rows)], RATE)


def stock(size: Size) -> Prepared:
    model = Stock(size).train()
    return model, peer_update(model, model, size)


def marian(size: Size) -> Prepared:
    transformers: Any = import_module("transformers")
    config = transformers.MarianConfig(
        vocab_size=size.vocabulary,
        d_model=size.width,
        encoder_layers=size.layers,
        decoder_layers=size.layers,
        encoder_attention_heads=size.heads,
        decoder_attention_heads=size.heads,
        encoder_ffn_dim=size.hidden,
        decoder_ffn_dim=size.hidden,
        activation_function="relu",
        max_position_embeddings=size.positions,
        scale_embedding=True,
        dropout=DROPOUT,
        activation_dropout=DROPOUT,
        attention_dropout=0.0,
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
        use_cache=False,
    )
    model = transformers.MarianMTModel(config).train()
    return model, peer_update(
        model, lambda source, target: model(input_ids=source, decoder_input_ids=target).logits, size
    )


def x_transformers(size: Size) -> Prepared:
    library: Any = import_module("x_transformers")
    layers: dict[str, Any] = {
        "dim": size.width,
        "depth": size.layers,
        "heads": size.heads,
        "pre_norm": False,
        "attn_dim_head": size.width // size.heads,
        "attn_flash": True,
        "attn_sublayer_dropout": DROPOUT,
        "ff_mult": size.hidden / size.width,
        "ff_custom_activation": nn.ReLU(),
        "ff_dropout": DROPOUT,
        "ff_sublayer_dropout": DROPOUT,
    }
    around: dict[str, Any] = {
        "num_tokens": size.vocabulary,
        "max_seq_len": size.positions,
        "emb_dropout": DROPOUT,
        "scaled_sinu_pos_emb": True,
    }
    encoder = library.TransformerWrapper(attn_layers=library.Encoder(**layers), return_only_embed=True, **around)
    decoder = library.TransformerWrapper(
        attn_layers=library.Decoder(cross_attend=True, **layers),
        token_emb=encoder.token_emb,
        tie_embedding=True,
        **around,
    )
    model = nn.ModuleList([encoder, decoder]).train()
    return model, peer_update(model, lambda source, target: decoder(target, context=encoder(source)), size)


def peer_update(model: nn.Module, logits_of: Callable[[Tensor, Tensor], Tensor], size: Size) -> Work:
    """A call that makes an update as anybody would write it: `logits_of` (B, S), (B, T) tokens is (B, T, V)."""
    batch = collate_pairs(pairs_of(size), range(size.rows))
    given, wanted = batch.target[:, :-1], batch.target[:, 1:].flatten()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, fused=True)

    def update() -> Tensor:
        logits = logits_of(batch.source, given)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted, label_smoothing=SMOOTHING)
        loss.backward()
        nn.utils.clip_grad_norm_(trained, CLIP)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return update


CONTESTANTS: dict[str, Contestant] = {
    "saccade": Contestant("saccade", lambda size: saccade_update(size, "float32"), ours=True),
    "saccade bfloat16": Contestant("saccade, bfloat16", lambda size: saccade_update(size, "bfloat16"), ours=True),
    "torch": Contestant("torch.nn.Transformer", stock),
    "marian": Contestant("Hugging Face Marian", marian, library="transformers", extra="huggingface"),
    "x-transformers": Contestant("x-transformers", x_transformers, library="x_transformers", extra="bench"),
}


def absence(contestant: Contestant) -> str | None:
    """Why it cannot take part, in words."""
    if find_spec(contestant.library) is not None:
        return None
    return f"not installed: {to_install(contestant.extra)}"
