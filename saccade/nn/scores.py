"""How well a query fits a key, for every query and every key at once.

A score is called as `score(query, key, place) -> (B, H, T, S)` with query (B, H, T, K) and key (B, H, S, K'). Plain dot
products say by `scale` that a fused kernel may compute them; every other score is computed in full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.nn.positions import Sinusoidal


@dataclass(frozen=True)
class Place:
    """Where the asking vectors and the remembered cells stand, for scores that depend on it."""

    query_at: Tensor  # (T,) or (B, T)
    key_at: Tensor  # (S,)


class Score(nn.Module):
    """Interface of all scores; `scale` is the factor of a plain dot product, or None when the score is not one."""

    placed = False  # whether it depends on where vectors stand

    def scale(self, width: int) -> float | None:  # noqa: ARG002
        return None

    def forward(self, query: Tensor, key: Tensor, place: Place) -> Tensor:
        raise NotImplementedError


class Dot(Score):
    """q . k (Luong et al. 2015)."""

    def scale(self, width: int) -> float | None:  # noqa: ARG002
        return 1.0

    def forward(self, query: Tensor, key: Tensor, place: Place) -> Tensor:  # noqa: ARG002
        return query @ key.transpose(-1, -2)


class ScaledDot(Score):
    """q . k / sqrt(K): dividing keeps the variance at one whatever the head's width (Vaswani et al. 2017)."""

    def scale(self, width: int) -> float | None:
        return 1 / math.sqrt(width)

    def forward(self, query: Tensor, key: Tensor, place: Place) -> Tensor:  # noqa: ARG002
        return (query / math.sqrt(query.shape[-1])) @ key.transpose(-1, -2)


class Additive(Score):
    """v . tanh(q + k), where q and k come projected by W and U of the attention (Bahdanau et al. 2015).

    Initial law: v uniform with variance 1 / K, as a linear map to one number would have.
    """

    def __init__(self, width: int, *, heads: int = 1):
        super().__init__()
        self.vector = nn.Parameter(torch.empty(heads, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = math.sqrt(3 / self.vector.shape[1])
        nn.init.uniform_(self.vector, -bound, bound)

    def forward(self, query: Tensor, key: Tensor, place: Place) -> Tensor:  # noqa: ARG002
        together = torch.tanh(query[:, :, :, None] + key[:, :, None])  # (B, H, T, S, K)
        return torch.einsum("bhtsk,hk->bhts", together, self.vector)


class Bilinear(Score):
    """q^T W k, the "general" score of Luong et al. (2015); q and k may differ in width.

    Initial law: Xavier uniform, variance 2 / (K + K').
    """

    def __init__(self, query_width: int, key_width: int, *, heads: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, query_width, key_width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = math.sqrt(6 / sum(self.weight.shape[1:]))
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, query: Tensor, key: Tensor, place: Place) -> Tensor:  # noqa: ARG002
        return (query @ self.weight) @ key.transpose(-1, -2)


class RelativeDot(Score):
    """((q + u) . k + (q + v) . W R(t - s)) / sqrt(K): what is looked for, and how far away (Dai et al. 2019).

    R are sinusoids of the distance, W turns them into keys of distances; u and v are what a head likes whoever asks.
    `width` is that of R, in the paper the model's. Initial law: W Xavier uniform; u and v zero.
    """

    placed = True

    def __init__(self, key_width: int, *, heads: int, width: int):
        super().__init__()
        self.sinusoids = Sinusoidal(width)
        self.distance = nn.Linear(width, heads * key_width, bias=False)
        self.content_bias = nn.Parameter(torch.empty(heads, key_width))
        self.distance_bias = nn.Parameter(torch.empty(heads, key_width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.distance.weight)
        nn.init.zeros_(self.content_bias)
        nn.init.zeros_(self.distance_bias)

    def forward(self, query: Tensor, key: Tensor, place: Place) -> Tensor:
        asking, cells = query.shape[2], key.shape[2]
        # every distance there can be: who asks stands at a cell, or beyond the last of them
        reach = torch.arange(1 - cells, max(asking, cells), device=query.device)
        sinusoids = self.sinusoids(reach, len(reach)).to(query.dtype)
        far = self.distance(sinusoids).unflatten(-1, self.content_bias.shape).transpose(0, 1)  # (H, distances, K)
        by_content = (query + self.content_bias[:, None]) @ key.transpose(-1, -2)  # (B, H, T, S)
        by_distance = (query + self.distance_bias[:, None]) @ far.transpose(-1, -2)  # (B, H, T, distances)
        apart = place.query_at[..., None] - place.key_at + cells - 1  # (T, S) or (B, T, S)
        apart = apart if apart.dim() == 2 else apart[:, None]  # (B, 1, T, S)
        return (by_content + by_distance.gather(-1, apart.expand_as(by_content))) / math.sqrt(query.shape[-1])


class Gaussian(Score):
    """-|q - k|^2 / (2 sigma^2): softmax of it is Nadaraya-Watson regression with a Gaussian kernel.

    One sigma per head, learned as its logarithm unless `learned` is false. Initial law: sigma as given.
    """

    def __init__(self, sigma: float = 1.0, *, heads: int = 1, learned: bool = True):
        super().__init__()
        self.initial = sigma
        self.log_sigma = nn.Parameter(torch.empty(heads), requires_grad=learned)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.log_sigma, math.log(self.initial))

    def forward(self, query: Tensor, key: Tensor, place: Place) -> Tensor:  # noqa: ARG002
        # |q - k|^2 = |q|^2 - 2 q.k + |k|^2 needs no (B, H, T, S, K) tensor
        distance = (query**2).sum(-1)[..., None] - 2 * query @ key.transpose(-1, -2) + (key**2).sum(-1)[:, :, None]
        return -distance * (0.5 * torch.exp(-2 * self.log_sigma))[:, None, None]
