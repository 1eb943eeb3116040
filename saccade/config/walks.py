"""Settings of walking by instructions: the task, and the model that listens, attends and walks."""

from __future__ import annotations

from typing import Literal

from saccade.config.base import Positive, Settings, Share


class WalkSettings(Settings):
    """From an instruction and a place on a map to actions: forward, left, right, and at last stop."""

    kind: Literal["walk"] = "walk"
    data: str  # maps and instructions with their paths, as JSON (docs/walk.md); .gz and .xz too
    test_map: str | None = "l"  # held out: read by `evaluate --split test` only; null holds out none
    sentences: Literal["single", "paragraphs"] = "single"  # what is one instruction
    # where the data does not say how the walker stands at first: a turn to the right short of the first heading that is
    # known, as in the data of the paper; or each of the four headings
    headings: Literal["usual", "all"] = "usual"
    valid: Share = 0.1  # of the paragraphs of the other maps, held out by a hash of their text
    rarest: Positive = 2  # words that occur less often are all the same to the model


class ListenAttendWalkSettings(Settings):
    """A recurrent encoder of words, and a recurrent decoder that reads some of them and looks around at each step."""

    kind: Literal["listen_attend_walk"] = "listen_attend_walk"
    width: Positive = 100  # of vectors of words and of what is seen
    hidden: Positive = 100  # of recurrent states
    layers: Positive = 1
    cell: Literal["gru", "lstm"] = "lstm"
    attend: bool = True  # without, one vector for the whole instruction at each step: what attention is compared with
    dropout: Share = 0.3
