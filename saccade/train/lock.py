"""One process per run directory: the kernel holds the lock, a file in the directory says for whom."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from saccade.errors import RunError, RunWarning
from saccade.train.checkpoint import explained, temporary_beside, write_file


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Refuse a directory that another process holds, or that cannot be written to."""
    import fcntl  # here, so that reading a run needs no POSIX

    path = directory / ".lock"
    probe = temporary_beside(directory / "probe")
    with explained(directory):
        probe.unlink(missing_ok=True)
        write_file(probe, [b"probe"])
        probe.unlink()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            # A flock ends with its process, even by kill -9; the number in the file is for people.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode(errors="replace") or "unknown"
            raise RunError(
                f"{directory} is in use by process {holder}: wait until it ends, or choose another --out"
            ) from error
        except OSError as error:
            warnings.warn(
                f"{path}: this filesystem has no locks ({error.strerror}): start no second process on this run",
                RunWarning,
                stacklevel=3,
            )
        with explained(path):
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        try:
            yield
        finally:
            os.truncate(descriptor, 0)
            # Forked data workers hold the descriptor too: unlocking frees the run, closing alone would not.
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
