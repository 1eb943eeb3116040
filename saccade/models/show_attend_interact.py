"""From an image of a world to an action in it: one question, learned once, that looks several times and then decides.

    show:      cells v_1 ... v_L = the grid of an image encoder + row and column
    attend:    u_k' = u_{k-1} + sum_i softmax over i of (u_{k-1} . v_i / sqrt K) v_i,   u_k = u_k' + W2 relu(W1 u_k')
    interact:  p(action) = softmax of V u_K;  then the world changes, and is shown again
    learn:     p(what is wanted) = softmax of U u_1, which asks the first look to find out what the others are for

u_0 is the same for all images: what the first look finds decides what the next one is for, as in the memory networks of
Sukhbaatar et al. (2015) and in the stacked attention of Yang et al. (2016). Nothing is remembered between actions,
since the image shows all there is to know. Learning from demonstrations: Pomerleau (1989). (Projections, heads and
norms of the attention are left out above.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from saccade.config.interaction import ShowAttendInteractSettings
from saccade.models.images import Size, image_encoder
from saccade.models.show_attend_tell import Sight
from saccade.models.vit import DEVIATION
from saccade.nn.attention import Attention
from saccade.nn.layers import FeedForward, Output, Residual, make_norm


class Hop(nn.Module):
    """One look: a question (B, 1, D) and cells (B, S, D) -> the question, knowing more (B, 1, D).

    Without attention it is given the mean of all cells.
    """

    def __init__(self, width: int, *, heads: int, hidden: int, attend: bool = True, dropout: float = 0.0):
        super().__init__()
        self.attention = Attention(width, heads=heads) if attend else None
        self.looked = Residual(width, dropout=dropout) if attend else None
        self.think, self.thought = FeedForward(width, hidden), Residual(width, dropout=dropout)

    def forward(self, asking: Tensor, cells: Tensor) -> Tensor:
        attention = self.attention
        if attention is None or self.looked is None:
            asking = asking + cells.mean(1, keepdim=True)
        else:
            asking = self.looked(asking, lambda question: attention(question, attention.remember(cells)))
        return self.thought(asking, self.think)


class ShowAttendInteract(nn.Module):
    """Images (B, 3, H, W) -> logits over the actions (B, actions). Initial law of the question: normal with deviation
    0.02; of both outputs: Xavier uniform, bias zero."""

    hops: Sequence[Hop]

    def __init__(self, sight: Sight, hops: Sequence[Hop], *, width: int, actions: int, goals: int):
        super().__init__()
        self.sight = sight
        self.output = nn.ModuleDict(
            {"action": Output(width, actions, bias=True), "goal": Output(width, goals, bias=True)}
        )
        self.hops = nn.ModuleList(hops)  # type: ignore[assignment]
        self.norm = make_norm("layer", width)
        self.question = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.question, std=DEVIATION)

    def forward(self, images: Tensor) -> Tensor:
        return self.decide(images)[0]

    def decide(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Logits over the actions (B, actions); and over what may be wanted (B, goals), after the first look."""
        cells = self.sight(images).states  # (B, S, D)
        known = [self.question.expand(len(cells), 1, -1)]
        for hop in self.hops:
            known.append(hop(known[-1], cells))
        first, last = (self.norm(vector[:, 0]) for vector in (known[1], known[-1]))
        return self.output["action"](last), self.output["goal"](first)


def show_attend_interact(
    settings: ShowAttendInteractSettings, actions: int, goals: int, size: Size
) -> ShowAttendInteract:
    """For images of that size."""
    image, image_width = image_encoder(settings.image, size=size)
    hops = [
        Hop(
            settings.width,
            heads=settings.heads,
            hidden=settings.hidden,
            attend=settings.attend,
            dropout=settings.dropout,
        )
        for _ in range(settings.hops)
    ]
    sight = Sight(image, image_width=image_width, width=settings.width)
    return ShowAttendInteract(sight, hops, width=settings.width, actions=actions, goals=goals)
