"""Papers as compositions of the modules in `saccade.nn`; no new mathematics below this line."""

from collections.abc import Callable
from typing import Any

from saccade.models import listen_attend_spell, seq2seq, show_attend_tell
from saccade.models.clip import clip
from saccade.models.images import image_classifier
from saccade.models.shapes import DualEncoder, EncoderDecoder, EncoderOnly
from saccade.models.transformer import transformer

# name in a recipe -> function from its settings and the vocabulary sizes to a model from sequence to sequence
MODELS: dict[str, Callable[[Any, int, int], EncoderDecoder]] = {
    "sutskever": seq2seq.sutskever,
    "bahdanau": seq2seq.bahdanau,
    "luong": seq2seq.luong,
    "convolutional": seq2seq.convolutional,
    "transformer": transformer,
}

# name in a recipe -> function from its settings, the width of a frame and the vocabulary size to a model from speech to
# text
SPEECH_MODELS: dict[str, Callable[[Any, int, int], EncoderDecoder]] = {
    "listen_attend_spell": listen_attend_spell.listen_attend_spell,
    "speech_transformer": listen_attend_spell.speech_transformer,
}

# name in a recipe -> function from its settings, the number of classes and the size of the images to a classifier
IMAGE_CLASSIFIERS: dict[str, Callable[[Any, int, int], EncoderOnly]] = {
    "vit": image_classifier,
    "cnn": image_classifier,
    "efficientnet": image_classifier,
}

# name in a recipe -> function from its settings, the vocabulary size and the size of the images to two encoders
CONTRASTIVE_MODELS: dict[str, Callable[[Any, int, int], DualEncoder]] = {"clip": clip}

# name in a recipe -> function from its settings, the vocabulary size and the size of the images to a model from image
# to text
CAPTIONERS: dict[str, Callable[[Any, int, int], EncoderDecoder]] = {
    "show_attend_tell": show_attend_tell.show_attend_tell,
    "caption_transformer": show_attend_tell.caption_transformer,
}
