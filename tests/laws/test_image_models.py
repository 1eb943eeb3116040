"""The laws of models that see: what stands beside an image in a batch, padding of texts, looking."""

from __future__ import annotations

import math

import pytest
import torch

from saccade.maps.record import attentions, record
from tests.laws.models import (
    ANSWERING,
    CONTRASTIVE,
    IMAGE_MODELS,
    answering_model,
    contrastive_model,
    image_model,
    lengths_mask,
    pixels,
    tokens,
)

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
    twice = ("vit", "vit without class", "show, attend and interact")
    assert len(recording) == len(attentions(model)) == (2 if name in twice else "with" in name)
    acts = "interact" in name  # one question looks, and not every cell
    encoder = model.sight.image if acts else model.encoder
    cells = math.prod(encoder.cells) + encoder.class_token
    for seen in recording:
        assert seen.weights.shape[2:] == (1 if acts else cells, cells)
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


@pytest.mark.parametrize("name", ANSWERING)
def test_an_answer_depends_on_its_own_image_and_question_alone(name: str) -> None:
    """Not on padding, nor on what stands in it, nor on what else is asked about this image or another."""
    model, images, about = answering_model(name), pixels(3), torch.tensor([2, 0, 0, 1])
    asked, lengths = tokens(4, 6), [6, 2, 4, 3]
    mask = lengths_mask(lengths, 6)
    together = model(images, about, asked, mask)
    for row, length in enumerate(lengths):
        image, question = images[about[row]][None], asked[row : row + 1, :length]
        torch.testing.assert_close(model(image, torch.tensor([0]), question)[0], together[row], **CLOSE)
    other = torch.where(mask, asked, tokens(4, 6, seed=7))
    assert not torch.equal(other, asked)
    torch.testing.assert_close(model(images, about, other, mask), together, **CLOSE)


@pytest.mark.parametrize("name", ANSWERING)
def test_an_answer_changes_with_what_the_model_sees_and_with_nothing_else(name: str) -> None:
    model, asked, about = answering_model(name), tokens(1, 5), torch.tensor([0])
    answer = model(pixels(1), about, asked)
    shown = torch.equal(model(pixels(1, seed=1), about, asked), answer)
    read = torch.equal(model(pixels(1), about, asked.flip(1)), answer)
    assert (shown, read) == ("blind" in name, "deaf" in name)


@pytest.mark.parametrize("name", ANSWERING)
def test_looking_while_it_answers_changes_nothing(name: str) -> None:
    model, about = answering_model(name), torch.tensor([1, 0, 1])
    inputs = pixels(2), about, tokens(3, 5), lengths_mask([5, 3, 1], 5)
    plain = model(*inputs)
    with record(model) as recording:
        torch.testing.assert_close(model(*inputs), plain, **CLOSE)
    assert len(recording) == len(attentions(model))
    for seen in recording:
        rows = seen.weights.sum(-1)
        torch.testing.assert_close(rows, torch.ones_like(rows), **CLOSE)
