"""Search for an answer: one loop over a step function and a past; greedy, beam and sampling choose what follows.

    score of a hypothesis = sum_t log p(y_t | y_<t),  of the model itself: rules only forbid, they never change it
    ranking in a beam     = score / ((5 + length) / 6)^alpha                                           (Wu et al. 2016)

Letters: B sentences, W live hypotheses of each, R = B W rows, V vocabulary. A hypothesis says why it stopped: "eos"
(the end token), "stop" (as the caller's `stop` says), "length" (the limit) or "constraint" (the rules left nothing that
may follow).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from saccade.decode.methods import Greedy, Live, Method, Path, walked
from saccade.decode.rules import Never, Rule
from saccade.errors import SaccadeError
from saccade.nn.cache import Past
from saccade.nn.choice import LONGEST_STRETCH, Asked, Continuations, Stretch

Step = Callable[[Tensor, Past], tuple[Tensor, Past]]  # tokens (R, t), past -> log-probabilities (R, V), past
Stretching = Callable[[Past, Asked], tuple[Stretch, Past] | None]
Stop = Callable[[Sequence[int]], bool]
Stopped = Literal["eos", "stop", "length", "constraint"]


@dataclass(frozen=True)
class Hypothesis:
    """One answer. `token_scores` are log-probabilities, the end token's last where there is one; of an unscored search
    there are none, and the score is NaN."""

    tokens: tuple[int, ...]  # without start and end
    score: float  # what it was ranked by
    token_scores: tuple[float, ...]
    stopped: Stopped

    @staticmethod
    def of(method: Method, tokens: Sequence[int], token_scores: Sequence[float], stopped: Stopped) -> Hypothesis:
        """Ranked by a method."""
        if not method.scored:
            return Hypothesis(tuple(tokens), math.nan, (), stopped)
        rank = method.rank(math.fsum(token_scores), len(token_scores))
        return Hypothesis(tuple(tokens), rank, tuple(token_scores), stopped)

    @property
    def log_probability(self) -> float:
        return math.nan if math.isnan(self.score) else math.fsum(self.token_scores)


@torch.no_grad()
def search(
    step: Step,
    past: Past,
    *,
    start: int | Sequence[int],
    end: int,
    limits: Sequence[int],
    method: Method | None = None,
    rules: Sequence[Rule] = (),
    stop: Stop | None = None,
    tell: Callable[[Live], None] | None = None,
    stretch: Stretching | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first; those that ended come before those that were cut.

    `past` holds one row per sentence; what `step` returns is the search's own, to be written over; `start` is the token
    before an answer, one for all or one for each; `limits` says how many tokens each may have. `stop` says of an answer
    so far whether it ends here. `tell` is called with the hypotheses that go on after a step. `stretch` takes several
    steps at once where it can, as long as the best go on or end and nothing else happens.
    """
    method = method or Greedy()
    count, device = len(past.position), past.position.device
    if len(limits) != count or min(limits, default=1) < 1:
        raise SaccadeError(f"search needs a limit of 1 or more for each of {count} sentences; got {list(limits)}")
    ledgers = [Ledger(method, limit) for limit in limits]
    live = Live.begun(count)
    last = [start] * count if isinstance(start, int) else list(start)
    while live.score:
        # what the model says, what the rules leave of it, what the method makes of that
        asked = None if stretch is None else _asked(live, last, ledgers, rules, end, one_step=bool(stop or tell))
        taken = None if asked is None or stretch is None else stretch(past, asked)
        if taken is not None:
            (live, ended), found, past = live.along(taken[0], end), taken[0].found, taken[1]
            for sentence, path in ended:
                ledgers[sentence].add(path, "eos")
        else:
            tokens = torch.from_numpy(np.array(last)[:, None])
            log_p, past = step(tokens if device.type == "cpu" else tokens.to(device), past)
            for rule in rules:
                rule(live, log_p)
            found = method.candidates(live, log_p)
            del log_p  # the next step's takes its place: new memory for a large table costs a tenth of a step
        _require_numbers(found, live)
        _note_dead_ends(found, live, ledgers)

        # who ends, who goes on, whose sentence is done
        going = _sort_out(found, live, ledgers, end, stop)
        kept = _kept(going)
        if not kept:  # all is said
            break
        width = max(len(going[number]) for number in kept)
        chosen = [way for number in kept for way in _filled(going[number], width)]
        rows = [found.row[way] for way in chosen]
        live = live.grown(found, chosen, width)
        for row in (row for row in range(len(rows)) if row % width >= len(going[kept[row // width]])):
            live.score[row] = -math.inf  # it only fills its sentence up
        last = [found.word[way] for way in chosen]
        if tell is not None:
            tell(live)
        past = past.select(rows)
        past = past if len(kept) == len(going) else past.keep(kept)
    return [ledger.best() for ledger in ledgers]


def _asked(
    live: Live, last: Sequence[int], ledgers: Sequence[Ledger], rules: Sequence[Rule], end: int, *, one_step: bool
) -> Asked | None:
    """What has to be known to go on without the search; None where rules or the method have a say in each step."""
    method = ledgers[0].method
    lasting = [rule for rule in rules if isinstance(rule, Never)]
    if method.ways is None or len(lasting) < len(rules):
        return None
    forbidden = [token for rule in lasting if live.written < rule.before for token in rule.tokens]
    own = [ledgers[sentence] for sentence in live.sentence[:: live.width]]
    left = min([ledger.limit for ledger in own]) - live.written
    steps = min([left, LONGEST_STRETCH, *(rule.lasts(live.written) for rule in lasting)])
    steps = 1 if one_step or live.width < method.width else int(steps)
    factor = [method.rank(1.0, live.written + length) for length in range(1, steps + 1)]
    last_factor = [method.rank(1.0, ledger.limit + 1) for ledger in own]
    ranks = [ledger.ranks for ledger in own]
    return Asked(last, live.score, method.ways, end, forbidden, ranks, factor, last_factor, method.scored)


def _kept(going: list[list[int]]) -> list[int]:
    """The sentences that go on. The last ones take the places of those that do not: few have to be moved."""
    count = sum(map(bool, going))
    last = (number for number in range(count, len(going)) if going[number])
    return [number if going[number] else next(last) for number in range(count)]


def _filled(ways: list[int], width: int) -> list[int]:
    """As many as the widest sentence has, the first again and again."""
    return ways + ways[:1] * (width - len(ways))


@dataclass
class Ledger:
    """What has come of one sentence so far. What was cut is written out only where too little has ended."""

    method: Method
    limit: int
    ended: list[Hypothesis] = field(default_factory=list)
    cut: list[tuple[float, Path, Stopped]] = field(default_factory=list)  # rank, what is written, why it stopped

    def add(self, path: Path, stopped: Stopped) -> None:
        """One that has ended."""
        self.ended.append(self._written(path, stopped))

    def cut_off(self, path: Path, stopped: Stopped, score: float, length: int) -> None:
        """One that may not go on."""
        self.cut.append((self.method.rank(score, length), path, stopped))

    def _written(self, path: Path, stopped: Stopped) -> Hypothesis:
        tokens, token_scores = walked(path)
        return Hypothesis.of(self.method, tokens[:-1] if stopped == "eos" else tokens, token_scores, stopped)

    @property
    def ranks(self) -> list[float]:
        """Of those that would be answered, highest first; -inf for each that is missing."""
        missing = [-math.inf] * (self.method.best - len(self.ended))
        return sorted([each.score for each in self.ended], reverse=True)[: self.method.best] + missing

    def done(self, live: list[float]) -> bool:
        """Whether nothing that may come of the live scores can change the best."""
        if not live or len(self.ended) < self.method.best:
            return not live
        worst = self.ranks[-1]
        return all(self.method.rank(score, self.limit + 1) <= worst for score in live)

    def best(self) -> list[Hypothesis]:
        missing = max(0, self.method.best - len(self.ended))
        cut = sorted(self.cut, key=lambda each: -each[0])[:missing]
        groups = self.ended, [self._written(path, stopped) for _, path, stopped in cut]
        return [each for group in groups for each in sorted(group, key=lambda each: -each.score)][: self.method.best]


def _sort_out(found: Continuations, live: Live, ledgers: list[Ledger], end: int, stop: Stop | None) -> list[list[int]]:
    """Enter what ends into the ledger of its sentence, and say of each sentence which continuations go on."""
    length = live.written + 1
    going = []
    for number, sentence in enumerate(live.sentence[:: live.width]):
        ledger, first = ledgers[sentence], number * found.ways
        width = ledger.method.width
        on: list[int] = []
        for way in range(first, first + found.ways):
            if way - first >= width == len(on):
                break  # those that go on are found, and what ends counts only among the best
            if found.score[way] == -math.inf:
                continue
            stopped: Stopped | None = None
            if found.word[way] == end:
                stopped = "eos"
            elif stop is not None and stop(walked(live.path_along(found, way))[0]):
                stopped = "stop"
            elif length >= ledger.limit:
                stopped = "length"
            if stopped is None and len(on) < width:
                on.append(way)
            elif way - first < width and stopped == "length":  # among the best
                ledger.cut_off(live.path_along(found, way), stopped, found.score[way], length)
            elif way - first < width and stopped is not None:
                ledger.add(live.path_along(found, way), stopped)
        going.append([] if ledger.done([found.score[way] for way in on]) else on)
    return going


def _note_dead_ends(found: Continuations, live: Live, ledgers: list[Ledger]) -> None:
    """Hypotheses that rules left nothing to go on with."""
    for row, best in enumerate(found.highest):
        if best == -math.inf < live.score[row]:
            ledgers[live.sentence[row]].cut_off(live.path[row], "constraint", live.score[row], live.written)


def _require_numbers(found: Continuations, live: Live) -> None:
    """NaN counts as the highest of all where candidates are chosen: there is none among them, or none at all."""
    if math.isnan(sum(found.log_p)):
        named = zip(found.row, found.log_p, strict=True)
        sentence = min(live.sentence[row] for row, value in named if math.isnan(value))
        raise SaccadeError(
            f"the model produced NaN for sentence {sentence} after {live.written} tokens; "
            "its weights are broken, or were trained until they diverged"
        )


def rerank_by_coverage(
    hypotheses: Sequence[Hypothesis], weights: Sequence[Tensor], strength: float
) -> list[Hypothesis]:
    """Prefer answers that looked at all of the source: score + strength sum_s log min(sum_t a_ts, 1)  (Wu et al. 2016).

    `weights` holds the attention (T, S) of each hypothesis over the real source positions, from a replay of it: search
    itself never looks, so the fused kernel stays on, and the penalty is exact for whatever attention one chooses.
    """
    if len(hypotheses) != len(weights):
        raise SaccadeError(f"{len(hypotheses)} hypotheses and {len(weights)} attention maps do not match")
    scored = []
    for hypothesis, seen in zip(hypotheses, weights, strict=True):
        missed = seen.sum(0).clamp(min=1e-9, max=1.0).log().sum()
        scored.append(replace(hypothesis, score=hypothesis.score + strength * float(missed)))
    return sorted(scored, key=lambda each: (each.stopped in ("length", "constraint"), -each.score))
