"""The laws of attention, for every score, head count and position scheme."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from saccade.maps.record import record
from saccade.nn.attention import Attention
from saccade.nn.cache import KeyValues
from tests.laws.models import ATTENTIONS, WIDTH, lengths_mask, ready, vectors

EVERY = pytest.mark.parametrize("name", ATTENTIONS)
PLACED = ("rotary", "relative", "relative dot")
CLOSE = {"rtol": 0, "atol": 1e-9}

MASKS = {
    "nothing hidden": (None, False, None),
    "padding": (lengths_mask([5, 2, 3], 5), False, None),
    "causal": (None, True, None),
    "causal and padding": (lengths_mask([5, 2, 3], 5), True, None),
    "allowed": (None, False, torch.rand(3, 1, 5, 5, generator=torch.Generator().manual_seed(3)) > 0.4),
    "a hidden row": (lengths_mask([5, 0, 3], 5), False, None),
    "everything at once": (
        lengths_mask([4, 2, 5], 5),
        True,
        torch.rand(1, 1, 5, 5, generator=torch.Generator().manual_seed(4)) > 0.3,
    ),
}


def made(name: str, *, causal: bool = False) -> Attention:
    return ready(ATTENTIONS[name](causal=causal))


def explicit(attention: Attention, x: Tensor, kv: KeyValues, allowed: Tensor | None = None) -> Tensor:
    return attention.read(attention.weigh(x, kv, allowed), kv)


@EVERY
@pytest.mark.parametrize("masks", MASKS)
def test_fused_equals_explicit_in_value_and_gradient(name: str, masks: str) -> None:
    mask, causal, allowed = MASKS[masks]
    attention = made(name, causal=causal)
    results = []
    for path in (attention, lambda *given: explicit(attention, *given)):
        attention.zero_grad()
        x = vectors(3, 5).requires_grad_()
        context = path(x, attention.remember(x, mask), allowed)
        (context * torch.linspace(0, 1, context.numel(), dtype=torch.float64).view(context.shape)).sum().backward()
        gradients = [p.grad.clone() for p in attention.parameters() if p.grad is not None]
        results.append([context.detach(), x.grad, *gradients])
    for fused, plain in zip(*results, strict=True):
        assert torch.isfinite(plain).all()
        torch.testing.assert_close(fused, plain, **CLOSE)


@EVERY
@pytest.mark.parametrize("masks", MASKS)
def test_rows_of_weights_sum_to_one_or_are_all_zero(name: str, masks: str) -> None:
    mask, causal, allowed = MASKS[masks]
    attention = made(name, causal=causal)
    weights = attention.weigh(vectors(3, 5), attention.remember(vectors(3, 5), mask), allowed)
    total = weights.sum(-1)
    assert (weights >= 0).all()
    assert (torch.isclose(total, torch.ones_like(total)) | (total == 0)).all()


@EVERY
def test_a_fully_hidden_row_reads_as_zeros_before_the_output_map(name: str) -> None:
    attention = made(name)
    kv = attention.remember(vectors(2, 4), lengths_mask([4, 0], 4))
    nothing = torch.zeros(1, 1, attention.heads * attention.value_width, dtype=torch.float64)
    for context in (attention(vectors(2, 3), kv), explicit(attention, vectors(2, 3), kv)):
        torch.testing.assert_close(context[1], attention.output(nothing).expand(1, 3, -1)[0], **CLOSE)


@EVERY
def test_step_by_step_with_a_cache_equals_all_at_once(name: str) -> None:
    attention = made(name, causal=True)
    x = vectors(2, 6)
    whole = attention(x, attention.remember(x))
    cache = attention.cache(2, 8, x)
    steps = []
    for place in (slice(0, 1), slice(1, 4), slice(4, 6)):
        position = torch.full((2,), place.start)
        at = torch.arange(place.start, place.stop)
        cache = cache.since(position).append(attention.remember(x[:, place], at=at))
        steps.append(attention(x[:, place], cache))
    torch.testing.assert_close(torch.cat(steps, 1), whole, **CLOSE)


@EVERY
def test_rows_at_different_positions_share_one_step(name: str) -> None:
    """Row 0 has seen two cells, row 1 five: one step for both equals each alone."""
    attention = made(name, causal=True)
    x = vectors(2, 6)
    whole = attention(x, attention.remember(x))
    cache = attention.cache(2, 8, x)
    cache = cache.since(torch.tensor([0, 0])).append(attention.remember(x[:, :5]))
    places = torch.tensor([2, 5])
    new = x[torch.arange(2), places][:, None]
    cache = cache.since(places).append(attention.remember(new, at=places[:, None]))
    torch.testing.assert_close(attention(new, cache)[:, 0], whole[torch.arange(2), places], **CLOSE)


@EVERY
def test_the_future_changes_nothing(name: str) -> None:
    attention = made(name, causal=True)
    x = vectors(2, 6)
    changed = x.clone()
    changed[:, 4:] += 1
    before, after = (attention(each, attention.remember(each)) for each in (x, changed))
    torch.testing.assert_close(before[:, :4], after[:, :4], **CLOSE)
    assert not torch.allclose(before[:, 4:], after[:, 4:])


@EVERY
def test_padding_and_batch_order_change_nothing(name: str) -> None:
    attention = made(name)
    x, lengths = vectors(3, 6), [6, 3, 4]
    together = attention(x, attention.remember(x, lengths_mask(lengths, 6)))
    shuffled = x[[2, 0, 1]]
    other = attention(shuffled, attention.remember(shuffled, lengths_mask([4, 6, 3], 6)))
    for row, length in enumerate(lengths):
        alone = x[row : row + 1, :length]
        torch.testing.assert_close(together[row, :length], attention(alone, attention.remember(alone))[0], **CLOSE)
        torch.testing.assert_close(together[row], other[[1, 2, 0][row]], **CLOSE)


@pytest.mark.parametrize("name", [name for name in ATTENTIONS if name not in PLACED])
def test_permuting_the_inputs_permutes_the_outputs(name: str) -> None:
    attention, order = made(name), torch.tensor([3, 0, 4, 1, 2])
    x = vectors(1, 5)
    moved = attention(x[:, order], attention.remember(x[:, order]))
    torch.testing.assert_close(moved, attention(x, attention.remember(x))[:, order], **CLOSE)


@pytest.mark.parametrize("name", PLACED)
def test_with_positions_order_matters(name: str) -> None:
    attention, order = made(name), torch.tensor([3, 0, 4, 1, 2])
    x = vectors(1, 5)
    moved = attention(x[:, order], attention.remember(x[:, order]))
    assert not torch.allclose(moved, attention(x, attention.remember(x))[:, order], atol=1e-3)


@EVERY
def test_record_on_equals_record_off_and_leaves_nothing_behind(name: str) -> None:
    attention = made(name)
    x = vectors(2, 4)
    plain = attention(x, attention.remember(x))
    with record(attention) as recording:
        looked = attention(x, attention.remember(x))
    torch.testing.assert_close(looked, plain, **CLOSE)
    assert attention.tap is None
    assert recording[""].shape == (2, attention.heads, 4, 4)
    assert torch.equal(attention(x, attention.remember(x)), plain)


@pytest.mark.parametrize("name", [name for name in ATTENTIONS if name not in PLACED])
def test_hypotheses_of_a_sentence_share_its_memory(name: str) -> None:
    """Three hypotheses folded into the asking axis equal a memory copied for each."""
    attention = made(name)
    memory, mask, x = vectors(2, 5, seed=1), lengths_mask([5, 3], 5), vectors(6, 2, seed=2)
    shared = attention.remember(memory, mask)
    copied = attention.remember(memory.repeat_interleave(3, 0), mask.repeat_interleave(3, 0))
    torch.testing.assert_close(attention(x, shared), attention(x, copied), **CLOSE)
    weights = attention.weigh(x, shared)
    torch.testing.assert_close(weights, attention.weigh(x, copied), **CLOSE)
    torch.testing.assert_close(attention.read(weights, shared), attention(x, shared), **CLOSE)


@given(
    name=st.sampled_from(list(ATTENTIONS)),
    rows=st.integers(1, 3),
    asking=st.integers(1, 5),
    cells=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_fused_equals_explicit_for_any_shape_and_any_mask(
    name: str, rows: int, asking: int, cells: int, seed: int
) -> None:
    attention = made(name)
    random = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, cells, generator=random) > 0.3
    allowed = torch.rand(rows, 1, asking, cells, generator=random) > 0.3
    x, kv = vectors(rows, asking, seed=seed), attention.remember(vectors(rows, cells, seed=seed + 1), mask)
    torch.testing.assert_close(attention(x, kv, allowed), explicit(attention, x, kv, allowed), **CLOSE)


def test_float32_agrees_too_at_its_own_tolerance() -> None:
    for name in ATTENTIONS:
        attention = made(name).float()
        x = vectors(3, 5).float()
        kv = attention.remember(x, lengths_mask([5, 2, 3], 5))
        torch.testing.assert_close(attention(x, kv), explicit(attention, x, kv), rtol=0, atol=2e-5)


def test_a_memory_of_another_width_is_attended() -> None:
    attention = ready(Attention(WIDTH, heads=2, memory_width=5))
    memory = torch.randn(2, 7, 5, dtype=torch.float64)
    kv = attention.remember(memory)
    torch.testing.assert_close(attention(vectors(2, 3), kv), explicit(attention, vectors(2, 3), kv), **CLOSE)
