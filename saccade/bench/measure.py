"""How things are measured: alone, contestants in turn, the best of several rounds, and what it all ran on."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from saccade import __version__
from saccade.errors import SaccadeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Name = TypeVar("Name", bound=Hashable)
BUSY = 0.25  # load per processor, above which figures are doubtful
STOLEN = 0.05  # share of the processors that other machines had meanwhile, above which a timing is taken again
TRIES = 4
SHORTEST = 0.02  # seconds that one timing lasts at least, so that the clock and its call do not count
# what tells tools which instructions and how much memory they may use
STEERING = (
    "SACCADE_NATIVE",
    "ATEN_CPU_CAPABILITY",
    "CT2_FORCE_CPU_ISA",
    "ONEDNN_MAX_CPU_ISA",
    "MALLOC_MMAP_MAX_",
    "MALLOC_TRIM_THRESHOLD_",
)


class BusyWarning(UserWarning):
    """Something else runs on this machine: figures taken now are void."""


@dataclass(frozen=True)
class Timing:
    """Seconds of one call: the best and the median of several rounds."""

    best: float
    median: float
    rounds: int


def interleaved(
    contestants: Mapping[Name, Callable[[], object]],
    *,
    rounds: int,
    shortest: float | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[Name, Timing]:
    """Time each contestant once per round, so that whatever slows the machine for a while slows them all, once.

    The first call of each is not counted; of fast ones, each round takes the mean of as many calls as fill `shortest`
    seconds, 20 ms unless told. A timing during which other machines had the processors is taken again.
    """
    disturbed = 0
    calls: dict[Name, int] = {}
    for name, work in contestants.items():
        work()
        calls[name] = max(1, round((SHORTEST if shortest is None else shortest) / max(seconds(work, 1), 1e-6)))
    times: dict[Name, list[float]] = {name: [] for name in contestants}
    for number in range(rounds):
        for name, work in contestants.items():
            took, undisturbed = _undisturbed(work, calls[name])
            times[name].append(took)
            disturbed += not undisturbed
        tell(f"round {number + 1} of {rounds}")
    if disturbed:
        message = f"other machines had the processors during {disturbed} of {rounds * len(contestants)} timings"
        warnings.warn(f"{message}: look at how far the median stays behind the best", BusyWarning, stacklevel=2)
    return {name: Timing(min(each), statistics.median(each), rounds) for name, each in times.items()}


def _undisturbed(work: Callable[[], object], calls: int) -> tuple[float, bool]:
    """Seconds of one call, and whether the processors were there all the while: of several tries, if need be, the
    first one of which that is true, or the last."""
    for _ in range(TRIES):
        begun, before = time.perf_counter(), stolen()
        took = seconds(work, calls)
        most = STOLEN * (time.perf_counter() - begun) * (os.cpu_count() or 1)
        if stolen() - before <= most:
            return took, True
    return took, False


def stolen() -> float:
    """Seconds of processor time, since the system began, that a host gave to others while this machine had work for it;
    0 where nobody counts them."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that is held at once of what `work` allocates; what existed before does not count.

    Counted, not sampled: every allocation and release of torch's allocator, those inside the kernels included, adds up
    to a balance whose highest point this is. Workspace that a mathematics library takes on its own is not seen.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler would write its own start and stop to the terminal
    work()  # once before: what is allocated only the first time is not the work's
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        work()
    assert profile.kineto_results is not None
    events = [event for event in profile.kineto_results.events() if event.name() == "[memory]"]
    balance = highest = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        balance += event.nbytes()
        highest = max(highest, balance)
    return highest


def warn_if_busy() -> None:
    """Say so where times taken now would be wrong."""
    load, processors = os.getloadavg()[0], os.cpu_count() or 1
    if load > BUSY * processors:
        warnings.warn(
            f"the load is {load:.1f} on {processors} processors before anything is measured: "
            "times taken now are void, take them again when the machine is quiet",
            BusyWarning,
            stacklevel=2,
        )


@contextmanager
def alone() -> Iterator[None]:
    """Refuse to measure beside another measurement."""
    import fcntl  # here, so that everything else needs no POSIX

    path = Path(tempfile.gettempdir()) / f"saccade-bench-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however that ends
        except BlockingIOError as error:
            raise SaccadeError("another `saccade bench` is running: measured together, both would be wrong") from error
        yield
    finally:
        os.close(descriptor)


def circumstances() -> dict[str, Any]:
    """What figures depend on beside the code: to be taken before the measurement, which is a load itself."""
    return {
        "saccade": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_before": round(os.getloadavg()[0], 2),
        "environment": {name: os.environ[name] for name in STEERING if name in os.environ},
        "date": time.strftime("%Y-%m-%d"),
    }


def save(content: Mapping[str, Any], json_path: Path | None, figure: Figure | None, picture: Path | None) -> None:
    """Write the figures as JSON and the picture, whichever are wanted."""
    if json_path is not None:
        json_path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if figure is not None and picture is not None:
        figure.savefig(picture, dpi=120)


def seconds(work: Callable[[], object], calls: int) -> float:
    """Of one call, the mean of so many: as `work` itself says it, or by the clock."""
    itself: Callable[[int], float] | None = getattr(work, "seconds", None)
    if itself is not None:
        return itself(calls)
    begun = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - begun) / calls
