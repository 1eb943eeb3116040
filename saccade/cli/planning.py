"""The verb that counts before anything is trained: plan. torch is imported inside it only."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from saccade.cli import terminal
from saccade.cli.terminal import Settings
from saccade.errors import SaccadeError, did_you_mean

app = typer.Typer()


@app.command()
def plan(
    recipe: Annotated[
        str | None,
        typer.Argument(help="A recipe by name, a YAML file, a run, or a published size.", show_default=False),
    ] = None,
    settings: Settings = None,
    source: Annotated[
        Path | None, typer.Option(help="For translate: the sentences, or a .tsv with both sides.")
    ] = None,
    target: Annotated[Path | None, typer.Option(help="For translate: their translations.")] = None,
    data: Annotated[Path | None, typer.Option(help="For other tasks: a file, folder or archive of examples.")] = None,
    probe: Annotated[bool, typer.Option(help="Make a few updates to see how fast this machine is.")] = True,
    table: Annotated[bool, typer.Option("--table", help="The published sizes, counted by building them.")] = False,
    devices: Annotated[int | None, typer.Option(min=1, help="For a published size: how many. (default: 64)")] = None,
    shared: Annotated[
        int | None, typer.Option(min=1, help="Devices that share each layer (tensor parallel). (default: 8 at most)")
    ] = None,
    accelerator: Annotated[
        str | None, typer.Option(help="P100, V100, A100, H100, TPUv2 or TPUv3. (default: A100)")
    ] = None,
    utilisation: Annotated[float | None, typer.Option(help="Share of the accelerator's peak. (default: 0.3)")] = None,
    out_: terminal.Plot = None,
) -> None:
    """What a recipe, a run or a published size costs to train: parameters, operations, memory, time."""
    from saccade.config import list_recipes
    from saccade.models.sizes import SIZES
    from saccade.scaling import UTILISATION

    of_recipes = {"--set": settings, "--source": source, "--target": target, "--data": data}
    of_sizes = {
        "--devices": devices,
        "--shared": shared,
        "--accelerator": accelerator,
        "--utilisation": utilisation,
    }
    of_table = {"--out": out_}
    if table:
        _refuse("--table", {"RECIPE": recipe, **of_recipes, **of_sizes})
        return _sizes(out_)
    if recipe is None:
        raise SaccadeError(f"say what to plan: a recipe, a published size ({', '.join(SIZES)}), or --table")
    if recipe in SIZES:
        _refuse("a published size", {**of_recipes, **of_table})
        devices, share = devices or 64, UTILISATION if utilisation is None else utilisation
        return _size(recipe, devices, shared or min(8, devices), accelerator or "A100", share)
    near = did_you_mean(recipe, SIZES)
    if near and recipe not in list_recipes() and not Path(recipe).exists():
        raise SaccadeError(f"no recipe, run or published size is called {recipe!r}{near}; sizes: {', '.join(SIZES)}")
    _refuse("a recipe or a run", {**of_sizes, **of_table})
    files = terminal.files(source=source, target=target, data=data)
    return _recipe(recipe, [*files, *(settings or ())], probe=probe)


def _refuse(planned: str, others: dict[str, object]) -> None:
    """What was given and has nothing to say of what is planned."""
    if given := [name for name, value in others.items() if value is not None]:
        raise SaccadeError(f"{', '.join(given)}: not for {planned}")


def _recipe(recipe: str, settings: list[str], *, probe: bool) -> None:
    from rich.table import Table

    from saccade.config import load_recipe
    from saccade.plan import named
    from saccade.plan import plan as count

    source, vocabulary = named(recipe)
    loaded = load_recipe(source, settings)
    found = count(loaded, vocabulary=vocabulary, probe=probe)
    table = Table(box=None, pad_edge=False, show_header=False)
    for part, number in found.parts.items():
        table.add_row(part, f"{number:,} parameters")
    table.add_row("all", f"{found.parameters:,} parameters")
    table.add_row(
        "operations per token or label",
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
    terminal.out.print(table)


def _size(name: str, devices: int, shared: int, accelerator: str, utilisation: float) -> None:
    """One published size: its count beside the published one, and what training it takes."""
    from rich.table import Table

    from saccade import scaling
    from saccade.models.sizes import parameters

    size = scaling.find_size(name)
    count, device = parameters(size), scaling.find_accelerator(accelerator)
    terminal.say(f"{size.title} ({size.year}): {count:,} parameters; published {_short(size.published)}, {size.source}")
    if size.note:
        terminal.say(size.note)
    table = Table(
        "GB on each device", "weights", "gradients", "optimizer", "activations", "all", box=None, pad_edge=False
    )
    for each in scaling.layouts(size, count, devices=devices, shared=shared):
        parts = (each.weights, each.gradients, each.optimizer, each.activations, each.total)
        table.add_row(each.name, *(f"{part / 1e9:,.1f}" for part in parts))
    terminal.out.print(table)
    terminal.say(f"of {device.gigabytes:.0f} GB there; one text of {size.longest} tokens at a time, mixed precision")
    found = scaling.cost(size, count, devices=devices, accelerator=device, utilisation=utilisation)
    if found is None:
        terminal.say("what it was trained on is not published: no time can be given")
        return
    terminal.say(
        f"training: {found.operations:.2e} operations, {found.days:,.1f} days on {devices} x {device.title} at "
        f"{utilisation:.0%} of the peak, {found.kilowatt_hours:,.0f} kWh, about ${found.dollars:,.0f}"
    )
    share = scaling.reached(size, count)
    if share is not None:
        terminal.say(
            f"published: {size.days:g} days on {size.devices} x {size.accelerator}, which is {share:.0%} of their peak"
        )


def _sizes(picture: Path | None) -> None:
    """The scaling table of the course."""
    from rich.table import Table

    from saccade import scaling

    terminal.require_writable(picture)
    counts = scaling.all_parameters()
    table = Table(
        "model",
        "year",
        "layers",
        "width",
        "heads",
        "counted",
        "published",
        "days",
        "of peak",
        box=None,
        pad_edge=False,
    )
    for name, count in counts.items():
        size = scaling.find_size(name)
        model, share = size.model, scaling.reached(size, count)
        layers = str(model.layers) if hasattr(model, "layers") else f"{model.encoder_layers}+{model.decoder_layers}"
        days = "" if size.days is None else f"{size.days:g}"
        table.add_row(
            *(name, str(size.year), layers, str(model.width), str(model.heads), _short(count), _short(size.published)),
            *(days, "" if share is None else f"{share:.0%}"),
        )
    terminal.out.print(table)
    if picture is not None:
        scaling.to_figure(counts).savefig(picture, dpi=100)
        terminal.say(str(picture))


def _short(count: float) -> str:
    return f"{count / 1e9:.1f}B" if count >= 1e9 else f"{count / 1e6:.1f}M"
