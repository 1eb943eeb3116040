"""Papers as compositions of the modules in `saccade.nn`; no new mathematics below this line."""

from collections.abc import Callable
from typing import Any

from saccade.models import seq2seq
from saccade.models.shapes import EncoderDecoder
from saccade.models.transformer import transformer

# name in a recipe -> function from its settings and the vocabulary sizes to a model from sequence to sequence
MODELS: dict[str, Callable[[Any, int, int], EncoderDecoder]] = {
    "sutskever": seq2seq.sutskever,
    "bahdanau": seq2seq.bahdanau,
    "luong": seq2seq.luong,
    "convolutional": seq2seq.convolutional,
    "transformer": transformer,
}
