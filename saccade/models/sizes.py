"""The scaling table of the course as data: every published size with its source, built by the code of any model.

Counts are those of the code, on the meta device; `note` says why they differ from the published figure, where they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from saccade.config.language import BERTSettings, GPTSettings, XLNetSettings
from saccade.config.models import TransformerSettings
from saccade.models.bert import bert
from saccade.models.gpt import gpt
from saccade.models.shapes import parameter_count
from saccade.models.transformer import transformer
from saccade.models.xlnet import xlnet


@dataclass(frozen=True)
class Size:
    """A model as it was published: its settings, its figures, and what it was trained with where that is known."""

    title: str
    year: int
    model: Any  # settings
    vocabulary: int
    longest: int  # tokens of a text
    published: float  # parameters
    source: str
    data: str = ""
    tokens: float | None = None  # seen in training, all epochs; of a translation the target's
    devices: int | None = None
    accelerator: str = ""
    days: float | None = None
    note: str = ""


def _gpt(width: int, heads: int, layers: int, **more: Any) -> GPTSettings:
    return GPTSettings(width=width, heads=heads, layers=layers, **more)


_BASE: dict[str, Any] = {"positions": "sinusoidal", "order": "post", "tie": "all", "activation": "relu"}
_GPT2 = "Radford et al. 2019"

SIZES: dict[str, Size] = {
    "transformer-base": Size(
        "Transformer base",
        2017,
        TransformerSettings(width=512, heads=8, hidden=2048, encoder_layers=6, decoder_layers=6, **_BASE),
        37_000,
        512,
        65e6,
        "Vaswani et al. 2017, arXiv:1706.03762",
        data="WMT 2014 English-German, 4.5M pairs",
        tokens=100_000 * 25_000,
        devices=8,
        accelerator="P100",
        days=0.5,
        note="the paper rounds up; 37,000 shared pieces, one table",
    ),
    "transformer-big": Size(
        "Transformer big",
        2017,
        TransformerSettings(width=1024, heads=16, hidden=4096, encoder_layers=6, decoder_layers=6, **_BASE),
        37_000,
        512,
        213e6,
        "Vaswani et al. 2017, arXiv:1706.03762",
        data="WMT 2014 English-German, 4.5M pairs",
        tokens=300_000 * 25_000,
        devices=8,
        accelerator="P100",
        days=3.5,
        note="6 + 6 blocks and 16 heads; the deck says 12 and 6",
    ),
    "bert-base": Size(
        "BERT base",
        2018,
        BERTSettings(width=768, heads=12, layers=12, next_sentence=True),
        30_522,
        512,
        110e6,
        "Devlin et al. 2019, arXiv:1810.04805",
        data="13 GB",
        tokens=1_000_000 * 256 * (0.9 * 128 + 0.1 * 512),
        devices=16,
        accelerator="TPUv2",
        days=4,
    ),
    "bert-large": Size(
        "BERT large",
        2018,
        BERTSettings(width=1024, heads=16, layers=24, next_sentence=True),
        30_522,
        512,
        340e6,
        "Devlin et al. 2019, arXiv:1810.04805",
        data="13 GB",
        tokens=1_000_000 * 256 * (0.9 * 128 + 0.1 * 512),
        devices=64,
        accelerator="TPUv2",
        days=4,
        note="the paper rounds up",
    ),
    "xlnet-large": Size(
        "XLNet large",
        2019,
        XLNetSettings(width=1024, heads=16, layers=24),
        32_000,
        512,
        340e6,
        "Yang et al. 2019, arXiv:1906.08237v1",
        data="126 GB",
        tokens=500_000 * 2048 * 512,
        devices=512,
        accelerator="TPUv3",
        days=2.5,
        note="the deck's 340M is BERT's; every block also projects distances, a 1024 x 1024 matrix more",
    ),
    "roberta-large": Size(
        "RoBERTa large",
        2019,
        BERTSettings(width=1024, heads=16, layers=24, segments=1),
        50_265,
        514,
        355e6,
        "Liu et al. 2019, arXiv:1907.11692",
        data="160 GB",
        tokens=100_000 * 8192 * 512,
        devices=1024,
        accelerator="V100",
        days=1,
        note="50,265 byte-level pieces; tokens and days of its first 100,000 updates",
    ),
    "gpt2-small": Size("GPT-2 small", 2019, _gpt(768, 12, 12), 50_257, 1024, 124e6, _GPT2, data="40 GB"),
    "gpt2-medium": Size("GPT-2 medium", 2019, _gpt(1024, 16, 24), 50_257, 1024, 355e6, _GPT2, data="40 GB"),
    "gpt2-large": Size("GPT-2 large", 2019, _gpt(1280, 20, 36), 50_257, 1024, 774e6, _GPT2, data="40 GB"),
    "gpt2-xl": Size(
        "GPT-2 XL",
        2019,
        _gpt(1600, 25, 48),
        50_257,
        1024,
        1.5e9,
        _GPT2,
        data="40 GB",
        note="25 heads, which the deck leaves open; rounded in the paper",
    ),
    "megatron-lm": Size(
        "Megatron-LM",
        2019,
        _gpt(3072, 32, 72),
        51_200,
        1024,
        8.3e9,
        "Shoeybi et al. 2019, arXiv:1909.08053",
        data="174 GB",
        tokens=300_000 * 512 * 1024,
        devices=512,
        accelerator="V100",
        days=9,
    ),
    "turing-nlg": Size(
        "Turing-NLG",
        2020,
        _gpt(4256, 28, 78),
        51_200,
        1024,
        17e9,
        "Rosset 2020, Microsoft Research blog",
        tokens=300_000 * 512 * 1024,
        devices=256,
        accelerator="V100",
    ),
    "gpt-3": Size(
        "GPT-3",
        2020,
        _gpt(12_288, 96, 96),
        50_257,
        2048,
        175e9,
        "Brown et al. 2020, arXiv:2005.14165",
        data="694 GB",
        tokens=300e9,
        accelerator="V100",
    ),
    "gopher": Size(
        "Gopher",
        2021,
        _gpt(16_384, 128, 80, norm="rms", positions="distances"),
        32_000,
        2048,
        280e9,
        "Rae et al. 2021, arXiv:2112.11446",
        data="10.55 TB",
        tokens=300e9,
        devices=4096,
        accelerator="TPUv3",
        days=38,
        note="with its projections of relative positions; a plain stack of these sizes has 258 billion",
    ),
}

BUILDERS: dict[str, Any] = {
    "transformer": lambda size: transformer(size.model, size.vocabulary, size.vocabulary),
    "bert": lambda size: bert(size.model, size.vocabulary, size.longest),
    "xlnet": lambda size: xlnet(size.model, size.vocabulary, size.longest),
    "gpt": lambda size: gpt(size.model, size.vocabulary, size.longest),
}


def parameters(size: Size) -> int:
    """As many as the code makes, without the memory for one of them."""
    with torch.device("meta"):
        return parameter_count(BUILDERS[size.model.kind](size))
