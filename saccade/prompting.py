"""Programming by prompt: pairs of input and output, then an input; the model writes the output (Brown et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.data.readers import read_lines
from saccade.decode import Greedy, Method
from saccade.errors import SaccadeError
from saccade.metrics import Score, share_score
from saccade.predictor import Predictor

TEMPLATE = "Input: {input}\nOutput: {output}\n\n"
COUNTS = (0, 1, 2, 4, 8)
SHUFFLE = 12345  # seed of the control
Pair = tuple[str, str]


@dataclass(frozen=True)
class Template:
    """How a pair is written; `stop` is what stands after every output, up to the end of the line."""

    text: str = TEMPLATE

    def __post_init__(self) -> None:
        if self.text.count("{input}") != 1 or self.text.count("{output}") != 1:
            raise SaccadeError(f"a template has one {{input}} and one {{output}}; got {self.text!r}")
        if self.text.index("{input}") > self.text.index("{output}"):
            raise SaccadeError(f"in a template the input stands before the output; got {self.text!r}")

    @property
    def stop(self) -> str:
        return self.text.split("{output}")[1].partition("\n")[0] or "\n"

    def prompt(self, examples: Sequence[Pair], asked: str) -> str:
        """All examples, then the input with everything up to its output."""
        before, _, rest = self.text.partition("{input}")
        between, _, after = rest.partition("{output}")
        written = [f"{before}{left}{between}{right}{after}" for left, right in examples]
        return "".join(written) + before + asked + between


@dataclass(frozen=True)
class Shots:
    """How often the answer was right after so many examples, and after as many whose answers were shuffled."""

    examples: int
    right: Score
    shuffled: Score | None  # nothing to shuffle below two examples


def answer(
    predictor: Predictor,
    prompts: Sequence[str],
    template: Template,
    *,
    tokens: int = 60,
    method: Method | None = None,
) -> list[str]:
    """What a language model writes after each prompt, up to the end of the output."""
    found = predictor.generate(prompts, tokens=tokens, method=method or Greedy(), stop=[template.stop], beyond="slide")
    return [prediction.text for prediction in found]


def read_groups(path: str) -> dict[str, list[Pair]]:
    """Pairs of a table: input and output between tabs, or three columns of which the first names a group: pairs of one
    group have one rule."""
    groups: dict[str, list[Pair]] = {}
    for number, line in enumerate(read_lines(path), start=1):
        cells = line.split("\t")
        if len(cells) not in (2, 3):
            raise SaccadeError(
                f"{path}:{number}: {len(cells)} columns between tabs; 2 (input, output) or 3 are expected"
            )
        groups.setdefault(cells[0] if len(cells) == 3 else "", []).append((cells[-2], cells[-1]))
    if not groups:
        raise SaccadeError(f"{path}: there are no pairs in it")
    return groups


def shots(
    predictor: Predictor,
    groups: dict[str, list[Pair]],
    counts: Sequence[int] | None,
    template: Template,
    *,
    examples: Sequence[Pair] = (),
    tokens: int = 60,
) -> list[Shots]:
    """Accuracy against the number of examples: given ones, or the first of each group, which are then not asked.

    Without `counts`, those of 0, 1, 2, 4 and 8 that there are examples for.
    """
    available = len(examples) if examples else min(map(len, groups.values())) - 1
    counts = [count for count in COUNTS if count <= available] if counts is None else counts
    if min(counts) < 0:
        raise SaccadeError(f"--shots: {min(counts)} examples cannot be shown")
    most = max(counts)
    if examples and len(examples) < most:
        raise SaccadeError(f"--shots: {most} examples are asked for and {len(examples)} are given")
    asked: list[tuple[Sequence[Pair], Pair]] = []
    for name, pairs in groups.items():
        if not examples and len(pairs) <= most:
            raise SaccadeError(f"--shots: group {name!r} has {len(pairs)} pairs: {most} examples leave none to ask")
        shown = examples or pairs[:most]
        asked += [(shown, pair) for pair in (pairs if examples else pairs[most:])]
    draw = np.random.default_rng(SHUFFLE)
    found = []
    for count in counts:
        straight = [template.prompt(shown[:count], pair[0]) for shown, pair in asked]
        turned = [template.prompt(_shuffled(shown[:count], draw), pair[0]) for shown, pair in asked]
        wanted = [pair[1] for _, pair in asked]
        right = _right(f"{count} examples", answer(predictor, straight, template, tokens=tokens), wanted)
        wrong = None
        if count > 1:
            wrong = _right("answers shuffled", answer(predictor, turned, template, tokens=tokens), wanted)
        found.append(Shots(count, right, wrong))
    return found


def _shuffled(pairs: Sequence[Pair], draw: np.random.Generator) -> list[Pair]:
    """Every input with the output of another."""
    turn = int(draw.integers(1, len(pairs))) if len(pairs) > 1 else 0
    return [(left, pairs[(place + turn) % len(pairs)][1]) for place, (left, _) in enumerate(pairs)]


def _right(name: str, answers: Sequence[str], wanted: Sequence[str]) -> Score:
    return share_score(name, np.array([got.strip() == want.strip() for got, want in zip(answers, wanted, strict=True)]))
