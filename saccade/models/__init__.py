"""Papers as compositions of the modules in `saccade.nn`; no new mathematics below this line."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from saccade.models import ask_attend_answer, listen_attend_spell, listen_attend_walk, seq2seq, show_attend_tell
from saccade.models.bert import MaskedLanguageModel, bert
from saccade.models.clip import clip
from saccade.models.gpt import gpt
from saccade.models.images import Size, image_classifier
from saccade.models.recurrent_language import recurrent_language
from saccade.models.shapes import DualEncoder, EncoderDecoder, EncoderOnly, LanguageModel
from saccade.models.show_attend_interact import ShowAttendInteract, show_attend_interact
from saccade.models.transformer import transformer
from saccade.models.xlnet import PermutedLanguageModel, xlnet

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

# name in a recipe -> function from its settings, the vocabulary size, the size of the images and the longest text to
# two encoders
CONTRASTIVE_MODELS: dict[str, Callable[[Any, int, int, int], DualEncoder]] = {"clip": clip}

# name in a recipe -> function from its settings, the vocabulary size and the size of the images to a model from image
# to text
CAPTIONERS: dict[str, Callable[[Any, int, Size], EncoderDecoder]] = {
    "show_attend_tell": show_attend_tell.show_attend_tell,
    "caption_transformer": show_attend_tell.caption_transformer,
}

# name in a recipe -> function from its settings, the vocabulary size, the number of answers and the size of the images
# to a model from image and question to answer
ANSWERERS: dict[str, Callable[[Any, int, int, int], ask_attend_answer.Answerer]] = {
    "stacked_attention": ask_attend_answer.stacked_attention,
    "vqa_transformer": ask_attend_answer.vqa_transformer,
}

# name in a recipe -> function from its settings, the vocabulary size and the longest text to a language model
LANGUAGE_MODELS: dict[str, Callable[[Any, int, int], LanguageModel]] = {"gpt": gpt, "recurrent": recurrent_language}

# name in a recipe -> function from its settings, the vocabulary size and the longest text to a model with an encoder
# that sees both sides of every token: model.encoder(tokens, mask, segments) -> Memory
TEXT_ENCODERS: dict[str, Callable[[Any, int, int], MaskedLanguageModel | PermutedLanguageModel]] = {
    "bert": bert,
    "xlnet": xlnet,
}

# name in a recipe -> function from its settings, the number of words, what is seen from every pose and where each
# action leads, to a model that walks
WALKERS: dict[str, Callable[[Any, int, Tensor, Tensor], EncoderDecoder]] = {
    "listen_attend_walk": listen_attend_walk.listen_attend_walk,
}

# name in a recipe -> function from its settings, the number of actions, that of what may be wanted and the size of the
# images to a model that acts
ACTORS: dict[str, Callable[[Any, int, int, Size], ShowAttendInteract]] = {"show_attend_interact": show_attend_interact}
