"""What all settings share: frozen, strict, and no unknown key passes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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


def listed(value: Any) -> Any:
    """A YAML list as a tuple, which cannot change; one text alone stands for a list of one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Float = Annotated[float, BeforeValidator(_number)]
LARGEST = 2**63 - 1  # of what torch counts
Positive = Annotated[int, Field(ge=1, le=LARGEST)]
Count = Annotated[int, Field(ge=0, le=LARGEST)]
Share = Annotated[Float, Field(ge=0, lt=1)]
Epsilon = Annotated[Float, Field(gt=0)]
# what a file of the data that cannot be read is: left out and told, or an end to everything
Broken = Literal["skip", "refuse"]
Texts = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(listed)]


def require_divisor(name: str, part: int, whole_name: str, whole: int) -> None:
    """Refuse a part that does not divide the whole, and name the nearest that does."""
    if whole % part:
        nearest = min((d for d in range(1, whole + 1) if whole % d == 0), key=lambda d: (abs(d - part), d))
        raise ValueError(f"{name} {part} does not divide {whole_name} {whole}; the nearest that does is {nearest}")
