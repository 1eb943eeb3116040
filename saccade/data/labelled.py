"""Texts with labels, from tables with tabs between columns."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from saccade.data.readers import read_lines
from saccade.errors import RunWarning, SaccadeError, did_you_mean


@dataclass(frozen=True)
class LabelledText:
    """A text, its label, and where it stands."""

    text: str
    label: str
    place: str


def read_labelled_texts(
    paths: Sequence[str], *, header: bool = True, text_column: str = "", label_column: str = ""
) -> list[LabelledText]:
    """All rows of all files; columns by name where there is a header, or by number from one. A header that looks like
    an example is told of."""
    found: list[LabelledText] = []
    titles: dict[str, str] = {}  # of each file, what stands above the labels
    for path in paths:
        columns: tuple[int, int] | None = None if header else _columns([], path, text_column, label_column)
        for number, line in enumerate(read_lines(path), start=1):
            cells = line.split("\t")
            if columns is None:
                columns = _columns(cells, path, text_column, label_column)
                titles[path] = cells[columns[1]].strip() if columns[1] < len(cells) else ""
                continue
            if not line.strip():
                continue
            if len(cells) <= max(columns):
                raise SaccadeError(
                    f"{path}:{number}: {len(cells)} columns between tabs, and column {max(columns) + 1} is asked for"
                )
            text, label = cells[columns[0]].strip(), cells[columns[1]].strip()
            if not text or not label:
                raise SaccadeError(f"{path}:{number}: the {'label' if text else 'text'} is empty")
            found.append(LabelledText(text, label, f"{path}:{number}"))
    labels = {each.label for each in found}
    for path, title in titles.items():
        if title in labels:
            message = f"{path}:1: taken for a title line, and {title!r} is a label of other lines, too"
            warnings.warn(f"{message}: --set task.header=false if it is an example", RunWarning, stacklevel=2)
    return found


def _columns(names: Sequence[str], path: str, text_column: str, label_column: str) -> tuple[int, int]:
    def place(wanted: str, default: int) -> int:
        if not wanted:
            return default
        if wanted in names:
            return list(names).index(wanted)
        if wanted.isdigit() and int(wanted) >= 1:
            return int(wanted) - 1
        near = did_you_mean(wanted, names) or f"; there are {', '.join(names)}"
        raise SaccadeError(f"{path}: no column {wanted!r}{near}")

    return place(text_column, 0), place(label_column, 1)
