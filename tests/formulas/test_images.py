"""Attention over a grid is attention over its cells; 1x1 convolutions and patches are PyTorch's."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from saccade import formulas as f

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


def weights_for(draw, channels, inner):
    shapes = {"query": (inner, channels), "key": (inner, channels), "value": (inner, channels)}
    weights = {f"{name}.weight": draw(*shape) for name, shape in shapes.items()}
    return weights | {"output.weight": draw(channels, inner), "output.bias": draw(channels)}


def test_the_module_inside_a_cnn_is_the_same_as_with_torch_s_1x1_convolutions(draw):
    image = torch.tensor(draw(2, 6, 3, 4))
    weights = {name: torch.tensor(value) for name, value in weights_for(draw, 6, 5).items()}
    query, key, value = (
        F.conv2d(image, weights[f"{name}.weight"][:, :, None, None]).flatten(2) for name in ("query", "key", "value")
    )  # (B, 5, 12)
    looks = torch.softmax(query.mT @ key, dim=-1)  # (B, 12, 12)
    seen = (value @ looks.mT).unflatten(2, (3, 4))
    theirs = image + 0.3 * F.conv2d(seen, weights["output.weight"][:, :, None, None], weights["output.bias"])
    assert_close(f.grid_self_attention(image, weights, 0.3), theirs)


def test_the_module_begins_as_the_identity_when_gamma_is_zero(draw):
    image = draw(2, 6, 3, 4)
    np.testing.assert_array_equal(f.grid_self_attention(image, weights_for(draw, 6, 5), 0.0), image)


def test_a_cell_may_look_across_the_whole_grid(draw):
    image, weights = draw(1, 6, 3, 4) / 10, weights_for(draw, 6, 5)  # small, so that no weight is near zero
    changed = image.copy()
    changed[0, :, -1, -1] += 1
    difference = f.grid_self_attention(changed, weights) - f.grid_self_attention(image, weights)
    assert np.abs(difference[0, :, 0, 0]).max() > 1e-3


def test_laying_out_a_grid_undoes_reading_its_cells(draw):
    image = draw(2, 6, 3, 4)
    np.testing.assert_array_equal(f.grid(f.cells(image), 3, 4), image)
    np.testing.assert_array_equal(f.cells(image)[1, 4 * 2 + 3], image[1, :, 2, 3])


def test_projected_patches_are_a_convolution_whose_stride_is_its_size(draw):
    image, weight = torch.tensor(draw(2, 3, 8, 12)), torch.tensor(draw(5, 3, 4, 4))
    theirs = F.conv2d(image, weight, stride=4).flatten(2).mT  # (B, 6, 5)
    assert_close(f.linear(f.patches(image, 4), weight.flatten(1)), theirs)
