"""Verbs for recipes. torch is imported inside the verbs only."""

from __future__ import annotations

from typing import Annotated

import typer

from saccade.cli import terminal

recipes = typer.Typer(invoke_without_command=True, help="List the recipes that ship, or show one.")


@recipes.callback()
def _recipes(context: typer.Context) -> None:
    from rich.table import Table

    from saccade.config import list_recipes

    if context.invoked_subcommand is None:
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, purpose in list_recipes().items():
            table.add_row(name, purpose)
        terminal.out.print(table)


@recipes.command("show")
def show_recipe(name: Annotated[str, typer.Argument(help="A recipe's name.")]) -> None:
    """Print a recipe, with its comments."""
    from saccade.config import recipe_text

    terminal.out.print(recipe_text(name)[0].rstrip(), markup=False, soft_wrap=True)
