"""A training's numbers for TensorBoard, beside the run's own metrics.jsonl."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from saccade.errors import SaccadeError, to_install
from saccade.train.progress import Evaluated, Event, Progress

FOLDER = "tensorboard"


def require_tensorboard() -> Any:
    """The library's writer, or how to get it; asked for before a first step is made."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise SaccadeError(f"train.tensorboard needs its package: {to_install('tensorboard')}") from error
    return SummaryWriter


def on_board(events: Iterator[Event], run: Path, step: int) -> Generator[Event, None, None]:
    """The same events; their numbers are written on the way. What a broken run wrote after `step` is forgotten."""
    with closing(require_tensorboard()(str(run / FOLDER), purge_step=step + 1)) as writer:
        for event in events:
            for name, value in numbers(event).items():
                writer.add_scalar(name, value, event.step)
            yield event


def numbers(event: Event) -> dict[str, float]:
    """What there is to plot of an event."""
    if isinstance(event, Progress):
        pace = {"rate": event.rate, "gradient norm": event.gradient_norm, "tokens per second": event.tokens_per_second}
        return {f"train/{name}": value for name, value in (event.means | pace).items()}
    if isinstance(event, Evaluated):
        return {f"valid/{name}": value for name, value in event.scores.values.items()}
    return {}
