"""Contestants in processes of their own: they do what they are asked, and what goes wrong there is told here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from saccade.bench.booth import Booth
from saccade.bench.measure import interleaved
from saccade.errors import SaccadeError


def writers(*names: str) -> list[Callable[[str], Callable[[], None]]]:
    """One for each name, which writes it and the number of its process to a file."""

    def maker(name: str) -> Callable[[str], Callable[[], None]]:
        def make(file: str) -> Callable[[], None]:
            def work() -> None:
                with Path(file).open("a") as opened:
                    opened.write(f"{name} {os.getpid()}\n")

            return work

        return make

    return [maker(name) for name in names]


def leaving() -> list[Callable[[], Callable[[], None]]]:
    return [lambda: lambda: os._exit(1)]


def test_each_has_a_process_of_its_own_and_is_timed_there(tmp_path) -> None:
    file, booths = tmp_path / "told", [Booth("one", writers, "a", "b"), Booth("other", writers, "c")]
    works = {(booth.name, work.number): work for booth in booths for work in booth.works(str(file))}
    timings = interleaved(works, rounds=2, shortest=0.0)
    for booth in booths:
        booth.close()
    assert all(timing.best > 0 for timing in timings.values())
    told = [line.split() for line in file.read_text().splitlines()]
    assert [name for name, _ in told] == [*"aabbcc", *"abc", *"abc"]  # twice before anything counts, then in turn
    process = dict(told)
    assert process["a"] == process["b"] and len({process["a"], process["c"], str(os.getpid())}) == 3


def test_what_goes_wrong_there_is_told_here(tmp_path) -> None:
    booth = Booth("a tool", writers, "a")
    (work,) = booth.works(str(tmp_path / "missing" / "told"))
    with pytest.raises(SaccadeError, match=r"a tool cannot be measured: FileNotFoundError: .*missing"):
        work()
    booth.close()
    booth = Booth("another", leaving)
    (work,) = booth.works()
    with pytest.raises(SaccadeError, match="another ended in the middle of a measurement"):
        work()
    booth.close()
