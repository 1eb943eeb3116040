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
        log_p = _log_probabilities(logits, live)
        left = _apply(rules, live, log_p)
        parent, token = method.candidates(live, left, width)  # (B, k)
        _note_dead_ends(live, left, ledgers)

        rows = rows_of(parent, width)  # (B, k)
        possible = (left[rows, token] > -torch.inf) & (live.score[rows] > -torch.inf)
        grown = Live(
            live.sentence[rows],
            torch.arange(rows.shape[1], device=device).expand_as(rows)
            if not live.tokens.shape[1]
            else live.answer[rows],
            torch.cat([live.tokens[rows], token[..., None]], dim=-1),
            torch.cat([live.token_scores[rows], log_p[rows, token][..., None]], dim=-1),
            live.score[rows] + log_p[rows, token],
        )  # the same fields, (B, k, ...)

        # who ends, who goes on, whose sentence is done
        going = [
            _sort_out(_sentence(grown, number), possible[number].tolist(), ledgers, end, stop)
            for number in range(len(rows))
        ]
        kept = [number for number, places in enumerate(going) if places]
        width = max((len(going[number]) for number in kept), default=0)
        filled = [going[number] + going[number][:1] * (width - len(going[number])) for number in kept]
        place = torch.tensor(filled, dtype=torch.long, device=device).view(len(kept), width)
        flat = (place + torch.tensor(kept, dtype=torch.long, device=device).view(-1, 1) * rows.shape[1]).flatten()
        live = Live(*(value.flatten(0, 1)[flat] for value in vars(grown).values()))
        spare = torch.tensor([[p >= len(going[n]) for p in range(width)] for n in kept], device=device).flatten()
        live = replace(live, score=live.score.masked_fill(spare.bool(), -torch.inf))
        last = live.tokens[:, -1:]
        if tell is not None:
            tell(live)
        past = past.select(rows.flatten()[flat])
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


def _sort_out(grown: Live, possible: list[bool], ledgers: list[Ledger], end: int, stop: Stop | None) -> list[int]:
    """Enter into the sentence's ledger what ends, and say which candidates go on."""
    ledger = ledgers[int(grown.sentence[0])]
    token, score = grown.tokens[:, -1].tolist(), grown.score.tolist()
    going: list[int] = []
    for place, (last, may) in enumerate(zip(token, possible, strict=True)):
        if not may:
            continue
        among_best = place < ledger.method.width
        stopped: Stopped | None = None
        if last == end:
            stopped = "eos"
        elif stop is not None and stop(grown.tokens[place].tolist()):
            stopped = "stop"
        elif grown.tokens.shape[1] >= ledger.limit:
            stopped = "length"
        if stopped is None and len(going) < ledger.method.width:
            going.append(place)
        elif stopped is not None and among_best:
            ledger.add(grown.tokens[place].tolist(), grown.token_scores[place].tolist(), stopped)
    return [] if ledger.done([score[place] for place in going]) else going


def _note_dead_ends(live: Live, left: Tensor, ledgers: list[Ledger]) -> None:
    dead = (left.amax(-1) == -torch.inf) & (live.score > -torch.inf)
    for row in dead.nonzero().flatten().tolist():
        ledgers[int(live.sentence[row])].add(live.tokens[row].tolist(), live.token_scores[row].tolist(), "constraint")


def _log_probabilities(logits: Tensor, live: Live) -> Tensor:
    log_p = logits.log_softmax(-1)
    if not torch.isfinite(log_p.amax(-1)).all():
        row = int((~torch.isfinite(log_p.amax(-1))).nonzero()[0])
        raise SaccadeError(
            f"the model produced NaN for sentence {int(live.sentence[row])} after {live.tokens.shape[1]} tokens; "
            "its weights are broken, or were trained until they diverged"
        )
    return log_p


def _apply(rules: Sequence[Rule], live: Live, log_p: Tensor) -> Tensor:
    for rule in rules:
        log_p = log_p.masked_fill(~rule(live, log_p.shape[1]), -torch.inf)
    return log_p


def _sentence(grown: Live, number: int) -> Live:
    return Live(*(value[number] for value in vars(grown).values()))


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
