"""Texts with [MASK] in them: read, filled in, written out again, and looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.data.cloze import CONTEXT
from saccade.data.lexicon import Lexicon
from saccade.data.vocab import shortened
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap, Tokens
from saccade.tasks.answers import refuse_target, wanted_answers
from saccade.tasks.base import Answer, Prediction
from saccade.tasks.gaps import Ask, GapBatch
from saccade.tasks.running_text import average_first

SPELLED = "[MASK]"
GAP = re.compile(r"\[MASK\]|<mask>")
SPACED = ("pieces", "gpt2")  # vocabularies in which the space before a word belongs to it
SPACES = ("Ġ", "▁")  # as they spell it
SAMPLES = 5


@dataclass(frozen=True)
class Cloze:
    """A framed text, where its gaps are, and whether a word of its own begins there: None where both may be."""

    tokens: Tensor  # (1, T)
    gaps: tuple[int, ...]
    words: tuple[bool | None, ...]


def read_gaps(text: str, lexicon: Lexicon, longest: int) -> Cloze:
    """A text whose gaps are spelled [MASK] or <mask>."""
    marks, parts = lexicon.marks, GAP.split(text)
    spaced = lexicon.unit in SPACED
    ids, gaps, words = [marks.start], [], []
    for number, part in enumerate(parts[:-1]):
        ids += lexicon.encode(part.removesuffix(" ") if spaced else part)
        gaps.append(len(ids))
        words.append(part.endswith(" ") if spaced and (part or number) else None)
        ids.append(marks.pad if marks.mask is None else marks.mask)
    ids += [*lexicon.encode(parts[-1]), marks.end]
    if len(ids) > longest:
        raise SaccadeError(
            f"{shortened([text])!r} has {len(ids)} tokens with its marks, and the model reads {longest} at most"
        )
    return Cloze(torch.tensor([ids]), tuple(gaps), tuple(words))


def asked(tokens: Tensor, gaps: Sequence[int]) -> GapBatch:
    """Texts (B, T) with the same gaps, none of which helps to find another."""
    chosen = torch.zeros_like(tokens, dtype=torch.bool)
    chosen[:, list(gaps)] = True
    rank = torch.where(chosen, CONTEXT + 1, CONTEXT)
    counts = {"loss": len(tokens) * len(gaps)}
    return GapBatch(tokens, torch.ones_like(chosen), tokens, chosen, tuple(range(len(tokens))), counts, rank=rank)


def filled_in(texts: Sequence[str], lexicon: Lexicon, longest: int, method: Method, ask: Ask) -> list[Prediction]:
    """The texts with their gaps filled: the best candidates for the first, each with the others filled after it from
    left to right. A score is a sum of log-probabilities."""
    best = wanted_answers(method)
    found = []
    for text in texts:
        try:
            cloze = read_gaps(text, lexicon, longest)
            if not cloze.gaps:
                raise SaccadeError(f"nothing is hidden in {text!r}: write {SPELLED} where a word is to be found")
            answers = _filled(cloze, lexicon, best, ask)
            found.append(Prediction(text, tuple(sorted(answers, key=lambda answer: -answer.score))))
        except SaccadeError as error:
            found.append(Prediction(text, refusal=str(error)))
    return found


def _filled(cloze: Cloze, lexicon: Lexicon, best: int, ask: Ask) -> list[Answer]:
    tokens, score = cloze.tokens, torch.zeros(1)
    begins = torch.tensor([spelling.startswith(SPACES) for spelling in lexicon.spellings()])
    for number, (gap, word) in enumerate(zip(cloze.gaps, cloze.words, strict=True)):
        log_p = ask(asked(tokens, cloze.gaps[number:])).unflatten(0, (len(tokens), -1))[:, 0]  # (rows, V)
        log_p[:, list(lexicon.marks.names)] = -torch.inf  # they are no text
        if word is not None:
            log_p[:, begins != word] = -torch.inf
        allowed = int((log_p > -torch.inf).sum(1).min())
        if not allowed:
            raise SaccadeError(f"the vocabulary has nothing that could stand in gap {number + 1}")
        top = log_p.topk(min(best, allowed) if number == 0 else 1, dim=1)
        tokens = tokens.repeat_interleave(top.values.shape[1], 0)
        tokens[:, gap] = top.indices.flatten()
        score = (score[:, None] + top.values).flatten()
    return [Answer(lexicon.decode(row), float(each)) for row, each in zip(tokens.tolist(), score, strict=True)]


def samples(batch: GapBatch, log_p: Tensor, lexicon: Lexicon) -> list[tuple[str, str, str]]:
    """A few texts with their gaps, as log-probabilities (N, V) fill them, and as they are."""
    filled = batch.target.clone()
    filled[batch.chosen] = log_p.argmax(1)
    shown = []
    for row, real in enumerate(batch.mask[:SAMPLES]):
        before, after = batch.target[row, real].tolist(), filled[row, real].tolist()
        gaps = batch.chosen[row, real].nonzero()[:, 0].tolist()
        shown.append((spelled(before, gaps, lexicon), lexicon.decode(after), lexicon.decode(before)))
    return shown


def read_to_look(text: str, target: str | None, lexicon: Lexicon, longest: int) -> Cloze:
    """As `read_gaps`; there is no answer to be written."""
    refuse_target(target, f"put the words into the text itself, in place of {SPELLED}")
    if not text.strip():
        raise SaccadeError("the text is empty: there is nothing to look at")
    return read_gaps(text, lexicon, longest)


def maps_over(
    weights: Mapping[str, Tensor], ids: Sequence[int], lexicon: Lexicon, *, pieces: bool
) -> list[AttentionMap]:
    """Self-attentions (H, T, T) by name as maps over a text, their average first."""
    axis = Tokens(tuple(lexicon.pieces(ids)))
    maps = average_first([AttentionMap(name, each, axis, axis) for name, each in weights.items()])
    words = lexicon.words(ids)
    return maps if pieces else [each.grouped(words, words) for each in maps]


def spelled(ids: Sequence[int], gaps: Sequence[int], lexicon: Lexicon) -> str:
    """A text with [MASK] in its gaps, as `read_gaps` reads it."""
    text, start = "", 0
    for place in [*gaps, len(ids)]:
        text = _joined(text, lexicon.decode(ids[start:place]), lexicon)
        if place < len(ids):
            space = lexicon.pieces(ids[place : place + 1])[0].startswith("▁") and lexicon.unit in SPACED
            text = _joined(text + " " * space, SPELLED, lexicon)
        start = place + 1
    return text


def _joined(left: str, right: str, lexicon: Lexicon) -> str:
    """Where the vocabulary keeps no spaces, with one between."""
    return f"{left} {right}" if left and right and lexicon.unit in ("words", "bert", "clip") else left + right
