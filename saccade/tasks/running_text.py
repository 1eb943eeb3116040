"""What all tasks on running text share: the vocabulary, its parts as token files, and batches of windows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from saccade.config import Recipe
from saccade.config.language import TextSettings
from saccade.data.lexicon import Lexicon
from saccade.data.stream import Ids, chunks, token_file
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.tasks.starting import NOT_OWN, adopt_all


class RunningText:
    """The text files of a task, cut into tokens."""

    def __init__(self, settings: TextSettings):
        self.settings = settings
        self._lexicon: Lexicon | None = None
        self.seeds: list[list[int]] = []  # of each piece that an extended vocabulary has more: what it was spelled with

    @property
    def lexicon(self) -> Lexicon:
        if self._lexicon is None:
            raise SaccadeError("the vocabulary has not been learned yet")
        return self._lexicon

    def prepare(self, directory: Path) -> list[str]:
        """Learn or read the vocabulary and keep it."""
        settings = self.settings
        if self._lexicon is not None:  # of the run that this one begins with
            self._lexicon, self.seeds = self._lexicon.extended(chunks(settings.data), settings.extend)
        elif settings.vocabulary is not None:
            self._lexicon = Lexicon.published(settings.unit, settings.vocabulary)
        else:
            size = 1_000_000 if settings.unit == "characters" else settings.pieces
            self._lexicon = Lexicon.learn(chunks(settings.data), settings.unit, size=size)
        self._lexicon.save(directory)
        train, valid = len(self.part("train")), len(self.part("valid"))
        if valid <= settings.window or train <= settings.window:
            raise SaccadeError(
                f"{settings.data}: {train:,} tokens to train on and {valid:,} to validate on are too few for windows "
                f"of {settings.window}"
            )
        sort = settings.unit if settings.unit in ("characters", "words", "pieces") else f"pieces of {settings.unit}"
        return [f"{len(self._lexicon):,} {sort}; {train:,} tokens to train on, {valid:,} to validate on"]

    def load(self, directory: Path) -> None:
        self._lexicon = Lexicon.load(directory)

    @cached_property
    def _files(self) -> dict[str, Ids]:
        return {}

    def log_frequencies(self) -> NDArray[np.float64]:
        """How probable each token is by how often it is in the training text; unseen ones count as seen once."""
        counted = np.bincount(self.part("train"), minlength=len(self.lexicon)) + 1
        return np.log(counted / counted.sum())

    def part(self, split: str) -> Ids:
        """The tokens of train, valid or test, mapped from their file."""
        settings = self.settings
        path = {"train": settings.data, "valid": settings.valid or settings.data, "test": settings.test}[split]
        if path is None:
            raise SaccadeError("there is no test part: say where it is with --set task.test=FILE")
        if path not in self._files:
            self._files[path] = token_file(path, self.lexicon)
        tokens = self._files[path]
        if settings.valid is not None or split == "test":
            return tokens
        first = int(len(tokens) * (1 - settings.valid_share))
        return tokens[:first] if split == "train" else tokens[first:]


class TextTask(ABC):
    """What all tasks on running text do alike; see saccade.tasks.base.Task for what each method is for."""

    recipe: Recipe
    text: RunningText

    def __init__(self, recipe: Recipe):
        self._take(recipe)

    @abstractmethod
    def _take(self, recipe: Recipe) -> None:
        """Do as the recipe says; one whose model cannot do the task is refused."""

    @property
    def lexicon(self) -> Lexicon:
        return self.text.lexicon

    def start(self, vocabulary: Path, recipe: Recipe) -> None:
        """The other run's vocabulary, its model and its window: the same model reads other text."""
        mine, start = self.recipe.task, recipe.task
        if start.kind != mine.kind:
            raise SaccadeError(f"train.start: a model for {start.kind} cannot go on with {mine.kind}: take one for it")
        same = {name: getattr(start, name) for name in ("window", "unit", "pieces", "vocabulary")}
        self._take(self.recipe.model_copy(update={"model": recipe.model, "task": mine.model_copy(update=same)}))
        self.text.load(vocabulary)

    def adopt(self, model: nn.Module, tensors: Mapping[str, Tensor]) -> Sequence[str]:
        return adopt_all(model, tensors, str(self.recipe.train.start), self.text.seeds)

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        return self.recipe, [NOT_OWN] if self.recipe.train.start else []

    def prepare(self, directory: Path) -> Sequence[str]:
        return self.text.prepare(directory)

    def load(self, directory: Path) -> None:
        self.text.load(directory)


@dataclass(frozen=True)
class WindowBatch:
    """Windows of running text, (B, T + 1); short ones, at the end of a text, are filled up and masked."""

    tokens: Tensor
    mask: Tensor  # (B, T): what is to be predicted
    numbers: tuple[int, ...]
    counts: dict[str, int]


def window_batch(windows: Sequence[Ids], numbers: Sequence[int]) -> WindowBatch:
    longest = max(len(window) for window in windows)
    tokens = torch.zeros(len(windows), longest, dtype=torch.long)
    mask = torch.zeros(len(windows), longest - 1, dtype=torch.bool)
    for row, window in enumerate(windows):
        tokens[row, : len(window)] = torch.from_numpy(window.astype(np.int64))
        mask[row, : len(window) - 1] = True
    count = int(mask.sum())
    return WindowBatch(tokens, mask, tuple(numbers), {"loss": count, "accuracy": count})


def average_first(maps: Sequence[AttentionMap]) -> list[AttentionMap]:
    """Maps over the same axes, with the average of all layers and heads before them where there are several."""
    if len(maps) < 2 and all(each.heads < 2 for each in maps):
        return list(maps)
    mean = torch.stack([each.weights.mean(0) for each in maps]).mean(0)
    return [AttentionMap("average of all layers and heads", mean[None], maps[0].rows, maps[0].columns), *maps]
