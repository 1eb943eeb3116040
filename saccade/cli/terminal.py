"""What all verbs share: where they print, the options they have in common, and how they fail."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from saccade.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.decode import Method
    from saccade.metrics import Score
    from saccade.predictor import Predictor

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

PICTURES = (".png", ".svg", ".pdf")

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. --set train.steps=500. Repeatable."),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, as `saccade train` made it.")]
Step = Annotated[int | None, typer.Option(help="Use this step's weights instead of the final ones.")]
Plot = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Draw the result as .png, .svg or .pdf.")]
Figures = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write every figure as JSON.")]
Precise = Annotated[
    str, typer.Option("--precision", metavar="float32|int8", help="int8 writes faster, and nearly the same.")
]
Threads = Annotated[int | None, typer.Option(min=1, max=256, help="Threads. (default: as torch finds them)")]
BeamWidth = Annotated[
    int | None, typer.Option("--beam", min=1, max=1000, help="Beam width. (default: the recipe's)")
]  # bounded: memory grows with it, until the kernel ends the process without a word
Columns = Annotated[
    str | None, typer.Option("--columns", metavar="SOURCE,TARGET", help="Of a .tsv, from 1 on, as in 2,1.")
]


def fail(message: str) -> NoReturn:
    err.print(f"saccade: {message}", style="red", markup=False, soft_wrap=True)
    raise SystemExit(2) from None


def files(**paths: Path | None) -> list[str]:
    """Settings for files of a task, by their full names: a run must find its data from anywhere."""
    return [as_setting(f"task.{key}", str(path.resolve())) for key, path in paths.items() if path is not None]


def require_writable(picture: Path | None, *others: Path | None) -> None:
    """Refuse a place where results cannot go, before minutes are spent on them."""
    if picture is not None and picture.suffix not in PICTURES:
        raise SaccadeError(f"{picture}: cannot draw {picture.suffix or 'that'}; there are {', '.join(PICTURES)}")
    for path in filter(None, (picture, *others)):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SaccadeError(f"{path}: {error.strerror}") from error
        if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
            raise SaccadeError(f"{path}: cannot be written")


def say(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    """Beside the output, for who watches."""
    err.print(text, style="dim", markup=False, soft_wrap=True)


class _Notes(logging.Handler):
    """What the library says while it works."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(SystemExit):  # with which rich ends the program where nobody reads
            note(record.getMessage())


NOTES = _Notes()


def warn(text: str) -> None:
    err.print(f"saccade: {text}", style="yellow", markup=False, soft_wrap=True)


def scores(found: Sequence[Score]) -> None:
    """A table for who watches, with what all have in common said once; elsewhere a line for each."""
    if not out.is_terminal:
        for each in found:
            say(f"{each}  {each.signature}".rstrip())
        return
    common = found[0].signature if len({each.signature for each in found}) == 1 else ""
    table = Table(show_header=False, box=None, pad_edge=False)
    for justify, style in (("left", ""), ("right", "bold"), ("left", ""), ("left", "dim")):
        table.add_column(justify=justify, style=style, overflow="fold")  # type: ignore[arg-type]
    for each in found:
        table.add_row(*map(Text, (each.name, each.shown, each.ends, "" if common else each.signature)))
    out.print(table)
    if common:
        out.print(common, style="dim", markup=False)


def loaded(
    run: Path, step: int | None, threads: int | None, settings: Sequence[str] = (), precision: str = "float32"
) -> Predictor:
    import torch

    from saccade import api
    from saccade.predictor import require_precision

    if threads is not None:
        torch.set_num_threads(threads)
    return api.load(run, step=step, settings=settings, precision=require_precision(precision))


def as_setting(key: str, value: object) -> str:
    """ "key=value" for any text, however many quotes it has."""
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


def method(predictor: Predictor, beam: int | None, n_best: int, *, scored: bool = True) -> Method | None:
    """The beam that was asked for, or None for the recipe's own, unless that is a greedy search without scores."""
    from saccade.decode import Beam, Greedy

    settings = predictor.recipe.decode
    if beam is None and n_best == 1 and (scored or settings.beam > 1):
        return None
    if (beam or settings.beam) == n_best == 1:
        return Greedy(scored)
    return Beam(max(beam or settings.beam, n_best), best=n_best, length_penalty=settings.length_penalty)


def columns(text: str | None, *, tables: bool) -> tuple[int, int] | None:
    """Two numbers from 1 on, or None where none were given; without `tables` nothing has columns."""
    if text is None:
        return None
    if not tables:
        raise SaccadeError("--columns are of a .tsv with both sides, and a file of targets was given, too")
    numbers = [int(each) if each.strip().isdecimal() else 0 for each in text.split(",")]
    if len(numbers) != 2 or min(numbers) < 1 or numbers[0] == numbers[1]:
        raise SaccadeError(f"--columns {text}: there must be two different numbers from 1 on, as in 2,1")
    return numbers[0], numbers[1]


def lines(path: Path) -> Iterator[str]:
    """Of a file, or of standard input for -."""
    from saccade.data.readers import read_lines, read_stdin

    return read_stdin() if str(path) == "-" else read_lines(path)


def arriving(lines: Iterator[str]) -> Iterator[str | None]:
    """Lines as they come, and None whenever no more is waiting: whoever pipes one line in gets its answer at once."""
    waiting: Queue[str | BaseException | None] = Queue(maxsize=10_000)

    def receive() -> None:
        try:
            for line in lines:
                waiting.put(line)
            waiting.put(None)
        except SaccadeError as error:
            waiting.put(error)

    Thread(target=receive, daemon=True).start()
    while True:
        if waiting.empty():
            yield None
        line = waiting.get()
        if line is None:
            return
        if isinstance(line, BaseException):
            raise line
        yield line


def warner() -> Callable[..., None]:
    """Shows a warning, and none twice: what is said of a folder is said whenever the folder is opened."""
    said: set[str] = set()

    def show(message: Warning | str, *_: object) -> None:
        if (text := str(message)) not in said:
            said.add(text)
            with suppress(SystemExit):  # with which rich ends the program where nobody reads
                err.print(f"saccade: warning: {text}", style="yellow", markup=False, soft_wrap=True)

    return show
