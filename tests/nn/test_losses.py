"""The token loss against its formula and PyTorch's, in value and gradient, whatever the padding and the chunks; and
the loss that wants every place to be looked at."""

import pytest
import torch
import torch.nn.functional as F

from saccade import formulas as f
from saccade.nn import losses
from saccade.nn.layers import Embedding, Output
from saccade.nn.losses import doubly_stochastic, token_loss

from .workbench import Operations, assert_agree, assert_close, stir

WIDTH, VOCABULARY = 6, 11
PADDING = {
    "none": lambda: torch.ones(3, 5, dtype=torch.bool),
    "at the end": lambda: torch.arange(5) < torch.tensor([5, 2, 1])[:, None],
    "at the beginning": lambda: torch.arange(5) >= torch.tensor([0, 2, 4])[:, None],
    "in odd places": lambda: torch.tensor([[0, 1, 0, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 1]], dtype=torch.bool),
    "all but one": lambda: torch.arange(15).view(3, 5) == 7,
}


def batch(bias=False, tied=False):
    states = torch.randn(3, 5, WIDTH, requires_grad=True)
    output = Output(WIDTH, VOCABULARY, tied=Embedding(VOCABULARY, WIDTH) if tied else None, bias=bias)
    return states, torch.randint(VOCABULARY, (3, 5)), stir(output)


@pytest.mark.parametrize("rows_at_once", [1, 2, 4, 512])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("padding", PADDING)
def test_the_loss_equals_its_formula_and_torch_s(padding, bias, smoothing, rows_at_once, monkeypatch):
    monkeypatch.setattr(losses, "_rows_at_once", lambda vocabulary: rows_at_once)
    (states, target, output), mask = batch(bias), PADDING[padding]()
    ours = token_loss(states, target, mask, output, smoothing=smoothing)
    logits = output(states)
    formula = (f.cross_entropy(logits, target, smoothing) * mask).sum()
    theirs = F.cross_entropy(logits[mask], target[mask], reduction="sum", label_smoothing=smoothing)
    assert_agree(ours.smoothed, formula, states, *output.parameters())
    assert_agree(ours.smoothed, theirs, states, *output.parameters())
    assert_close(ours.surprise, F.cross_entropy(logits[mask], target[mask], reduction="sum").detach())
    assert int(ours.correct) == int(((logits.argmax(-1) == target) & mask).sum())


@pytest.mark.parametrize("rows_at_once", [1, 4, 512])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("padding", PADDING)
def test_two_readings_cost_their_mean_and_their_distance(padding, bias, rows_at_once, monkeypatch):
    monkeypatch.setattr(losses, "_rows_at_once", lambda vocabulary: rows_at_once)
    (first, target, output), mask, second = (
        batch(bias),
        PADDING[padding](),
        torch.randn(3, 5, WIDTH, requires_grad=True),
    )
    both = torch.stack([first, second], 1).flatten(0, 1)  # (6, 5, D), sentence after sentence
    ours = token_loss(both, target, mask, output, smoothing=0.1, agreement=1.7)
    p, q = output(first), output(second)
    log_p, log_q = p[mask].log_softmax(-1), q[mask].log_softmax(-1)
    ways = (log_p, log_q), (log_q, log_p)
    apart = sum(F.kl_div(*each, reduction="sum", log_target=True) for each in ways) / 2
    mean = ((f.cross_entropy(p, target, 0.1) + f.cross_entropy(q, target, 0.1)) * mask).sum() / 2
    assert_agree(ours.smoothed, mean + 1.7 * apart, first, second, *output.parameters())
    assert_close(ours.disagreement, apart.detach())
    plain = [token_loss(each, target, mask, output) for each in (first, second)]
    assert_close(ours.surprise, sum(each.surprise for each in plain) / 2)
    assert float(ours.correct) == sum(float(each.correct) for each in plain) / 2


def test_a_tied_table_gets_its_gradient():
    states, target, output = batch(tied=True)
    mask = PADDING["in odd places"]()
    formula = (f.cross_entropy(output(states), target, 0.1) * mask).sum()
    assert_agree(token_loss(states, target, mask, output, smoothing=0.1).smoothed, formula, states, output.tied.weight)


@pytest.mark.parametrize("bias", [False, True])
def test_a_batch_without_a_real_token_has_loss_zero_and_no_slope(bias):
    states, target, output = batch(bias)
    loss = token_loss(states, target, torch.zeros(3, 5, dtype=torch.bool), output, smoothing=0.1)
    assert [float(each.detach()) for each in (loss.smoothed, loss.surprise, loss.correct)] == [0, 0, 0]
    for slope in torch.autograd.grad(loss.smoothed, (states, *output.parameters())):
        assert not slope.any() and bool(slope.isfinite().all())


def test_what_stands_at_padding_is_never_read():
    (states, target, output), mask = batch(), PADDING["in odd places"]()
    clean = token_loss(states, target, mask, output, smoothing=0.1).smoothed
    spoiled = states.detach().masked_fill(~mask[..., None], torch.nan).requires_grad_()
    loss = token_loss(spoiled, target.masked_fill(~mask, -100), mask, output, smoothing=0.1).smoothed
    assert_close(loss, clean)
    (slope,) = torch.autograd.grad(loss, spoiled)
    assert not slope[~mask].any() and bool(slope.isfinite().all())


def test_the_parts_of_a_batch_sum_to_the_whole():
    (states, target, output), mask = batch(), PADDING["at the end"]()
    whole = token_loss(states, target, mask, output, smoothing=0.1)
    parts = [token_loss(states[i : i + 1], target[i : i + 1], mask[i : i + 1], output, smoothing=0.1) for i in range(3)]
    assert_agree(sum(part.smoothed for part in parts), whole.smoothed, states, *output.parameters())
    assert_close(sum(part.surprise for part in parts), whole.surprise)


def test_the_gradient_goes_with_the_scale_of_the_loss():
    states, target, output = batch(bias=True)
    loss = token_loss(states, target, PADDING["none"](), output).smoothed
    once = torch.autograd.grad(loss, (states, *output.parameters()), retain_graph=True)
    thrice = torch.autograd.grad(3 * loss, (states, *output.parameters()))
    for one, three in zip(once, thrice, strict=True):
        assert_close(3 * one, three)


def test_only_what_is_minimised_has_a_gradient():
    states, target, output = batch()
    loss = token_loss(states, target, PADDING["none"](), output)
    assert [each.requires_grad for each in (loss.smoothed, loss.surprise, loss.correct)] == [True, False, False]


def test_frozen_weights_and_constant_states_are_no_obstacle():
    states, target, output = batch(bias=True)
    mask = PADDING["none"]()
    expected = f.cross_entropy(output(states), target).sum()
    (slope,) = torch.autograd.grad(token_loss(states, target, mask, output.requires_grad_(False)).smoothed, states)
    assert_close(slope, torch.autograd.grad(expected, states)[0])
    assert not token_loss(states.detach(), target, mask, output).smoothed.requires_grad


def test_no_gradient_is_computed_where_none_is_wanted():
    """Evaluation runs without gradients, on weights that would have them: half the work would be for nothing."""
    states, target, output = batch()
    with torch.no_grad(), Operations() as ran:
        token_loss(states.detach(), target, PADDING["none"](), output)
    assert "addmm_" not in ran.names


def test_a_large_vocabulary_is_never_held_for_all_rows_at_once(monkeypatch):
    monkeypatch.setattr(losses, "_rows_at_once", lambda vocabulary: 4)
    states, target, output = batch()
    largest = 0

    class Largest(Operations):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            result = super().__torch_dispatch__(function, types, args, kwargs)
            if isinstance(result, torch.Tensor) and result.dim() == 2 and result.shape[1] == VOCABULARY:
                largest = max(largest, result.shape[0])
            return result

    with Largest():
        token_loss(states, target, PADDING["none"](), output).smoothed.backward()
    assert 0 < largest < 15  # four at a time, and the weight itself, transposed for the product


@pytest.mark.parametrize("wrong", [-1, VOCABULARY, 500])
def test_a_target_outside_the_vocabulary_is_refused_by_name(wrong):
    states, target, output = batch()
    target[1, 2] = wrong
    with pytest.raises(ValueError, match=f"target id {wrong} is outside the vocabulary of {VOCABULARY} ids"):
        token_loss(states, target, PADDING["none"](), output)


@pytest.mark.parametrize(
    "mask", [torch.ones(3, 5), torch.ones(3, 5, dtype=torch.long), torch.ones(5, 3, dtype=torch.bool)]
)
def test_a_mask_of_another_kind_or_shape_is_refused(mask):
    states, target, output = batch()
    with pytest.raises(ValueError, match=rf"shape \(3, 5\); got {mask.dtype} \({mask.shape[0]}, {mask.shape[1]}\)"):
        token_loss(states, target, mask, output)


@pytest.mark.parametrize("padding", PADDING)
def test_the_doubly_stochastic_loss_is_the_sum_of_its_formula_over_real_rows(padding):
    weights, mask = torch.randn(3, 5, 4).softmax(-1).requires_grad_(), PADDING[padding]()
    alone = [f.doubly_stochastic_penalty(weights[row][mask[row]]) for row in range(3)]
    assert_agree(doubly_stochastic(weights, mask), torch.stack(alone).sum(), weights)


def test_looking_once_at_every_place_costs_nothing():
    mask = torch.tensor([[True, True, True, False]])
    assert float(doubly_stochastic(torch.eye(4)[:, :3][None], mask)) == 0
    assert float(doubly_stochastic(torch.ones(1, 4, 3) / 3, mask)) == pytest.approx(0)
    assert float(doubly_stochastic(torch.eye(4)[:, :3][None], ~mask)) == 3
