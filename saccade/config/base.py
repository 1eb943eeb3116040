"""What all settings share: frozen, strict, and no unknown key passes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Settings(BaseModel):
    """Base of all settings. Strict: `heads: yes` is not 1, and `steps: "many"` is not a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def _number(value: Any) -> Any:
    """A quoted number is still a number (other YAML readers turn 1e-3 into text)."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _listed(value: Any) -> Any:
    """A YAML list as a tuple, which cannot change; one text alone stands for a list of one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Float = Annotated[float, BeforeValidator(_number)]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[Float, Field(ge=0, lt=1)]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_listed)]
