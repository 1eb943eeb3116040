"""Texts with gaps: which tokens of a window are to be found, and what is shown in their place.

    masked:    15 % of the tokens; of these 80 % become the mask, 10 % some token, 10 % stay        (Devlin et al. 2019)
    permuted:  an order of all tokens; the last 1/K of it are found, each from those before it        (Yang et al. 2019)

Everything is a function of the text and a generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from saccade.data.lexicon import Lexicon, Marks
from saccade.data.stream import Ids

MASKED, EXCHANGED = 0.8, 0.1  # shares of the chosen tokens; the others stay
CONTEXT = -1  # rank of what everybody may see

Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Gapped:
    """A framed text with gaps; all arrays are as long as it."""

    shown: Places
    target: Places
    chosen: NDArray[np.bool_]
    rank: Places | None = None
    segments: Places | None = None
    strange: bool | None = None  # whether the second of two texts does not follow the first


def framed(parts: Sequence[Ids], marks: Marks) -> tuple[Places, Places]:
    """One text or two as one: start, text, end (, text, end); and the number of the text that each token is of."""
    pieces = [np.concatenate([part.astype(np.int64), [marks.end]]) for part in parts]
    pieces[0] = np.concatenate([[marks.start], pieces[0]])
    return np.concatenate(pieces), np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])


def plain_places(ids: Places, marks: Marks) -> Places:
    """Where text stands, and not a mark."""
    return np.flatnonzero(~np.isin(ids, list(marks.names)))


def chosen_tokens(places: Places, share: float, draw: np.random.Generator) -> Places:
    """A share of the places, one at least."""
    return draw.permutation(places)[: max(1, round(share * len(places)))]


def chosen_words(ids: Places, lexicon: Lexicon, share: float, draw: np.random.Generator) -> Places:
    """The places of whole words, in a random order while all their pieces are no more than the share; one at least."""
    marks = lexicon.marks.names
    words = [word for _, word in lexicon.words(ids.tolist()) if ids[word[0]] not in marks]
    most = max(1, round(share * sum(map(len, words))))
    order = draw.permutation(len(words)).tolist()
    chosen: list[int] = []
    for number in order:
        if len(chosen) + len(words[number]) <= most:
            chosen += words[number]
    return np.asarray(chosen or words[order[0]])


def masked(ids: Places, chosen: Places, mask: int, plain: Ids, draw: np.random.Generator) -> Gapped:
    """A text whose chosen places are to be found; `plain` are the ids that are text."""
    fate, others = draw.random(len(chosen)), draw.choice(plain, size=len(chosen))
    shown, hidden = ids.copy(), np.zeros(len(ids), dtype=bool)
    shown[chosen] = np.select(
        [fate < MASKED, fate < MASKED + EXCHANGED], [np.full_like(others, mask), others], ids[chosen]
    )
    hidden[chosen] = True
    return Gapped(shown, ids, hidden)


def permuted(ids: Places, places: Places, one_in: int, draw: np.random.Generator) -> Gapped:
    """An order of the given places: the last ones of it have the ranks 0, 1, ... and are to be found, all else is
    context."""
    last = draw.permutation(places)[len(places) - max(1, len(places) // one_in) :]
    rank = np.full(len(ids), CONTEXT)
    rank[last] = np.arange(len(last))
    return Gapped(ids, ids, rank != CONTEXT, rank=rank)
