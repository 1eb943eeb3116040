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
from typing import Any, Literal

import torch
from torch import Tensor

from saccade.decode.methods import Greedy, Live, Method, rows_of
from saccade.decode.rules import Rule
from saccade.errors import SaccadeError
from saccade.nn.cache import Past
from saccade.nn.native import log_probabilities

Step = Callable[[Tensor, Past], tuple[Tensor, Past]]  # tokens (R, t), past -> logits (R, V), past
Stop = Callable[[Sequence[int]], bool]
Stopped = Literal["eos", "stop", "length", "constraint"]


@dataclass(frozen=True)
class Hypothesis:
    """One answer. `token_scores` are log-probabilities, the end token's last where there is one."""

    tokens: tuple[int, ...]  # without start and end
    score: float  # what it was ranked by
    token_scores: tuple[float, ...]
    stopped: Stopped

    @property
    def log_probability(self) -> float:
        return math.fsum(self.token_scores)


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
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first; those that ended come before those that were cut.

    `past` holds one row per sentence; what `step` returns is the search's own, to be written over; `start` is the token
    before an answer, one for all or one for each; `limits` says how many tokens each may have. `stop` says of an answer
    so far whether it ends here. `tell` is called with the live hypotheses after each step.
    """
    method = method or Greedy()
    count, device = len(past.position), past.position.device
    if len(limits) != count or min(limits, default=1) < 1:
        raise SaccadeError(f"search needs a limit of 1 or more for each of {count} sentences; got {list(limits)}")
    ledgers = [Ledger(method, limit) for limit in limits]
    everyone = torch.arange(count, device=device)
    last = torch.tensor([start] * count if isinstance(start, int) else list(start), device=device)[:, None]
    live = Live(
        everyone, everyone * 0, last[:, :0], torch.zeros(count, 0, device=device), torch.zeros(count, device=device)
    )
    width = 1
    while len(live.score):
        # what the model says, what the rules leave of it, what the method makes of that
        logits, past = step(last, past)
        log_p = log_probabilities(logits)
        for rule in rules:
            rule(live, log_p)
        found = Candidates.of(method, live, log_p, width)
        _require_numbers(found, live)
        if rules:
            _note_dead_ends(live, log_p, ledgers)

        # who ends, who goes on, whose sentence is done
        going = _sort_out(live, found, width, ledgers, end, stop)
        kept = [number for number, places in enumerate(going) if places]
        width = max((len(going[number]) for number in kept), default=0)
        filled = [going[number] + going[number][:1] * (width - len(going[number])) for number in kept]
        chosen = [(number, place) for number, places in zip(kept, filled, strict=True) for place in places]
        rows = found.of_all("row", chosen)
        follows = rows != list(range(len(live.score)))  # others than before, or in another order
        at = torch.tensor(rows, dtype=torch.long, device=device)
        live = found.grown(live, chosen, at if follows else None)
        spare = [place >= len(going[number]) for number in kept for place in range(width)]
        if any(spare):
            live = replace(live, score=live.score.masked_fill(torch.tensor(spare, device=device), -torch.inf))
        last = live.tokens[:, -1:]
        if tell is not None:
            tell(live)
        past = past.select(at) if follows else past
        past = past if len(kept) == len(going) else past.keep(torch.tensor(kept, dtype=torch.long, device=device))
    return [ledger.best() for ledger in ledgers]


@dataclass(frozen=True)
class Candidates:
    """What may follow, best first, as lists (B, k): few numbers, of which much is asked."""

    row: list[list[int]]  # of the hypothesis that goes on
    token: list[list[int]]
    log_p: list[list[float]]  # of the token ...
    score: list[list[float]]  # ... and of all; -inf: this may not follow
    dtype: torch.dtype  # of scores

    @staticmethod
    def of(method: Method, live: Live, log_p: Tensor, width: int) -> Candidates:
        parent, token = method.candidates(live, log_p, width)
        rows = rows_of(parent, width)
        chosen = log_p[rows, token]
        score = live.score[rows] + chosen
        return Candidates(rows.tolist(), token.tolist(), chosen.tolist(), score.tolist(), score.dtype)

    def of_all(self, name: str, chosen: list[tuple[int, int]]) -> list[Any]:
        values = getattr(self, name)
        return [values[number][place] for number, place in chosen]

    def grown(self, live: Live, chosen: list[tuple[int, int]], at: Tensor | None) -> Live:
        """The live hypotheses with the chosen tokens behind them; `at` are their rows before, None: as they were."""
        old = live if at is None else Live(**{name: value[at] for name, value in vars(live).items()})
        token = live.tokens.new_tensor(self.of_all("token", chosen))[:, None]
        log_p = live.token_scores.new_tensor(self.of_all("log_p", chosen), dtype=self.dtype)[:, None]
        first = live.tokens.shape[1] == 0
        return Live(
            old.sentence,
            live.answer.new_tensor([place for _, place in chosen]) if first else old.answer,
            torch.cat([old.tokens, token], dim=1),
            torch.cat([old.token_scores, log_p], dim=1),
            live.score.new_tensor(self.of_all("score", chosen), dtype=self.dtype),
        )


@dataclass
class Ledger:
    """What has come of one sentence so far."""

    method: Method
    limit: int
    ended: list[Hypothesis] = field(default_factory=list)
    cut: list[Hypothesis] = field(default_factory=list)

    def add(self, tokens: list[int], token_scores: list[float], stopped: Stopped) -> None:
        rank = self.method.rank(math.fsum(token_scores), len(token_scores))
        tokens = tokens[:-1] if stopped == "eos" else tokens
        hypothesis = Hypothesis(tuple(tokens), rank, tuple(token_scores), stopped)
        (self.ended if stopped in ("eos", "stop") else self.cut).append(hypothesis)

    def done(self, live: list[float]) -> bool:
        """Whether nothing that may come of the live scores can change the best."""
        if not live:
            return True
        if len(self.ended) < self.method.best:
            return False
        worst = sorted((each.score for each in self.ended), reverse=True)[self.method.best - 1]
        return all(self.method.rank(score, self.limit + 1) <= worst for score in live)

    def best(self) -> list[Hypothesis]:
        ranked = [sorted(group, key=lambda each: -each.score) for group in (self.ended, self.cut)]
        return (ranked[0] + ranked[1])[: self.method.best]


def _sort_out(
    live: Live, found: Candidates, width: int, ledgers: list[Ledger], end: int, stop: Stop | None
) -> list[list[int]]:
    """Enter what ends into the ledger of its sentence, and say of each sentence which candidates go on."""
    length = live.tokens.shape[1] + 1
    going = []
    for number, sentence in enumerate(live.sentence[::width].tolist()):
        ledger, tokens, scores = ledgers[sentence], found.token[number], found.score[number]
        on: list[int] = []
        for place in (place for place, score in enumerate(scores) if score > -math.inf):
            row = found.row[number][place]
            stopped: Stopped | None = None
            if tokens[place] == end:
                stopped = "eos"
            elif stop is not None and stop([*live.tokens[row].tolist(), tokens[place]]):
                stopped = "stop"
            elif length >= ledger.limit:
                stopped = "length"
            if stopped is None and len(on) < ledger.method.width:
                on.append(place)
            elif stopped is not None and place < ledger.method.width:  # among the best
                scored = [*live.token_scores[row].tolist(), found.log_p[number][place]]
                ledger.add([*live.tokens[row].tolist(), tokens[place]], scored, stopped)
        going.append([] if ledger.done([scores[place] for place in on]) else on)
    return going


def _note_dead_ends(live: Live, log_p: Tensor, ledgers: list[Ledger]) -> None:
    for row, best in enumerate(log_p.amax(-1).tolist()):
        if best == -math.inf and live.score[row] > -torch.inf:
            ledger = ledgers[int(live.sentence[row])]
            ledger.add(live.tokens[row].tolist(), live.token_scores[row].tolist(), "constraint")


def _require_numbers(found: Candidates, live: Live) -> None:
    """NaN counts as the highest of all where candidates are chosen: there is none among them, or none at all."""
    for rows, log_p in zip(found.row, found.log_p, strict=True):
        if math.isnan(sum(log_p)):
            row = next(row for row, value in zip(rows, log_p, strict=True) if math.isnan(value))
            raise SaccadeError(
                f"the model produced NaN for sentence {int(live.sentence[row])} after {live.tokens.shape[1]} tokens; "
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
