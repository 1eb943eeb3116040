"""Errors that are meant to be read by people; standard library only, so that the CLI can import it without torch."""

from collections.abc import Iterable
from difflib import get_close_matches


class SaccadeError(Exception):
    """An error for people: shown without a traceback, exit code 2."""


class RunError(SaccadeError):
    """A run directory or a checkpoint that cannot be used as asked."""


class ConfigError(SaccadeError):
    """A recipe with an unknown key, an impossible value, or no such name."""


class RunWarning(UserWarning):
    """Something in a run directory was not as it should be, and was worked around."""


def to_install(extra: str) -> str:
    """How to get what an extra of pyproject.toml brings."""
    return f"in the folder of saccade's source, pip install -e '.[{extra}]'"


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return " (did you mean 'heads'?)" for the nearest allowed name, or "" when none is near."""
    near = get_close_matches(name, list(allowed), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
