"""A recipe: everything that decides a training, in one object."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from saccade.config.base import Settings
from saccade.config.models import ModelSettings
from saccade.config.tasks import TaskSettings
from saccade.config.training import DecodeSettings, TrainSettings

FORMAT = 1


class Recipe(Settings):
    """Task, model, training and decoding. Complete as saved in a run; a recipe file says only what differs."""

    format: Literal[1] = 1
    task: TaskSettings
    model: ModelSettings
    train: TrainSettings = TrainSettings()
    decode: DecodeSettings = DecodeSettings()

    @model_validator(mode="after")
    def _check(self) -> Recipe:
        if getattr(self.task, "extend", 0) and self.train.start is None:
            raise ValueError("task.extend makes the vocabulary of another run larger: name it with train.start=RUN")
        return self
