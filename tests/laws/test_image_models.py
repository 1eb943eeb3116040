"""The laws of models that see: what stands beside an image in a batch, padding of texts, looking."""

from __future__ import annotations

import pytest
import torch

from saccade.maps.record import attentions, record
from tests.laws.models import CONTRASTIVE, IMAGE_MODELS, contrastive_model, image_model, lengths_mask, pixels, tokens

CLOSE = {"rtol": 0, "atol": 1e-9}


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_the_order_and_the_size_of_a_batch_change_nothing(name: str) -> None:
    model, images = image_model(name), pixels(4)
    together = model(images)
    assert together.std() > 1e-3
    order = torch.tensor([2, 0, 3, 1])
    torch.testing.assert_close(model(images[order]), together[order], **CLOSE)
    torch.testing.assert_close(torch.cat([model(image[None]) for image in images]), together, **CLOSE)


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_float32_agrees_at_its_own_tolerance(name: str) -> None:
    model, images = image_model(name), pixels(3)
    exact = model(images)
    torch.testing.assert_close(model.float()(images.float()).double(), exact, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_looking_changes_nothing_and_sees_every_cell(name: str) -> None:
    model, images = image_model(name), pixels(2)
    plain = model(images)
    with record(model) as recording:
        torch.testing.assert_close(model(images), plain, **CLOSE)
    assert len(recording) == len(attentions(model)) == {"vit": 2, "vit without class": 2}.get(name, "with" in name)
    cells = model.encoder.side**2 + model.encoder.class_token
    for seen in recording:
        assert seen.weights.shape[2:] == (cells, cells)
        rows = seen.weights.sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows), **CLOSE)


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_where_something_stands_is_known(name: str) -> None:
    model, images = image_model(name), pixels(2)
    moved = images.roll(4, dims=3)  # the same squares at other places
    assert not torch.allclose(model(images), model(moved), atol=1e-5)


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_neither_padding_nor_the_batch_moves_an_embedding(name: str) -> None:
    model, images = contrastive_model(name), pixels(3)
    texts, lengths = tokens(3, 6), [6, 2, 4]
    seen, read = model.embed_left(images), model.embed_right(texts, lengths_mask(lengths, 6))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(model.embed_left(images[row : row + 1])[0], seen[row], **CLOSE)
        torch.testing.assert_close(model.embed_right(texts[row : row + 1, :length])[0], read[row], **CLOSE)
    other = torch.where(lengths_mask(lengths, 6), texts, tokens(3, 6, seed=7))
    torch.testing.assert_close(model.embed_right(other, lengths_mask(lengths, 6)), read, **CLOSE)
    torch.testing.assert_close(model(seen, read).T / model(read, seen), torch.ones(3, 3, dtype=torch.float64), **CLOSE)


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_looking_at_both_encoders_changes_nothing(name: str) -> None:
    model, images, texts, mask = contrastive_model(name), pixels(2), tokens(2, 5), lengths_mask([5, 3], 5)
    plain = model(model.embed_left(images), model.embed_right(texts, mask))
    with record(model) as recording:
        looked = model(model.embed_left(images), model.embed_right(texts, mask))
    torch.testing.assert_close(looked, plain, **CLOSE)
    assert {seen.name.split(".")[0] for seen in recording} == {"left", "right"}
