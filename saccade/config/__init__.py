"""Typed settings without torch: frozen pydantic models, commented YAML files, and `--set key=value`."""

from saccade.config.reading import dump_recipe, explained, list_recipes, load_recipe, parse_recipe, recipe_text
from saccade.config.recipe import Recipe

__all__ = ["Recipe", "dump_recipe", "explained", "list_recipes", "load_recipe", "parse_recipe", "recipe_text"]
