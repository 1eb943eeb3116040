"""Verbs for any task: train, predict, look, verify, report, pack, demo. torch is imported inside them only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli import terminal
from saccade.cli.terminal import BeamWidth, RunPath, Settings, Step
from saccade.cli.writing import lines_to
from saccade.errors import SaccadeError

app = typer.Typer()

AllowNonfinite = Annotated[
    bool, typer.Option("--allow-nonfinite", help="Load weights although NaN or infinity is in them.")
]


@app.command()
def train(
    recipe: Annotated[
        str | None, typer.Argument(help="A recipe by name (see `saccade recipes`) or a YAML file.", show_default=False)
    ] = None,
    out_: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="The new run directory. (default: runs/RECIPE)")
    ] = None,
    settings: Settings = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Go on with this run from its newest checkpoint.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="For translate: the sentences, or a .tsv with both sides.")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="For translate: their translations, line by line.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Validation sentences. (default: held out by hash)")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Validation translations.")] = None,
    encoding_errors: Annotated[
        str | None,
        typer.Option(metavar="HOW", help="For translate, lines that are not UTF-8: refuse, replace or skip."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="For other tasks: a file, folder or archive of examples.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The recipe's two-minute variant, RECIPE-quick.")] = False,
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes in all.")] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write for TensorBoard, too.")] = False,
    override: Annotated[bool, typer.Option("--override", help="With --resume: go on with other settings.")] = False,
) -> None:
    """Train a model: saccade train reverse, or saccade train translate --source a.fr --target a.en"""
    from saccade import api, display

    if (recipe is None) == (resume is None):
        raise SaccadeError("say what to train: a recipe (`saccade recipes` lists them), or --resume RUN")
    if resume is not None:
        if out_ is not None or any((source, target, valid_source, valid_target, encoding_errors, data, quick)):
            raise SaccadeError(
                "--resume goes on with a run and its data: it takes neither --out nor files; "
                "say where files have gone with --set task.source=FILE --override"
            )
        budget = [] if minutes is None else [f"train.minutes={minutes}"]
        budget += ["train.tensorboard=true"] if tensorboard else []
        training = api.resumed(resume, settings=[*budget, *(settings or ())], override=override)
    else:
        assert recipe is not None
        if override:
            raise SaccadeError("--override is for a run that goes on: it goes with --resume RUN")
        if quick and Path(recipe).suffix in (".yaml", ".yml"):
            raise SaccadeError(f"--quick is a variant of a recipe that ships, and {recipe} is a file")
        recipe = f"{recipe}-quick" if quick else recipe
        chosen = terminal.files(
            source=source, target=target, valid_source=valid_source, valid_target=valid_target, data=data
        )
        chosen += ["train.tensorboard=true"] if tensorboard else []
        chosen += [] if encoding_errors is None else [f"task.encoding_errors={encoding_errors}"]
        chosen += [] if minutes is None else [f"train.minutes={minutes}"]
        where = out_ or Path("runs") / Path(recipe).stem
        training = api.begin(recipe, out=where, settings=[*chosen, *(settings or ())])
    raise SystemExit(display.follow(training, terminal.out))


@app.command()
def predict(
    run: RunPath,
    inputs: Annotated[list[str] | None, typer.Argument(metavar="INPUT", show_default=False)] = None,
    beam: BeamWidth = None,
    n_best: Annotated[int, typer.Option(min=1, max=1000, help="Answers per input.")] = 1,
    sample: Annotated[bool, typer.Option(help="Draw answers instead of searching the most probable.")] = False,
    temperature: Annotated[float, typer.Option(help="Of --sample.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Of --sample: from the k most probable only.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Of --sample: from the most probable that sum to p.")] = None,
    seed: Annotated[int, typer.Option(help="Of --sample.")] = 0,
    scores: Annotated[bool, typer.Option("--scores", help="Put score and stop reason before each answer.")] = False,
    step: Step = None,
    allow_nonfinite: AllowNonfinite = False,
) -> None:
    """Answer each input, or each line of standard input."""
    from saccade import api
    from saccade.decode import Sample

    predictor = api.load(run, step=step, allow_nonfinite=allow_nonfinite)
    if sample and beam is not None:
        raise SaccadeError("--sample draws answers and --beam searches them: choose one")
    if not sample and (temperature != 1.0 or top_k is not None or top_p is not None or seed):
        raise SaccadeError("--temperature, --top-k, --top-p and --seed go with --sample")
    drawn = Sample(answers=n_best, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed) if sample else None
    method = drawn or terminal.method(predictor, beam, n_best)
    lines = inputs or list(terminal.lines(Path("-")))
    refused = 0
    with lines_to(None) as write:
        for prediction in predictor.predict(lines, method):
            for answer in prediction.answers:
                note = f"{answer.score:.4f}\t{answer.stopped}\t" if scores else ""
                write(note + answer.text.replace("\n", "\\n"))  # a line for each answer, whatever it says
            if prediction.refusal is not None:
                refused += 1
                write("")  # a line for each input, whatever comes of it
                terminal.warn(prediction.refusal)
    if refused:
        raise SaccadeError(f"{refused} of {len(lines)} inputs were refused; their lines are blank")


@app.command()
def look(
    run: RunPath,
    text: Annotated[str, typer.Argument(help="The input to be answered.")],
    target: Annotated[
        str | None, typer.Option(help="Look while this answer is written instead of the model's.")
    ] = None,
    out_: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="As .png, .svg or .pdf; or all there is, as .html or .json."),
    ] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Over subword pieces, not words.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every layer and head, not the summary only.")] = False,
    step: Step = None,
    allow_nonfinite: AllowNonfinite = False,
) -> None:
    """Show where a model looked while it wrote its answer."""
    from saccade import api
    from saccade.maps.render import WHOLE, require_format, save_maps, to_text

    if out_ is not None:
        require_format(out_)
        terminal.require_writable(None, out_)
    maps = api.load(run, step=step, allow_nonfinite=allow_nonfinite).look(text, target, pieces=pieces)
    if not maps:
        raise SaccadeError(f"the model of {run} has no attention to look at")
    shown = maps if every else maps[:1]
    for map_ in shown:
        terminal.out.print(to_text(map_, width=terminal.out.width), markup=False, soft_wrap=True)
    if out_ is not None:
        saved = maps if out_.suffix in WHOLE else shown
        save_maps(saved, out_, every_head=every)
        part = "all" if len(saved) == len(maps) else "the first"
        terminal.out.print(f"{part} of {len(maps)} maps in {out_}", markup=False)


@app.command()
def verify(
    run: RunPath,
    inputs: Annotated[list[str] | None, typer.Argument(help="With --against: what both are asked.")] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Compare with this export or original instead.")
    ] = None,
    input_: Annotated[
        Path | None, typer.Option("--input", metavar="FILE", help="With --against: lines that both are asked.")
    ] = None,
    step: Step = None,
    allow_nonfinite: AllowNonfinite = False,
) -> None:
    """Check the laws on this very model: cache, batch, padding, looking, saving. Exit code 1 if one is broken.

    With --against, compare it with a folder of Hugging Face, CTranslate2 or ONNX on your own inputs.
    """
    from rich.table import Table

    from saccade import api
    from saccade.verify import verify as check_laws

    predictor = api.load(run, step=step, allow_nonfinite=allow_nonfinite)
    asked = [*(inputs or ()), *(terminal.lines(input_) if input_ is not None else ())]
    if against is None:
        if asked:
            raise SaccadeError("inputs are for --against FOLDER; the laws are checked on the run's own data")
        laws = check_laws(predictor)
    else:
        from saccade.exchange.against import against as compared

        if not asked:
            raise SaccadeError("say on what they are to be compared: inputs, or --input FILE")
        laws = compared(predictor, against, asked)
    table = Table("law", "difference", "may be", "", box=None, pad_edge=False)
    for law in laws:
        table.add_row(law.name, f"{law.difference:.1e}", f"{law.tolerance:.0e}", "holds" if law.holds else "BROKEN")
    terminal.out.print(table)
    raise SystemExit(0 if all(law.holds for law in laws) else 1)


@app.command()
def report(
    run: RunPath,
    out_: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
) -> None:
    """A run on one offline page: curves, scores, samples as they improved, where it looked, the recipe."""
    from saccade.report import report as page

    if out_.suffix not in (".html", ".htm"):
        raise SaccadeError(f"{out_}: the report is a page, so --out must end in .html")
    terminal.require_writable(None, out_)
    out_.write_text(page(run), encoding="utf-8")
    terminal.out.print(f"{out_}: {out_.stat().st_size / 1000:,.0f} kB", markup=False)


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="One run or several.")],
    score: Annotated[str | None, typer.Option(help="Of the validation part; default: its loss, or its first.")] = None,
    minutes: Annotated[bool, typer.Option("--minutes", help="Against minutes of training, not updates.")] = False,
    out_: Annotated[Path, typer.Option("--out", metavar="FILE", help="A .png, .svg or .pdf.")] = Path("curves.png"),
) -> None:
    """Draw how runs learned, in one picture: their training loss, and a score of the validation part."""
    from rich.table import Table

    from saccade.curves import draw, read

    terminal.require_writable(out_)
    name, found = read(runs, score=score, minutes=minutes)
    when = "minutes" if minutes else "updates"
    table = Table("run", when, f"{name}, last", "lowest", "highest", box=None, pad_edge=False)
    for curve in found:
        values = [value for _, value in curve.score]
        end = max((at for at, _ in (*curve.loss, *curve.score)), default=0.0)
        shown = [f"{value:.4g}" for value in (values[-1], min(values), max(values))] if values else ["", "", ""]
        table.add_row(curve.name, f"{end:,.1f}" if minutes else f"{end:,.0f}", *shown)
    terminal.out.print(table)
    draw(name, found, minutes=minutes).savefig(out_, dpi=110)
    terminal.say(str(out_))


@app.command()
def pack(
    run: RunPath,
    out_: Annotated[Path, typer.Argument(metavar="OUT", help="The new, small run directory.")],
    full: Annotated[bool, typer.Option("--full", help="Keep float32 weights; the default stores float16.")] = False,
) -> None:
    """Copy what is needed to use a run, and nothing else: recipe, vocabulary, final weights."""
    from saccade import api

    packed = api.pack(run, out_, half=not full)
    size = sum(file.stat().st_size for file in packed.path.rglob("*") if file.is_file())
    terminal.out.print(f"{packed.path}: {size / 1e6:.1f} MB", markup=False)


@app.command()
def demo(
    out_: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the runs go. (default: a new runs/demo-N)")
    ] = None,
) -> None:
    """Train reverse three ways, in two minutes, and look at what each attended to."""
    from saccade import display

    raise SystemExit(display.demo(out_, terminal.out))
