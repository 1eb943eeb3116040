"""Settings of reading: the task from the image of a word to its letters."""

from __future__ import annotations

import string
from typing import Annotated, Literal

from pydantic import Field, model_validator

from saccade.config.base import Broken, Count, Float, Positive, Settings, Texts
from saccade.config.images import Part


class ReadSettings(Settings):
    """From the image of a word to its letters."""

    kind: Literal["read"] = "read"
    data: str | None = None  # a folder with train.tsv and train.zip, or a .tsv of file and text; none: rendered only
    test: str | None = None  # another .tsv; none: the test.tsv of the folder
    height: Positive = 32  # every image is stretched to so many pixels ...
    width: Positive = 100  # ... as the field does; one that stands on its side is turned first
    broken: Broken = "skip"  # images that cannot be read; refuse: the first of them is an error
    valid: Part = 0.05  # held out by a hash of the file's name, where the data names no validation part
    valid_examples: Positive = 500  # words that are read at each evaluation
    longest: Positive = 25  # letters; longer words are left out of training, and none longer is written
    repeat: Positive = 1  # every word of the data is so many examples, from the second on slightly changed

    rendered: Count = 0  # words that are drawn, beside those of the data; made anew each time, from seed and number
    words: str | None = None  # what is drawn, one in a line; none: texts of the data
    letters: Annotated[str, Field(min_length=1)] = string.ascii_letters + string.digits  # of random strings, also drawn
    shortest: Positive = 2  # letters of a random string
    fonts: Texts = ()  # .ttf or .otf files beside those that come with matplotlib
    roughness: Annotated[Float, Field(ge=0, le=1)] = 1.0  # of the roughest; 0: upright black letters on white
    seed: Count = 1  # of what is drawn, apart from the seed of the training

    @model_validator(mode="after")
    def _fits(self) -> ReadSettings:
        if self.data is None and not self.rendered:
            raise ValueError("there is nothing to read: name data, or ask for rendered words")
        if self.shortest > self.longest:
            raise ValueError(f"shortest {self.shortest} is above longest {self.longest}")
        if "".join(self.letters.split()) != self.letters:
            raise ValueError(f"letters of random strings have no space among them; got {self.letters!r}")
        return self
