"""Regression as attention (Nadaraya 1964, Watson 1964): the answer at x is the average of what was seen nearby.

    y' = sum_i a_i y_i,   a = softmax_i(-|f(x) - f(x_i)|^2 / (2 sigma^2))

With f the identity and sigma fixed it is the classical estimator; sigma, and then f, can be learned.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from saccade.config.regression import KernelSettings
from saccade.nn.attention import Attention, Projections
from saccade.nn.cache import KeyValues
from saccade.nn.layers import xavier
from saccade.nn.scores import Gaussian


class Embed(nn.Module):
    """Inputs (..., D) -> embeddings (..., K) beside the inputs themselves: f(x) = [x; W_2 tanh(W_1 x)].

    Initial law: Xavier uniform, biases zero. (W_2 = 0 would be the plain kernel, but squared distances have no slope
    there.)
    """

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.inner, self.outer = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        xavier(self.inner)
        xavier(self.outer)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.outer(torch.tanh(self.inner(x)))], dim=-1)


class KernelRegression(nn.Module):
    """Attention to the training examples, which are part of the model."""

    examples: Tensor  # (S, D)
    targets: Tensor  # (S,)

    def __init__(self, settings: KernelSettings, examples: Tensor, targets: Tensor):
        super().__init__()
        inputs = examples.shape[1]
        learned = settings.embedding == "learned"
        self.embed = Embed(inputs, settings.hidden) if learned else nn.Identity()
        self.kernel = Gaussian(settings.width, learned=settings.learn_width)
        self.attention = Attention(
            inputs + settings.hidden if learned else inputs,
            score=self.kernel,
            project=Projections(query=False, key=False, value=False, output=False),
        )
        self.register_buffer("examples", examples)
        self.register_buffer("targets", targets)

    @property
    def width(self) -> float:
        """sigma, as it is now."""
        return float(self.kernel.log_sigma.detach().exp())

    def forward(self, x: Tensor, without: Tensor | None = None) -> Tensor:
        """Inputs (B, D) -> answers (B,); `without` (B,) hides one example from each, as if it had not been seen."""
        memory = KeyValues(self.embed(self.examples)[None, None], self.targets[None, None, :, None])
        cells = torch.arange(len(self.targets), device=x.device)
        allowed = None if without is None else (cells != without[:, None])[None, None]  # (1, 1, B, S)
        return self.attention(self.embed(x)[None], memory, allowed)[0, :, 0]
