"""Settings of regression by attention."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from saccade.config.base import Count, Float, Positive, Settings


class RegressSettings(Settings):
    """From numbers to a number: a generated noisy curve, or a table of one's own."""

    kind: Literal["regress"] = "regress"
    data: str | None = None  # a .tsv or .csv of numbers, the target in the last column; none: a generated curve
    examples: Positive = 100  # of the generated curve
    noise: Annotated[Float, Field(ge=0)] = 0.3  # standard deviation around it
    seed: Count = 1  # of the generated curve


class KernelSettings(Settings):
    """Nadaraya-Watson regression as attention to the training examples."""

    kind: Literal["kernel"] = "kernel"
    width: Annotated[Float, Field(gt=0)] = 0.3  # of the Gaussian kernel at first, in standard deviations of the inputs
    learn_width: bool = True
    embedding: Literal["none", "learned"] = "none"  # learned: inputs are embedded before they are compared
    hidden: Positive = 32  # of the embedding
