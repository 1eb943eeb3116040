"""How things are measured: turns, counted memory, the lock, and places that cannot be written to."""

import os

import pytest
import torch

from saccade.bench import measure
from saccade.errors import SaccadeError


def test_contestants_take_turns(monkeypatch):
    monkeypatch.setattr(measure, "SHORTEST", 0.0)  # one call per round
    called = []
    timings = measure.interleaved({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, rounds=3)
    assert called == ["a", "a", "b", "b"] + ["a", "b"] * 3  # a first call and one that sets the pace, then turns
    assert all(0 <= timing.best <= timing.median and timing.rounds == 3 for timing in timings.values())


def test_fast_contestants_are_called_often_enough_to_be_timed(monkeypatch):
    monkeypatch.setattr(measure, "SHORTEST", 0.001)
    called = []
    measure.interleaved({"fast": lambda: called.append(1)}, rounds=1)
    assert len(called) > 10


def test_a_timing_is_taken_again_while_other_machines_have_the_processors(monkeypatch):
    """As the host counts it: here during the first try of the first round."""
    monkeypatch.setattr(measure, "SHORTEST", 0.0)
    monkeypatch.setattr(measure, "STOLEN", 0.05)
    counted, called = iter([0.0, 9.0] + [9.0] * 10), []
    monkeypatch.setattr(measure, "stolen", lambda: next(counted))
    measure.interleaved({"a": lambda: called.append("a")}, rounds=2)
    assert len(called) == 2 + 2 + 1


def test_timings_that_were_always_disturbed_are_told(monkeypatch):
    monkeypatch.setattr(measure, "SHORTEST", 0.0)
    monkeypatch.setattr(measure, "STOLEN", 0.05)
    counted = iter(range(100))
    monkeypatch.setattr(measure, "stolen", lambda: next(counted))
    with pytest.warns(measure.BusyWarning, match="had the processors during 2 of 2 timings"):
        measure.interleaved({"a": lambda: None}, rounds=2)


@pytest.mark.parametrize(
    ("told", "expected"), [("cpu  5 0 5 5 5 0 0 250 0 0\ncpu0", 2.5), ("cpu 1 2", 0.0), (None, 0.0)]
)
def test_what_others_had_is_read_where_it_is_counted(monkeypatch, told, expected):
    def read(path):
        if told is None:
            raise FileNotFoundError(path)
        return told

    monkeypatch.setattr(measure.Path, "read_text", read)
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    assert measure.stolen() == expected


def test_peak_is_what_is_held_at_once():
    megabyte = 2**20

    def one_after_the_other():
        for _ in range(3):
            torch.empty(megabyte, dtype=torch.uint8)

    def all_at_once():
        return [torch.empty(megabyte, dtype=torch.uint8) for _ in range(3)]

    assert megabyte <= measure.peak_bytes(one_after_the_other) < 1.1 * megabyte
    assert 3 * megabyte <= measure.peak_bytes(all_at_once) < 3.1 * megabyte


def test_peak_sees_inside_operators():
    x = torch.randn(256, 256)
    assert measure.peak_bytes(lambda: torch.median(x)) >= x.nbytes  # gives one number, and sorts a copy to find it


def test_profiler_writes_nothing(capfd):
    measure.peak_bytes(lambda: torch.ones(3))
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_two_measurements_are_not_taken_together():
    with (
        measure.alone(),
        pytest.raises(SaccadeError, match="another `saccade bench` is running"),
        measure.alone(),
    ):
        pass
    with measure.alone():  # free again
        pass


@pytest.mark.parametrize("load", [0.0, 100.0])
def test_a_busy_machine_is_told(monkeypatch, load):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load))
    if load:
        with pytest.warns(measure.BusyWarning, match=r"load is 100\.0"):
            measure.warn_if_busy()
    else:
        measure.warn_if_busy()  # a warning would be an error
