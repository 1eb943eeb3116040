"""Verbs that measure and draw. torch is imported inside the verbs only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli import terminal
from saccade.cli.terminal import Figures, Plot

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

    measure.require_writable(out_, json_)
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

    measure.require_writable(out_, json_)
    result = bottleneck.measure(minutes, keep=keep, tell=terminal.say)
    terminal.out.print(bottleneck.to_table(result))
    measure.save(result.content(), json_, bottleneck.to_figure(result) if out_ else None, out_)


@bench.command("regression")
def bench_regression(out_: Plot = None) -> None:
    """Attention as kernel regression: the curves, what they were made of, and a real table."""
    from saccade.bench import measure, regression

    measure.require_writable(out_, None)
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
