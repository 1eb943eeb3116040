"""Attention over few cells by our own code: the formula in value and gradient, whatever may be seen."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.nn import native, short_attention
from saccade.nn.attention import fused
from saccade.nn.short_attention import attend_short

pytestmark = pytest.mark.skipif(native.library() is None, reason="no code of our own here: torch computes all")
SCALE = 0.3
MASKS = {
    "all": lambda b, h, t, s: None,
    "real cells": lambda b, h, t, s: torch.rand(b, 1, 1, s) > 0.3,
    "a table for each head": lambda b, h, t, s: torch.rand(b, h, t, s) > 0.3,
    "one table for all": lambda b, h, t, s: torch.rand(t, s) > 0.5,
    "nothing at times": lambda b, h, t, s: (torch.arange(t) % 2 == 0)[:, None].expand(t, s),
}


def drawn(batch: int, heads: int, groups: int, asking: int, cells: int, width: int) -> list[Tensor]:
    """Queries, keys and values as projections leave them: heads side by side."""
    shapes = [(heads, asking), (groups, cells), (groups, cells)]
    return [
        torch.randn(batch, positions, many, width, dtype=torch.float32).transpose(1, 2).requires_grad_()
        for many, positions in shapes
    ]


def by_formula(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    each = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(each, 1), value.repeat_interleave(each, 1)
    scores = SCALE * query @ key.transpose(-1, -2)
    seen = torch.ones_like(scores, dtype=torch.bool).tril() if causal else torch.ones_like(scores, dtype=torch.bool)
    seen = seen if mask is None else seen & mask
    weights = scores.masked_fill(~seen, -1e30).softmax(-1).masked_fill(~seen, 0)
    return weights @ value


def assert_near(ours: Tensor | None, theirs: Tensor) -> None:
    assert ours is not None
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1, 1, 1, 16), (3, 4, 4, 7, 7, 32), (2, 4, 2, 21, 21, 48), (2, 6, 1, 40, 40, 64), (2, 2, 2, 64, 64, 80)],
)
def test_what_is_seen_and_its_gradients_are_those_of_the_formula(
    sizes: tuple[int, ...], mask: str, causal: bool
) -> None:
    given = drawn(*sizes)
    exact = [each.detach().double().requires_grad_() for each in given]
    hidden = MASKS[mask](sizes[0], sizes[1], sizes[3], sizes[4])
    ours = attend_short(*given, mask=hidden, causal=causal, scale=SCALE)
    theirs = by_formula(*exact, hidden, causal)
    assert_near(ours, theirs)
    slope = torch.randn_like(theirs)
    ours_by = torch.autograd.grad(ours, given, slope.float())
    for found, expected in zip(ours_by, torch.autograd.grad(theirs, exact, slope), strict=True):
        assert_near(found, expected)


def test_a_memory_may_have_another_length_than_the_asking() -> None:
    query, key, value = drawn(2, 4, 4, 5, 19, 32)
    exact = [each.detach().double() for each in (query, key, value)]
    assert_near(attend_short(query, key, value, mask=None, causal=False, scale=SCALE), by_formula(*exact, None, False))


def test_nothing_depends_on_the_threads() -> None:
    given = drawn(5, 4, 2, 13, 13, 32)
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            seen = attend_short(*given, mask=None, causal=True, scale=SCALE)
            assert seen is not None
            found.append((seen, *torch.autograd.grad(seen.square().sum(), given)))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_what_is_no_number_stays_in_its_head() -> None:
    query, key, value = drawn(2, 2, 2, 4, 4, 16)
    with torch.no_grad():
        key[0, 1, 0, 3] = torch.nan
    seen = attend_short(query, key, value, mask=None, causal=False, scale=SCALE)
    assert seen is not None
    assert seen.isfinite().flatten(2).any(-1).tolist() == seen.isfinite().flatten(2).all(-1).tolist()
    assert seen.isfinite().flatten(2).all(-1).tolist() == [[True, False], [True, True]]


def test_torch_does_what_is_long_exact_or_without_gradient() -> None:
    def ours(given: list[Tensor], mask: Tensor | None = None) -> Tensor | None:
        return attend_short(*given, mask=mask, causal=False, scale=SCALE)

    few = drawn(1, 2, 2, 5, 5, 16)
    assert ours(few) is not None
    assert ours(drawn(1, 2, 2, short_attention.MOST + 1, 5, 16)) is None
    assert ours(drawn(1, 2, 2, 5, short_attention.MOST + 1, 16)) is None
    assert ours(drawn(1, 2, 2, 5, 5, 15)) is None
    assert ours([each.detach().double().requires_grad_() for each in few]) is None
    assert ours([each.detach() for each in few]) is None
    assert ours(few, torch.zeros(5, 5)) is None
    with torch.no_grad():
        assert ours(few) is None


def test_attention_takes_it_in_training_and_not_with_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    given, calls = drawn(2, 2, 2, 5, 5, 16), []
    monkeypatch.setattr("saccade.nn.attention.attend_short", lambda *a, **k: calls.append(k) or attend_short(*a, **k))
    trained = fused(*given, scale=SCALE)
    with torch.no_grad():
        assert_near(trained, fused(*given, scale=SCALE).double())
    assert len(calls) == 2
    fused(*given, scale=SCALE, dropout=0.5)
    assert len(calls) == 2
