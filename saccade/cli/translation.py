"""Verbs for translation: check, translate, ladder. torch is imported inside the verbs only."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.cli import terminal
from saccade.cli.terminal import BeamWidth, Columns, Precise, Settings, Step, Threads
from saccade.cli.writing import lines_to, partial_of, watched
from saccade.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.translation import Translated, Translation

    Aligned = Callable[[Translation], str]  # which word comes from which

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
    columns: Columns = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
) -> None:
    """Look through training data before hours are spent on it; exit code 2 if it cannot be trained on."""
    from rich.table import Table

    from saccade.data.check import check_pairs

    kept_apart = ((valid_source, valid_target), (test_source, test_target))
    against = [(one, other) for one, other in kept_apart if one is not None]
    tables = target is None or any(other is None for _, other in against)
    chosen = terminal.columns(columns, tables=tables) or (1, 2)
    report = check_pairs(source, target, columns=chosen, against=against, longest=longest)
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
    texts: Annotated[list[str] | None, typer.Argument(metavar="TEXT", show_default=False)] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(metavar="RUN", help="The run that translates; several answer together. (default: French-English)"),
    ] = None,
    input_: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="Lines to translate; - for stdin, as without texts.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where translations go, .gz and .xz too. (default: stdout)")
    ] = None,
    split: Annotated[
        bool, typer.Option("--split/--whole", help="Translate each sentence of a line by itself, or whole lines.")
    ] = True,
    beam: BeamWidth = None,
    n_best: Annotated[int, typer.Option(min=1, max=1000, help="Translations per line.")] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(min=0, help="Of a beam; more makes longer. (default: the recipe's)")
    ] = None,
    scores: Annotated[
        bool, typer.Option("--scores", help="Put score and stop reason before each translation.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object for each line instead of text.")] = False,
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
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Pieces read ahead: like lengths go together. (default: 4096, or fewer)")
    ] = None,
    precision: Precise = "float32",
    threads: Threads = None,
    step: Step = None,
) -> None:
    """Translate texts, or the lines of a file, in order; a blank line stays blank."""
    import torch

    from saccade import api
    from saccade.translation import alignment, translate_lines

    if not texts and input_ is None and sys.stdin is not None and not sys.stdin.isatty():
        input_ = Path("-")
    if bool(texts) == (input_ is not None):
        raise SaccadeError("give either texts or --input FILE (- for standard input)")
    if input_ is not None and output is not None and input_.exists():
        for taken in (output, partial_of(output)):
            if taken.exists() and input_.samefile(taken):
                raise SaccadeError(f"{taken}: is the input itself; nothing was written")
    runs = model or [api.SHIPPED]
    if len(runs) > 1 and step is not None:
        raise SaccadeError("--step is of one run, and several were given")
    wishes: dict[str, object] = {"prefix": prefix or None, "length_penalty": length_penalty}
    wishes |= {"must_include": must_include or None, "must_not_include": must_not_include or None}
    settings = [terminal.as_setting(f"decode.{key}", value) for key, value in wishes.items() if value is not None]
    predictor = terminal.loaded(runs[0], step, threads, settings, precision)
    translator = api.ensemble(runs, settings=settings, precision=predictor.precision) if len(runs) > 1 else predictor
    count = torch.get_num_threads()
    terminal.note(f"{predictor.precision}, {count} thread{'s' * (count > 1)}, by {predictor.multiplier}")
    lines = iter(texts) if texts else terminal.lines(input_ or Path("-"))
    found = translate_lines(
        translator,
        terminal.arriving(lines) if str(input_) == "-" else lines,
        terminal.method(predictor, beam, n_best, scored=scores or as_json),
        split=split,
        batch_tokens=batch_tokens,
    )
    aligned = partial(alignment, predictor) if alignments else None
    refused = 0
    with lines_to(output) as write:
        for number, each in enumerate(found if output is None else watched(found, "lines"), start=1):
            refused += each.refusal is not None
            for note in (*each.notes, *([each.refusal] if each.refusal else [])):
                terminal.warn(note)
            for line in [_as_json(number, each, aligned)] if as_json else _as_text(each, scores, aligned):
                write(line)
    if refused:
        state = "without translations" if as_json else "blank"
        raise SaccadeError(f"{refused} lines were refused and are {state} in the output")


def _as_text(found: Translated, scores: bool, aligned: Aligned | None) -> Iterator[str]:
    for each in found.translations:
        before = f"{each.score:.4f}\t{each.stopped}\t" if scores else ""
        yield f"{before}{each.text}" + (f"\t{aligned(each)}" if aligned else "")
    if not found.translations:
        yield ""


def _as_json(number: int, found: Translated, aligned: Aligned | None) -> str:
    translations = [
        {"text": each.text, "score": each.score, "stopped": each.stopped}
        | ({"alignment": aligned(each)} if aligned else {})
        for each in found.translations
    ]
    row = {"line": number, "source": found.line, "translations": translations, "refusal": found.refusal}
    # an argument of the command may have bytes that are no text: they can only be written as escapes
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


@app.command()
def ladder(
    source: Annotated[Path, typer.Option(help="The sentences, or a .tsv with both sides.")],
    target: Annotated[Path | None, typer.Option(help="Their translations, line by line.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Validation sentences. (default: held out by hash)")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Validation translations.")] = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="For all five models together.")] = 25.0,
    out_: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the five runs and the plot go.")] = Path(
        "runs/ladder"
    ),
    settings: Settings = None,
) -> None:
    """The course on your own data: RNNs, attention, convolutional, Transformer, the same minutes each."""
    from saccade import display

    chosen = terminal.files(source=source, target=target, valid_source=valid_source, valid_target=valid_target)
    raise SystemExit(display.climb(out_, [*chosen, *(settings or ())], minutes, terminal.out))
