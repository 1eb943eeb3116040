"""Settings of acting in a world that is seen: the task, and the model that is shown it, attends and interacts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.base import Count, Float, Positive, Settings, Share, require_divisor
from saccade.config.images import CNNSettings, ImageEncoderSettings
from saccade.config.questions import require_four


class InteractSettings(Settings):
    """From an image of a small world to an action in it, again and again, until the right thing is fetched."""

    kind: Literal["interact"] = "interact"
    side: Annotated[int, Field(ge=5, le=32)] = 8  # cells of the world's side, the outer walls included
    things: Annotated[int, Field(ge=1, le=4)] = 3  # of different colours; the lamp says which is wanted
    locked: Annotated[Float, Field(ge=0, le=1)] = 0.5  # share of the worlds with a door that needs its key
    # weight of a loss that asks after the first look what the demonstration is going to fetch; 0: none
    goal: Annotated[Float, Field(ge=0)] = 1.0
    limit: Positive = 40  # actions; a world in which the right thing has not been fetched by then is a failure
    train_worlds: Positive = 4000  # whose solutions are the demonstrations
    valid_worlds: Positive = 200
    test_worlds: Positive = 500
    seed: Count = 1  # of the worlds, apart from the seed of the training


class ShowAttendInteractSettings(Settings):
    """A grid encoder of images, and a learned question that looks at the cells some times, each time knowing more."""

    kind: Literal["show_attend_interact"] = "show_attend_interact"
    image: ImageEncoderSettings = CNNSettings(width=16)
    width: Positive = 64  # of cells and of the question
    heads: Positive = 4  # places that can be looked at at once
    hops: Positive = 2  # looks before each action
    hidden: Positive = 128  # of the feed-forward layer after each look
    attend: bool = True  # without, the mean of all cells at each look: what attention is compared with
    dropout: Share = 0.0

    @model_validator(mode="after")
    def _fits(self) -> ShowAttendInteractSettings:
        require_divisor("heads", self.heads, "width", self.width)
        require_four(self.width)
        return self
