"""Numbers from files and from a formula: a table whose last column is to be predicted, and a noisy curve."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from saccade.data.readers import read_lines
from saccade.errors import SaccadeError


def read_table(path: str | Path) -> np.ndarray:
    """Rows of numbers between tabs or commas; a first line without numbers is a header."""
    rows: list[list[float]] = []
    first: tuple[int, int] | None = None  # how many columns there are, and the line that says so
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t" if "\t" in line else ",")]
        try:
            row = [float(cell) for cell in cells]
        except ValueError:
            if number == 1:
                first = (len(cells), number) if len(cells) > 1 else None  # one cell is a title
                continue
            wrong = next(cell for cell in cells if not _is_number(cell))
            raise SaccadeError(f"{path}:{number}: {wrong!r} is no number") from None
        if not np.isfinite(row).all():
            raise SaccadeError(f"{path}:{number}: a number that is not finite")
        columns, said_by = first = first or (len(row), number)
        if len(row) != columns:
            raise SaccadeError(f"{path}:{number}: {len(row)} columns, and {columns} in line {said_by}")
        rows.append(row)
    if not rows or len(rows[0]) < 2:
        raise SaccadeError(f"{path}: a table needs two columns of numbers or more, the target last")
    return np.array(rows)


def noisy_curve(examples: int, *, noise: float, seed: int) -> np.ndarray:
    """Points (x, y) with x in [0, 5] and y = 2 sin x + x^0.8 + noise, the curve of the course."""
    draw = np.random.default_rng(seed)
    x = np.sort(draw.random(examples) * 5)
    return np.stack([x, curve(x) + noise * draw.standard_normal(examples)], axis=1)


def curve(x: np.ndarray) -> np.ndarray:
    return 2 * np.sin(x) + x**0.8


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
