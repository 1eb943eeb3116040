"""The command `saccade`: each verb is a few lines that call the Python API; torch is imported inside the verbs only."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from typing import Annotated

import typer

from saccade import __version__
from saccade.cli import bench, exchange, language, models, planning, recipes, scoring, search, terminal, translation
from saccade.errors import SaccadeError

app = typer.Typer(
    name="saccade",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Train, run and look inside attention models on your own data.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(models.app)
app.add_typer(translation.app)
app.add_typer(scoring.app)
app.add_typer(language.app)
app.add_typer(planning.app)
app.add_typer(search.app)
app.add_typer(exchange.app)
app.add_typer(recipes.recipes, name="recipes")
app.add_typer(bench.bench, name="bench")


def main() -> None:
    """Run the command; errors for people come without a traceback, with exit code 2."""
    warnings.showwarning = terminal.warner()
    logging.getLogger("saccade").addHandler(terminal.NOTES)
    logging.getLogger("saccade").setLevel(logging.INFO)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an answer that cannot be shown is no reason to lose it
    try:
        app(standalone_mode=True)
    except SaccadeError as error:
        terminal.fail(str(error))
    except OSError as error:
        terminal.fail(f"{error.filename or 'a file or standard output'}: {error.strerror or error}")
    except (MemoryError, RuntimeError) as error:
        if "allocate" not in str(error) and not isinstance(error, MemoryError):
            raise
        terminal.fail(
            "out of memory: try a smaller model, or a smaller train.batch_tokens with a larger train.accumulate"
        )


@app.callback(invoke_without_command=True)
def _about(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        terminal.out.print(f"saccade {__version__}")
        raise typer.Exit
