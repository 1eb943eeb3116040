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

import torch
from torch import Tensor

from saccade.decode.methods import Greedy, Live, Method, rows_of
from saccade.decode.rules import Rule
from saccade.errors import SaccadeError
from saccade.nn.cache import Past
from saccade.nn.native import log_probabilities

Step = Callable[[Tensor, Past], tuple[Tensor, Past]]  # tokens (R, t), past -> logits (R, V), to be written over, past
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

    `past` holds one row per sentence; `start` is the token before an answer, one for all or one for each; `limits` says
    how many tokens each may have. `stop` says of an answer so far whether it ends here. `tell` is called with the live
    hypotheses after each step.
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
        parent, token = method.candidates(live, log_p, width)  # (B, k)
        rows = rows_of(parent, width)  # (B, k)
        chosen = log_p[rows, token]
        _require_numbers(chosen, live, rows)
        if rules:
            _note_dead_ends(live, log_p, ledgers)
        possible = (chosen > -torch.inf) & (live.score[rows] > -torch.inf)
        grown = Live(
            live.sentence[rows],
            torch.arange(rows.shape[1], device=device).expand_as(rows)
            if not live.tokens.shape[1]
            else live.answer[rows],
            torch.cat([live.tokens[rows], token[..., None]], dim=-1),
            torch.cat([live.token_scores[rows], chosen[..., None]], dim=-1),
            live.score[rows] + chosen,
        )  # the same fields, (B, k, ...)

        # who ends, who goes on, whose sentence is done
        going = _sort_out(grown, possible, ledgers, end, stop)
        kept = [number for number, places in enumerate(going) if places]
        width = max((len(going[number]) for number in kept), default=0)
        filled = [going[number] + going[number][:1] * (width - len(going[number])) for number in kept]
        flat = [number * rows.shape[1] + place for number, places in zip(kept, filled, strict=True) for place in places]
        live = _rows(grown, flat)
        spare = [place >= len(going[number]) for number in kept for place in range(width)]
        if any(spare):
            live = replace(live, score=live.score.masked_fill(torch.tensor(spare, device=device), -torch.inf))
        last = live.tokens[:, -1:]
        if tell is not None:
            tell(live)
        past = past.select(rows.flatten()[torch.tensor(flat, dtype=torch.long, device=device)])
        past = past if len(kept) == len(rows) else past.keep(torch.tensor(kept, dtype=torch.long, device=device))
    return [ledger.best() for ledger in ledgers]


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


def _sort_out(grown: Live, possible: Tensor, ledgers: list[Ledger], end: int, stop: Stop | None) -> list[list[int]]:
    """Enter what ends into the ledger of its sentence, and say of each sentence which candidates go on."""
    length = grown.tokens.shape[-1]
    lists = (grown.sentence[:, 0].tolist(), grown.tokens[..., -1].tolist(), grown.score.tolist(), possible.tolist())
    going = []
    for number, (sentence, tokens, scores, may) in enumerate(zip(*lists, strict=True)):
        ledger = ledgers[sentence]
        on: list[int] = []
        for place in (place for place, possibly in enumerate(may) if possibly):
            stopped: Stopped | None = None
            if tokens[place] == end:
                stopped = "eos"
            elif stop is not None and stop(grown.tokens[number, place].tolist()):
                stopped = "stop"
            elif length >= ledger.limit:
                stopped = "length"
            if stopped is None and len(on) < ledger.method.width:
                on.append(place)
            elif stopped is not None and place < ledger.method.width:  # among the best
                ledger.add(grown.tokens[number, place].tolist(), grown.token_scores[number, place].tolist(), stopped)
        going.append([] if ledger.done([scores[place] for place in on]) else on)
    return going


def _rows(grown: Live, flat: list[int]) -> Live:
    """The fields (B, k, ...) as rows, these and in this order."""
    count = grown.score.numel()
    rows = {name: value.flatten(0, 1) for name, value in vars(grown).items()}
    if flat == list(range(count)):
        return Live(**rows)
    place = torch.tensor(flat, dtype=torch.long, device=grown.score.device)
    return Live(**{name: value[place] for name, value in rows.items()})


def _note_dead_ends(live: Live, log_p: Tensor, ledgers: list[Ledger]) -> None:
    dead = (log_p.amax(-1) == -torch.inf) & (live.score > -torch.inf)
    for row in dead.nonzero().flatten().tolist():
        ledgers[int(live.sentence[row])].add(live.tokens[row].tolist(), live.token_scores[row].tolist(), "constraint")


def _require_numbers(chosen: Tensor, live: Live, rows: Tensor) -> None:
    """NaN counts as the highest of all where candidates are chosen: there is none among them, or none at all."""
    if chosen.isnan().any():
        row = int(rows[chosen.isnan()][0])
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
