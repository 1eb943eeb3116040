"""Verbs for translation: check, translate, evaluate, compare, ladder. torch is imported inside the verbs only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli import terminal
from saccade.cli.terminal import Figures, Precise, RunPath, Settings, Step
from saccade.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.metrics import Confusion, Score

app = typer.Typer()


@app.command()
def check(
    source: Annotated[Path, typer.Argument(help="The sentences, or a .tsv with both sides.")],
    target: Annotated[Path | None, typer.Argument(help="Their translations, line by line.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Sentences that training must not see.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    test_source: Annotated[Path | None, typer.Option(help="Others that training must not see.")] = None,
    test_target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    longest: Annotated[int, typer.Option(min=1, help="Characters beyond which a sentence is long.")] = 400,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
) -> None:
    """Look through training data before hours are spent on it; exit code 2 if it cannot be trained on."""
    from rich.table import Table

    from saccade.data.check import check_pairs

    kept_apart = ((valid_source, valid_target), (test_source, test_target))
    against = [(one, other) for one, other in kept_apart if one is not None]
    report = check_pairs(source, target, against=against, longest=longest)
    if as_json:
        terminal.out.file.write(json.dumps(report.as_json(), ensure_ascii=False, indent=1) + "\n")
    else:
        terminal.out.print(f"{report.pairs:,} pairs", markup=False)
        table = Table("what", "count", "share", "", box=None, pad_edge=False)
        for finding in report.findings:
            share = f"{finding.share:.1%}" if finding.count else ""
            table.add_row(finding.what, f"{finding.count:,}", share, finding.severity)
        terminal.out.print(table)
        for finding in report.findings:
            for example in finding.examples:
                terminal.out.print(f"{finding.what}: line {example}", markup=False, soft_wrap=True)
    if not report.trainable:
        raise SaccadeError(f"{source} cannot be trained on")


@app.command()
def translate(
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", show_default=False)] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="The run that translates; several answer together. (default: French-English)"),
    ] = None,
    input_: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="Lines to translate; - for stdin.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where translations go. (default: stdout)")
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Beam width. (default: the recipe's)")] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Translations per line.")] = 1,
    scores: Annotated[
        bool, typer.Option("--scores", help="Put score and stop reason before each translation.")
    ] = False,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="After a tab, which word comes from which: i-j, source-target.")
    ] = False,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="Translations begin with this text.")] = "",
    must_include: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Translations contain this text. Repeatable.")
    ] = None,
    must_not_include: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="Translations do not contain this text. Repeatable.")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Pieces of text translated together.")] = 1024,
    precision: Precise = "float32",
    threads: Annotated[int | None, typer.Option(min=1, max=256, help="Threads. (default: as torch finds them)")] = None,
    step: Step = None,
) -> None:
    """Translate texts, or the lines of a file, in order; a blank line stays blank."""
    import torch

    from saccade import api
    from saccade.translation import alignment, translate_lines

    if bool(texts) == (input_ is not None):
        raise SaccadeError("give either texts or --input FILE (- for standard input)")
    if input_ is not None and output is not None and input_.exists() and output.exists() and input_.samefile(output):
        raise SaccadeError(f"{output}: is the input itself; nothing was written")
    runs = model or [api.SHIPPED]
    if len(runs) > 1 and step is not None:
        raise SaccadeError("--step is of one run, and several were given")
    wishes = {"prefix": prefix, "must_include": must_include, "must_not_include": must_not_include}
    settings = [terminal.as_setting(f"decode.{key}", value) for key, value in wishes.items() if value]
    predictor = terminal.loaded(runs[0], step, threads, settings, precision)
    translator = api.ensemble(runs, settings=settings, precision=predictor.precision) if len(runs) > 1 else predictor
    if input_ is not None:
        count = torch.get_num_threads()
        terminal.note(f"{predictor.precision}, {count} thread{'s' * (count > 1)}")
    lines = iter(texts) if texts else terminal.lines(input_ or Path("-"))
    found = translate_lines(
        translator,
        terminal.arriving(lines) if str(input_) == "-" else lines,
        terminal.method(predictor, beam, n_best),
        batch_tokens=batch_tokens,
    )
    first = next(found, None)  # input that cannot be read is known before the output is touched
    refused = 0
    with nullcontext(terminal.out.file) if output is None else output.open("w", encoding="utf-8") as file:
        for each in chain([] if first is None else [first], found):
            refused += each.refusal is not None
            for note in (*each.notes, *([each.refusal] if each.refusal else [])):
                terminal.err.print(f"saccade: {note}", style="yellow", markup=False, soft_wrap=True)
            for one in each.translations:
                prefix = f"{one.score:.4f}\t{one.stopped}\t" if scores else ""
                suffix = f"\t{alignment(predictor, one)}" if alignments else ""
                file.write(f"{prefix}{one.text}{suffix}\n")
            file.write("" if each.translations else "\n")
            file.flush()
    if refused:
        raise SaccadeError(f"{refused} lines were refused and are blank in the output")


@app.command()
def evaluate(
    run: RunPath,
    source: Annotated[Path | None, typer.Option(help="For translate: the sentences to translate.")] = None,
    target: Annotated[
        list[Path] | None, typer.Option(help="Their references; repeat it for several. None: source is a .tsv.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Without files: which part of the run's own data, valid or test.")
    ] = "valid",
    beam: Annotated[int | None, typer.Option(min=1, help="Beam width. (default: the recipe's)")] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the translations here.")] = None,
    confusion: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write which labels are taken for which, as .tsv or .png.")
    ] = None,
    precision: Precise = "float32",
    threads: Annotated[int | None, typer.Option(min=1, max=256, help="Threads. (default: as torch finds them)")] = None,
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
        if target or output is not None or precision != "float32":
            raise SaccadeError("--target, --output and --precision go with a --source")
        asked = [*(settings or ()), *([] if beam is None else [f"decode.beam={beam}"])]
        predictor = terminal.loaded(run, step, threads, asked)
        if confusion is not None:
            _keep_confusion(predictor.confusion(split), confusion)
        _show(predictor.evaluate(split), json_)
        return
    if confusion is not None:
        raise SaccadeError("--confusion is of labels, and translations have none")
    predictor = terminal.loaded(run, step, threads, settings or (), precision)
    found = evaluate_files(predictor, source, target or (), terminal.method(predictor, beam, 1))
    if output is not None:
        output.write_text("".join(f"{answer}\n" for answer in found.answers), encoding="utf-8")
    for refusal in found.refused:
        terminal.err.print(f"saccade: {refusal}", style="yellow", markup=False, soft_wrap=True)
    _show(found.scores, json_)
    terminal.say(f"{found.sentences:,} sentences, {found.cut} translations hit the length limit")


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
) -> None:
    """Compare two runs on the same file, with paired bootstrap resampling."""
    from saccade.translation import compare_files

    found = compare_files(
        (terminal.loaded(first, None, None), terminal.loaded(second, None, None)), source, target or ()
    )
    terminal.out.print(f"{first}  BLEU {found.first:.1f}", markup=False)
    terminal.out.print(f"{second}  BLEU {found.second:.1f}", markup=False)
    verdict = "differ" if found.p_value < 0.05 else "may differ by chance only"
    terminal.out.print(f"p = {found.p_value:.3f}: they {verdict}  {found.signature}", markup=False, soft_wrap=True)


@app.command()
def ladder(
    source: Annotated[Path, typer.Option(help="The sentences, or a .tsv with both sides.")],
    target: Annotated[Path | None, typer.Option(help="Their translations, line by line.")] = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="For all five models together.")] = 25.0,
    out_: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the five runs and the plot go.")] = Path(
        "runs/ladder"
    ),
    settings: Settings = None,
) -> None:
    """The course on your own data: RNNs, attention, convolutional, Transformer, the same minutes each."""
    from saccade import display

    chosen = terminal.files(source=source, target=target)
    raise SystemExit(display.climb(out_, [*chosen, *(settings or ())], minutes, terminal.out))
