"""Rollout: the product of all layers, each half itself and half where it looked."""

from __future__ import annotations

import pytest
import torch

from saccade.errors import SaccadeError
from saccade.maps.axes import Grid
from saccade.maps.rollout import rollout

GRID = Grid(2, 3)


def layers(count: int, positions: int, heads: int = 4) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(heads, positions, positions, generator=generator).softmax(-1) for _ in range(count)]


def test_the_row_is_the_product_of_the_layers_the_last_one_first() -> None:
    one, two, three = (layer.double().mean(0) for layer in layers(3, 7))
    same = torch.eye(7, dtype=torch.float64)
    product = (0.5 * three + 0.5 * same) @ (0.5 * two + 0.5 * same) @ (0.5 * one + 0.5 * same)
    expected = product[0, 1:] / product[0, 1:].sum()
    map_ = rollout(layers(3, 7), GRID)
    assert torch.allclose(map_.weights[0, 0].double(), expected, atol=1e-7)
    assert not torch.allclose(rollout(layers(3, 7)[::-1], GRID).weights, map_.weights)


@pytest.mark.parametrize(("positions", "label"), [(7, "class token"), (6, "mean of all cells")])
def test_one_row_over_the_image_sums_to_one(positions: int, label: str) -> None:
    map_ = rollout(layers(5, positions), GRID)
    assert map_.rows.labels == (label,)
    assert map_.columns is GRID
    assert map_.weights.shape == (1, 1, 6)
    assert float(map_.weights.sum()) == pytest.approx(1.0)


def test_without_a_class_token_all_cells_count_the_same() -> None:
    everyone_looks_at_the_fourth = torch.zeros(1, 6, 6)
    everyone_looks_at_the_fourth[:, :, 3] = 1.0
    weights = rollout([everyone_looks_at_the_fourth], GRID).weights[0, 0]
    assert weights.tolist() == pytest.approx([1 / 12, 1 / 12, 1 / 12, 0.5 + 1 / 12, 1 / 12, 1 / 12])


def test_what_the_class_token_takes_from_a_cell_has_its_past() -> None:
    """It looks at cell 1 in the last layer, which looked at cell 2 in the first."""
    first, last = torch.eye(7)[None].clone(), torch.eye(7)[None].clone()
    first[0, 1] = torch.eye(7)[2]
    last[0, 0] = torch.eye(7)[1]
    assert rollout([first, last], GRID).weights[0, 0].tolist() == pytest.approx([0.5, 0.5, 0, 0, 0, 0])


def test_a_class_token_that_saw_only_itself_has_zeros() -> None:
    assert rollout([torch.eye(7)[None]], GRID).weights.sum() == 0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(SaccadeError, match="no layer"):
        rollout([], GRID)
    with pytest.raises(SaccadeError, match="8 positions do not fit 2 x 3 cells, 6 without a class token or 7 with one"):
        rollout(layers(2, 8), GRID)
    with pytest.raises(SaccadeError, match=r"layer 2: self-attention has shape \(heads, 7, 7\); got \(4, 6, 6\)"):
        rollout([*layers(1, 7), *layers(1, 6)], GRID)
