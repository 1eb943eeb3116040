"""Settings of carrying out commands: from words to words, right or wrong as a whole."""

from __future__ import annotations

from typing import Literal

from saccade.config.base import Positive, Settings


class FollowSettings(Settings):
    """From commands to sequences of actions, both words between spaces from closed lists."""

    kind: Literal["follow"] = "follow"
    data: str  # lines like "IN: jump twice OUT: I_JUMP I_JUMP", or two columns between tabs; .gz and .xz too
    test: str | None = None  # likewise; read by `evaluate --split test` only
    valid_examples: Positive = 500  # held out of the data by a hash of the command
