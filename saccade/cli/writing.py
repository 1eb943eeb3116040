"""Where lines of text go: to who reads standard output, or into a file that is there only when it is whole."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from saccade.cli import terminal
from saccade.errors import SaccadeError

Item = TypeVar("Item")

PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}


@contextmanager
def lines_to(path: Path | None) -> Iterator[Callable[[str], None]]:
    """A function that writes a line: to standard output without a path, straight into what is no plain file, and else
    into FILE.partial beside it, packed as the name says, which takes its place in the end.

    On an error the old file stays as it was, and it is said how many lines the partial one has.
    """
    if path is None:
        with _failing_as(None):
            yield _writer(terminal.out.file)
    elif (path.exists() and not path.is_file()) or path.absolute().parts[1:2] in (("dev",), ("proc",)):
        with _failing_as(path), path.open("w", encoding="utf-8") as file:
            yield _writer(file)
    else:
        with _failing_as(path), _replaced(path) as write:
            yield write


def watched(items: Iterable[Item], what: str) -> Iterator[Item]:
    """The items, counted in the terminal as they go by, for who waits for a file to be written."""
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(f"{{task.completed:,.0f}} {what}"), TimeElapsedColumn())
    with Progress(*columns, console=terminal.err, transient=True, disable=not terminal.err.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        for item in items:
            yield item
            progress.advance(bar)


def partial_of(path: Path) -> Path:
    """Where the lines of a file are until it is whole; behind a link, beside what the link means."""
    path = path.resolve() if path.is_symlink() else path
    return path.with_name(f"{path.name}.partial")


@contextmanager
def _replaced(path: Path) -> Iterator[Callable[[str], None]]:
    partial, written = partial_of(path), 0
    whole, packing = partial.with_suffix(""), PACKED.get(path.suffix)
    try:
        with (packing or open)(partial, "wt", encoding="utf-8") as file:
            if whole.exists():
                shutil.copymode(whole, partial)
            put = _writer(file, at_once=packing is None)

            def write(line: str) -> None:
                nonlocal written
                put(line)
                written += 1

            yield write
        partial.replace(whole)
    except BaseException:
        if written:
            state = "as it was" if whole.exists() else "not there"
            terminal.warn(f"{partial} has {written:,} lines, and {path} is {state}")
        else:
            partial.unlink(missing_ok=True)
        raise


def _writer(file: IO[str], at_once: bool = True) -> Callable[[str], None]:
    def write(line: str) -> None:
        file.write(f"{line}\n")
        if at_once:  # who watches sees it now; packing would suffer from it
            file.flush()

    return write


@contextmanager
def _failing_as(path: Path | None) -> Iterator[None]:
    """Errors of writing name what could not be written; a reader who has gone (`| head`) is none: the command leaves
    with the exit code of that signal, like `train`."""
    try:
        yield
    except OSError as error:
        if path is None:
            with suppress(OSError), Path(os.devnull).open("wb") as nowhere:  # what is left to be flushed goes there
                os.dup2(nowhere.fileno(), terminal.out.file.fileno())
        if isinstance(error, BrokenPipeError):
            raise SystemExit(128 + signal.SIGPIPE) from None
        raise SaccadeError(f"{path or 'standard output'}: {error.strerror or error}") from error
