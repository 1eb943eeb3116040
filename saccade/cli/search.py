"""The verb for a model of images and texts: search. torch is imported inside the verb only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from saccade.cli import terminal
from saccade.cli.terminal import Plot, RunPath, Step
from saccade.errors import SaccadeError

app = typer.Typer()


@app.command()
def search(
    run: RunPath,
    text: Annotated[str, typer.Argument(help="What the image should show.")],
    images: Annotated[Path, typer.Argument(metavar="IMAGES", help="A folder, .zip or .tar of images.")],
    n: Annotated[int, typer.Option(min=1, help="How many are listed.")] = 5,
    threads: Annotated[int | None, typer.Option(min=1, max=256, help="Threads. (default: as torch finds them)")] = None,
    step: Step = None,
    out_: Plot = None,
) -> None:
    """Rank the images of a folder for a text: cosine and name, the best first."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from saccade.tasks.contrast import Contrast

    terminal.require_writable(out_)
    predictor = terminal.loaded(run, step, threads)
    if not isinstance(predictor.task, Contrast):
        raise SaccadeError(f"{run} was trained to {predictor.recipe.task.kind}; a run of contrast can search images")
    found: list[tuple[str, float]] = []
    columns = (TextColumn("looking at images"), MofNCompleteColumn(), BarColumn(16))
    with Progress(*columns, console=terminal.err, transient=True, disable=not terminal.err.is_terminal) as progress:
        bar = progress.add_task("", total=None)
        model: Any = predictor.model
        for looked in predictor.task.space(model).search(text, images):
            done = len(looked.images) + len(looked.refusals)
            progress.update(bar, advance=done, total=progress.tasks[bar].completed + done + looked.left)
            found += looked.images
            for refusal in looked.refusals:
                progress.console.print(f"saccade: {refusal}", style="yellow", markup=False, soft_wrap=True)
    if not found:
        raise SaccadeError(f"{images}: none of the images can be read")
    best = sorted(found, key=lambda each: -each[1])[:n]
    for name, cosine in best:
        terminal.out.file.write(f"{cosine:.4f}\t{name}\n")
    if out_ is not None:
        _draw(text, images, best, out_)


def _draw(text: str, images: Path, best: Sequence[tuple[str, float]], out: Path) -> None:
    from saccade.data.archives import open_files
    from saccade.data.images import read_image
    from saccade.maps.render import save_figure
    from saccade.maps.sheet import sheet

    with open_files(images) as files:
        lines = [f"{cosine:.2f}  {name}" for name, cosine in best]
        photos = (read_image(files.read(name), name, first_frame=True) for name, _ in best)
        save_figure(sheet(text, lines, photos), out)
    terminal.note(str(out))
