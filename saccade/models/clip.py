"""CLIP: an image encoder and a text encoder into one space, in which what belongs together is near.

    similarity_ij = scale cos(W_I image_i, W_T text_j)
    loss = mean over i of (-log softmax over j of similarity_ij - log softmax over j of similarity_ji) / 2  at j = i

Radford et al. (2021), "Learning transferable visual models from natural language supervision". Both sides are means
over their vectors, of real positions only; as published, an image is its class token, and a text is read from left to
right and is its last vector.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.config.images import ClipSettings, TextEncoderSettings
from saccade.config.models import TransformerSettings
from saccade.models.images import image_encoder
from saccade.models.shapes import DualEncoder
from saccade.models.transformer import TransformerEncoder, make_embedding, make_stack
from saccade.models.vit import DEVIATION
from saccade.nn.positions import Learned

LARGEST_SCALE = 100.0  # beyond it the paper found training unstable


def clip(settings: ClipSettings, vocabulary: int, size: int, longest: int) -> DualEncoder:
    """Images of `size` x `size` pixels on the left, up to `longest` token ids on the right."""
    image, width = image_encoder(settings.image, size=size)
    return DualEncoder(
        image,
        text_encoder(settings.text, vocabulary, longest),
        widths=(width, settings.text.width),
        width=settings.width,
        pools=("first" if settings.pool == "class" else "mean", "last" if settings.text.causal else "mean"),
    )


def text_encoder(settings: TextEncoderSettings, vocabulary: int, longest: int) -> TransformerEncoder:
    """A Transformer that sees the whole text at once or, causal, reads it from left to right.

    Initial law of learned positions: normal with deviation 0.02, and of token vectors beside them likewise.
    """
    learned = settings.positions == "learned"
    blocks = TransformerSettings(
        width=settings.width,
        heads=settings.heads,
        hidden=settings.hidden,
        activation=settings.activation,
        positions="none" if learned else "sinusoidal",
        scaled=not learned,
        epsilon=settings.epsilon,
        dropout=settings.dropout,
    )
    embedding = make_embedding(blocks, vocabulary)
    if learned:
        embedding.positions = Learned(settings.width, longest=longest, deviation=DEVIATION)
        nn.init.normal_(embedding.weight, std=DEVIATION)
    return TransformerEncoder(embedding, make_stack(blocks, settings.layers, causal=settings.causal))


def contrastive_loss(similarity: Tensor) -> tuple[Tensor, Tensor]:
    """Of similarity (B, B), the pairs on its diagonal: the sum over pairs of the loss, and how many images are nearer
    to their own text than to any other."""
    own = torch.arange(len(similarity), device=similarity.device)
    both = F.cross_entropy(similarity, own, reduction="sum") + F.cross_entropy(similarity.T, own, reduction="sum")
    return both / 2, (similarity.argmax(1) == own).sum()


@torch.no_grad()
def limit_scale(model: DualEncoder) -> None:
    """Clip the learned scale before a forward pass, so after every update but the last, as the paper does; a clamp
    inside the model would hold its gradient."""
    model.log_scale.clamp_(max=math.log(LARGEST_SCALE))
