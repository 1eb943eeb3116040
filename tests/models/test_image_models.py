"""Image encoders and CLIP: what they hand on, what they refuse, and that they are the papers' models."""

from __future__ import annotations

import math

import pytest
import torch

from saccade.config.images import ClipSettings, CNNSettings, EfficientNetSettings, TextEncoderSettings, ViTSettings
from saccade.errors import SaccadeError
from saccade.modality.image import to_tensor
from saccade.models.clip import LARGEST_SCALE, clip, contrastive_loss, limit_scale
from saccade.models.cnn import FrozenEye
from saccade.models.efficientnet import DEVIATION, MEAN, EfficientNetLite0
from saccade.models.images import image_classifier, image_encoder
from saccade.models.shapes import parameter_count
from saccade.train.trainer import named_tensors


@pytest.mark.parametrize(
    ("settings", "size", "cells", "width"),
    [
        (ViTSettings(patch=4, width=16), (20, 20), (5, 5), 16),
        (ViTSettings(patch=4, width=16), (8, 20), (2, 5), 16),
        (ViTSettings(patch=4, width=16, class_token=False, positions="grid"), (20, 8), (5, 2), 16),
        (CNNSettings(width=8, stages=2), (21, 21), (6, 6), 16),
        (CNNSettings(width=8, stages=2), (8, 21), (2, 6), 16),
        (CNNSettings(width=8, stages=3, attention=True), (20, 32), (3, 4), 32),
        (EfficientNetSettings(width=24), (40, 70), (2, 3), 24),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_an_encoder_hands_on_a_vector_for_each_cell(
    settings, size: tuple[int, int], cells: tuple[int, int], width: int
) -> None:  # type: ignore[no-untyped-def]
    encoder, found = image_encoder(settings, size=size)
    memory = encoder(torch.rand(2, 3, *size) * 2 - 1)
    assert (encoder.cells, found) == (cells, width)
    assert memory.states.shape == (2, math.prod(cells) + encoder.class_token, width)
    assert memory.mask is None


def test_the_vision_transformer_of_the_paper_has_as_many_parameters_as_it_should() -> None:
    """ViT-B/16 has 86,567,656; here the class vector needs no position beside it."""
    settings = ViTSettings(patch=16, width=768, heads=12, hidden=3072, layers=12)
    with torch.device("meta"):
        assert parameter_count(image_classifier(settings, 1000, 224)) == 86_567_656 - 768


def test_images_that_squares_do_not_fill_are_refused() -> None:
    with pytest.raises(
        SaccadeError, match=r"30 x 30 .* squares of model.patch 4; the nearest task.size that can is 32"
    ):
        image_encoder(ViTSettings(patch=4), size=30)
    encoder, _ = image_encoder(ViTSettings(patch=4, width=8, heads=2), size=12)
    with pytest.raises(ValueError, match="positions were learned for 3 x 3 cells, and there are 4 x 4"):
        encoder(torch.zeros(1, 3, 16, 16))
    anywhere, _ = image_encoder(ViTSettings(patch=4, width=8, heads=2, positions="grid"), size=12)
    assert anywhere(torch.zeros(1, 3, 16, 16)).states.shape[1] == 17


def test_a_class_token_answers_alone_and_without_it_the_mean_does() -> None:
    images = torch.rand(2, 3, 8, 8)
    for token in (True, False):
        model = image_classifier(ViTSettings(patch=4, width=8, heads=2, class_token=token), 3, 8).eval()
        states = model.encoder(images).states
        torch.testing.assert_close(model(images), model.head(states[:, 0] if token else states.mean(1)))


def test_self_attention_in_a_network_begins_as_nothing() -> None:
    torch.manual_seed(1)
    encoder, _ = image_encoder(CNNSettings(width=8, stages=1, attention=True), size=8)
    images = torch.rand(1, 3, 8, 8)
    encoder.eval()  # type: ignore[attr-defined]
    torch.testing.assert_close(encoder(images).states, encoder.grid(images).flatten(1, 2))  # type: ignore[attr-defined]


def test_what_a_frozen_eye_saw_before_is_as_good_as_the_image() -> None:
    encoder, _ = image_encoder(EfficientNetSettings(width=8), size=64)
    encoder.eval()  # type: ignore[attr-defined]
    images = torch.rand(2, 3, 64, 64) * 2 - 1
    seen = FrozenEye()(images)
    assert seen.shape == (2, 4, 1280)
    assert not seen.requires_grad
    torch.testing.assert_close(encoder(seen).states, encoder(images).states)
    assert {name.split(".")[0] for name in named_tensors(encoder)} == {"project", "norm"}  # type: ignore[arg-type]


def test_cells_with_nothing_but_what_is_usual_say_nothing() -> None:
    """What all images share is taken away before the learned projection: only its bias is left."""
    encoder = image_encoder(EfficientNetSettings(width=8, dropout=0), size=64)[0]
    torch.nn.init.normal_(encoder.project.bias)
    usual = encoder.eye.network.usual.expand(1, 4, -1)
    torch.testing.assert_close(encoder(usual).states, encoder.norm(encoder.project.bias).expand(1, 4, -1))


def test_a_frozen_eye_sees_pixels_as_it_was_trained_to() -> None:
    pixels = torch.randint(256, (1, 32, 32, 3), dtype=torch.uint8)
    wanted = EfficientNetLite0()(to_tensor(pixels, mean=MEAN, deviation=DEVIATION))
    torch.testing.assert_close(FrozenEye()(to_tensor(pixels)), wanted.flatten(1, 2), rtol=0, atol=1e-4)


def test_the_contrastive_loss_is_the_papers() -> None:
    similarity = torch.tensor([[2.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    loss, right = contrastive_loss(similarity)
    rows = [math.log(1 + math.exp(0 - 2)), math.log(1 + math.exp(1 - 3))]
    columns = [math.log(1 + math.exp(1 - 2)), math.log(1 + math.exp(0 - 3))]
    assert float(loss) == pytest.approx((sum(rows) + sum(columns)) / 2)
    assert int(right) == 2
    assert int(contrastive_loss(similarity.flip(0))[1]) == 0
    assert float(contrastive_loss(torch.ones(1, 1))[0]) == 0.0


def test_the_scale_is_learned_up_to_its_limit_and_no_further() -> None:
    settings = ClipSettings(image=CNNSettings(width=4, stages=1), text=TextEncoderSettings(width=8, heads=2), width=4)
    model = clip(settings, 11, 8, 5)
    limit_scale(model)
    assert float(model.log_scale.detach().exp()) == pytest.approx(1 / 0.07)
    with torch.no_grad():
        model.log_scale.fill_(7.0)
    limit_scale(model)
    assert float(model.log_scale.detach().exp()) == pytest.approx(LARGEST_SCALE, rel=1e-5)
    same = torch.nn.functional.normalize(torch.ones(2, 4), dim=-1)
    model(same, same).sum().backward()
    assert model.log_scale.grad == pytest.approx(4 * LARGEST_SCALE, rel=1e-5)  # it can come back
