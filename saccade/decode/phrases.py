"""Phrases that an answer must not contain, or must: over the text that tokens spell, however it is cut into them.

A phrase is followed letter by letter by the automaton of Knuth, Morris and Pratt (1977), tabulated over whole tokens.
What must not come is a rule. What must come also needs a beam that keeps hypotheses on the way to it alive: its places
are shared out evenly among numbers of wanted tokens already written (dynamic beam allocation, Post and Vilar 2018).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from saccade.decode.methods import Beam, Live
from saccade.decode.rules import Rule
from saccade.errors import SaccadeError
from saccade.nn.choice import Continuations

Way = tuple[int, int]  # the row of a hypothesis, and a token that may follow


class Phrase:
    """A text to be found in what tokens spell.

    State s of a hypothesis: the last s letters of its text are the first s of the phrase; the last state, "found", is
    never left. `after[s, token]` is the state after one more token.
    """

    def __init__(self, text: str, spellings: Sequence[str], canonical: Sequence[int] = ()):
        """`spellings` says what text each token adds; `canonical` are the tokens that spell the phrase best."""
        if not text:
            raise SaccadeError("an empty phrase can neither be forbidden nor be asked for")
        self.text, self.found = text, len(text)
        letters = _letter_table(text)
        rows = [[_advance(letters, state, word, self.found) for word in spellings] for state in range(self.found)]
        self.after = torch.tensor([*rows, [self.found] * len(spellings)])  # (states, V)
        self._spellings, self._canonical = spellings, canonical

    def states(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """(R, t) -> (R,)"""
        state = torch.zeros(len(tokens), dtype=torch.long)
        for column in torch.tensor(tokens, dtype=torch.long).unbind(1):
            state = self.after[state, column]
        return state

    @cached_property
    def toward(self) -> list[int | None]:
        """For each state the token that leads on: the canonical one, or the longest that fits, if one does."""
        planned = dict(zip(self._ends(), self._canonical, strict=False))
        chosen: list[int | None] = []
        for state in range(self.found):
            fitting = (
                token for token, word in enumerate(self._spellings) if word and self.text.startswith(word, state)
            )
            longest = max(fitting, key=lambda token: len(self._spellings[token]), default=None)
            chosen.append(planned.get(state, longest))
        if chosen[0] is None:
            raise SaccadeError(f"the vocabulary cannot write {self.text!r}")
        return chosen

    @cached_property
    def stages(self) -> list[int]:
        """For each state how many canonical tokens it has behind it; when found, one more than before."""
        ends = self._ends()[1:-1]
        return [*(sum(end <= state for end in ends) for state in range(self.found)), len(ends) + 1]

    def _ends(self) -> list[int]:
        return list(accumulate((len(self._spellings[token]) for token in self._canonical), initial=0))


def without(phrases: Sequence[Phrase]) -> Rule:
    """No token that would complete one of the phrases."""

    def rule(live: Live, log_p: Tensor) -> None:
        for phrase in phrases:
            completes = phrase.after[phrase.states(live.tokens), : log_p.shape[1]] == phrase.found
            log_p.masked_fill_(completes.to(log_p.device), -torch.inf)

    return rule


def containing(phrases: Sequence[Phrase], end: int) -> Rule:
    """No end before every phrase has been written."""

    def rule(live: Live, log_p: Tensor) -> None:
        for phrase in phrases:
            lacking = phrase.states(live.tokens) != phrase.found
            log_p[:, end].masked_fill_(lacking.to(log_p.device), -torch.inf)

    return rule


@dataclass(frozen=True)
class Including:
    """A beam on the way to phrases; together with the rule `containing` its answers have them all."""

    beam: Beam
    phrases: tuple[Phrase, ...]

    @property
    def width(self) -> int:
        return self.beam.width

    @property
    def best(self) -> int:
        return self.beam.best

    @property
    def scored(self) -> bool:
        return self.beam.scored

    @property
    def ways(self) -> None:
        """Not only the best ways lead to phrases."""

    def rank(self, score: float, length: int) -> float:
        return self.beam.rank(score, length)

    def candidates(self, live: Live, log_p: Tensor) -> Continuations:
        usual = self.beam.candidates(live, log_p)
        states = [phrase.states(live.tokens) for phrase in self.phrases]
        # a hypothesis that has paid for a phrase is seldom among the best of all: each goes on with its own best, too
        own: list[list[int]] = log_p.topk(min(2, log_p.shape[1])).indices.tolist()  # (R, 2)
        chosen = []
        found = list(zip(usual.row, usual.word, strict=True))
        for number in range(live.sentences):
            best = found[number * usual.ways : (number + 1) * usual.ways]
            rows = range(number * live.width, (number + 1) * live.width)
            ways = {*best, *((row, token) for row in rows for token in own[row]), *self._forward(states, rows)}
            chosen.append(self._shared_out(live, log_p, states, ways)[: len(best)])
        return live.continued(log_p, *([[way[part] for way in ways] for ways in chosen] for part in (0, 1)))

    def _forward(self, states: list[Tensor], rows: range) -> list[Way]:
        """From every hypothesis of a sentence the next token of each phrase that is not there yet."""
        return [
            (row, token)
            for row in rows
            for phrase, state in zip(self.phrases, states, strict=True)
            if (place := int(state[row])) != phrase.found and (token := phrase.toward[place]) is not None
        ]

    def _shared_out(self, live: Live, log_p: Tensor, states: list[Tensor], ways: set[Way]) -> list[Way]:
        """The candidates of a sentence in turns: the best of those that have most of the phrases, of the next, ..."""
        banks: dict[int, list[tuple[float, Way]]] = {}
        for row, token in ways:
            met = sum(
                phrase.stages[int(phrase.after[state[row], token])]
                for phrase, state in zip(self.phrases, states, strict=True)
            )
            banks.setdefault(met, []).append((live.score[row] + float(log_p[row, token]), (row, token)))
        queues = [sorted(banks[met], key=lambda each: (-each[0], each[1])) for met in sorted(banks, reverse=True)]
        longest = max(len(queue) for queue in queues)
        return [queue[turn][1] for turn in range(longest) for queue in queues if turn < len(queue)]


def _letter_table(text: str) -> list[dict[str, int]]:
    """For each state the state after each letter of the phrase; any other letter leads back to 0."""
    table: list[dict[str, int]] = [{text[0]: 1}]
    border = 0  # the state of the same text without its first letter
    for state in range(1, len(text)):
        table.append({**table[border], text[state]: state + 1})
        border = table[border].get(text[state], 0)
    return table


def _advance(table: list[dict[str, int]], state: int, word: str, found: int) -> int:
    for letter in word:
        state = table[state].get(letter, 0)
        if state == found:
            break
    return state
