"""Every attention and every model that the laws are checked on, small, in float64 and in eval mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade import models
from saccade.config.captions import CaptionTransformerSettings, ShowAttendTellSettings
from saccade.config.images import ClipSettings, CNNSettings, TextEncoderSettings, ViTSettings
from saccade.config.interaction import ShowAttendInteractSettings
from saccade.config.language import BERTSettings, GPTSettings, RecurrentLanguageSettings, XLNetSettings
from saccade.config.models import (
    BahdanauSettings,
    ConvolutionalSettings,
    LuongSettings,
    SutskeverSettings,
    TransformerSettings,
)
from saccade.config.questions import StackedAttentionSettings, VQATransformerSettings
from saccade.config.sound import ListenAttendSpellSettings, SpeechTransformerSettings
from saccade.config.walks import ListenAttendWalkSettings
from saccade.models import ACTORS, CAPTIONERS, CONTRASTIVE_MODELS, IMAGE_CLASSIFIERS, MODELS, SPEECH_MODELS, WALKERS
from saccade.models.ask_attend_answer import Answerer
from saccade.models.shapes import DualEncoder, Encoder, EncoderDecoder, EncoderOnly, LanguageModel, Memory
from saccade.models.transformer import TransformerEncoder, make_embedding, make_stack
from saccade.nn.attention import Attention, Projections
from saccade.nn.layers import Embedding, Output
from saccade.nn.positions import RelativeBias, Rotary
from saccade.nn.scores import Additive, Bilinear, Dot, Gaussian, RelativeDot

VOCABULARY = 11
WIDTH = 8
IMAGE_SIZE = 12

ATTENTIONS: dict[str, Callable[..., Attention]] = {
    "scaled dot": lambda **more: Attention(WIDTH, heads=2, **more),
    "one head": lambda **more: Attention(WIDTH, **more),
    "grouped": lambda **more: Attention(WIDTH, heads=4, kv_heads=2, **more),
    "one key-value head": lambda **more: Attention(WIDTH, heads=4, kv_heads=1, **more),
    "narrow values": lambda **more: Attention(WIDTH, heads=2, project=Projections(value_width=3), **more),
    "no projections": lambda **more: Attention(
        WIDTH, heads=2, project=Projections(query=False, key=False, value=False, output=False), **more
    ),
    "dot": lambda **more: Attention(WIDTH, heads=2, score=Dot(), **more),
    "additive": lambda **more: Attention(WIDTH, heads=2, score=Additive(4, heads=2), **more),
    "bilinear": lambda **more: Attention(WIDTH, heads=2, score=Bilinear(4, 4, heads=2), **more),
    "gaussian": lambda **more: Attention(WIDTH, heads=2, score=Gaussian(0.7, heads=2), **more),
    "rotary": lambda **more: Attention(WIDTH, heads=2, positions=Rotary(4), **more),
    "relative": lambda **more: Attention(WIDTH, heads=2, positions=RelativeBias(2, reach=3), **more),
    "relative dot": lambda **more: Attention(WIDTH, heads=2, score=RelativeDot(4, heads=2, width=6), **more),
}

_SMALL = {"width": WIDTH, "hidden": 6}
_GRID = CNNSettings(width=WIDTH, stages=1)
_TRANSFORMER = {"width": WIDTH, "heads": 2, "hidden": 12, "encoder_layers": 2, "decoder_layers": 2}

SEQUENCE_MODELS: dict[str, Any] = {
    "sutskever once": SutskeverSettings(**_SMALL),
    "sutskever each": SutskeverSettings(**_SMALL, cell="lstm", layers=2, context="each"),
    "sutskever plain": SutskeverSettings(**_SMALL, cell="rnn", bidirectional=False),
    "bahdanau": BahdanauSettings(**_SMALL),
    "bahdanau deep": BahdanauSettings(**_SMALL, cell="lstm", layers=2),
    "luong": LuongSettings(**_SMALL),
    "luong dot": LuongSettings(**_SMALL, score="dot", feed=False, layers=2),
    "luong additive": LuongSettings(**_SMALL, score="additive", cell="gru"),
    "convolutional": ConvolutionalSettings(width=WIDTH, layers=2, kernel=3, heads=2, longest=40),
    "transformer": TransformerSettings(**_TRANSFORMER),
    "transformer post": TransformerSettings(**_TRANSFORMER, order="post", tie="all", layout="interleaved"),
    "transformer learned": TransformerSettings(**_TRANSFORMER, positions="learned", longest=40, activation="gelu"),
    "transformer modern": TransformerSettings(
        **_TRANSFORMER, positions="rotary", norm="rms", activation="swiglu", kv_heads=1
    ),
    "transformer relative": TransformerSettings(**_TRANSFORMER, positions="relative", tie="none"),
    "transformer beside": TransformerSettings(**_TRANSFORMER, combine="concatenate", tie="none"),
    "listen, attend and spell": ListenAttendSpellSettings(**_SMALL, listener=5, halvings=1),
    "listen, attend and spell deep": ListenAttendSpellSettings(**_SMALL, listener=5, halvings=2, layers=2, cell="gru"),
    "speech transformer": SpeechTransformerSettings(**_TRANSFORMER),
    "show, attend and tell": ShowAttendTellSettings(**_SMALL, image=_GRID),
    "show, attend and tell deep": ShowAttendTellSettings(**_SMALL, image=_GRID, layers=2, cell="gru", gate=False),
    "show and tell": ShowAttendTellSettings(**_SMALL, image=_GRID, attend=False),
    "caption transformer": CaptionTransformerSettings(**_SMALL, image=_GRID, heads=2, layers=2),
    "listen, attend and walk": ListenAttendWalkSettings(**_SMALL),
    "listen, attend and walk deep": ListenAttendWalkSettings(**_SMALL, layers=2, cell="gru"),
    "listen and walk": ListenAttendWalkSettings(**_SMALL, attend=False),
    "caption transformer projected": CaptionTransformerSettings(width=12, hidden=6, image=_GRID, heads=2, layers=1),
}

_VIT = {"patch": 4, "width": WIDTH, "heads": 2, "hidden": 12, "layers": 2}
_TEXT = TextEncoderSettings(width=WIDTH, heads=2, hidden=12, layers=1)

_ACTOR: dict[str, Any] = {"width": WIDTH, "heads": 2, "hidden": 12, "image": CNNSettings(width=6, stages=2)}

IMAGE_MODELS: dict[str, Any] = {
    "vit": ViTSettings(**_VIT),
    "vit without class": ViTSettings(**_VIT, class_token=False, positions="grid"),
    "cnn": CNNSettings(width=6, stages=2),
    "cnn with attention": CNNSettings(width=WIDTH, stages=2, attention=True),
    "show, attend and interact": ShowAttendInteractSettings(**_ACTOR),
    "show and interact": ShowAttendInteractSettings(**_ACTOR, attend=False),
}

CONTRASTIVE: dict[str, ClipSettings] = {
    "clip": ClipSettings(image=CNNSettings(width=6, stages=2, attention=True), text=_TEXT, width=5),
    "clip vit": ClipSettings(image=ViTSettings(**_VIT, class_token=False), text=_TEXT, width=5),
    "clip as published": ClipSettings(
        image=ViTSettings(**_VIT, class_position=True, first_norm=True, activation="quick_gelu", mean=(0.4, 0.5, 0.6)),
        text=_TEXT.model_copy(update={"causal": True, "positions": "learned", "activation": "quick_gelu"}),
        pool="class",
        width=5,
    ),
}

_CELLS = CNNSettings(width=6, stages=2)

ANSWERING: dict[str, Any] = {
    "stacked attention": StackedAttentionSettings(width=WIDTH, image=_CELLS),
    "stacked attention of a gru": StackedAttentionSettings(width=WIDTH, image=_CELLS, cell="gru", hops=1),
    "stacked attention, blind": StackedAttentionSettings(width=WIDTH, sees="question"),
    "vqa transformer": VQATransformerSettings(width=WIDTH, heads=2, hidden=12, layers=2, image=ViTSettings(**_VIT)),
    "vqa transformer, deaf": VQATransformerSettings(width=WIDTH, heads=2, layers=1, image=_CELLS, sees="image"),
}

_GPT = {"width": WIDTH, "heads": 2, "hidden": 12, "layers": 2}

TEXT_MODELS: dict[str, Any] = {
    "bert": BERTSettings(**_GPT),
    "bert of pairs": BERTSettings(**_GPT, next_sentence=True, order="pre"),
    "xlnet": XLNetSettings(**_GPT),
}

LANGUAGE_MODELS: dict[str, Any] = {
    "gpt": GPTSettings(**_GPT),
    "gpt modern": GPTSettings(
        width=WIDTH, heads=4, kv_heads=2, layers=2, positions="rotary", norm="rms", activation="swiglu", tie=False
    ),
    "gpt relative": GPTSettings(**_GPT, positions="relative"),
    "gpt with distances": GPTSettings(**_GPT, positions="distances"),
    "lstm": RecurrentLanguageSettings(**_SMALL, layers=2),
    "lstm with attention": RecurrentLanguageSettings(**_SMALL, attend=True, heads=2),
    "gru with attention": RecurrentLanguageSettings(**_SMALL, cell="gru", attend=True, tie=False),
}


def ready(module: nn.Module) -> Any:
    """float64, eval mode, every parameter drawn anew: zeros as initial values would hide mistakes."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            drawn = torch.randn(parameter.shape, generator=generator) * 0.4
            parameter.copy_(parameter + drawn if parameter.dim() < 2 else drawn)  # scales of norms stay near one
    return module.double().eval()


class Spoken(nn.Module):
    """Every token said aloud, as a frame of its own: what hears obeys the laws of what reads."""

    def __init__(self, encoder: Encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        frames = F.one_hot(source, VOCABULARY).to(next(self.parameters()).dtype)
        return self.encoder(frames, mask)


class Spelled(nn.Module):
    """Every token as a cell of an image: what sees obeys the laws of what reads. A summary that is a mean over cells
    knows their order by what stands in them."""

    def __init__(self, embedding: Embedding):
        super().__init__()
        self.embedding = embedding

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        return Memory(torch.tanh(self.embedding(source)), mask)


def sequence_model(name: str, words: int = VOCABULARY) -> EncoderDecoder:
    """Of those that read and write text, with so many words."""
    settings = SEQUENCE_MODELS[name]
    if settings.kind in SPEECH_MODELS:
        model = SPEECH_MODELS[settings.kind](settings, VOCABULARY, VOCABULARY)
        model.encoder = Spoken(model.encoder)
        return ready(model)
    if settings.kind in CAPTIONERS:
        model = CAPTIONERS[settings.kind](
            settings, VOCABULARY, 2
        )  # a grid of one row, as long as the text that is seen
        model.encoder.image = Spelled(make_embedding(SEQUENCE_MODELS["transformer"], VOCABULARY))
        return ready(model)
    if settings.kind in WALKERS:  # what is read first is the pose in which a walk begins
        return ready(WALKERS[settings.kind](settings, VOCABULARY, *small_world()))
    return ready(MODELS[settings.kind](settings, words, words))


def small_world() -> tuple[Tensor, Tensor]:
    """What is seen from thirteen poses, and where every token leads from each: always somewhere else."""
    poses, tokens = torch.arange(13)[:, None], torch.arange(VOCABULARY)
    return torch.sin(1.0 + poses * (tokens[:5] + 1)), (poses + tokens + 1) % len(poses)


def language_model(name: str) -> LanguageModel:
    settings = LANGUAGE_MODELS[name]
    return ready(models.LANGUAGE_MODELS[settings.kind](settings, VOCABULARY, 40))


def text_model(name: str) -> Any:
    settings = TEXT_MODELS[name]
    return ready(models.TEXT_ENCODERS[settings.kind](settings, VOCABULARY, 12))


def text_outputs(model: Any, text: Tensor, mask: Tensor | None = None) -> list[Tensor]:
    """Everything that a model of text gives: of what is hidden, and of the whole where it is asked for that."""
    if isinstance(model, models.PermutedLanguageModel):
        rank = torch.arange(text.shape[1]).flip(0) % 3 - 1  # context, and two tokens at a time
        return list(model.streams(text, mask, rank.expand_as(text)))
    found = [model(text, mask)]
    return found if model.next_sentence is None else [*found, model.follows(model.encoder(text, mask))[:, None]]


def image_model(name: str) -> Any:
    settings = IMAGE_MODELS[name]
    if settings.kind in ACTORS:
        return ready(ACTORS[settings.kind](settings, 5, 3, IMAGE_SIZE))
    return ready(IMAGE_CLASSIFIERS[settings.kind](settings, 5, IMAGE_SIZE))


def contrastive_model(name: str) -> DualEncoder:
    settings = CONTRASTIVE[name]
    return ready(CONTRASTIVE_MODELS[settings.kind](settings, VOCABULARY, IMAGE_SIZE, 40))


def answering_model(name: str) -> Answerer:
    settings = ANSWERING[name]
    return ready(models.ANSWERERS[settings.kind](settings, VOCABULARY, 5, IMAGE_SIZE))


def encoder_only() -> EncoderOnly:
    settings = SEQUENCE_MODELS["transformer"]
    encoder = TransformerEncoder(make_embedding(settings, VOCABULARY), make_stack(settings, 2))
    return ready(EncoderOnly(encoder, Output(WIDTH, 5), pool="mean"))


def dual_encoder() -> DualEncoder:
    def encoder() -> TransformerEncoder:
        settings = SEQUENCE_MODELS["transformer"]
        return TransformerEncoder(make_embedding(settings, VOCABULARY), make_stack(settings, 1))

    return ready(DualEncoder(encoder(), encoder(), widths=(WIDTH, WIDTH), width=6))


def all_models() -> dict[str, Callable[[], nn.Module]]:
    """Every model, by name, as a function that makes it."""
    makers: dict[str, Callable[[], nn.Module]] = {}
    for name in SEQUENCE_MODELS:
        makers[name] = lambda name=name: sequence_model(name)
    for name in LANGUAGE_MODELS:
        makers[name] = lambda name=name: language_model(name)
    for name in TEXT_MODELS:
        makers[name] = lambda name=name: text_model(name)
    for name in IMAGE_MODELS:
        makers[name] = lambda name=name: image_model(name)
    for name in CONTRASTIVE:
        makers[name] = lambda name=name: contrastive_model(name)
    for name in ANSWERING:
        makers[name] = lambda name=name: answering_model(name)
    return makers | {"encoder only": encoder_only, "dual encoder": dual_encoder}


def vectors(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def pixels(count: int, seed: int = 0) -> Tensor:
    """Images as numbers from -1 to 1: (count, 3, 12, 12)."""
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.rand(count, 3, IMAGE_SIZE, IMAGE_SIZE, dtype=torch.float64, generator=generator) - 1


def tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(3, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


def lengths_mask(lengths: list[int], longest: int) -> Tensor:
    return torch.arange(longest) < torch.tensor(lengths)[:, None]
