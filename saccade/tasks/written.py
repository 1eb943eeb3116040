"""What all tasks that write text share: batches with a target, teacher forcing, answers from hypotheses, maps."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from saccade.data.vocab import END, PAD, START, Vocabulary
from saccade.decode import Hypothesis
from saccade.errors import SaccadeError
from saccade.maps.record import record
from saccade.maps.render import AttentionMap, Axis, Tokens
from saccade.models.shapes import EncoderDecoder
from saccade.nn.losses import TokenLoss, token_loss
from saccade.tasks.answers import at_rest
from saccade.tasks.base import Answer, Loss, Prediction, Term


@dataclass(frozen=True)
class WrittenBatch:
    """Something to read, and padded targets that stand between start and end."""

    source: Tensor  # (B, S) tokens, (B, S, F) frames or (B, C, H, W) images
    source_mask: Tensor | None  # (B, S)
    target: Tensor  # (B, T + 1), with start and end
    target_mask: Tensor  # (B, T): what is to be predicted
    numbers: tuple[int, ...]
    counts: dict[str, int]


def written_batch(
    source: Tensor, source_mask: Tensor | None, targets: Sequence[Sequence[int]], numbers: Sequence[int]
) -> WrittenBatch:
    """Targets without start and end are padded to the longest; what is to be predicted is counted."""
    target, mask = padded([[START, *target, END] for target in targets])
    tokens = int(mask[:, 1:].sum())
    counts = {"loss": tokens, "surprise": tokens, "accuracy": tokens}
    return WrittenBatch(source, source_mask, target, mask[:, 1:], tuple(numbers), counts)


def written_loss(model: EncoderDecoder, batch: WrittenBatch, *, smoothing: float) -> Loss:
    """Teacher forcing: every position is given the truth before it and predicts what comes next, all at once."""
    states = model(batch.source, batch.source_mask, batch.target[:, :-1])
    return _terms(token_loss(states, batch.target[:, 1:], batch.target_mask, model.output, smoothing=smoothing))


def agreeing_loss(model: EncoderDecoder, batch: WrittenBatch, *, smoothing: float, weight: float) -> Loss:
    """The same with every sentence read twice, with other dropout, and a price on answers that differ."""
    source, mask, given = (
        None if each is None else each.repeat_interleave(2, 0)
        for each in (batch.source, batch.source_mask, batch.target[:, :-1])
    )
    target, wanted = batch.target[:, 1:], batch.target_mask
    loss = token_loss(model(source, mask, given), target, wanted, model.output, smoothing=smoothing, agreement=weight)
    return {**_terms(loss), "disagreement": Term(loss.disagreement, weight=0.0)}


def _terms(loss: TokenLoss) -> dict[str, Term]:
    return {
        "loss": Term(loss.smoothed),
        "surprise": Term(loss.surprise, weight=0.0),
        "accuracy": Term(loss.correct, weight=0.0),
    }


def as_prediction(input_: str, hypotheses: Sequence[Hypothesis], vocabulary: Vocabulary) -> Prediction:
    """What a search found, as text."""
    return Prediction(input_, tuple(Answer(vocabulary.decode(each.tokens), each.score, each) for each in hypotheses))


def look_while_writing(
    model: EncoderDecoder, batch: WrittenBatch, read: Axis, vocabulary: Vocabulary
) -> list[AttentionMap]:
    """Replay a batch of one, teacher-forced, with the taps on: exact for any search, all layers and heads.

    `read` is the axis of what is read; rows and columns of what is written are pieces. First comes the average of all
    cross-attentions: the alignment.
    """
    with at_rest(model), record(model) as recording:
        model(batch.source, batch.source_mask, batch.target[:, :-1])
    pieces = vocabulary.pieces(batch.target[0].tolist())
    given, written = Tokens(tuple(pieces[:-1])), Tokens(tuple(pieces[1:]))
    maps = []
    for seen in recording:
        encodes = seen.name.startswith("encoder.")
        columns = given if seen.causal and not encodes else read
        maps.append(AttentionMap(seen.title, seen.weights[0], read if encodes else written, columns))
    return _alignment_first(maps, written, read)


def _alignment_first(maps: list[AttentionMap], written: Tokens, read: Axis) -> list[AttentionMap]:
    """The average of all cross-attentions, or the only one there is, before all others."""
    across = [each for each in maps if each.rows is written and each.columns is read]
    if len(across) > 1 or (across and across[0].heads > 1):
        average = torch.stack([each.weights.mean(0) for each in across]).mean(0)
        maps = [AttentionMap("alignment: average of all cross-attentions", average[None], written, read), *maps]
    elif across:
        only = replace(across[0], name="alignment: where it looked while it wrote")
        maps = [only, *(each for each in maps if each is not across[0])]
    return maps


def save_most_frequent(path: Path, texts: Iterable[str]) -> str:
    """The text that is there most often, kept in a run: the answer of the trivial baseline."""
    text = Counter(texts).most_common(1)[0][0]
    path.write_text(json.dumps({"most_frequent": text}, ensure_ascii=False) + "\n", encoding="utf-8")
    return text


def load_most_frequent(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["most_frequent"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SaccadeError(f"{path}: cannot read: {error}") from error


def padded(sequences: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """(B, longest) ids, and which of them are real."""
    lengths = [len(sequence) for sequence in sequences]
    longest = max(lengths)
    filled = [[*sequence, *[PAD] * (longest - len(sequence))] for sequence in sequences]
    return torch.tensor(filled, dtype=torch.long), torch.arange(longest) < torch.tensor(lengths)[:, None]
