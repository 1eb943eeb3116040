"""Verbs for models in the formats of others: import, export. torch is imported inside them only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from saccade.cli import terminal
from saccade.cli.terminal import RunPath
from saccade.errors import SaccadeError, did_you_mean

app = typer.Typer()

FORMATS = ("huggingface", "ctranslate2", "onnx")


@app.command("import")
def import_(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Of Hugging Face: config.json, weights, tokenizer.")],
    out_: Annotated[Path, typer.Argument(metavar="RUN", help="The new run directory.")],
) -> None:
    """Make a run of a published model: it can be used, looked at, fine-tuned and exported like one trained here."""
    from saccade.exchange.huggingface import import_folder

    for note in import_folder(folder, out_):
        terminal.say(note)
    terminal.say(str(out_))


@app.command()
def export(
    run: RunPath,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The new folder.")],
    to: Annotated[str, typer.Option(metavar="FORMAT", help=" or ".join(FORMATS))] = "huggingface",
) -> None:
    """Write a run in another format; it is read again and compared before it gets its name.

    CTranslate2 and onnxruntime are asked themselves where they are installed.
    """
    if to not in FORMATS:
        raise SaccadeError(f"--to {to!r} is no known format{did_you_mean(to, FORMATS)}; there is {', '.join(FORMATS)}")
    from saccade.exchange import ctranslate2, huggingface, onnx

    formats = {
        "huggingface": huggingface.export_run,
        "ctranslate2": ctranslate2.export_run,
        "onnx": onnx.export_run,
    }
    for note in formats[to](run, folder):
        terminal.say(note)
    terminal.say(str(folder))
