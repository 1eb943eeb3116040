"""What each task's model is given as ONNX, and what it is asked where it answers in one go: a table for people to read.

Ids are below the size of a vocabulary, images (3, H, W) have numbers from -1 to 1, a mask is true where cells are real,
and these come first in each row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from saccade.exchange.onnx_graph import ROWS, SOURCE, Ask, Slot
from saccade.nn.layers import Embedding
from saccade.nn.positions import Learned
from saccade.predictor import Predictor

TEXTS = ("copy", "reverse", "sort", "translate", "follow", "walk")  # tasks from tokens to tokens
IMAGES = ("caption", "read")  # from an image to tokens
LONGEST = 9  # positions that a graph is tried with


@dataclass(frozen=True)
class Input:
    """One input: its axes, and what random examples of it are: ids below a number, real numbers, or a mask."""

    name: str
    shape: tuple[str | int, ...]
    below: int = 0  # no ids: real numbers

    def drawn(self, sizes: Mapping[str, int], draw: Generator) -> Tensor:
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in self.shape]
        if self.name == "mask":
            lengths = [max(1, shape[1] - 2 * row) for row in range(shape[0])]
            return torch.arange(shape[1]) < torch.tensor(lengths)[:, None]
        if self.below:
            return torch.randint(self.below, shape, generator=draw)
        return 2 * torch.rand(shape, generator=draw) - 1

    def slot(self, sizes: Mapping[str, int], draw: Generator) -> Slot:
        return Slot(self.name, self.drawn(sizes, draw), self.shape)


@dataclass(frozen=True)
class Question:
    """One graph of a model that answers in one go."""

    inputs: Sequence[Input]
    outputs: Sequence[str]
    ask: Ask


def read_by_encoder(predictor: Predictor) -> list[Input]:
    """Of a model that writes."""
    kind, model, task = predictor.recipe.task.kind, _any(predictor.model), _any(predictor.task)
    mask = Input("mask", (ROWS, SOURCE))
    if kind == "transcribe":
        return [Input("source", (ROWS, SOURCE, task.hearing.width)), mask]
    if kind in IMAGES:
        return [_image(predictor, "source")]
    below = vocabulary_of(model.encoder)
    if kind == "walk":  # the first id is the number of a pose
        below = min(below, len(model.decoder.moves))
    return [Input("source", (ROWS, SOURCE), below), mask]


def questions(predictor: Predictor) -> dict[str, Question]:
    """The graphs of a model that answers in one go, by their names."""
    return QUESTIONS[predictor.recipe.task.kind](predictor)


def longest_source(model: nn.Module) -> int:
    """How far texts are read in a trial: not beyond learned positions."""
    tables = (each.positions for each in model.modules() if isinstance(each, Embedding))
    return min([LONGEST, *(each.longest for each in tables if isinstance(each, Learned))])


def stride_of(predictor: Predictor) -> int:
    """Frames that a position of the memory stands for; the length of a source is a multiple of it."""
    return int(getattr(predictor.recipe.model, "stride", 1))


def vocabulary_of(module: nn.Module) -> int:
    """The ids that a module reads."""
    return next(each.vocabulary for each in module.modules() if isinstance(each, Embedding))


def _any(value: Any) -> Any:
    """What a task and its model have beyond the contract of all."""
    return value


def _image(predictor: Predictor, name: str = "image") -> Input:
    settings, size = _any(predictor.recipe.task), getattr(predictor.task, "size", None)
    size = settings.size if size is None else size
    height, width = (size, size) if isinstance(size, int) else size
    return Input(name, (ROWS, 3, height, width))


def _text(module: nn.Module) -> list[Input]:
    return [Input("tokens", (ROWS, SOURCE), vocabulary_of(module)), Input("mask", (ROWS, SOURCE))]


def _masked(predictor: Predictor) -> dict[str, Question]:
    segments = Input("segments", (ROWS, SOURCE), _any(predictor.model).encoder.segments.vocabulary)
    inputs = [*_text(predictor.model), segments]
    return {"model": Question(inputs, ["logits"], lambda model, *given: (model.output(model(*given)),))}


def _permuted(predictor: Predictor) -> dict[str, Question]:
    inputs = [*_text(predictor.model), Input("rank", (ROWS, SOURCE), below=4)]
    return {"model": Question(inputs, ["logits"], lambda model, *given: (model.output(model(*given)),))}


def _classify(predictor: Predictor) -> dict[str, Question]:
    return {"model": Question(_text(predictor.model), ["logits"], lambda model, *given: (model(*given),))}


def _classify_images(predictor: Predictor) -> dict[str, Question]:
    return {"model": Question([_image(predictor)], ["logits"], lambda model, image: (model(image),))}


def _contrast(predictor: Predictor) -> dict[str, Question]:
    def see(model: Any, image: Tensor) -> tuple[Tensor, ...]:
        return (model.embed_left(image),)

    def read(model: Any, *given: Tensor) -> tuple[Tensor, ...]:
        return (model.embed_right(*given),)

    text = _text(_any(predictor.model).right)
    return {"image": Question([_image(predictor)], ["vector"], see), "text": Question(text, ["vector"], read)}


def _answer(predictor: Predictor) -> dict[str, Question]:
    def ask(model: Any, image: Tensor, tokens: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        return (model(image, torch.arange(image.shape[0]), tokens, mask),)  # one question about each image

    inputs = [_image(predictor), *_text(_any(predictor.model).joint)]
    return {"model": Question(inputs, ["logits"], ask)}


def _interact(predictor: Predictor) -> dict[str, Question]:
    return {"model": Question([_image(predictor)], ["action", "goal"], lambda model, image: model.decide(image))}


def _regress(predictor: Predictor) -> dict[str, Question]:
    inputs = [Input("x", (ROWS, _any(predictor.model).examples.shape[1]))]
    return {"model": Question(inputs, ["y"], lambda model, x: (model(x),))}


# kind of task -> function to the graphs of its model
QUESTIONS: dict[str, Callable[[Predictor], dict[str, Question]]] = {
    "masked": _masked,
    "permuted": _permuted,
    "classify": _classify,
    "classify_images": _classify_images,
    "contrast": _contrast,
    "answer": _answer,
    "interact": _interact,
    "regress": _regress,
}
