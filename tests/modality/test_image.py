"""Pixels as numbers around zero; images that are shifted and mirrored at random, and repeatably so."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from saccade.modality.image import Augment, to_tensor

PIXELS = np.random.default_rng(3).integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def repeatable() -> None:
    torch.manual_seed(20170612)


def test_pixels_are_normalised_by_each_channels_mean_and_deviation() -> None:
    mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    expected = ((PIXELS / 255 - mean) / deviation).transpose(0, 3, 1, 2)
    for batch in (PIXELS, torch.from_numpy(PIXELS)):
        found = to_tensor(batch, mean=mean, deviation=deviation)
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)


def test_by_default_pixels_are_from_minus_one_to_one() -> None:
    found = to_tensor(np.array([0, 51, 255], np.uint8).reshape(1, 3, 1, 1))
    torch.testing.assert_close(found.flatten(), torch.tensor([-1, -0.6, 1]))


def test_grey_images_have_one_channel() -> None:
    assert to_tensor(PIXELS[..., :1], mean=0.3, deviation=(0.3,)).shape == (4, 1, 5, 6)


@pytest.mark.parametrize("batch", [PIXELS[0], PIXELS.astype(np.float32), PIXELS[..., 0]])
def test_what_is_no_batch_of_bytes_is_refused(batch: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"bytes of shape \(batch, height, width, channels\); got torch\.\w+ \("):
        to_tensor(batch)


def test_means_of_another_number_of_channels_are_refused() -> None:
    with pytest.raises(ValueError, match=r"each of 3 channels; got \(0.5, 0.5\) and 0.5"):
        to_tensor(PIXELS, mean=(0.5, 0.5))


def variants(image: torch.Tensor, flip: bool, shift: int) -> dict[bytes, tuple[bool, int, int]]:
    """Every image (C, H, W) that can come out, by cutting it from a larger one filled with zeros."""
    _, height, width = image.shape
    found = {}
    for mirrored in (False, True) if flip else (False,):
        for down in range(2 * shift + 1):
            for across in range(2 * shift + 1):
                larger = image.new_zeros(image.shape[0], height + 2 * shift, width + 2 * shift)
                larger[:, shift : shift + height, shift : shift + width] = image
                cut = larger[:, down : down + height, across : across + width]
                found[(cut.flip(-1) if mirrored else cut).contiguous().numpy().tobytes()] = (mirrored, down, across)
    return found


@pytest.mark.parametrize(("flip", "shift"), [(True, 2), (False, 2), (True, 0), (False, 0)])
def test_each_image_is_mirrored_and_shifted_by_itself_with_equal_chances(flip: bool, shift: int) -> None:
    image = to_tensor(PIXELS[:1])
    possible = variants(image[0], flip, shift)
    assert len(possible) == (1 + flip) * (2 * shift + 1) ** 2
    drawn = Augment(flip=flip, shift=shift)(image.expand(4000, -1, -1, -1))
    assert drawn.shape == (4000, 3, 5, 6)
    counts = dict.fromkeys(possible, 0)
    for each in drawn:
        counts[each.contiguous().numpy().tobytes()] += 1  # a KeyError would be an image that cannot come out
    expected = 4000 / len(possible)
    assert max(abs(count - expected) for count in counts.values()) < 5 * expected**0.5


def test_images_of_a_batch_are_not_mixed() -> None:
    images = to_tensor(PIXELS)
    for image, drawn in zip(images, Augment(shift=1)(images), strict=True):
        assert drawn.contiguous().numpy().tobytes() in variants(image, True, 1)


def test_the_same_state_of_the_random_stream_gives_the_same_images() -> None:
    images, augment = to_tensor(PIXELS), Augment(shift=2)
    state = torch.get_rng_state()
    first, second = augment(images), augment(images)
    torch.set_rng_state(state)
    assert torch.equal(augment(images), first) and torch.equal(augment(images), second)
    assert not torch.equal(first, second)


def test_nothing_asked_for_is_nothing_done_and_nothing_drawn() -> None:
    images, state = to_tensor(PIXELS), torch.get_rng_state()
    assert torch.equal(Augment(flip=False, shift=0)(images), images)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_shift_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="by 0 pixels or more; got -1"):
        Augment(shift=-1)
