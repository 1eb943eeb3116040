"""Losses as sums and counts, never as means: a mean over a batch is wrong once batches are split or joined.

label-smoothed cross-entropy of one row: -(1 - s) log p_target - (s / V) sum_v log p_v          (Szegedy et al. 2016)
two readings that should agree:          + weight (KL(p, q) + KL(q, p)) / 2                       (Liang et al. 2021)
doubly stochastic attention:             sum_s (1 - sum_t a_ts)^2                               (Xu et al. 2015)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from saccade.nn.layers import Output
from saccade.nn.native import cross_entropy

LOGITS_AT_ONCE = 1 << 22  # 16 MB: more is asked of the system anew at each chunk, and leaves the caches ...
LEAST_ROWS = 64  # ... but products of fewer rows are slow


@dataclass(frozen=True)
class TokenLoss:
    """Sums over real tokens; where each was read twice, means of the two readings."""

    smoothed: Tensor  # what is minimised; has a gradient
    surprise: Tensor  # -log p of the target, without smoothing
    correct: Tensor  # how often the target was the most probable
    disagreement: Tensor  # (KL(p, q) + KL(q, p)) / 2 of two readings, already in what is minimised; else zero


def _rows_at_once(vocabulary: int) -> int:
    return max(LEAST_ROWS, LOGITS_AT_ONCE // vocabulary)


class _SmoothedCrossEntropy(torch.autograd.Function):
    """The gradient is taken per chunk in the forward pass, while the chunk's logits exist.

    With an agreement above zero, rows 2i and 2i + 1 are two readings of one token.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, agreement: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        wanted = ctx.needs_input_grad
        # under autocast the three matrix products are done in its precision, everything else in that of the states
        low = torch.get_autocast_dtype(x.device.type) if torch.is_autocast_enabled(x.device.type) else x.dtype
        trained = any(wanted) and not agreement
        own = cross_entropy(x, weight, bias, target, smoothing, low=low, wanted=wanted[:3]) if trained else None
        if own is not None:
            ctx.save_for_backward(*own.gradients)
            ctx.mark_non_differentiable(own.surprise, own.correct, nothing := x.new_zeros(()))
            return own.smoothed, own.surprise, own.correct, nothing
        x_low, weight_low = x.to(low), weight.to(low)
        exact = torch.promote_types(x.dtype, torch.float32)  # sums of thousands of terms need more than 8 bits
        x_gradient = torch.empty_like(x) if wanted[0] else None
        weight_gradient = torch.zeros_like(weight) if wanted[1] else None
        bias_gradient = torch.zeros_like(bias) if bias is not None and wanted[2] else None
        smoothed, surprise, disagreement = (x.new_zeros((), dtype=exact) for _ in range(3))
        correct = torch.zeros((), dtype=torch.long, device=x.device)
        at_once = _rows_at_once(weight.shape[0])
        at_once += at_once % 2 if agreement else 0  # pairs stay together
        for start in range(0, len(x), at_once):
            rows = slice(start, start + at_once)
            logits = (x_low[rows] @ weight_low.T).to(exact)  # (rows, V)
            logits = logits if bias is None else logits.add_(bias)
            highest, of_target = logits.amax(-1), logits.gather(1, target[rows, None])[:, 0]  # (rows,)
            p = logits.softmax(-1)
            # log sum_v exp(logit_v): that of the highest is known, and its probability is never near zero
            total = highest - p.amax(-1).log()
            surprise += (total - of_target).sum()
            smoothed += (total - (1 - smoothing) * of_target).sum()
            if smoothing:
                smoothed -= smoothing * logits.mean(-1).sum()
            correct += (of_target == highest).sum()
            pull = None
            if agreement:
                apart, pull = _disagreement(logits.sub_(total[:, None]), p)
                disagreement += apart
            if not any(wanted):
                continue
            slope = p.sub_(smoothing / logits.shape[1]) if smoothing else p  # of the smoothed loss by the logits
            if pull is not None:
                slope.add_(pull, alpha=2 * agreement)  # twice: a pair counts once, its rows a half each
            slope.scatter_add_(1, target[rows, None], slope.new_full((1, 1), smoothing - 1).expand(len(slope), 1))
            if bias_gradient is not None:
                bias_gradient += slope.sum(0)
            slope = slope.to(low)
            if x_gradient is not None:
                x_gradient[rows] = slope @ weight_low
            if weight_gradient is None:
                continue
            if low == weight_gradient.dtype:
                weight_gradient.addmm_(slope.T, x_low[rows])
            else:
                weight_gradient += slope.T @ x_low[rows]
        ctx.save_for_backward(x_gradient, weight_gradient, bias_gradient)
        ctx.mark_non_differentiable(surprise, correct, disagreement)
        return smoothed + 2 * agreement * disagreement, surprise, correct, disagreement

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (None if g is None else g * gradients[0] for g in ctx.saved_tensors)
        return (*scaled, None, None, None)


def _disagreement(log_p: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Of rows (2N, V) in pairs: the sum of (KL(p, q) + KL(q, p)) / 2, and its slope by the logits (2N, V).

    d KL(p, q) / d logits of p = p (log p - log q - KL(p, q)), of q = q - p.
    """
    first, second = p.view(-1, 2, p.shape[1]).unbind(1)  # (N, V)
    ratio = log_p[0::2] - log_p[1::2]
    there, back = (first * ratio).sum(-1, keepdim=True), -(second * ratio).sum(-1, keepdim=True)  # (N, 1)
    apart = first - second
    slopes = first * (ratio - there) + apart, second * (-ratio - back) - apart
    return (there + back).sum() / 2, torch.stack(slopes, 1).view_as(p) / 2


def token_loss(
    states: Tensor, target: Tensor, mask: Tensor, output: Output, *, smoothing: float = 0.0, agreement: float = 0.0
) -> TokenLoss:
    """Loss of predicting target (B, T) from states (B, T, D) where mask (B, T) is True.

    Padding rows are taken out before the output layer, and logits exist for a few rows at a time only. A batch without
    one real token has loss zero. With an agreement above zero states are (2B, T, D): sentence after sentence, each read
    twice with other dropout.
    """
    if mask.dtype != torch.bool or mask.shape != target.shape:
        raise ValueError(
            f"the mask must be bool of the target's shape {tuple(target.shape)}; got {mask.dtype} {tuple(mask.shape)}"
        )
    if agreement:
        pairs = states.unflatten(0, (-1, 2)).transpose(1, 2)  # (B, T, 2, D)
        real, wanted = pairs[mask].flatten(0, 1), target[mask].repeat_interleave(2)  # (2N, D), (2N,)
    else:
        real, wanted = states[mask], target[mask]  # (N, D), (N,)
    weight: Tensor = output.weight
    bias: Tensor | None = output.bias
    if not torch.is_grad_enabled():  # the chunks cannot see that nobody will ask for their gradient
        real, weight, bias = real.detach(), weight.detach(), None if bias is None else bias.detach()
    vocabulary = weight.shape[0]
    if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < vocabulary:
        wrong = wanted[(wanted < 0) | (wanted >= vocabulary)][0]
        raise ValueError(f"target id {int(wrong)} is outside the vocabulary of {vocabulary} ids")
    smoothed, surprise, correct, disagreement = _SmoothedCrossEntropy.apply(
        real, weight, bias, wanted, smoothing, agreement
    )
    if agreement:
        smoothed, surprise, correct = smoothed / 2, surprise / 2, correct / 2
    return TokenLoss(smoothed, surprise, correct, disagreement)


def doubly_stochastic(weights: Tensor, mask: Tensor) -> Tensor:
    """How far attention (B, T, S) is from giving every place one look in all, over the rows that mask (B, T) says are
    real: the sum over places and sequences."""
    looks = (weights * mask[..., None]).sum(1)  # (B, S)
    return (1 - looks).square().sum()
