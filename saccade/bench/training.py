"""Target tokens per second in training, side by side with what others would train: `saccade bench train`.

Everybody makes whole updates of the same model on the same random tokens, none of them padding: forward, backward,
gradients clipped to norm 1, fused AdamW; label smoothing 0.1, dropout 0.1 after the embedding, inside the feed-forward
layers and after every sublayer. One table of tokens for source, target and output, norms after the residuals as in
Vaswani et al. (2017). Nobody drops attention weights, so that everybody may use the fused kernel; each is tried with
one thread and with all, and its better figure counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from saccade.bench.measure import alone, circumstances, interleaved, warn_if_busy
from saccade.bench.peers import Work, with_threads
from saccade.config import Recipe
from saccade.config.models import TransformerSettings
from saccade.config.tasks import RearrangeSettings
from saccade.config.training import TrainSettings
from saccade.data.vocab import SPECIALS
from saccade.errors import SaccadeError
from saccade.models.shapes import parameter_count
from saccade.nn.positions import Sinusoidal
from saccade.tasks.pairs import Pair, collate_pairs
from saccade.tasks.rearrange import Rearrange
from saccade.train.distributed import World
from saccade.train.optim import make_optimizer
from saccade.train.update import Updater

ROUNDS = 5
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


SIZES = {
    "tiny": Size(4, 128, 256, 4, 10_000, rows=128, positions=32, goal=1.5),
    "base": Size(6, 512, 2048, 8, 32_000, rows=32, positions=32, goal=1.2),
}
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


@dataclass(frozen=True)
class Speed:
    """One contestant with the number of threads that suits it better."""

    contestant: str
    parameters: int
    tokens: float  # per second, of the best round
    median: float  # the same of the median round
    threads: int
    multiple: float | None  # of the best float32 peer


@dataclass(frozen=True)
class Training:
    """All that `saccade bench train` found out."""

    speeds: tuple[Speed, ...]
    missing: dict[str, str]  # contestants that could not take part, and why
    settings: dict[str, Any]
    circumstances: dict[str, Any]

    def content(self) -> dict[str, Any]:
        return asdict(self)


def named_size(name: str) -> Size:
    if name not in SIZES:
        raise SaccadeError(f"--size {name}: there are {' and '.join(SIZES)}")
    return SIZES[name]


def measure(size: Size, *, rounds: int = ROUNDS, tell: Callable[[str], None] = lambda _: None) -> Training:
    """Let everybody who is installed train; `tell` hears of each round that is done."""
    missing = {name: why for name, each in CONTESTANTS.items() if (why := absence(each))}
    there = {name: each for name, each in CONTESTANTS.items() if name not in missing}
    libraries = sorted({each.library for each in there.values()})
    settings = asdict(size) | {"rounds": rounds, "smoothing": SMOOTHING, "dropout": DROPOUT, "clip": CLIP}
    settings |= {"versions": {library: version(library) for library in libraries}}
    prepared = {}
    for name, contestant in there.items():
        torch.manual_seed(1)
        prepared[name] = contestant.prepare(size)
    before = torch.get_num_threads()
    works = {
        (name, threads): with_threads(threads, work)
        for name, (_, work) in prepared.items()
        for threads in sorted({1, before})
    }
    warn_if_busy()
    with alone():
        around = circumstances()
        try:
            timings = interleaved(works, rounds=rounds, tell=tell)
        finally:
            torch.set_num_threads(before)
    best = {name: min((t.best, t.median, key[1]) for key, t in timings.items() if key[0] == name) for name in prepared}
    peer = fastest_peer({name: size.tokens / seconds for name, (seconds, _, _) in best.items()})
    speeds = [
        Speed(
            contestant=name,
            parameters=trained_parameters(prepared[name][0]),
            tokens=size.tokens / seconds,
            median=size.tokens / median,
            threads=threads,
            multiple=None if peer is None else size.tokens / seconds / peer,
        )
        for name, (seconds, median, threads) in best.items()
    ]
    return Training(tuple(speeds), missing, settings, around)


def absence(contestant: Contestant) -> str | None:
    """Why it cannot take part, in words."""
    if find_spec(contestant.library) is not None:
        return None
    return f"not installed: pip install 'saccade[{contestant.extra}]'"


def fastest_peer(tokens: Mapping[str, float]) -> float | None:
    """Tokens per second of the best of the others in float32."""
    return max((speed for name, speed in tokens.items() if not CONTESTANTS[name].ours), default=None)


def trained_parameters(model: nn.Module) -> int:
    """How many numbers are learned: tables of positions that are only kept as parameters do not count."""
    return parameter_count(model) - sum(p.numel() for p in model.parameters() if not p.requires_grad)


def to_table(training: Training) -> Table:
    """A row for each contestant, in float32 unless it says otherwise, those that are not installed included."""
    goal = training.settings["goal"]
    notes = [f"{CONTESTANTS[name].label} is {why}" for name, why in training.missing.items()]
    notes += [] if goal is None else [f"goal: saccade at least {goal:g} x the best peer"]
    table = Table("trained by", box=None, pad_edge=False, caption=Text("\n".join(notes)), caption_justify="left")
    for heading in ("parameters", "threads", "tokens/s", "median", "x best peer"):
        table.add_column(heading, justify="right")
    speeds = {speed.contestant: speed for speed in training.speeds}
    for name, contestant in CONTESTANTS.items():
        if name in training.missing:
            table.add_row(contestant.label, "not installed")
            continue
        speed = speeds[name]
        table.add_row(
            contestant.label,
            f"{speed.parameters:,}",
            str(speed.threads),
            f"{speed.tokens:,.0f}",
            f"{speed.median:,.0f}",
            "-" if speed.multiple is None else f"{speed.multiple:.2f}",
        )
    return table
