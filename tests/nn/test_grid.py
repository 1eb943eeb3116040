"""Grids against direct computations and their formulas: encoder, self-attention, patches, positions."""

import pytest
import torch
import torch.nn.functional as F

from saccade import formulas as f
from saccade.nn.attention import Attention
from saccade.nn.grid import GridConvolution, GridEncoder, GridSelfAttention, GridStage, Patches
from saccade.nn.positions import Fraction, Grid2d, Learned, Sinusoidal

from .workbench import Operations, assert_agree, assert_close, assert_law, both_ways, stir

# Convolutions


def convolved(layer, image, stride=1):
    """Channels first, by torch."""
    return F.conv2d(image, layer.convolution.weight, layer.convolution.bias, stride=stride, padding=1)


def normed(image, norm):
    """Over the channels of each cell, as the course has it."""
    return f.layer_norm(image.movedim(1, -1), norm.weight, norm.bias).movedim(-1, 1)


@pytest.mark.parametrize(("height", "width"), [(6, 8), (5, 7), (1, 1)])
def test_a_stage_equals_a_direct_computation(height, width):
    stage, image = stir(GridStage(3, 4, blocks=2)), torch.randn(2, 3, height, width, requires_grad=True)
    expected = convolved(stage.halve, image, stride=2)
    for residual, (first, _, second) in zip(stage.residuals, stage.blocks, strict=True):
        inside = torch.relu(convolved(first, normed(expected, residual.norm)))
        expected = expected + convolved(second, inside)
    assert_agree(stage(image.movedim(1, -1)), expected.movedim(1, -1), image, *stage.parameters())


def test_an_encoder_is_its_stages_and_a_norm():
    encoder, image = stir(GridEncoder(3, (4, 6))), torch.randn(2, 3, 9, 12, requires_grad=True)
    grid = encoder.stages[1](encoder.stages[0](image.movedim(1, -1)))
    expected = f.layer_norm(grid, encoder.norm.weight, encoder.norm.bias)
    assert_agree(encoder(image), expected, image, *encoder.parameters())


@pytest.mark.parametrize("height", [1, 2, 31, 32, 33])
@pytest.mark.parametrize("widths", [(5,), (4, 6), (4, 6, 8)])
def test_each_stage_halves_the_grid_and_rounds_up(height, widths):
    encoder = GridEncoder(3, widths)
    assert encoder.width == widths[-1]
    assert encoder(torch.randn(2, 3, height, 16)).shape == (
        2,
        -(-height // 2 ** len(widths)),
        16 // 2 ** len(widths),
        widths[-1],
    )


def test_an_image_is_seen_alike_alone_and_among_others():
    encoder, images = stir(GridEncoder(3, (4, 6), dropout=0.5)).eval(), torch.randn(3, 3, 8, 8)
    assert_close(encoder(images), torch.cat([encoder(image[None]) for image in images]))
    assert not [name for name, _ in encoder.named_buffers()]  # nothing is counted in training


def test_an_encoder_takes_channels_that_lie_last_as_they_are():
    encoder, images = stir(GridEncoder(3, (4, 6))), torch.randn(2, 3, 8, 8)
    grid = encoder(images.contiguous(memory_format=torch.channels_last))
    assert_close(grid, encoder(images))
    assert grid.is_contiguous()


def test_dropout_changes_training_only():
    encoder, images = GridEncoder(3, (8,), dropout=0.5), torch.randn(2, 3, 8, 8)
    assert not torch.equal(encoder(images), encoder(images))
    assert torch.equal(encoder.eval()(images), encoder(images))


@both_ways
@pytest.mark.parametrize("gain", [1.0, 2.0])
def test_convolutions_start_normal_with_a_variance_for_what_they_read(gain, build):
    layer = build(lambda: GridConvolution(50, 60, gain=gain))
    assert_law(layer.convolution.weight, gain / (9 * 50))
    assert not layer.convolution.bias.any()


@both_ways
def test_only_convolutions_behind_a_relu_start_with_twice_the_variance(build):
    stage = build(lambda: GridStage(50, 60))
    (first, _, second) = stage.blocks[0]
    assert_law(stage.halve.convolution.weight, 1 / (9 * 50))
    assert_law(first.convolution.weight, 1 / (9 * 60))
    assert_law(second.convolution.weight, 2 / (9 * 60))


def test_no_two_blocks_share_their_initial_values():
    first, second = GridStage(4, 4, blocks=2).blocks
    assert not torch.equal(first[0].convolution.weight, second[0].convolution.weight)


# Self-attention inside a convolutional network


@pytest.mark.parametrize("inner", [None, 5])
def test_grid_self_attention_equals_its_formula(inner):
    module, x = stir(GridSelfAttention(16, inner=inner)), torch.randn(2, 3, 4, 16, requires_grad=True)
    weights = dict(module.attention.named_parameters())
    expected = f.grid_self_attention(x.movedim(-1, 1), weights, gamma=module.gate).movedim(1, -1)
    assert_agree(module(x), expected, x, *module.parameters())
    assert weights["key.weight"].shape == weights["value.weight"].shape == (inner or 2, 16)


def test_grid_self_attention_can_be_looked_into_and_looking_changes_nothing():
    module, x, seen = stir(GridSelfAttention(16)), torch.randn(2, 3, 4, 16), []
    fused = module(x)
    assert isinstance(module.attention, Attention)
    module.attention.tap = seen.append
    assert_close(module(x), fused)
    assert [weights.shape for weights in seen] == [(2, 1, 12, 12)]
    assert_close(seen[0].sum(-1), torch.ones(2, 1, 12))


def test_grid_self_attention_runs_through_the_fused_kernel():
    module, x = GridSelfAttention(16), torch.randn(2, 3, 4, 16, requires_grad=True)
    with Operations() as ran:
        module(x)
    assert "_scaled_dot_product_flash_attention_for_cpu" in ran.names


@both_ways
def test_grid_self_attention_begins_as_the_identity(build):
    module, x = build(lambda: GridSelfAttention(16)), torch.randn(2, 3, 4, 16, requires_grad=True)
    assert torch.equal(module(x), x)
    (slope,) = torch.autograd.grad(module(x).square().sum(), [module.gate])
    assert float(slope) != 0  # and can leave it


# Patches


@pytest.mark.parametrize(("size", "height", "width"), [(4, 8, 12), (1, 2, 3), (3, 3, 3)])
def test_patches_equal_their_formula_and_a_convolution(size, height, width):
    patches, image = stir(Patches(3, 7, size=size)), torch.randn(2, 3, height, width, requires_grad=True)
    parameters = patches.project.weight, patches.project.bias
    ours = patches(image)
    assert ours.shape == (2, height * width // size**2, 7)
    assert_agree(ours, f.linear(f.patches(image, size), *parameters), image, *parameters)
    kernel = parameters[0].view(7, 3, size, size)
    assert_agree(ours, F.conv2d(image, kernel, parameters[1], stride=size).flatten(2).mT, image, *parameters)


@both_ways
def test_patches_start_xavier_uniform(build):
    patches = build(lambda: Patches(3, 200, size=8))
    assert_law(patches.project.weight, 2 / (3 * 8 * 8 + 200), uniform=True)
    assert not patches.project.bias.any()


@pytest.mark.parametrize(
    ("height", "width", "nearest"), [(30, 32, "32 x 32"), (32, 41, "32 x 40"), (3, 100, "8 x 96"), (44, 8, "48 x 8")]
)
def test_images_that_patches_do_not_divide_are_refused_with_the_nearest_size(height, width, nearest):
    with pytest.raises(ValueError, match=f"{height} x {width} pixels cannot be cut into squares of 8.* to {nearest}$"):
        Patches(3, 7, size=8)(torch.randn(1, 3, height, width))


# Positions


def test_half_the_columns_know_the_row_and_half_the_column():
    places = Grid2d(Sinusoidal(6), across=Sinusoidal(6))
    assert places.width == 12
    found = places(torch.randn(2, 3, 5, 12))
    assert found.shape == (3, 5, 12)
    for row in range(3):
        for column in range(5):
            halves = [f.sinusoidal_halves(torch.tensor(float(at)), 6) for at in (row, column)]
            assert_close(found[row, column], torch.cat(halves))


def test_learned_grid_positions_are_rows_of_two_tables():
    places = Grid2d(Learned(3, longest=4), across=Learned(3, longest=5))
    found = places(torch.randn(2, 4, 5, 6))
    expected = torch.stack(
        [torch.stack([torch.cat([places.down.table[r], places.across.table[c]]) for c in range(5)]) for r in range(4)]
    )
    assert_agree(found, expected, *places.parameters())


def test_every_cell_of_a_grid_has_a_place_of_its_own():
    for places in (
        Grid2d(Sinusoidal(8), across=Sinusoidal(8)),
        Grid2d(Learned(8, longest=7), across=Learned(8, longest=9)),
        Grid2d(Fraction(8), across=Fraction(8)),
    ):
        found = places(torch.randn(1, 7, 9, 1))
        assert float(torch.pdist(found.flatten(0, 1).detach()).min()) > 1e-2


def test_grid_positions_are_of_the_grids_kind_of_numbers():
    assert Grid2d(Sinusoidal(2), across=Sinusoidal(2))(torch.randn(1, 2, 2, 4).float()).dtype == torch.float32


# What is refused


def test_a_grid_larger_than_its_learned_positions_is_refused():
    places = Grid2d(Learned(3, longest=4), across=Learned(3, longest=5))
    with pytest.raises(ValueError, match="position 4 is beyond the table of 4 learned positions"):
        places(torch.randn(2, 5, 5, 6))


def test_halves_of_different_width_are_refused():
    with pytest.raises(ValueError, match="half the width each; got 4 and 6"):
        Grid2d(Sinusoidal(4), across=Sinusoidal(6))


def test_an_encoder_without_stages_is_refused():
    with pytest.raises(ValueError, match="one stage at least"):
        GridEncoder(3, ())


@pytest.mark.parametrize("shape", [(2, 8, 8, 3), (3, 8, 8), (2, 3, 0, 8), (2, 1, 8, 8)])
@pytest.mark.parametrize("make", [lambda: GridEncoder(3, (4,)), lambda: Patches(3, 4, size=2)])
def test_images_of_another_shape_are_refused(shape, make):
    with pytest.raises(ValueError, match=rf"\(batch, 3, height, width\); got \({shape[0]}, {shape[1]}"):
        make()(torch.zeros(shape))
