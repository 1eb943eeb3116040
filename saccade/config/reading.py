"""Recipes from YAML 1.2 text, from names, and with `key=value` on top; errors name the file, the line and a near
miss."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node

from saccade.config.recipe import Recipe
from saccade.errors import ConfigError, did_you_mean

# what the command line has an option for
OPTIONS = {
    "task.data": "--data FILE",
    "task.source": "--source FILE",
    "task.target": "--target FILE",
    "task.valid_source": "--valid-source FILE",
    "task.valid_target": "--valid-target FILE",
    "task.encoding_errors": "--encoding-errors WAY",
    "train.minutes": "--minutes NUMBER",
    "decode.prefix": "--prefix TEXT",
    "decode.must_include": "--must-include TEXT",
    "decode.must_not_include": "--must-not-include TEXT",
    "decode.length_penalty": "--length-penalty NUMBER",
}


def load_recipe(name_or_path: str | Path, settings: Sequence[str] = ()) -> Recipe:
    """A recipe that ships with saccade, by its name, or a YAML file, by its path; with `key=value` settings on top."""
    text, source = recipe_text(name_or_path)
    return parse_recipe(text, source, settings)


def recipe_text(name_or_path: str | Path) -> tuple[str, str]:
    """The commented text of a recipe, and what to call it in messages."""
    name = str(name_or_path)
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml") or len(path.parts) > 1:
        try:
            return path.read_text(encoding="utf-8"), name
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name}: not UTF-8 text (byte {error.start})") from error
        except OSError as error:
            raise ConfigError(f"{name}: cannot read the recipe: {error.strerror}") from error
    shipped = {entry.name.removesuffix(".yaml"): entry for entry in _recipe_files()}
    if name not in shipped:
        known = ", ".join(sorted(shipped))
        if name.endswith("-quick") and name.removesuffix("-quick") in shipped:
            quick = ", ".join(sorted(each.removesuffix("-quick") for each in shipped if each.endswith("-quick")))
            raise ConfigError(f"{name.removesuffix('-quick')} has no two-minute variant; these have one: {quick}")
        raise ConfigError(
            f"no recipe is called {name!r}{did_you_mean(name, shipped)}; there are {known}, or give a .yaml file"
        )
    return shipped[name].read_text(encoding="utf-8"), f"recipe {name}"


def list_recipes() -> dict[str, str]:
    """The recipes that ship, with the first line of each as what it is for."""
    listing = {}
    for entry in _recipe_files():
        first = entry.read_text(encoding="utf-8").splitlines()[0]
        listing[entry.name.removesuffix(".yaml")] = first.removeprefix("#").strip()
    return dict(sorted(listing.items()))


def parse_recipe(text: str, source: str, settings: Sequence[str] = ()) -> Recipe:
    """Read YAML text, put `key=value` settings on top and check every value."""
    data = _read_yaml(text, source)
    lines = _line_numbers(text, source)
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: a recipe is a mapping with task and model, not {type(data).__name__}")
    for setting in sorted(settings, key=_turn):
        _apply_setting(data, setting)
    given = {setting.partition("=")[0].strip() for setting in settings}
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_explain(error, source, lines, given)) from None


def explained(error: ValueError) -> str:
    """What is wrong with settings that came from elsewhere than a recipe, in one line; of other errors, what they say.
    Of several values together no single one is to blame."""
    if not isinstance(error, ValidationError):
        return str(error)
    said = [
        f"{'.'.join(map(str, item['loc']))}: {item['msg']}, got {item['input']!r}" if item["loc"] else item["msg"]
        for item in error.errors()
    ]
    return "; ".join(said).replace("Value error, ", "")


def dump_recipe(recipe: Recipe) -> str:
    """The complete recipe as YAML; `parse_recipe` gives back an equal one."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    stream = io.StringIO()
    yaml.dump(recipe.model_dump(mode="json"), stream)
    return stream.getvalue()


def _recipe_files() -> list[Any]:
    return [entry for entry in (resources.files("saccade") / "recipes").iterdir() if entry.name.endswith(".yaml")]


def _read_yaml(text: str, source: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply to be a recipe") from None
    except (ValueError, KeyError) as error:  # of a date that there is not, or a tag that does not fit
        raise ConfigError(f"{source}: {error}") from None
    except YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = source if mark is None else f"{source}:{mark.line + 1}"
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(f"{where}: {problem}") from None


def _line_numbers(text: str, source: str) -> dict[str, int]:
    """Dotted key -> line, so that a message can point at the place."""
    lines: dict[str, int] = {}

    def walk(node: Node, prefix: str, inside: tuple[Node, ...]) -> None:
        if node in inside:
            raise ConfigError(f"{source}:{node.start_mark.line + 1}: {prefix.rstrip('.')} is inside of itself")
        if isinstance(node, MappingNode):
            for key, value in node.value:
                dotted = f"{prefix}{key.value}"
                lines[dotted] = key.start_mark.line + 1
                walk(value, f"{dotted}.", (*inside, node))

    root = YAML(typ="safe", pure=True).compose(text)
    if root is not None:
        walk(root, "", ())
    return lines


def _turn(setting: str) -> tuple[bool, int]:
    """Kinds first, those of groups before those within: a new kind begins from its own defaults, whatever the order."""
    *parents, last = setting.partition("=")[0].strip().split(".")
    return last != "kind", len(parents)


def _apply_setting(data: dict[str, Any], setting: str) -> None:
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {setting}: write it as key=value, for example --set train.steps=500")
    *parents, last = key.strip().split(".")
    place = data
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise ConfigError(f"--set {setting}: {parent!r} is a value, not a group of settings")
    parsed = _read_yaml(value, f"--set {setting}")
    if last == "kind" and _class_of(parents, place.get("kind")) != _class_of(parents, parsed):
        place.clear()  # what was said of another kind does not hold for this one
    place[last] = parsed


def _explain(error: ValidationError, source: str, lines: dict[str, int], given: set[str]) -> str:
    """One line per problem: where, what, and the nearest thing that would do."""
    problems = []
    for item in error.errors():
        path = [str(part) for part in item["loc"]]
        dotted = _without_union_tags(path)
        asked = [each for each in given if dotted and f"{each}.".startswith(f"{dotted}.")]
        asked = asked or [each for each in given if dotted.startswith(f"{each}.")]  # an item of a list
        asked = _blamed(asked, item["msg"])
        place = f"{source}{_at_line(dotted, lines)}: {dotted or 'recipe'}"
        where = " and ".join(map(_as_asked, asked)) or place
        if item["type"] == "extra_forbidden":
            problems.append(f"{where}: {_unknown(path, dotted)}")
        elif item["type"] == "missing":
            option = OPTIONS.get(dotted, f"--set {dotted}=VALUE")
            problems.append(f"{where}: missing; say it in the recipe or with {option}")
        elif item["type"] in ("literal_error", "union_tag_invalid"):
            context = item["ctx"]
            allowed = (
                str(context.get("expected") or context.get("expected_tags")).replace(" or ", ", ").replace("'", "")
            )
            value = item["input"] if item["type"] == "literal_error" else item["input"].get("kind")
            near = did_you_mean(str(value), allowed.split(", "))
            problems.append(f"{where}: {value!r} is not one of {allowed}{near}")
        elif item["type"] == "union_tag_not_found":
            problems.append(f"{where}: says no kind")
        elif item["type"] == "value_error":
            problems.append(f"{where}: {item['ctx']['error']}")
        else:
            message = item["msg"][0].lower() + item["msg"][1:]
            problems.append(f"{where}: {message}, got {item['input']!r}")
    return "\n".join(problems)


def _unknown(path: list[str], dotted: str) -> str:
    """Of a key that is not known where it stands: the nearest, or what a task takes in place of such a file."""
    (group, _, name), keys = dotted.rpartition("."), _keys_of(path[:-1])
    if dotted in OPTIONS:
        alike = [key for key, option in OPTIONS.items() if option.split()[1] == OPTIONS[dotted].split()[1]]
        fits = [OPTIONS[key] for key in alike if key.rpartition(".")[2] in keys]
        return f"not for the {group} {path[-2]}, which takes {', '.join(fits) or 'none'}"
    fitted = "; its size is fitted to the data: say model.kind=transformer first" if "fitted" in path else ""
    return f"unknown key{did_you_mean(name, keys)}{f' in {group}' * bool(group)}{fitted}"


def _blamed(asked: list[str], message: str) -> list[str]:
    """Of the settings that may be at fault, those that the message speaks of; none where it could be any."""
    named = [each for each in sorted(asked) if re.search(rf"\b{re.escape(each.rpartition('.')[2])}\b", message)]
    return named or (asked if len(asked) == 1 else [])


def _as_asked(key: str) -> str:
    option = OPTIONS.get(key)
    return f"{option.split()[0]} ({key})" if option else f"--set {key}"


def _at_line(dotted: str, lines: dict[str, int]) -> str:
    while dotted and dotted not in lines:
        dotted = dotted.rpartition(".")[0]
    return f":{lines[dotted]}" if dotted else ""


def _without_union_tags(path: list[str]) -> str:
    """pydantic names the chosen kind inside the path (model.transformer.heads); people do not."""
    before = [path[:number] for number in range(len(path))]
    tags = [part in _kinds(group) and part not in _keys_of(group) for part, group in zip(path, before, strict=True)]
    return ".".join(part for part, tag in zip(path, tags, strict=True) if not tag)


def _members(annotation: Any) -> Iterable[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _members(inner)


def _kinds(path: list[str]) -> dict[str, type[BaseModel]]:
    """Every kind that there may be at a place in the recipe, with the class of its settings."""
    members = [member for member in _models_at(path) if "kind" in member.model_fields]
    return {kind: member for member in members for kind in get_args(member.model_fields["kind"].annotation)}


def _class_of(path: list[str], kind: Any) -> type[BaseModel] | None:
    return _kinds(path).get(kind) if isinstance(kind, str) else None


def _keys_of(path: list[str]) -> list[str]:
    """The keys that are known at a place in the recipe."""
    return [key for model in _models_at(path) for key in model.model_fields]


def _models_at(path: list[str]) -> list[type[BaseModel]]:
    """Whose settings may stand at a place in the recipe."""
    models: list[type[BaseModel]] = [Recipe]
    for part in path:
        fields = [model.model_fields[part].annotation for model in models if part in model.model_fields]
        if fields:
            models = [member for annotation in fields for member in _members(annotation)]
        else:  # the tag of a union narrows it
            models = [
                m for m in models if "kind" in m.model_fields and part in get_args(m.model_fields["kind"].annotation)
            ]
    return models
