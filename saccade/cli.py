"""The command `saccade`: each verb is a few lines that call the Python API. torch is imported inside the verbs only."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from saccade import __version__
from saccade.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.api import Predictor
    from saccade.decode import Method

app = typer.Typer(
    name="saccade",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Train, run and look inside attention models on your own data.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
bench = typer.Typer(no_args_is_help=True, help="Measurements and the plots of the documentation.")
app.add_typer(bench, name="bench")
recipes = typer.Typer(invoke_without_command=True, help="List the recipes that ship, or show one.")
app.add_typer(recipes, name="recipes")

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


def main() -> None:
    """Run the command; errors for people come without a traceback, with exit code 2."""
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    try:
        app(standalone_mode=True)
    except SaccadeError as error:
        _fail(str(error))
    except BrokenPipeError:
        # whoever read our output has left (`| head`): nothing more to say
        sys.stderr.close()
        raise SystemExit(0) from None
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if "allocate" not in str(error) and not isinstance(error, MemoryError):
            raise
        _fail("out of memory: try a smaller model, or a smaller train.batch_tokens with a larger train.accumulate")


@app.callback(invoke_without_command=True)
def _about(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        out.print(f"saccade {__version__}")
        raise typer.Exit


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
    minutes: Annotated[float | None, typer.Option(help="Stop after so many minutes.")] = None,
    override: Annotated[bool, typer.Option("--override", help="With --resume: go on with other settings.")] = False,
) -> None:
    """Train a model: saccade train reverse, or saccade train translate --source a.fr --target a.en"""
    from saccade import api, display

    if (recipe is None) == (resume is None):
        raise SaccadeError("say what to train: a recipe (`saccade recipes` lists them), or --resume RUN")
    if resume is not None:
        if out_ is not None or any((source, target, valid_source, valid_target)):
            raise SaccadeError("--resume goes on with a run and its data: it takes neither --out nor files")
        budget = [] if minutes is None else [f"train.minutes={minutes}"]
        training = api.resumed(resume, settings=[*budget, *(settings or ())], override=override)
    else:
        assert recipe is not None
        chosen = _files(source=source, target=target, valid_source=valid_source, valid_target=valid_target)
        chosen += [] if minutes is None else [f"train.minutes={minutes}"]
        where = out_ or Path("runs") / Path(recipe).stem
        training = api.begin(recipe, out=where, settings=[*chosen, *(settings or ())])
    raise SystemExit(display.follow(training, out))


@app.command()
def predict(
    run: RunPath,
    inputs: Annotated[list[str] | None, typer.Argument(metavar="[INPUT]...", show_default=False)] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Beam width. (default: the recipe's)")] = None,
    n_best: Annotated[int, typer.Option(min=1, help="Answers per input.")] = 1,
    sample: Annotated[bool, typer.Option(help="Draw answers instead of searching the most probable.")] = False,
    temperature: Annotated[float, typer.Option(help="Of --sample.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Of --sample: from the k most probable only.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Of --sample: from the most probable that sum to p.")] = None,
    seed: Annotated[int, typer.Option(help="Of --sample.")] = 0,
    scores: Annotated[bool, typer.Option("--scores", help="Put score and stop reason before each answer.")] = False,
    step: Step = None,
) -> None:
    """Answer each input, or each line of standard input."""
    from saccade import api
    from saccade.decode import Sample

    predictor = api.load(run, step=step)
    if sample and beam is not None:
        raise SaccadeError("--sample draws answers and --beam searches them: choose one")
    drawn = Sample(answers=n_best, temperature=temperature, top_k=top_k, top_p=top_p, seed=seed) if sample else None
    method = drawn or _method(predictor, beam, n_best)
    lines = inputs or list(_lines(Path("-")))
    for prediction in predictor.predict(lines, method):
        for answer in prediction.answers:
            note = f"{answer.hypothesis.score:.4f}\t{answer.hypothesis.stopped}\t" if scores else ""
            out.file.write(f"{note}{answer.text}\n")  # as it is: rich would replace tabs


@app.command()
def translate(
    texts: Annotated[list[str] | None, typer.Argument(metavar="[TEXT]...", show_default=False)] = None,
    model: Annotated[Path | None, typer.Option(metavar="RUN", help="The run that translates.")] = None,
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
    batch: Annotated[int, typer.Option(min=1, help="Lines translated together.")] = 32,
    threads: Annotated[int | None, typer.Option(min=1, max=256, help="Threads. (default: as torch finds them)")] = None,
    step: Step = None,
) -> None:
    """Translate texts, or the lines of a file, in order; a blank line stays blank."""
    from saccade.translation import alignment, translate_lines

    if model is None:
        raise SaccadeError("say which run translates: --model RUN (saccade train translate makes one)")
    if bool(texts) == (input_ is not None):
        raise SaccadeError("give either texts or --input FILE (- for standard input)")
    if input_ is not None and output is not None and input_.exists() and output.exists() and input_.samefile(output):
        raise SaccadeError(f"{output}: is the input itself; nothing was written")
    predictor = _loaded(model, step, threads)
    found = translate_lines(
        predictor, texts if texts else _lines(input_), _method(predictor, beam, n_best), at_once=batch
    )
    first = next(found, None)  # input that cannot be read is known before the output is touched
    refused = 0
    with nullcontext(out.file) if output is None else output.open("w", encoding="utf-8") as file:
        for each in chain([] if first is None else [first], found):
            refused += each.refusal is not None
            for note in (*each.notes, *([each.refusal] if each.refusal else [])):
                err.print(f"saccade: {note}", style="yellow", markup=False, soft_wrap=True)
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
    source: Annotated[Path, typer.Option(help="The sentences to translate.")],
    target: Annotated[
        list[Path] | None, typer.Option(help="Their references; repeat it for several. None: source is a .tsv.")
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, help="Beam width. (default: the recipe's)")] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the translations here.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=256, help="Threads. (default: as torch finds them)")] = None,
    step: Step = None,
) -> None:
    """Translate a file and score it: BLEU and chrF with signature and 95% interval."""
    from saccade.translation import evaluate_files

    predictor = _loaded(run, step, threads)
    found = evaluate_files(predictor, source, target or (), _method(predictor, beam, 1))
    if output is not None:
        output.write_text("".join(f"{answer}\n" for answer in found.answers), encoding="utf-8")
    for refusal in found.refused:
        err.print(f"saccade: {refusal}", style="yellow", markup=False, soft_wrap=True)
    for score in found.scores:
        out.print(f"{score}  {score.signature}", markup=False, soft_wrap=True)
    out.print(f"{found.sentences:,} sentences, {found.cut} translations hit the length limit", markup=False)


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

    found = compare_files((_loaded(first, None, None), _loaded(second, None, None)), source, target or ())
    out.print(f"{first}  BLEU {found.first:.1f}", markup=False)
    out.print(f"{second}  BLEU {found.second:.1f}", markup=False)
    verdict = "differ" if found.p_value < 0.05 else "may differ by chance only"
    out.print(f"p = {found.p_value:.3f}: they {verdict}  {found.signature}", markup=False, soft_wrap=True)


@app.command()
def ladder(
    source: Annotated[Path, typer.Option(help="The sentences, or a .tsv with both sides.")],
    target: Annotated[Path | None, typer.Option(help="Their translations, line by line.")] = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="For all four models together.")] = 20.0,
    out_: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the four runs and the plot go.")] = Path(
        "runs/ladder"
    ),
    settings: Settings = None,
) -> None:
    """The course on your own data: RNN, RNN with attention, convolutional, Transformer, the same minutes each."""
    from saccade import display

    chosen = _files(source=source, target=target)
    raise SystemExit(display.climb(out_, [*chosen, *(settings or ())], minutes, out))


@app.command()
def plan(
    recipe: Annotated[str, typer.Argument(help="A recipe by name or a YAML file.")],
    settings: Settings = None,
    source: Annotated[
        Path | None, typer.Option(help="For translate: the sentences, or a .tsv with both sides.")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="For translate: their translations.")] = None,
    probe: Annotated[bool, typer.Option(help="Make a few updates to see how fast this machine is.")] = True,
) -> None:
    """What a recipe costs before it is trained: parameters, operations, memory, minutes on this machine."""
    from rich.table import Table

    from saccade.config import load_recipe
    from saccade.plan import plan as count

    loaded = load_recipe(recipe, [*_files(source=source, target=target), *(settings or ())])
    found = count(loaded, probe=probe)
    table = Table(box=None, pad_edge=False, show_header=False)
    for part, number in found.parts.items():
        table.add_row(part, f"{number:,} parameters")
    table.add_row("all", f"{found.parameters:,} parameters")
    table.add_row(
        "operations per target token",
        f"{found.forward_flops / 1e6:,.1f} M forward, {found.training_flops / 1e6:,.1f} M in training",
    )
    table.add_row("memory to use it", f"{found.weight_bytes / 1e6:,.0f} MB of weights")
    table.add_row(
        "memory to train it",
        f"{found.training_bytes / 1e6:,.0f} MB: weights, optimizer, "
        f"{found.activation_bytes / 1e6:,.0f} MB for one batch",
    )
    if found.tokens_per_second is not None:
        minutes = min(found.minutes(loaded.train.steps) or 0.0, loaded.train.minutes or math.inf)
        table.add_row(
            "on this machine", f"{found.tokens_per_second:,.0f} target tokens/s, at most {minutes:,.0f} minutes"
        )
    out.print(table)


@app.command()
def check(
    source: Annotated[Path, typer.Argument(help="The sentences, or a .tsv with both sides.")],
    target: Annotated[Path | None, typer.Argument(help="Their translations, line by line.")] = None,
    valid_source: Annotated[Path | None, typer.Option(help="Sentences that training must not see.")] = None,
    valid_target: Annotated[Path | None, typer.Option(help="Their translations.")] = None,
    longest: Annotated[int, typer.Option(min=1, help="Characters beyond which a sentence is long.")] = 400,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
) -> None:
    """Look through training data before hours are spent on it; exit code 2 if it cannot be trained on."""
    from rich.table import Table

    from saccade.data.check import check_pairs

    against = [] if valid_source is None else [(valid_source, valid_target)]
    report = check_pairs(source, target, against=against, longest=longest)
    if as_json:
        out.file.write(json.dumps(report.as_json(), ensure_ascii=False, indent=1) + "\n")
    else:
        out.print(f"{report.pairs:,} pairs", markup=False)
        table = Table("what", "count", "share", "", box=None, pad_edge=False)
        for finding in report.findings:
            share = f"{finding.share:.1%}" if finding.count else ""
            table.add_row(finding.what, f"{finding.count:,}", share, finding.severity)
        out.print(table)
        for finding in report.findings:
            for example in finding.examples:
                out.print(f"{finding.what}: line {example}", markup=False, soft_wrap=True)
    if not report.trainable:
        raise SaccadeError(f"{source} cannot be trained on")


@app.command()
def look(
    run: RunPath,
    text: Annotated[str, typer.Argument(help="The input to be answered.")],
    target: Annotated[
        str | None, typer.Option(help="Look while this answer is written instead of the model's.")
    ] = None,
    out_: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="All layers and heads: .html, .png, .svg, .pdf or .json."),
    ] = None,
    pieces: Annotated[bool, typer.Option("--pieces", help="Over subword pieces, not words.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show every attention, not the first only.")] = False,
    step: Step = None,
) -> None:
    """Show where a model looked while it wrote its answer."""
    from saccade import api
    from saccade.maps.render import save_maps, to_text

    maps = api.load(run, step=step).look(text, target, pieces=pieces)
    if not maps:
        raise SaccadeError(f"the model of {run} has no attention to look at")
    for map_ in maps if every else maps[:1]:
        out.print(to_text(map_, width=out.width), markup=False, soft_wrap=True)
    if out_ is not None:
        save_maps(maps, out_)
        out.print(f"{len(maps)} maps in {out_}", markup=False)


@app.command()
def report(
    run: RunPath,
    out_: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("report.html"),
) -> None:
    """A run on one offline page: curves, scores, samples as they improved, where it looked, the recipe."""
    from saccade.report import report as page

    out_.write_text(page(run), encoding="utf-8")
    out.print(f"{out_}: {out_.stat().st_size / 1000:,.0f} kB", markup=False)


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
    out.print(f"{packed.path}: {size / 1e6:.1f} MB", markup=False)


@app.command()
def verify(run: RunPath, step: Step = None) -> None:
    """Check the laws on this very model: cache, batch, padding, looking, saving. Exit code 1 if one is broken."""
    from rich.table import Table

    from saccade import api
    from saccade.verify import verify as check_laws

    laws = check_laws(api.load(run, step=step))
    table = Table("law", "difference", "may be", "", box=None, pad_edge=False)
    for law in laws:
        table.add_row(law.name, f"{law.difference:.1e}", f"{law.tolerance:.0e}", "holds" if law.holds else "BROKEN")
    out.print(table)
    raise SystemExit(0 if all(law.holds for law in laws) else 1)


@recipes.callback()
def _recipes(context: typer.Context) -> None:
    from rich.table import Table

    from saccade.config import list_recipes

    if context.invoked_subcommand is None:
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, purpose in list_recipes().items():
            table.add_row(name, purpose)
        out.print(table)


@recipes.command("show")
def show_recipe(name: Annotated[str, typer.Argument(help="A recipe's name.")]) -> None:
    """Print a recipe, with its comments."""
    from saccade.config import recipe_text

    out.print(recipe_text(name)[0].rstrip(), markup=False, soft_wrap=True)


@app.command()
def demo(
    out_: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the runs go. (default: a new runs/demo-N)")
    ] = None,
) -> None:
    """Train reverse three ways, in two minutes, and look at what each attended to."""
    from saccade import display

    raise SystemExit(display.demo(out_, out))


@bench.command("layers")
def bench_layers(
    out_: Plot = None,
    json_: Figures = None,
    lengths: Annotated[
        str | None, typer.Option(help="Of the sequences; 64,128,256 and so on to 4096 unless told.")
    ] = None,
) -> None:
    """Recurrent, convolution and self-attention layers: time, memory, steps and path over sequence length."""
    from saccade.bench import layers, measure

    measure.require_writable(out_, json_)
    result = layers.compare(layers.LENGTHS if lengths is None else layers.read_lengths(lengths), tell=_say)
    out.print(layers.to_table(result))
    measure.save(result.content(), json_, layers.to_figure(result) if out_ else None, out_)


@bench.command("bottleneck")
def bench_bottleneck(
    out_: Plot = None,
    json_: Figures = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="Training of both models, about, on two cores.")] = 3.0,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the two runs here.")] = None,
) -> None:
    """Recurrent models without and with attention: exact answers over sequence length."""
    from saccade.bench import bottleneck, measure

    measure.require_writable(out_, json_)
    result = bottleneck.measure(minutes, keep=keep, tell=_say)
    out.print(bottleneck.to_table(result))
    measure.save(result.content(), json_, bottleneck.to_figure(result) if out_ else None, out_)


@bench.command("pictures")
def bench_pictures(
    out_: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the pictures go.")] = Path("pictures"),
) -> None:
    """The course's pictures from the formulas: activation functions, positional encodings."""
    from saccade.bench import pictures

    out_.mkdir(parents=True, exist_ok=True)
    for name, figure in (("activations", pictures.activations()), ("positions", pictures.positions())):
        figure.savefig(out_ / f"{name}.png", dpi=100)
        _say(str(out_ / f"{name}.png"))


def _fail(message: str) -> NoReturn:
    err.print(f"saccade: {message}", style="red", markup=False, soft_wrap=True)
    raise SystemExit(2) from None


def _files(**paths: Path | None) -> list[str]:
    """Settings for files of a task, by their full names: a run must find its data from anywhere."""
    return [
        f"task.{key}={json.dumps(str(p.resolve()), ensure_ascii=False)}" for key, p in paths.items() if p is not None
    ]


def _say(text: str) -> None:
    out.print(text, markup=False, soft_wrap=True)


def _loaded(run: Path, step: int | None, threads: int | None) -> Predictor:
    import torch

    from saccade import api

    if threads is not None:
        torch.set_num_threads(threads)
    return api.load(run, step=step)


def _method(predictor: Predictor, beam: int | None, n_best: int) -> Method | None:
    """The beam that was asked for, or None for the recipe's own."""
    from saccade.decode import Beam

    if beam is None and n_best == 1:
        return None
    settings = predictor.recipe.decode
    return Beam(max(beam or settings.beam, n_best), best=n_best, length_penalty=settings.length_penalty)


def _lines(path: Path | None) -> Iterator[str]:
    from saccade.data.readers import read_lines, read_stdin

    if str(path) == "-":
        return read_stdin()
    assert path is not None
    return read_lines(path)


def _show_warning(message: Warning | str, *_: object) -> None:
    err.print(f"saccade: warning: {message}", style="yellow", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
