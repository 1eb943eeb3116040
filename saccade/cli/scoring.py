"""Verbs that score what was trained: evaluate, compare. torch is imported inside the verbs only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli import terminal
from saccade.cli.terminal import BeamWidth, Columns, Figures, Precise, RunPath, Step, Threads
from saccade.cli.writing import lines_to
from saccade.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.metrics import Confusion, Score
    from saccade.predictor import Predictor

app = typer.Typer()


@app.command()
def evaluate(
    run: RunPath,
    source: Annotated[Path | None, typer.Option(help="For translate: the sentences to translate.")] = None,
    target: Annotated[
        list[Path] | None, typer.Option(help="Their references; repeat it for several. None: source is a .tsv.")
    ] = None,
    columns: Columns = None,
    split: Annotated[
        str | None, typer.Option(help="Without files: a part of the run's own data, valid or test. (default: valid)")
    ] = None,
    beam: BeamWidth = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the translations here.")] = None,
    confusion: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write which labels are taken for which, as .tsv or .png.")
    ] = None,
    precision: Precise = "float32",
    threads: Threads = None,
    step: Step = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another task.test, task.stride, decode.beam ... Repeatable."),
    ] = None,
    json_: Figures = None,
) -> None:
    """Score a model with 95% intervals: on files of translations, or on a part of the data it was made for."""
    from saccade.translation import evaluate_files

    terminal.require_writable(None, confusion, output, json_)
    if confusion is not None and confusion.suffix not in (".tsv", *terminal.PICTURES):
        raise SaccadeError(f"{confusion}: the table is written as .tsv, or drawn as {', '.join(terminal.PICTURES)}")
    if source is None:
        if target or columns or output is not None or precision != "float32":
            raise SaccadeError("--target, --columns, --output and --precision go with a --source")
        asked = [*(settings or ()), *([] if beam is None else [f"decode.beam={beam}"])]
        predictor = terminal.loaded(run, step, threads, asked)
        part = split or "valid"
        if confusion is not None:
            _keep_confusion(predictor.confusion(part), confusion)
        _show(predictor.evaluate(part), json_)
        return
    if split is not None:
        raise SaccadeError(f"--split {split} is a part of the run's own data, and --source a file: choose one")
    if confusion is not None:
        raise SaccadeError("--confusion is of labels, and translations have none")
    chosen = terminal.columns(columns, tables=not target)
    predictor = terminal.loaded(run, step, threads, settings or (), precision)
    chosen = _told_columns(predictor, chosen, source, target or ())
    method = terminal.method(predictor, beam, 1, scored=False)
    found = evaluate_files(predictor, source, target or (), method, columns=chosen)
    if output is not None:
        with lines_to(output) as write:
            for answer in found.answers.texts:
                write(answer)
    for refusal in found.answers.refused:
        terminal.warn(refusal)
    _show(found.scores, json_)
    terminal.say(str(found.answers))


def _told_columns(
    predictor: Predictor, chosen: tuple[int, int] | None, source: Path, targets: Sequence[Path]
) -> tuple[int, int]:
    """Those that were chosen, or the recipe's; which way round a table is read can be seen."""
    from saccade.translation import columns_of

    columns = chosen or columns_of(predictor)
    if not targets:
        whose = "" if chosen else ", as the recipe has it: --columns SOURCE,TARGET for others"
        terminal.note(f"{source}: column {columns[0]} is translated, column {columns[1]} the reference{whose}")
    return columns


def _keep_confusion(table: Confusion, path: Path) -> None:
    from saccade.bench.confusion import draw_confusion

    if path.suffix == ".tsv":
        path.write_text(table.tsv(), encoding="utf-8")
    else:
        draw_confusion(table, path)


def _show(scores: Sequence[Score], path: Path | None) -> None:
    terminal.scores(scores)
    if path is not None:
        path.write_text(json.dumps([asdict(score) for score in scores], indent=2, ensure_ascii=False), encoding="utf-8")


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN_A")],
    second: Annotated[Path, typer.Argument(metavar="RUN_B")],
    source: Annotated[Path, typer.Option(help="The sentences to translate.")],
    target: Annotated[
        list[Path] | None, typer.Option(help="Their references; repeat it for several. None: source is a .tsv.")
    ] = None,
    columns: Columns = None,
    beam: BeamWidth = None,
    precision: Precise = "float32",
    threads: Threads = None,
) -> None:
    """Compare two runs on the same file, with paired bootstrap resampling."""
    from saccade.translation import compare_files

    chosen = terminal.columns(columns, tables=not target)
    one, other = (terminal.loaded(run, None, threads, precision=precision) for run in (first, second))
    found = compare_files(
        (one, other),
        source,
        target or (),
        (terminal.method(one, beam, 1, scored=False), terminal.method(other, beam, 1, scored=False)),
        columns=_told_columns(one, chosen, source, target or ()),
    )
    for run, score, answers in zip((first, second), (found.first, found.second), found.answers, strict=True):
        for refusal in answers.refused:
            terminal.warn(f"{run}: {refusal}")
        terminal.note(f"{run}: {answers}")
        terminal.say(f"{run}  {score}")
    verdict = "differ" if found.p_value < 0.05 else "may differ by chance only"
    terminal.say(f"p = {found.p_value:.3f}: they {verdict}  {found.first.signature}")
