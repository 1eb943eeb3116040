"""Settings of labelling texts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from saccade.config.base import Count, Float, Share, Texts, listed
from saccade.config.language import VocabularySettings

Part = Literal["embedding", "body"]


class ClassifySettings(VocabularySettings):
    """Texts with labels, in tables with tabs between columns; a body that reads them, and a head on it."""

    kind: Literal["classify"] = "classify"
    data: Texts  # .tsv files, plain, .gz or .xz
    valid: Texts = ()  # none: a part is held out by a hash of the text
    test: Texts = ()  # read by `evaluate --split test` only
    header: bool = True  # the first line names the columns
    text_column: str = ""  # by its name, or by its number from one; none: the first
    label_column: str = ""  # none: the second
    pieces: Annotated[int, Field(ge=300, le=1_000_000)] = 4000  # labelled texts are few; not used with train.start
    longest: Annotated[int, Field(ge=4)] = 64  # tokens of a text that are read, with a mark before and after
    # how the states of a text become one; summary: by the body's own pooler, where it has one
    pool: Literal["first", "last", "mean", "attention", "summary"] = "mean"
    freeze: Annotated[tuple[Part, ...], BeforeValidator(listed)] = ()  # parts that stay: embedding, or the whole body
    freeze_blocks: Count = 0  # so many of the lowest blocks stay too
    low_rank: Count = 0  # rank of what is learned beside the attention's frozen matrices (LoRA); 0: they are learned
    outside: str | None = None  # label of texts that belong to no class: found by how unsure the model is
    # a text whose best label is less probable is outside; none: found on the validation texts
    threshold: Annotated[Float, Field(ge=0, le=1)] | None = None
    dropout: Share = 0.1  # before the head

    @model_validator(mode="after")
    def _threshold_has_a_label(self) -> ClassifySettings:
        if self.threshold is not None and self.outside is None:
            raise ValueError(
                f"threshold {self.threshold} needs the label that texts below it are given: say it in outside"
            )
        return self
