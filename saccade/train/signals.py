"""Being asked to stop: finish the step, save, leave with the signal's own exit code; asked twice, leave at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass
class StopRequest:
    """Set by a signal, read by the training loop between two steps."""

    signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        return 128 + (self.signal or 0)


@contextmanager
def watch_for_stop() -> Iterator[StopRequest]:
    """While inside, SIGINT and SIGTERM only set a flag; the second one ends the process without a word."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # only the main thread may watch for signals
        return

    def note(number: int, _frame: FrameType | None) -> None:
        if request:
            os._exit(128 + number)
        request.signal = number

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
