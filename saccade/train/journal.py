"""What a training told, line by line: a file of JSON objects that survives a process that was killed while writing."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saccade.errors import RunWarning
from saccade.train import checkpoint as store


class Journal:
    """One object per line, in the order of the steps."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, record: Mapping[str, Any]) -> None:
        """NaN and infinity keep Python's spelling, so that they can be read back."""
        line = store.as_json(record, self.path) + b"\n"
        with store.explained(self.path, len(line)), self.path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a line that was cut short must not swallow this one
                    line = b"\n" + line
            store.disk.write(file, line)

    def records(self) -> list[dict[str, Any]]:
        """A last line that was cut short is left out, any other unreadable one with a warning."""
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().split(b"\n")
        records = []
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line) if line.strip() else None
            except ValueError:
                record = None
                if number < len(lines):
                    told = f"{self.path}:{number}: not JSON, left out: {line[:60].decode(errors='replace')!r}"
                    warnings.warn(told, RunWarning, stacklevel=3)
            if isinstance(record, dict):
                records.append(record)
        return records

    def cut(self, step: int) -> None:
        """Remove what was written after `step`."""
        kept: list[dict[str, Any]] = []
        for record in self.records():
            at = record.get("step")
            if isinstance(at, int) and at > step:
                break  # steps ascend: everything from here on was written later
            kept.append(record)
        if self.path.exists():
            store.replace_file(self.path, b"".join(json.dumps(record).encode() + b"\n" for record in kept))
