"""What all verbs share: where they print, the options they have in common, and how they fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from saccade.api import Predictor
    from saccade.decode import Method

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. --set train.steps=500. Repeatable."),
]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, as `saccade train` made it.")]
Step = Annotated[int | None, typer.Option(help="Use this step's weights instead of the final ones.")]
Plot = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Draw the result as .png, .svg or .pdf.")]
Figures = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write every figure as JSON.")]


def fail(message: str) -> NoReturn:
    err.print(f"saccade: {message}", style="red", markup=False, soft_wrap=True)
    raise SystemExit(2) from None


def files(**paths: Path | None) -> list[str]:
    """Settings for files of a task, by their full names: a run must find its data from anywhere."""
    return [
        f"task.{key}={json.dumps(str(p.resolve()), ensure_ascii=False)}" for key, p in paths.items() if p is not None
    ]


def say(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def loaded(run: Path, step: int | None, threads: int | None) -> Predictor:
    import torch

    from saccade import api

    if threads is not None:
        torch.set_num_threads(threads)
    return api.load(run, step=step)


def method(predictor: Predictor, beam: int | None, n_best: int) -> Method | None:
    """The beam that was asked for, or None for the recipe's own."""
    from saccade.decode import Beam

    if beam is None and n_best == 1:
        return None
    settings = predictor.recipe.decode
    return Beam(max(beam or settings.beam, n_best), best=n_best, length_penalty=settings.length_penalty)


def lines(path: Path | None) -> Iterator[str]:
    from saccade.data.readers import read_lines, read_stdin

    if str(path) == "-":
        return read_stdin()
    assert path is not None
    return read_lines(path)


def show_warning(message: Warning | str, *_: object) -> None:
    err.print(f"saccade: warning: {message}", style="yellow", markup=False, soft_wrap=True)
