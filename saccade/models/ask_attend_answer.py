"""From an image and a question to an answer: attention stacked on attention, and one Transformer over both.

    show:    cells v_1 ... v_L = the grid of an image encoder + row and column
    ask:     every word looks,         w_t = e_t + sum_i softmax over i of (e_t . v_i / sqrt D) v_i
             and is read,              h_1 ... h_T = LSTM(w + FF(w)), both directions;  q = the last states
    attend:  the words are weighed,    u_0 = q + sum_t softmax over t of (q . h_t / sqrt D) h_t
             and the question looks,   u_k = u_{k-1} + sum_i softmax over i of (p . tanh(W u_{k-1} + U v_i)) v_i
    answer:  softmax of V tanh(R u_K)

Yang et al. 2016, "Stacked attention networks for image question answering", for the looks of the question; u_0 = q
there. Xu and Saenko 2016, "Ask, attend and answer", for words that look first, each on its own; here what they saw is
read along, so that "not red" can be understood. In the Transformer words and cells look at each other from the first
layer on, and the answer comes from a vector of its own before them, as in Li et al. 2019, "VisualBERT", and Kim et al.
2021, "ViLT". Projections of the attentions are left out above.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from saccade.config.models import TransformerSettings
from saccade.config.questions import StackedAttentionSettings, VQATransformerSettings
from saccade.models.images import image_encoder
from saccade.models.show_attend_tell import Sight
from saccade.models.transformer import make_embedding, make_stack
from saccade.models.vit import DEVIATION
from saccade.nn.attention import Attention
from saccade.nn.cache import KeyValues
from saccade.nn.layers import Dropout, Embedding, FeedForward, Output, Residual, xavier
from saccade.nn.recurrent import RecurrentEncoder
from saccade.nn.scores import Additive
from saccade.nn.stack import Stack

NO_QUESTION = 0  # the token that is read in place of any question


class Answerer(nn.Module):
    """Images, and questions about them -> logits over the answers; `joint` makes a vector of words and cells.

    Who does not see (no `sight`) is shown one cell of zeros, and who does not read always the same one token.
    """

    def __init__(self, sight: Sight | None, joint: nn.Module, output: Output, *, width: int, reads: bool = True):
        super().__init__()
        self.sight, self.joint, self.output = sight, joint, output
        self.width, self.reads = width, reads

    def see(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W), or what a frozen encoder saw in them -> cells (B, S, D)."""
        return images.new_zeros(len(images), 1, self.width) if self.sight is None else self.sight(images).states

    def forward(self, images: Tensor, about: Tensor, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Questions (Q, T), the nth of them about the image with the number about[n] -> logits (Q, answers). Each image
        is seen once, however much is asked of it."""
        if not self.reads:
            tokens, mask = tokens.new_full((len(tokens), 1), NO_QUESTION), None
        return self.output(self.joint(self.see(images), about, tokens, mask))


class StackedAttention(nn.Module):
    """Cells (B, S, D), and tokens (Q, T) of which each row is about one of the B -> (Q, D).

    Initial law of the readout: Xavier uniform, bias zero.
    """

    hops: Sequence[Attention]

    def __init__(self, embedding: Embedding, reader: RecurrentEncoder, *, hops: int, dropout: float = 0.0):
        super().__init__()
        width = reader.width
        self.embedding, self.reader = embedding, reader
        self.ask, self.feed_forward = Attention(width), FeedForward(width, 2 * width, dropout=dropout)
        self.around = Residual(width, dropout=dropout)
        self.gather = Attention(width)
        self.hops = nn.ModuleList(Attention(width, score=Additive(width)) for _ in range(hops))  # type: ignore[assignment]
        self.readout = nn.Linear(width, width)
        self.dropout = Dropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        xavier(self.readout)

    def forward(self, cells: Tensor, about: Tensor, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        def look(attention: Attention, asking: Tensor) -> Tensor:
            kv = attention.remember(cells)  # once for all that is asked about an image
            return attention(asking, KeyValues(kv.key.index_select(0, about), kv.value.index_select(0, about)))

        words = self.embedding(tokens)
        words = self.around(words + look(self.ask, words), self.feed_forward)
        words, last = self.reader(words, mask)  # (Q, T, D), (Q, 1, D)
        asking = last + self.gather(last, self.gather.remember(words, mask))  # (Q, 1, D)
        for hop in self.hops:
            asking = asking + look(hop, asking)
        return self.dropout(torch.tanh(self.readout(self.dropout(asking))))[:, 0]


class JointTransformer(nn.Module):
    """Likewise, by self-attention over [answer; words; cells], of which the first position is the answer's.

    Initial law of its vector and of those that tell words from cells: normal with deviation 0.02.
    """

    def __init__(self, embedding: Embedding, stack: Stack):
        super().__init__()
        self.embedding, self.stack = embedding, stack
        self.first = nn.Parameter(torch.empty(embedding.width))
        self.kinds = nn.Parameter(torch.empty(2, embedding.width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.first, std=DEVIATION)
        nn.init.normal_(self.kinds, std=DEVIATION)

    def forward(self, cells: Tensor, about: Tensor, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        rows, cells = len(tokens), cells.index_select(0, about)  # (Q, S, D)
        words = self.embedding(tokens) + self.kinds[0]
        together = torch.cat([self.first.expand(rows, 1, -1), words, cells + self.kinds[1]], dim=1)  # (Q, 1 + T + S, D)
        if mask is not None:
            mask = torch.cat([mask.new_ones(rows, 1), mask, mask.new_ones(rows, cells.shape[1])], dim=1)
        return self.stack(together, mask=mask)[:, 0]


def stacked_attention(settings: StackedAttentionSettings, vocabulary: int, answers: int, size: int) -> Answerer:
    """For images of `size` x `size` pixels."""
    embedding = Embedding(vocabulary, settings.width, dropout=settings.dropout)
    reader = RecurrentEncoder(settings.width, settings.width // 2, cell=settings.cell)
    joint = StackedAttention(embedding, reader, hops=settings.hops, dropout=settings.dropout)
    return _answerer(settings, joint, answers, size)


def vqa_transformer(settings: VQATransformerSettings, vocabulary: int, answers: int, size: int) -> Answerer:
    """Likewise."""
    shape = TransformerSettings(
        width=settings.width, heads=settings.heads, hidden=settings.hidden, dropout=settings.dropout
    )
    joint = JointTransformer(make_embedding(shape, vocabulary), make_stack(shape, settings.layers))
    return _answerer(settings, joint, answers, size)


def _answerer(
    settings: StackedAttentionSettings | VQATransformerSettings, joint: nn.Module, answers: int, size: int
) -> Answerer:
    sight = None
    if settings.sees != "question":
        image, image_width = image_encoder(settings.image, size=size)
        sight = Sight(image, image_width=image_width, width=settings.width)
    output = Output(settings.width, answers, bias=True)
    return Answerer(sight, joint, output, width=settings.width, reads=settings.sees != "image")
