"""Looking into a model that answers questions about images: where each word looked, and which words counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from saccade.data.images import Pixels
from saccade.data.vocab import Vocabulary
from saccade.maps.axes import Groups
from saccade.maps.record import record
from saccade.maps.render import AttentionMap, Grid, Tokens
from saccade.modality.image import to_tensor
from saccade.models.ask_attend_answer import Answerer
from saccade.tasks.answers import at_rest


def look_while_answering(
    model: Answerer, pixels: Pixels, ids: Sequence[int], vocabulary: Vocabulary, title: str, *, pieces: bool = False
) -> list[AttentionMap]:
    """The words of a question over an image first, called `title`; then every attention between the two.

    A model that does not see has no map over the image, and one that does not read has one word that stands for any.
    """
    with at_rest(model), record(model) as recording:
        model(to_tensor(np.stack([pixels])), torch.tensor([0]), torch.tensor([list(ids)]))
    if not model.reads:
        words: Groups = [("(any question)", [0])]
    else:
        words = list(zip(vocabulary.pieces(ids), ([place] for place in range(len(ids))), strict=True))
        words = words if pieces else vocabulary.words(ids)
    grid = None if model.sight is None else Grid(*model.sight.cells, pixels)
    looked = {seen.name: seen.weights[0] for seen in recording if seen.name.startswith("joint.")}  # (H, T, S) each
    layers = [weights for name, weights in looked.items() if ".blocks." in name]
    return _of_layers(layers, words, grid, title) if layers else _of_hops(looked, words, grid, title)


def _of_hops(looked: dict[str, Tensor], words: Groups, grid: Grid | None, title: str) -> list[AttentionMap]:
    """Of stacked attention: each word over the image, the whole question at each of its looks, and what words weigh."""
    hops = [weights for name, weights in looked.items() if ".hops." in name]
    weighed = _rows_of(looked["joint.gather"], [("question", [0])], words)
    maps = [AttentionMap("how much each word counts", weighed, Tokens(("question",)), _labels(words))]
    if grid is None:
        return maps
    whole: Groups = [(f"[question, look {number}]", [number - 1]) for number in range(1, len(hops) + 1)]
    over = torch.cat([_rows_of(looked["joint.ask"], words), torch.cat(hops, dim=1)], dim=1)  # (1, words + hops, S)
    return [AttentionMap(title, over, _labels([*words, *whole]), grid), *maps]


def _of_layers(layers: Sequence[Tensor], words: Groups, grid: Grid | None, title: str) -> list[AttentionMap]:
    """Of a Transformer over [answer; words; cells]: what the answer and each word looked at, on either side."""
    count = sum(len(places) for _, places in words)
    read: Groups = [("[answer]", [0]), *((label, [place + 1 for place in places]) for label, places in words)]
    axis = _labels(read)
    names = [f"block {number}, self-attention" for number in range(1, len(layers) + 1)]
    within = [
        AttentionMap(f"{name}: the question", _rows_of(weights, read, read), axis, axis)
        for name, weights in zip(names, layers, strict=True)
    ]
    if grid is None:
        return within
    over = [_rows_of(weights, read)[..., 1 + count :] for weights in layers]  # (H, 1 + words, cells) each
    average = torch.stack([weights.mean(0) for weights in over]).mean(0)[None]
    return [
        AttentionMap(title, average, axis, grid),
        *(AttentionMap(f"{name}: the image", each, axis, grid) for name, each in zip(names, over, strict=True)),
        *within,
    ]


def _rows_of(weights: Tensor, rows: Groups, columns: Groups | None = None) -> Tensor:
    """Weights (H, T, S) over words in place of pieces: the mean of those that look, the sum of those looked at."""
    weights = torch.stack([weights[:, list(places)].mean(1) for _, places in rows], dim=1)
    if columns is None:
        return weights
    return torch.stack([weights[:, :, list(places)].sum(2) for _, places in columns], dim=2)


def _labels(groups: Groups) -> Tokens:
    return Tokens(tuple(label for label, _ in groups))
