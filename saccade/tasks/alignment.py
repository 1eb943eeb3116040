"""Words aligned by attention: which head shows it best, and a head that is taught to show it.

guided alignment: loss += weight x mean over target pieces of  -sum_s A_ts log a_ts          (Garg et al. 2019)

A_t is uniform over the source pieces that a piece's word is linked to; a is the first head of the last cross-attention
but one. Pieces without a link are left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.data.aligner import Links
from saccade.data.vocab import END, Vocabulary
from saccade.maps.record import attentions, record, watched
from saccade.maps.render import AttentionMap, Tokens
from saccade.models.shapes import EncoderDecoder
from saccade.nn.attention import Attention
from saccade.tasks.answers import at_rest
from saccade.tasks.base import Loss, Term
from saccade.tasks.pairs import Pair, collate_pairs
from saccade.tasks.written import WrittenBatch, written_loss

SMALLEST = 1e-8  # attention whose logarithm is taken at least


@dataclass(frozen=True)
class AlignedBatch(WrittenBatch):
    """A batch that also says what each target piece should look at."""

    alignment: Tensor  # (B, T, S); rows sum to one or, without a link, to zero


@dataclass(frozen=True)
class Choice:
    """The attention that shows alignment best: one head of a map, or the mean of its heads; of all maps for ""."""

    map: str = ""
    head: int | None = None
    agreement: float | None = None  # with links that were found without the model

    def weights(self, maps: Sequence[AttentionMap]) -> Tensor:
        """(T, S), from what a look gave; its first map is the average of all cross-attentions."""
        chosen = next((each for each in maps if each.name == self.map), maps[0])
        return chosen.mean if self.head is None else chosen.weights[self.head]


def aligned_batch(batch: WrittenBatch, links: Sequence[Tensor]) -> AlignedBatch:
    """Add what each target piece of each pair should look at, (T', S') without the end."""
    alignment = torch.zeros(*batch.target_mask.shape, batch.source.shape[1])
    for row, wanted in enumerate(links):
        alignment[row, : wanted.shape[0], : wanted.shape[1]] = wanted
    counts = batch.counts | {"alignment": int(alignment.any(-1).sum())}
    return AlignedBatch(**(vars(batch) | {"counts": counts, "alignment": alignment}))


def piece_links(pair: Pair, links: Links, vocabulary: Vocabulary) -> Tensor:
    """Links between words as a table over pieces, rows uniform over what they are linked to: (T, S)."""
    source, target = pair
    wanted = torch.zeros(len(target), len(source))
    left, right = ([places for _, places in vocabulary.words(ids)] for ids in (source, target))
    for i, j in links:
        if i < len(left) and j < len(right):  # spaces that are no words may join what is counted as two
            wanted[torch.tensor(right[j])[:, None], torch.tensor(left[i])] = 1.0
    return wanted / wanted.sum(-1, keepdim=True).clamp(min=1)


def guided_loss(model: EncoderDecoder, batch: AlignedBatch, *, smoothing: float, weight: float) -> Loss:
    """The usual loss, and the distance of one head from the alignment."""
    across = cross_attentions(model)
    assert across, "a model without attention has been refused"
    with watched([across[-2 if len(across) > 1 else 0][1]]) as (seen,):
        loss = written_loss(model, batch, smoothing=smoothing)
    looked = torch.cat(seen, dim=2)[:, 0].float().clamp(min=SMALLEST)  # (B, T, S)
    return {**loss, "alignment": Term(-(batch.alignment * looked.log()).sum(), weight)}


def cross_attentions(model: EncoderDecoder) -> list[tuple[str, Attention]]:
    """Those of the decoder to the memory, in the order of the layers."""
    return [(name, each) for name, each in attentions(model) if name.startswith("decoder") and not each.causal]


def choose_attention(
    model: EncoderDecoder, pairs: Sequence[tuple[Pair, Links]], vocabulary: Vocabulary
) -> Choice | None:
    """Which head, layer mean or total mean agrees with most links, each target word taken to what it looked at most.

    None where there is nothing to choose from: no attention, or no link.
    """
    hits: dict[tuple[str, int | None], int] = {}
    total = 0
    with at_rest(model):
        for (source, target), links in pairs:
            maps = _cross_maps(model, (source, target), vocabulary)
            if not maps:
                return None
            total += len(links)
            average = torch.stack([each.mean for each in maps]).mean(0)
            candidates: list[tuple[tuple[str, int | None], Tensor]] = [(("", None), average)]
            for each in maps:
                candidates.append(((each.name, None), each.mean))
                candidates += [((each.name, head), each.weights[head]) for head in range(each.heads)]
            for key, weights in candidates:
                best = weights.argmax(-1).tolist()
                hits[key] = hits.get(key, 0) + sum(j < len(best) and best[j] == i for i, j in links)
    if not total:
        return None
    (name, head), found = max(hits.items(), key=lambda item: item[1])
    return Choice(name, head, found / total)


def _cross_maps(model: EncoderDecoder, pair: Pair, vocabulary: Vocabulary) -> list[AttentionMap]:
    """The cross-attentions while a target is written, over words."""
    source, target = pair
    batch = collate_pairs([pair], [0])
    with record(model) as recording:
        model(batch.source, batch.source_mask, batch.target[:, :-1])
    across = {name for name, _ in cross_attentions(model)}
    rows, columns = vocabulary.words([*target, END]), vocabulary.words(source)
    pieces = (Tokens(tuple(vocabulary.pieces([*target, END]))), Tokens(tuple(vocabulary.pieces(source))))
    return [
        AttentionMap(seen.title, seen.weights[0], *pieces).grouped(rows, columns)
        for seen in recording
        if seen.name in across
    ]
