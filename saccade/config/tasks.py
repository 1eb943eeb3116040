"""Settings of the tasks, one class per task file."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.base import Count, Float, Positive, Settings, Share
from saccade.config.captions import CaptionSettings
from saccade.config.classification import ClassifySettings
from saccade.config.commands import FollowSettings
from saccade.config.images import ClassifyImagesSettings, ContrastSettings
from saccade.config.interaction import InteractSettings
from saccade.config.language import LanguageSettings, MaskedSettings, PermutedSettings
from saccade.config.questions import AnswerSettings
from saccade.config.regression import RegressSettings
from saccade.config.sound import TranscribeSettings
from saccade.config.walks import WalkSettings
from saccade.config.words import ReadSettings


class RearrangeSettings(Settings):
    """Generated sequences of symbols, to be copied, reversed or sorted: exact answers, no files."""

    kind: Literal["copy", "reverse", "sort"]
    symbols: Positive = 20  # how many different symbols
    shortest: Positive = 3
    longest: Positive = 12
    train_examples: Positive = 20_000
    valid_examples: Positive = 400
    seed: Count = 1  # of the data, apart from the seed of the training

    @model_validator(mode="after")
    def _fits(self) -> RearrangeSettings:
        if self.shortest > self.longest:
            raise ValueError(f"shortest {self.shortest} is above longest {self.longest}")
        return self


class TranslateSettings(Settings):
    """From sentences to sentences: two aligned text files, or one table with a column for each side."""

    kind: Literal["translate"] = "translate"
    source: str  # a text file, or a .tsv; both may be .gz or .xz
    target: str | None = None  # the other text file; none for a .tsv
    source_column: Positive = 1  # of a .tsv, counted from one
    target_column: Positive = 2
    encoding_errors: Literal["refuse", "replace", "skip"] = "refuse"  # lines that are not UTF-8; skip: the whole pair
    valid_source: str | None = None  # none: a part is held out by a hash of the source sentence
    valid_target: str | None = None
    valid_examples: Positive = 500  # sentences that are translated at each evaluation
    # size of the shared vocabulary; none: from the size of the data
    pieces: Annotated[int, Field(ge=300, le=1_000_000)] | None = None
    extend: Count = 0  # with train.start: so many frequent words of this data, in pieces so far, become one piece each
    longest: Positive = 100  # longer pairs, in pieces, are left out of training
    swap_names: Share = 0.0  # share of the pairs with a first name on both sides in which it becomes another name
    bpe_dropout: Share = 0.0  # probability of leaving out a merge: words are cut otherwise each time they are read

    # weight of a loss on the distance between two readings of a sentence with other dropout, which takes twice the time
    # of an update (Liang et al. 2021, whose alpha is twice this); 0: none
    agreement: Annotated[Float, Field(ge=0)] = 0.0

    # weight of a loss that teaches one head to look at the word that is being translated; 0: none
    guided_alignment: Annotated[Float, Field(ge=0)] = 0.0
    alignments: str | None = None  # for it, a file of i-j links over words, a line per pair; none: found from the data

    @model_validator(mode="after")
    def _fits(self) -> TranslateSettings:
        if self.valid_target is not None and self.valid_source is None:
            raise ValueError(f"valid_target {self.valid_target} needs a valid_source beside it")
        if self.alignments is not None and not self.guided_alignment:
            raise ValueError(f"alignments {self.alignments} are for guided_alignment, whose weight is 0")
        if self.agreement and self.guided_alignment:
            raise ValueError("agreement and guided_alignment cannot be had together; set one of them to 0")
        return self


class OwnTaskSettings(Settings):
    """A task of one's own, given to `saccade.train(recipe, task=...)`."""

    kind: Literal["own"] = "own"
    name: str = ""  # for people


TaskSettings = Annotated[
    RearrangeSettings
    | TranslateSettings
    | TranscribeSettings
    | RegressSettings
    | ClassifyImagesSettings
    | ContrastSettings
    | CaptionSettings
    | ReadSettings
    | AnswerSettings
    | FollowSettings
    | WalkSettings
    | InteractSettings
    | LanguageSettings
    | ClassifySettings
    | MaskedSettings
    | PermutedSettings
    | OwnTaskSettings,
    Field(discriminator="kind"),
]
