"""The laws of models that read a text from both sides: padding, batches, looking."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.maps.record import attentions, record
from tests.laws.models import TEXT_MODELS, lengths_mask, text_model, text_outputs, tokens

EVERY = pytest.mark.parametrize("name", TEXT_MODELS)
CLOSE = {"rtol": 0, "atol": 1e-9}


def states(model: torch.nn.Module, text: Tensor, mask: Tensor | None = None) -> list[Tensor]:
    return [*text_outputs(model, text, mask), model.encoder(text, mask).states]


@EVERY
def test_padding_batch_size_and_batch_order_change_nothing(name: str) -> None:
    model, text, lengths, order = text_model(name), tokens(3, 7), [7, 3, 5], torch.tensor([2, 0, 1])
    together = states(model, text, lengths_mask(lengths, 7))
    shuffled = states(model, text[order], lengths_mask([5, 7, 3], 7))
    for one, other in zip(together, shuffled, strict=True):
        torch.testing.assert_close(other, one[order], **CLOSE)
    for row, length in enumerate(lengths):
        padded = states(model, text[row : row + 1], lengths_mask([length], 7))
        for one, other in zip(together, padded, strict=True):
            torch.testing.assert_close(one[row, :length], other[0, :length], **CLOSE)
        alone = model.encoder(text[row : row + 1, :length]).states
        torch.testing.assert_close(together[-1][row, :length], alone[0], **CLOSE)


@EVERY
def test_what_stands_in_padding_changes_nothing(name: str) -> None:
    model, text, mask = text_model(name), tokens(2, 6), lengths_mask([6, 3], 6)
    other = torch.where(mask, text, tokens(2, 6, seed=9))
    assert not torch.equal(text, other)
    for one, changed in zip(states(model, text, mask), states(model, other, mask), strict=True):
        whole = one.shape[1] == 1  # of the whole text, not of each token
        real = mask[:, :1] if whole else mask
        torch.testing.assert_close(one[real], changed[real], **CLOSE)


@EVERY
def test_record_on_equals_record_off_and_padding_is_never_looked_at(name: str) -> None:
    model, text, mask = text_model(name), tokens(2, 5), lengths_mask([5, 3], 5)
    plain = model.encoder(text, mask).states
    with record(model) as recording:
        looked = model.encoder(text, mask).states
    torch.testing.assert_close(looked, plain, **CLOSE)
    assert len(recording) == len(attentions(model)) == 2
    for seen in recording:
        rows = seen.weights.sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows), **CLOSE)
        assert (seen.weights[1, :, :, 3:] == 0).all()
    assert all(attention.tap is None for _, attention in attentions(model))


@EVERY
def test_float32_agrees_too_at_its_own_tolerance(name: str) -> None:
    model, text = text_model(name).float(), tokens(3, 7)
    whole = model.encoder(text, lengths_mask([7, 4, 2], 7)).states
    torch.testing.assert_close(model.encoder(text[1:2, :4]).states[0], whole[1, :4], rtol=0, atol=1e-4)


@EVERY
def test_every_model_knows_the_order_of_its_text(name: str) -> None:
    model, text = text_model(name), torch.tensor([[3, 4, 5, 6, 7]])
    assert not torch.allclose(model.encoder(text).states, model.encoder(text.flip(1)).states.flip(1), atol=1e-5)
