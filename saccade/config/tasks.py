"""Settings of the tasks, one class per task file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.base import Positive, Settings


class RearrangeSettings(Settings):
    """Generated sequences of symbols, to be copied, reversed or sorted: exact answers, no files."""

    kind: Literal["copy", "reverse", "sort"]
    symbols: Positive = 20  # how many different symbols
    shortest: Positive = 3
    longest: Positive = 12
    train_examples: Positive = 20_000
    valid_examples: Positive = 400
    seed: int = 1  # of the data, apart from the seed of the training

    @model_validator(mode="after")
    def _fits(self) -> RearrangeSettings:
        if self.shortest > self.longest:
            raise ValueError(f"shortest {self.shortest} is above longest {self.longest}")
        return self


# one class so far; with a second this becomes a union told apart by `kind`
TaskSettings = Annotated[RearrangeSettings, Field()]
