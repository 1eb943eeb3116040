"""How continuations are chosen: greedy, beam, sampling.

ranking in a beam = log p(y) / ((5 + length) / 6)^alpha                                            (Wu et al. 2016)
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.nn.choice import Continuations, Stretch, continuations

NO_MORE = -1, -1, 0.0  # step, row and log-probability of no end
Path = tuple[Any, int, float] | None  # the path before, a token and its log-probability; None: nothing is written


def walked(path: Path) -> tuple[list[int], list[float]]:
    """All tokens of a path and their log-probabilities, in the order of writing."""
    tokens, scores = [], []
    while path is not None:
        path, token, log_p = path
        tokens.append(token)
        scores.append(log_p)
    return tokens[::-1], scores[::-1]


@dataclass(frozen=True)
class Live:
    """The hypotheses that go on, as lists: few numbers, of which much is asked. A row of score -inf is only there to
    fill its sentence up."""

    width: int  # rows of each sentence
    written: int  # tokens so far, as many in each row
    sentence: list[int]  # (R,) which of the caller's sentences
    answer: list[int]  # (R,) which of the first step's choices it came from
    path: list[Path]  # (R,) what is written: hypotheses that begin alike share it, and a step copies nothing
    score: list[float]  # (R,) sum of a path's log-probabilities; where nothing is scored it says nothing

    @staticmethod
    def begun(sentences: int) -> Live:
        """One row for each sentence, nothing written."""
        return Live(1, 0, list(range(sentences)), [0] * sentences, [None] * sentences, [0.0] * sentences)

    @functools.cached_property
    def tokens(self) -> list[list[int]]:
        """(R, t), for those who ask for all of them."""
        return [walked(path)[0] for path in self.path]

    @property
    def sentences(self) -> int:
        return len(self.score) // self.width

    def path_along(self, found: Continuations, way: int) -> Path:
        """What is written where one of the continuations is taken."""
        return self.path[found.row[way]], found.word[way], found.log_p[way]

    def grown(self, found: Continuations, chosen: Sequence[int], width: int) -> Live:
        """These of the continuations, as `width` rows of each sentence."""
        rows = [found.row[way] for way in chosen]
        return Live(
            width,
            self.written + 1,
            [self.sentence[row] for row in rows],
            [self.answer[row] for row in rows] if self.written else [way % found.ways for way in chosen],
            [self.path_along(found, way) for way in chosen],
            [found.score[way] for way in chosen],
        )

    def along(self, stretch: Stretch, end: int) -> tuple[Live, list[tuple[int, Path]]]:
        """After the steps of a stretch, but for the one that is left to choose: the hypotheses that go on, and sentence
        and path of each that ended."""
        path, answer = self.path, self.answer
        ended, ends = list[tuple[int, Path]](), iter(stretch.ended)
        step, row, its = next(ends, NO_MORE)
        for number, (rows, words, log_p) in enumerate(stretch.notes):
            while step == number:
                ended.append((self.sentence[row], (path[row], end, its)))
                step, row, its = next(ends, NO_MORE)
            if self.width > 1:  # otherwise each row goes on by itself
                path, answer = [path[row] for row in rows], [answer[row] for row in rows]
            path = list(zip(path, words, log_p, strict=True))
        left = [number * self.width + place for number in stretch.left for place in range(self.width)]
        live = Live(
            self.width,
            self.written + len(stretch.notes),
            [self.sentence[row] for row in left],
            [answer[row] for row in left],
            [path[row] for row in left],
            list(stretch.score),
        )
        return live, ended

    def continued(self, log_p: Tensor, rows: Sequence[Sequence[int]], tokens: Sequence[Sequence[int]]) -> Continuations:
        """What is to be known of these continuations, (B, k) of each."""
        row, word = ([number for of_sentence in each for number in of_sentence] for each in (rows, tokens))
        at = (torch.tensor(each, dtype=torch.long, device=log_p.device) for each in (row, word))
        values: list[float] = log_p[tuple(at)].tolist()
        scores = [self.score[place] + value for place, value in zip(row, values, strict=True)]
        return Continuations(len(rows[0]), row, word, values, scores, log_p.amax(-1).tolist())


class Method(Protocol):
    """How continuations are chosen: up to `width` live hypotheses per sentence, the `best` of them returned."""

    @property
    def width(self) -> int: ...

    @property
    def best(self) -> int: ...

    @property
    def scored(self) -> bool:
        """Whether it is asked how probable answers are."""

    @property
    def ways(self) -> int | None:
        """How many of the best ways to go on are looked at in each sentence; None where the best are not all."""

    def candidates(self, live: Live, log_p: Tensor) -> Continuations:
        """From log_p (R, V), forbidden ones -inf, to what may follow in each sentence, best first."""

    def rank(self, score: float, length: int) -> float:
        """By what ended hypotheses are compared: the score times what its length makes of it."""


@dataclass(frozen=True)
class Greedy:
    """Always the most probable token. It is sooner found where nobody asks how probable it is (`scored=False`): then
    answers have no scores. Tokens are the same, unless two are so near to each other that only their logits differ and
    not what is rounded of their log-probabilities."""

    scored: bool = True
    width: int = field(default=1, init=False)
    best: int = field(default=1, init=False)
    ways: int = field(default=1, init=False)

    def candidates(self, live: Live, log_p: Tensor) -> Continuations:
        return continuations(log_p, live.score, 1, each=1, count=1)

    def rank(self, score: float, length: int) -> float:  # noqa: ARG002
        return score


@dataclass(frozen=True)
class Beam:
    """The `width` best prefixes side by side.

    A sentence is done when no live hypothesis can still overtake the `best` ended ones, and no sooner:
    log-probabilities only fall, so s / penalty(limit) bounds whatever a live sum s may become.
    """

    width: int = 4
    best: int = 1
    length_penalty: float = 1.0
    scored: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.width < 1 or not 1 <= self.best <= self.width:
            raise SaccadeError(f"a beam needs 1 <= best <= width; got best={self.best}, width={self.width}")

    @property
    def ways(self) -> int:
        """Each hypothesis can end in one way only, so twice the width leaves enough that go on."""
        return 2 * self.width

    def candidates(self, live: Live, log_p: Tensor) -> Continuations:
        each = min(self.ways, log_p.shape[1])
        return continuations(log_p, live.score, live.width, each=each, count=min(self.ways, live.width * each))

    def rank(self, score: float, length: int) -> float:
        return score / ((5 + length) / 6) ** self.length_penalty


@dataclass(frozen=True)
class Sample:
    """Draw from the model, sharpened by temperature and cut to the top k or the top p of the probability.

    Every answer has a random stream of its own, made of (seed, sentence, answer): what else is in the batch changes
    nothing.
    """

    answers: int = 1
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    numbers: Sequence[int] | None = None  # of the sentences, where a caller works through a longer list in batches
    scored: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.answers < 1:
            raise SaccadeError(f"the number of answers must be 1 or more; got {self.answers}")
        if not 0 < self.temperature < math.inf:
            raise SaccadeError(
                f"the temperature must be finite and above 0, got {self.temperature}; greedy is its limit"
            )
        if self.top_k is not None and self.top_k < 1:
            raise SaccadeError(f"top_k must be 1 or more; got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise SaccadeError(f"top_p must be above 0 and at most 1; got {self.top_p}")

    @property
    def width(self) -> int:
        return self.answers

    @property
    def best(self) -> int:
        return self.answers

    @property
    def ways(self) -> None:
        """Any may be drawn."""

    def candidates(self, live: Live, log_p: Tensor) -> Continuations:
        first = live.written == 0  # one row per sentence, from which every answer starts
        width = self.answers if first else live.width
        rows = [
            number if first else number * width + place for number in range(live.sentences) for place in range(width)
        ]
        answers = list(range(width)) * live.sentences if first else live.answer
        streams = [(live.sentence[row], answer) for row, answer in zip(rows, answers, strict=True)]
        tokens = self.drawn(log_p[rows], streams, live.written).tolist()
        edges = range(0, len(rows), width)
        return live.continued(log_p, [rows[i : i + width] for i in edges], [tokens[i : i + width] for i in edges])

    def drawn(self, log_p: Tensor, streams: Sequence[tuple[int, int]], step: int) -> Tensor:
        """One token for each row of log_p (R, V), from the streams (sentence, answer) of the rows."""
        draws = [self._draw(sentence, answer, step) for sentence, answer in streams]
        return self._choose(log_p, torch.tensor(draws, dtype=log_p.dtype, device=log_p.device))

    def rank(self, score: float, length: int) -> float:  # noqa: ARG002
        return score

    def _choose(self, log_p: Tensor, draw: Tensor) -> Tensor:
        ordered, token = log_p.sort(-1, descending=True)  # (R, V)
        ordered = (ordered - ordered[:, :1]).nan_to_num(nan=-math.inf, neginf=-math.inf) / self.temperature
        share = ordered.softmax(-1)
        if self.top_k is not None:
            share[:, self.top_k :] = 0
        if self.top_p is not None:
            before = share.cumsum(-1) - share
            share = share.masked_fill(before >= self.top_p * share.sum(-1, keepdim=True), 0)
        reached = share.cumsum(-1)
        place = torch.searchsorted(reached, (draw * reached[:, -1])[:, None], right=True)
        last = (share > 0).sum(-1, keepdim=True) - 1  # rounding must not reach beyond what may be drawn
        return token.gather(1, torch.minimum(place, last.clamp(min=0))).squeeze(1)

    def _draw(self, sentence: int, answer: int, step: int) -> float:
        """A number in [0, 1) that depends on these four and nothing else."""
        number = sentence if self.numbers is None else self.numbers[sentence]
        digest = hashlib.blake2b(f"{self.seed}/{number}/{answer}/{step}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
