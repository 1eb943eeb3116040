"""What tasks that see an image share: searching what to write about it, looking at the writer, and looking at the image
encoder: how the cells of an image come together, and what every layer looks at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from saccade.data.images import Pixels
from saccade.data.vocab import Vocabulary
from saccade.decode import Hypothesis
from saccade.maps.axes import Groups
from saccade.maps.record import record
from saccade.maps.render import AttentionMap, Grid, Tokens
from saccade.maps.rollout import rollout
from saccade.modality.image import to_tensor
from saccade.models.images import ImageEncoder
from saccade.models.shapes import EncoderDecoder, Memory
from saccade.tasks.answers import Plan, at_rest, search_answers
from saccade.tasks.base import Prediction
from saccade.tasks.space import as_batch
from saccade.tasks.written import as_prediction, look_while_writing, written_batch


def search_descriptions(
    model: EncoderDecoder, images: Sequence[Pixels | Tensor], limit: int, plan: Plan
) -> list[list[Hypothesis]]:
    """Of each image, best first, in `limit` tokens at most."""

    def encode(numbers: Sequence[int]) -> Memory:
        return model.encode(as_batch([images[number] for number in numbers]))

    with at_rest(model):
        return search_answers(model, encode, [limit] * len(images), plan)


def predictions_of(
    inputs: Sequence[str], read: Sequence[Pixels | str], found: Sequence[list[Hypothesis]], vocabulary: Vocabulary
) -> list[Prediction]:
    """What was found for the images that could be read, and for the others why they could not."""
    left = iter(found)
    return [
        Prediction(name, refusal=pixels) if isinstance(pixels, str) else as_prediction(name, next(left), vocabulary)
        for name, pixels in zip(inputs, read, strict=True)
    ]


def look_while_describing(
    model: EncoderDecoder,
    pixels: Pixels,
    ids: list[int],
    vocabulary: Vocabulary,
    groups: tuple[Groups, Groups] | None = None,
) -> list[AttentionMap]:
    """Tokens against cells of an image (H, W, 3); `groups` join what is written, and what was written before. Then how
    the image encoder looked at it, where it attends."""
    batch = written_batch(as_batch([pixels]), None, [ids], [0])
    with at_rest(model):
        memory = model.encode(batch.source)
    encoder: Any = model.encoder
    # what the decoder did with what was seen; how it was seen has a class token perhaps, and is shown on its own
    writes = EncoderDecoder(lambda *_: memory, model.decoder, model.output)
    rows, columns = encoder.cells
    maps = look_while_writing(writes.train(model.training), batch, Grid(rows, columns, pixels), vocabulary)
    maps = maps if groups is None else [each.grouped(*groups) for each in maps]
    return maps + look_at_image(encoder.image, pixels, "how the image was seen")


def look_at_image(encoder: ImageEncoder, pixels: Pixels, title: str) -> list[AttentionMap]:
    """Maps over an image (H, W, 3): of several layers their rollout first, called `title`, then each of them.

    Where there is a class token, what it looks at is shown: the answer is made of it. Without attention there is none.
    """
    module: Any = encoder
    with at_rest(module), record(module) as recording:
        module(to_tensor(np.stack([pixels])))
    grid = Grid(*encoder.cells, pixels)
    layers = [seen.weights[0] for seen in recording]  # (H, S, S) each
    maps = [rollout(layers, grid, name=title)] if len(layers) > 1 else []
    for number, weights in enumerate(layers, start=1):
        name = f"image block {number}, self-attention" if len(layers) > 1 else f"{title}: self-attention"
        if encoder.class_token:
            maps.append(AttentionMap(name, weights[:, :1, 1:], Tokens(("class token",)), grid))
        else:
            maps.append(AttentionMap(name, weights, grid, grid))
    return maps
