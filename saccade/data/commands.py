"""Commands with what is to be done: the format of SCAN (Lake and Baroni 2018), or two columns of one's own."""

from __future__ import annotations

import re
from pathlib import Path

from saccade.data.readers import TextPair, read_lines
from saccade.errors import SaccadeError

SCAN = re.compile(r"IN: (?P<source>.*?) OUT: (?P<target>.*)")


def read_commands(path: str | Path) -> list[TextPair]:
    """Every line a command and its actions."""
    pairs = []
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip():
            continue
        found = SCAN.fullmatch(line.strip())
        cells = [found["source"], found["target"]] if found else line.split("\t")
        if len(cells) != 2 or not all(cell.strip() for cell in cells):
            raise SaccadeError(
                f"{path}:{number}: {line[:40]!r} is neither 'IN: command OUT: actions' nor two columns between tabs"
            )
        source, target = (" ".join(cell.split()) for cell in cells)
        pairs.append(TextPair(source, target, line=number))
    if not pairs:
        raise SaccadeError(f"no text found in {path}")
    return pairs
