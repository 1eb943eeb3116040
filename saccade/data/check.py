"""What is wrong with this data, before hours are spent on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from saccade.data.readers import TextPair, hold_out, read_pairs

Severity = Literal["good", "look", "stop"]
RATIO = 3.0  # one side more than so many times as long as the other is suspicious ...
RATIO_FROM = 20  # ... from so many characters on
SHOWN = 3
CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")  # all but the tab; lines have been cut at their ends


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for: how often it was found, where first, and how bad it is."""

    what: str
    count: int
    share: float
    severity: Severity
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """All findings; `trainable` is False when one of them makes training impossible."""

    pairs: int
    findings: tuple[Finding, ...]

    @property
    def trainable(self) -> bool:
        return all(finding.severity != "stop" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"trainable": self.trainable}


def check_pairs(
    source: str | Path,
    target: str | Path | None,
    *,
    columns: tuple[int, int] = (1, 2),
    against: Sequence[tuple[str | Path, str | Path | None]] = (),
    longest: int = 400,
) -> Report:
    """Look through aligned files, and through others (validation, test) that must not share sentences with them.

    Files that cannot be read, or differ in their number of lines, are an error that names file, line and byte.
    `longest` is in characters: longer sentences would be left out of training.
    """
    pairs = list(read_pairs(source, target, columns=columns))
    findings = [] if pairs else [_finding("no pairs at all", pairs, [0], always="stop")]
    findings += [
        _finding("an empty side", pairs, _where(pairs, lambda p: not p.source or not p.target)),
        _finding("the same on both sides", pairs, _where(pairs, lambda p: bool(p.source) and p.source == p.target)),
        _finding("pairs that occur before", pairs, _repeated([(p.source, p.target) for p in pairs])),
        _finding("one side far longer than the other", pairs, _where(pairs, _lopsided)),
        _finding(f"longer than {longest} characters", pairs, _where(pairs, lambda p: _length(p) > longest)),
        _finding("characters that were lost before (U+FFFD)", pairs, _where(pairs, _lost)),
        _finding("control characters, such as NUL and escape", pairs, _where(pairs, _controlled), always="look"),
    ]
    findings += _alignment(pairs)
    if not against and pairs and not all(hold_out([pair for pair in pairs if pair.source and pair.target])):
        findings.append(Finding("too few pairs to hold some out for validation", len(pairs), 1.0, "stop"))
    sources, targets = {p.source for p in pairs}, {p.target for p in pairs}
    for other_source, other_target in against:
        others = list(read_pairs(other_source, other_target, columns=columns))
        shared = _where(others, lambda p: p.source in sources or p.target in targets)
        findings.append(_finding(f"sentences of {other_source} that training sees", others, shared, always="look"))
    return Report(len(pairs), tuple(findings))


def _finding(what: str, pairs: list[TextPair], places: list[int], always: Severity | None = None) -> Finding:
    share = len(places) / max(len(pairs), 1)
    severity: Severity = "good" if not places else always or ("stop" if share >= 0.999 else "look")
    shown = tuple(
        f"{place + 1}: {pairs[place].source[:30]!r} / {pairs[place].target[:30]!r}"
        for place in places[:SHOWN]
        if place < len(pairs)
    )
    return Finding(what, len(places), share, severity, shown)


def _alignment(pairs: list[TextPair]) -> list[Finding]:
    """Numbers, names and marks are mostly kept: where a line fits its neighbour's other side better, the files
    slipped."""
    signs = [(_signs(pair.source), _signs(pair.target)) for pair in pairs]
    here = [len(left & right) for left, right in signs]
    below = [len(signs[n][0] & signs[n + 1][1]) for n in range(len(signs) - 1)]
    above = [len(signs[n + 1][0] & signs[n][1]) for n in range(len(signs) - 1)]
    window, slipped = 50, []
    for first in range(0, len(below), window):
        rows = slice(first, first + window)
        beside = max(sum(below[rows]), sum(above[rows]))
        if beside >= 5 and beside > 2 * sum(here[rows]):
            slipped.append(first)
    finding = _finding("stretches where the lines seem shifted", pairs, slipped)
    return [finding]


def _signs(text: str) -> set[str]:
    words = text.split()
    return {word.strip(".,;:!?\"'()") for word in words[1:] if any(c.isdigit() or c.isupper() for c in word)} - {
        "I",
        "",
    }


def _where(pairs: list[TextPair], test: Any) -> list[int]:
    return [number for number, pair in enumerate(pairs) if test(pair)]


def _repeated(items: Sequence[tuple[str, str]]) -> list[int]:
    seen: Counter[tuple[str, str]] = Counter()
    places = []
    for number, item in enumerate(items):
        if seen[item]:
            places.append(number)
        seen[item] += 1
    return places


def _lopsided(pair: TextPair) -> bool:
    lengths = sorted((len(pair.source), len(pair.target)))
    return lengths[1] >= RATIO_FROM and lengths[1] > RATIO * max(lengths[0], 1)


def _length(pair: TextPair) -> int:
    return max(len(pair.source), len(pair.target))


def _lost(pair: TextPair) -> bool:
    return "\ufffd" in pair.source or "\ufffd" in pair.target


def _controlled(pair: TextPair) -> bool:
    return any(CONTROL.search(side) for side in (pair.source, pair.target))
