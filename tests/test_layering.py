"""The rules of docs/architecture.md that a program can check."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "saccade"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# Who may import whom inside the package; errors may be imported by all but nn and formulas, which stand alone.
MAY_IMPORT = {
    "errors": set(),
    "formulas": {"formulas"},
    "nn": {"nn"},
    "modality": {"modality", "nn"},
    "config": {"config", "errors"},
    "data": {"data", "config", "errors"},
    "models": {"models", "modality", "nn", "config", "errors"},
    "decode": {"decode", "nn.cache", "nn.choice", "errors"},
    "maps": {"maps", "nn.attention", "errors"},
    "metrics": {"metrics", "errors"},
    "tasks": {"metrics", "modality", "tasks", "models", "nn", "data", "decode", "maps", "config", "errors"},
    "train": {"train", "tasks.base", "data.batching", "config", "errors"},
    "predictor": {"translation", "metrics", "tasks", "nn.packed", "decode", "maps", "config", "errors"},
    "api": {"predictor", "nn.packed", "metrics", "tasks", "train", "models", "decode", "maps", "config", "errors"},
    "made_up": {"tasks", "errors"},
    "plan": {"predictor", "made_up", "api", "models", "nn", "data", "train", "config", "errors"},
    "verify": {"predictor", "made_up", "api", "tasks", "train", "models", "data", "decode", "maps", "errors"},
    "translation": {"config", "tasks", "data", "decode", "maps", "metrics", "errors"},
    "exchange": {
        "exchange",
        "verify",
        "decode",
        "tasks",
        "predictor",
        "api",
        "config",
        "data",
        "models",
        "nn",
        "train",
        "errors",
    },
    "heads": {"predictor", "maps", "metrics", "nn.attention", "tasks.base", "errors"},
    "scaling": {"models", "errors"},
    "prompting": {"predictor", "data", "decode", "metrics", "errors"},
    "curves": {"train.run", "errors"},
    "report": {"errors", "predictor", "api", "curves", "ladder", "maps", "metrics", "models", "tasks", "train"},
    "ladder": {"api", "curves", "metrics", "train", "errors"},
    "display": {"api", "ladder", "train", "maps", "errors"},
    "bench": {
        "exchange",
        "",
        "predictor",
        "heads",
        "metrics",
        "formulas",
        "bench",
        "api",
        "display",
        "tasks",
        "train",
        "models",
        "nn",
        "data",
        "decode",
        "maps",
        "config",
        "errors",
    },
    "cli": {
        "",
        "predictor",
        "cli",
        "exchange",
        "curves",
        "report",
        "translation",
        "verify",
        "plan",
        "heads",
        "prompting",
        "scaling",
        "models.sizes",
        "data",
        "tasks.contrast",
        "api",
        "display",
        "bench",
        "decode",
        "maps",
        "metrics",
        "config",
        "errors",
    },
    "__main__": {"cli"},
    "": {"api", "predictor", "config", "errors"},
}
OUTSIDE = {
    "nn": {"torch"},
    "modality": {"torch"},
    "formulas": {"array_api_compat"},
    "errors": set(),
    "config": {"pydantic", "ruamel"},
    "exchange": {"ctranslate2", "numpy", "onnxruntime", "tokenizers", "torch"},
    "data": {"PIL", "numpy", "soundfile", "tokenizers"},
}


def room(module: str) -> str:
    """saccade.nn.attention -> nn"""
    return module.split(".")[1] if "." in module else ""


def imports(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide the direction"
            yield from (
                (name, node.lineno)
                for alias in node.names
                if (name := f"{node.module}.{alias.name}") in MODULES or (name := str(node.module))
            )


def calls(path: Path, name: str) -> list[int]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name))
    return [node.lineno for node in found if node.func.id == name]


@pytest.mark.parametrize("module", MODULES)
def test_imports_only_go_down(module: str) -> None:
    allowed = MAY_IMPORT[room(module)]
    for name, line in imports(MODULES[module]):
        if name.split(".")[0] != "saccade":
            continue
        inner = name.removeprefix("saccade").removeprefix(".")
        permitted = any(inner == each or (each and inner.startswith(f"{each}.")) for each in allowed)
        assert permitted, f"{module}:{line} imports {name}, which is not below it"


@pytest.mark.parametrize("module", [module for module in MODULES if room(module) in OUTSIDE])
def test_the_lowest_rooms_lean_on_few_libraries(module: str) -> None:
    for name, line in imports(MODULES[module]):
        library = name.split(".")[0]
        if library != "saccade" and library not in sys.stdlib_module_names:
            assert library in OUTSIDE[room(module)], f"{module}:{line} imports {library}"


@pytest.mark.parametrize("module", MODULES)
def test_nothing_prints_but_the_command(module: str) -> None:
    assert calls(MODULES[module], "print") == []


def test_public_constructors_take_no_open_ended_options() -> None:
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                assert node.args.kwarg is None, f"{module}:{node.lineno} takes **{node.args.kwarg.arg}"


def test_constructors_have_at_most_ten_arguments() -> None:
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                count = len(node.args.posonlyargs) + len(node.args.args) + len(node.args.kwonlyargs) - 1
                assert count <= 10, f"{module}:{node.lineno} has {count} arguments"


def test_no_question_is_asked_about_a_models_class() -> None:
    classes = {
        node.name
        for module, path in MODULES.items()
        if room(module) == "models"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                asked = {n.id for n in ast.walk(node.args[1]) if isinstance(n, ast.Name)}
                assert not asked & classes, f"{module}:{node.lineno} asks whether a model is {asked & classes}"


def test_there_is_no_drawer_for_everything() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc"}
    assert not [module for module in MODULES if drawers & set(module.split("."))]


def test_only_one_place_multiplies_weights_with_values() -> None:
    """softmax(QK)V: no other softmax or fused attention in the modules and models; that of a loss is over words."""
    for module, path in MODULES.items():
        if room(module) in ("nn", "models") and module not in ("saccade.nn.attention", "saccade.nn.losses"):
            text = path.read_text(encoding="utf-8")
            assert "scaled_dot_product_attention" not in text, module
            assert not re.search(r"(?<!log_)softmax\(", text), module


@pytest.mark.parametrize("command", [["-m", "saccade", "--help"], ["-m", "saccade", "train", "--help"]])
def test_help_imports_no_heavy_library(command: list[str]) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['saccade', *{command[2:]!r}]\n"
        "try:\n    runpy.run_module('saccade', run_name='__main__')\n"
        "except SystemExit as leaving:\n    assert not leaving.code, leaving.code\n"
        "heavy = {'torch', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


@pytest.mark.parametrize(("given", "found"), [({}, "128"), ({"LRU_CACHE_CAPACITY": "7"}, "7")])
def test_what_is_compiled_for_shapes_is_kept_for_few_of_them_unless_told(given: dict[str, str], found: str) -> None:
    """A thousand shapes, as torch would have it, are gigabytes."""
    name = "LRU_CACHE_CAPACITY"
    environment = {key: value for key, value in os.environ.items() if key != name} | given
    code = f"import os, saccade; print(os.environ['{name}'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == found


def test_every_module_says_what_it_is() -> None:
    for module, path in MODULES.items():
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), module


def test_the_architecture_page_names_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for folder in sorted({room(module) for module, path in MODULES.items() if path.name == "__init__.py"} - {""}):
        assert f"{folder}/" in page, folder
