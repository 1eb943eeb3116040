"""What the tasks that find hidden tokens share: batches with gaps, how they are drawn, their loss and their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from saccade.config.language import FramedSettings
from saccade.data.cloze import Gapped
from saccade.data.lexicon import Lexicon
from saccade.data.stream import Ids, Windows
from saccade.metrics import Score
from saccade.metrics.perplexity import perplexities
from saccade.metrics.score import share_score
from saccade.nn.layers import Output
from saccade.nn.losses import token_loss
from saccade.tasks.base import Loss, Term
from saccade.tasks.running_text import RunningText
from saccade.tasks.written import padded

AT_ONCE = 32  # windows scored together
HELD = 12345  # seed of what is hidden in an evaluation, and of the control
SEEDS = 1 << 62
TOP = 5


@dataclass(frozen=True)
class GapBatch:
    """Framed windows in which some tokens are to be found."""

    tokens: Tensor  # (B, T) what is shown
    mask: Tensor  # (B, T) what is real
    target: Tensor  # (B, T) what stands there
    chosen: Tensor  # (B, T) which are to be found
    numbers: tuple[int, ...]
    counts: dict[str, int]
    rank: Tensor | None = None  # (B, T) when each comes in an order
    segments: Tensor | None = None  # (B, T) which text each is of, where there are two
    strange: Tensor | None = None  # (B,) 0 where the second text follows the first, 1 where it does not


Ask = Callable[[GapBatch], Tensor]  # log-probabilities (N, V) of the tokens to be found, row after row
Draws = Sequence[np.random.Generator]


def framed_windows(text: RunningText, settings: FramedSettings, split: str, *, marks: int, seed: int) -> Windows:
    """Runs of text that leave room for so many marks: one after the other or, to train on, beginning anywhere."""
    tokens, room = text.part(split), settings.window - marks
    if split == "train" and settings.windows == "random":
        return Windows.anywhere(tokens, room - 1, seed=seed)
    return Windows(tokens, np.arange(0, len(tokens), room), room - 1)


def drawn_anew(count: int) -> Draws:
    """A generator for each example, seeded from the state that a checkpoint keeps: resumed, or with a batch cut into
    parts, they are the same."""
    return [np.random.default_rng(seed) for seed in torch.randint(SEEDS, (count,)).tolist()]


def drawn_once(seed: int, numbers: Sequence[int]) -> Draws:
    """A generator for each example, by its number alone."""
    return [np.random.default_rng([seed, number]) for number in numbers]


def held_batches(
    windows: Sequence[Ids], make: Callable[[Sequence[Ids], Sequence[int], Draws], GapBatch], most: int | None = None
) -> list[GapBatch]:
    """Windows in batches, the first ones or all, with always the same tokens hidden."""
    count = min(len(windows), most or len(windows))
    batches = []
    for first in range(0, count, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, count))
        batches.append(make([windows[number] for number in numbers], numbers, drawn_once(HELD, numbers)))
    return batches


def gap_batch(rows: Sequence[Gapped], numbers: Sequence[int]) -> GapBatch:
    """Texts with gaps, padded to the longest."""

    def together(column: Iterable[NDArray | None]) -> Tensor | None:
        arrays = [each.tolist() for each in column if each is not None]
        return padded(arrays)[0] if arrays else None

    tokens, mask = padded([row.shown.tolist() for row in rows])
    target, chosen = together(row.target for row in rows), together(row.chosen for row in rows)
    assert target is not None and chosen is not None
    count = int(chosen.sum())
    counts = {"loss": count, "accuracy": count}
    strange = [row.strange for row in rows if row.strange is not None]
    if strange:
        counts |= {"next_sentence": len(rows), "next_sentence_accuracy": len(rows)}
    return GapBatch(
        tokens,
        mask,
        target,
        chosen.bool(),
        tuple(numbers),
        counts,
        rank=together(row.rank for row in rows),
        segments=together(row.segments for row in rows),
        strange=torch.tensor(strange, dtype=torch.long) if strange else None,
    )


def gap_loss(states: Tensor, batch: GapBatch, output: Output, *, smoothing: float) -> Loss:
    """Of finding the chosen tokens, from their states (N, D)."""
    target = batch.target[batch.chosen]
    real = torch.ones_like(target, dtype=torch.bool)
    found = token_loss(states[None], target[None], real[None], output, smoothing=smoothing)
    return {"loss": Term(found.smoothed), "accuracy": Term(found.correct, weight=0.0)}


@dataclass(frozen=True)
class Found:
    """How well hidden tokens were found, a number for each of them."""

    target: NDArray[np.int64]
    surprise: NDArray[np.float64]  # -log p
    better: NDArray[np.int64]  # how many others were thought as probable or more so
    window: NDArray[np.int64]  # that it is of

    @staticmethod
    def by(ask: Ask, batches: Iterable[GapBatch]) -> Found:
        parts = [_found(ask(batch), batch) for batch in batches]
        return Found(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def guessed(self, log_p: NDArray[np.float64]) -> Found:
        """The same tokens, guessed by one law for all."""
        place = np.empty(len(log_p), dtype=np.int64)
        place[np.argsort(-log_p, kind="stable")] = np.arange(len(log_p))
        return replace(self, surprise=-log_p[self.target], better=place[self.target])

    @property
    def values(self) -> dict[str, float]:
        loss = float(self.surprise.mean())
        return {"log_likelihood": -loss, "loss": loss, "accuracy": float((self.better == 0).mean())}

    def scores(self, how: str = "") -> list[Score]:
        """Loss, perplexity, and how often the token was the first or among the first, with intervals."""
        _, window, counts = np.unique(self.window, return_inverse=True, return_counts=True)
        counted = f"{len(self.target):,} hidden tokens of {len(counts):,} windows"
        both = perplexities(np.bincount(window, self.surprise), counts, words=1, text_bytes=1)[:2]
        shares = (share_score("", self.better == 0), share_score("", self.better < TOP))
        names = ("loss per hidden token", "perplexity of hidden tokens", "found", f"found among the first {TOP}")
        return [
            replace(score, name=name + how, signature=counted)
            for name, score in zip(names, (*both, *shares), strict=True)
        ]


def evaluated(ask: Ask, batches: Sequence[GapBatch], text: RunningText) -> list[Score]:
    """How well hidden tokens are found; by frequencies alone; and with shuffled contexts."""
    found = Found.by(ask, batches)
    shuffled = Found.by(ask, (out_of_order(batch, text.lexicon) for batch in batches))
    return [
        *found.scores(),
        *found.guessed(text.log_frequencies()).scores(", by frequency alone (baseline)"),
        *shuffled.scores(", context shuffled (control)"),
    ]


def out_of_order(batch: GapBatch, lexicon: Lexicon) -> GapBatch:
    """The same gaps in a shuffled context: what is found now is found without reading."""
    tokens, marks = batch.tokens.numpy().copy(), list(lexicon.marks.names)
    fixed = (batch.chosen | ~batch.mask).numpy() | np.isin(tokens, marks)
    for row, draw in enumerate(drawn_once(HELD, batch.numbers)):
        places = np.flatnonzero(~fixed[row])
        tokens[row, places] = draw.permutation(tokens[row, places])
    return replace(batch, tokens=torch.from_numpy(tokens))


def _found(log_p: Tensor, batch: GapBatch) -> tuple[np.ndarray, ...]:
    target = batch.target[batch.chosen]
    of_target = log_p.gather(1, target[:, None])  # (N, 1)
    better = (log_p >= of_target).sum(1) - 1
    window = torch.tensor(batch.numbers)[batch.chosen.nonzero()[:, 0]]
    return tuple(each.numpy() for each in (target, -of_target[:, 0].double(), better, window))
