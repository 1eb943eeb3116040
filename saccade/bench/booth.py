"""A process for each contestant: threads of two tools in one process slow each other down, even where one only waits.

OpenMP (libgomp) lets idle threads wait awake only as long as all pools of a process together have no more threads than
there are processors. Where two tools have a pool each, every parallel part of either ends in sleep, and two threads are
no faster than one. Nobody uses tools like that.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from saccade.bench.measure import seconds
from saccade.bench.peers import Work
from saccade.errors import SaccadeError

Make = Callable[..., Work]


@dataclass(frozen=True)
class Remote:
    """One work of a booth, which is timed where it is done."""

    booth: Booth
    number: int

    def __call__(self) -> None:
        self.seconds(1)

    def seconds(self, calls: int) -> float:
        """Of one call, the mean of so many."""
        took: float = self.booth.ask("seconds", self.number, calls)
        return took


class Booth:
    """A process that enters with `enter(*given)`, which says how its works are made, and then does what it is asked."""

    def __init__(self, name: str, enter: Callable[..., Sequence[Make]], *given: Any):
        self.name = name
        context = multiprocessing.get_context("spawn")  # a copy of this process would have threads that do not run
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, enter, given), daemon=True)
        self.process.start()
        theirs.close()

    def works(self, *given: Any) -> list[Remote]:
        """Its works for what is given, in place of all before."""
        return [Remote(self, number) for number in range(self.ask("make", *given))]

    def ask(self, what: str, *given: Any) -> Any:
        try:
            self.connection.send((what, given))
            error, answer = self.connection.recv()
        except (EOFError, OSError) as gone:
            raise SaccadeError(f"{self.name} ended in the middle of a measurement") from gone
        if error is not None:
            raise SaccadeError(f"{self.name} cannot be measured: {error}")
        return answer

    def close(self) -> None:
        with suppress(OSError):
            self.connection.send(None)
        self.process.join()


def _serve(connection: Connection, enter: Callable[..., Sequence[Make]], given: Sequence[Any]) -> None:
    makes: Sequence[Make] | None = None
    works: list[Work] = []
    while (asked := connection.recv()) is not None:
        what, its = asked
        try:
            makes = enter(*given) if makes is None else makes
            if what == "make":
                works = [make(*its) for make in makes]
                answer: Any = len(works)
            else:
                number, calls = its
                answer = seconds(works[number], calls)
        except Exception as error:  # whatever a tool raises is told where it can be read
            connection.send((f"{type(error).__name__}: {error}", None))
        else:
            connection.send((None, answer))
