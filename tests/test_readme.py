"""What the README promises: its commands run, its Python runs, its numbers hold."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def run(directory: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def test_the_commands_run_one_after_the_other(tmp_path: Path) -> None:
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.strip()]
    assert len(lines) >= 6
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] == "saccade", line
        run(tmp_path, "-m", *words)
    with Image.open(tmp_path / "map.png") as picture:
        assert picture.width > 300


@pytest.mark.parametrize("number", range(len(blocks("python"))))
def test_the_python_runs(number: int, tmp_path: Path) -> None:
    assert run(tmp_path, "-c", blocks("python")[number])


def test_the_error_is_the_one_shown() -> None:
    command, shown = re.search(r"\$ saccade (.*)\n(saccade: .*)\n", README).groups()
    done = subprocess.run(
        [sys.executable, "-m", "saccade", *shlex.split(command)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip() == shown


def test_make_demo_does_what_it_says(tmp_path: Path) -> None:
    """The command of `make demo`: attention solves what one vector cannot, and its map is an anti-diagonal."""
    assert "saccade demo" in (ROOT / "Makefile").read_text(encoding="utf-8")
    out = run(tmp_path, "-m", "saccade", "demo", "--out", "demo")
    shares = [float(share) / 100 for share in re.findall(r"([\d.]+)%", out[out.rindex("parameters") :])]
    without, recurrent, transformer = shares
    assert without < 0.95
    assert recurrent > 0.97
    assert transformer > 0.97
    text = "m n o p q r s t"
    for name in ("reverse-attention", "reverse"):
        with Image.open(tmp_path / f"demo/{name}.png") as picture:
            assert picture.width > 300
        run(tmp_path, "-m", "saccade", "look", f"demo/{name}", text, "--out", f"{name}.json")
        first = json.loads((tmp_path / f"{name}.json").read_text())["maps"][0]
        weights = first["weights"][0]
        columns = [max(range(len(row)), key=row.__getitem__) for row in weights[: len(text.split())]]
        straight = list(range(len(columns) - 1, -1, -1))
        # an encoder state also knows its neighbours, so a recurrent model may look one cell beside
        assert sum(abs(column - wanted) <= 1 for column, wanted in zip(columns, straight, strict=True)) >= 7
        assert columns[0] > columns[-1]


def test_the_tree_names_every_folder() -> None:
    for folder in (ROOT / "saccade").iterdir():
        if folder.is_dir() and folder.name != "__pycache__":
            assert f"{folder.name}/" in README, folder.name


def test_contributing_stays_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 60
