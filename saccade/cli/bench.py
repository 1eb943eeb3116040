"""Verbs that measure and draw. torch is imported inside the verbs only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli import terminal
from saccade.cli.terminal import Figures, Plot
from saccade.errors import SaccadeError

bench = typer.Typer(no_args_is_help=True, help="Measurements and the plots of the documentation.")


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

    terminal.require_writable(out_, json_)
    result = layers.compare(layers.LENGTHS if lengths is None else layers.read_lengths(lengths), tell=terminal.say)
    terminal.out.print(layers.to_table(result))
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

    terminal.require_writable(out_, json_)
    result = bottleneck.measure(minutes, keep=keep, tell=terminal.say)
    terminal.out.print(bottleneck.to_table(result))
    measure.save(result.content(), json_, bottleneck.to_figure(result) if out_ else None, out_)


@bench.command("norms")
def bench_norms(
    out_: Plot = None,
    json_: Figures = None,
    minutes: Annotated[float, typer.Option(min=0.01, help="Training of all four models, about, on one core.")] = 4.0,
    keep: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep the four runs here.")] = None,
) -> None:
    """Pre-norm against post-norm, with and without warm-up: which trains, with curves."""
    from saccade.bench import measure, norms

    terminal.require_writable(out_, json_)
    result = norms.measure(minutes, keep=keep, tell=terminal.say)
    terminal.out.print(norms.to_table(result))
    measure.save(result.content(), json_, norms.to_figure(result) if out_ else None, out_)


@bench.command("translate")
def bench_translate(
    json_: Figures = None,
    size: Annotated[list[str] | None, typer.Option(help="tiny or base; both unless told.")] = None,
    model: Annotated[Path | None, typer.Option(metavar="RUN", help="A run of one's own, on lines of --source.")] = None,
    source: Annotated[Path | None, typer.Option(metavar="FILE", help="What --model is to translate.")] = None,
    lines: Annotated[int, typer.Option(min=1, help="The first ones of --source.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Of which the best counts.")] = 3,
) -> None:
    """Tokens per second of translation, against CTranslate2 and Hugging Face on the same weights.

    With drawn weights and answers of a given length; or, with --model and --source, of a run on real sentences.
    """
    from saccade.bench import measure, own, writing

    terminal.require_writable(None, json_)
    if (model is None) != (source is None) or (model is not None and size):
        raise SaccadeError("give --model and --source together, and no --size with them")
    wrong = set(size or ()) - set(writing.SIZES)
    if wrong:
        raise SaccadeError(f"--size {', '.join(sorted(wrong))}: there are {' and '.join(writing.SIZES)}")
    if model is not None and source is not None:
        race = own.translate(model, source, lines=lines, rounds=rounds, tell=terminal.say)
    else:
        race = writing.translate(size or tuple(writing.SIZES), rounds=rounds, tell=terminal.say)
    terminal.out.print(writing.to_table(race))
    measure.save(race.content(), json_, None, None)


@bench.command("generate")
def bench_generate(
    json_: Figures = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of which the best counts.")] = 3,
) -> None:
    """Tokens per second of a language model of GPT-2 small's size, against CTranslate2 and Hugging Face."""
    from saccade.bench import measure, writing

    terminal.require_writable(None, json_)
    race = writing.generate(rounds=rounds, tell=terminal.say)
    terminal.out.print(writing.to_table(race))
    measure.save(race.content(), json_, None, None)


@bench.command("train")
def bench_train(
    json_: Figures = None,
    size: Annotated[str, typer.Option(help="tiny or base.")] = "tiny",
    rounds: Annotated[int, typer.Option(min=1, help="Of which the best counts.")] = 5,
) -> None:
    """Tokens per second of training, against torch.nn.Transformer, Hugging Face and x-transformers."""
    from saccade.bench import measure, training

    terminal.require_writable(None, json_)
    result = training.measure(training.named_size(size), rounds=rounds, tell=terminal.say)
    terminal.out.print(training.to_table(result))
    measure.save(result.content(), json_, None, None)


@bench.command("attention")
def bench_attention(
    out_: Plot = None,
    json_: Figures = None,
    lengths: Annotated[str | None, typer.Option(help="Of the sequences; 1024,2048 and so on to 32768.")] = None,
) -> None:
    """Fused and explicit attention: time and memory over sequence length; what the tap costs when it is off."""
    from saccade.bench import attention, layers, measure

    terminal.require_writable(out_, json_)
    wanted = attention.LENGTHS if lengths is None else layers.read_lengths(lengths)
    result = attention.measure(wanted, tell=terminal.say)
    terminal.out.print(attention.to_table(result), "", attention.tap_table(result), sep="\n")
    measure.save(result.content(), json_, attention.to_figure(result) if out_ else None, out_)


@bench.command("start")
def bench_start(json_: Figures = None) -> None:
    """Seconds until a new process has answered: the help, and a first translation."""
    from saccade.bench import measure, start

    terminal.require_writable(None, json_)
    result = start.measure(tell=terminal.say)
    terminal.out.print(start.to_table(result))
    measure.save(result.content(), json_, None, None)


@bench.command("regression")
def bench_regression(out_: Plot = None) -> None:
    """Attention as kernel regression: the curves, what they were made of, and a real table."""
    from saccade.bench import regression

    terminal.require_writable(out_)
    found = regression.fits(terminal.say)
    terminal.out.print(regression.to_table(found))
    if out_ is not None:
        regression.to_figure(found).savefig(out_, dpi=100)
        terminal.say(str(out_))


@bench.command("pictures")
def bench_pictures(
    out_: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the pictures go.")] = Path("pictures"),
) -> None:
    """The course's pictures from the formulas: activation functions, positional encodings."""
    from saccade.bench import pictures

    out_.mkdir(parents=True, exist_ok=True)
    for name, figure in (("activations", pictures.activations()), ("positions", pictures.positions())):
        figure.savefig(out_ / f"{name}.png", dpi=100)
        terminal.say(str(out_ / f"{name}.png"))
