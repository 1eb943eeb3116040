"""Blocks and stacks against the Transformer formulas in both norm orders, whole and step by step."""

import pytest
import torch

from saccade import formulas as f
from saccade.nn.attention import Attention
from saccade.nn.layers import FeedForward, Residual, make_norm
from saccade.nn.positions import RelativeBias, Rotary
from saccade.nn.stack import Block, Stack

from .workbench import assert_agree, assert_close, assert_law, both_ways, stir

WIDTH, MEMORY, HEADS = 8, 6, 2
NAMES = {  # ours: the formulas'
    "attention.": "self_attention.",
    "around_attention.norm.": "self_attention_norm.",
    "cross.": "cross_attention.",
    "around_cross.norm.": "cross_attention_norm.",
    "feed_forward.expand.": "feed_forward.inner.",
    "feed_forward.contract.": "feed_forward.outer.",
    "around_feed_forward.norm.": "feed_forward_norm.",
}


def make_stack(order, *, layers=2, cross=False, causal=False, positions=None):
    def block():
        return Block(
            Attention(WIDTH, heads=HEADS, causal=causal, positions=None if positions is None else positions()),
            FeedForward(WIDTH, 12, activation="gelu"),
            cross=Attention(WIDTH, heads=HEADS, memory_width=MEMORY) if cross else None,
            residual=lambda: Residual(WIDTH, order=order),
        )

    return Stack((block() for _ in range(layers)), norm=make_norm("layer", WIDTH) if order == "pre" else None)


def weights_of(block):
    named = {}
    for name, parameter in block.named_parameters():
        ours = next(ours for ours in NAMES if name.startswith(ours))
        named[NAMES[ours] + name.removeprefix(ours)] = parameter
    return named


def formula_options(stack, order):
    last = None if stack.norm is None else dict(stack.norm.named_parameters())
    return {"heads": HEADS, "norm_first": order == "pre", "activation": f.gelu, "last_norm": last}


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("order", ["pre", "post"])
def test_an_encoder_stack_equals_the_transformer_encoder(order, layers):
    stack, x = stir(make_stack(order, layers=layers)), torch.randn(2, 5, WIDTH, requires_grad=True)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    blocks = [weights_of(block) for block in stack.blocks]
    expected = f.encoder(x, blocks, mask=mask[:, None, None], **formula_options(stack, order))
    assert_agree(stack(x, mask=mask), expected, x, *stack.parameters())


@pytest.mark.parametrize("order", ["pre", "post"])
def test_a_decoder_stack_equals_the_transformer_decoder(order):
    stack = stir(make_stack(order, cross=True, causal=True))
    y, memory = torch.randn(2, 4, WIDTH, requires_grad=True), torch.randn(2, 5, MEMORY, requires_grad=True)
    real = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    expected = f.decoder(
        y,
        memory,
        [weights_of(block) for block in stack.blocks],
        mask=f.causal_mask(torch.arange(4)),
        memory_mask=real[:, None, None],
        **formula_options(stack, order),
    )
    ours = stack(y, memory=stack.remember(memory, real))
    assert_agree(ours, expected, y, memory, *stack.parameters())


def test_what_else_is_allowed_reaches_every_block():
    stack, x = stir(make_stack("pre")), torch.randn(2, 5, WIDTH)
    allowed = (torch.rand(2, 1, 5, 5) > 0.5) | torch.eye(5, dtype=torch.bool)
    blocks = [weights_of(block) for block in stack.blocks]
    expected = f.encoder(x, blocks, mask=allowed, **formula_options(stack, "pre"))
    assert_close(stack(x, allowed=allowed), expected)


@pytest.mark.parametrize("sizes", [[1] * 6, [6], [2, 1, 3]])
@pytest.mark.parametrize("positions", [None, lambda: Rotary(4), lambda: RelativeBias(HEADS, reach=2)])
@pytest.mark.parametrize("order", ["pre", "post"])
def test_steps_into_a_past_equal_the_whole_at_once(order, positions, sizes):
    stack = stir(make_stack(order, cross=True, causal=True, positions=positions))
    y = torch.randn(2, 6, WIDTH)
    memory = stack.remember(torch.randn(2, 5, MEMORY), None)
    past, position, steps = stack.cache(2, 16, y), torch.zeros(2, dtype=torch.long), []
    for part in y.split(sizes, dim=1):
        steps.append(stack(part, memory=memory, past=tuple(kv.since(position) for kv in past)))
        position = position + part.shape[1]
    assert_close(torch.cat(steps, dim=1), stack(y, memory=memory))


def test_hypotheses_of_a_sentence_share_its_memory():
    stack = stir(make_stack("pre", cross=True, causal=True))
    y, source = torch.randn(6, 4, WIDTH), torch.randn(2, 5, MEMORY)
    own = stack.remember(source.repeat_interleave(3, dim=0), None)
    assert_close(stack(y, memory=stack.remember(source, None)), stack(y, memory=own))


@both_ways
def test_no_two_layers_share_their_initial_values(build):
    stack = build(lambda: make_stack("pre", layers=3, cross=True))
    for name, first in stack.blocks[0].named_parameters():
        for other in (stack.blocks[1].get_parameter(name), stack.blocks[2].get_parameter(name)):
            assert first is not other
            assert "weight" not in name or "norm" in name or not torch.equal(first, other)


@both_ways
def test_every_part_of_a_stack_starts_by_its_own_law(build):
    def make():
        block = Block(Attention(160), FeedForward(160, 320), residual=lambda: Residual(160))
        return Stack([block], norm=make_norm("layer", 160))

    (block,) = build(make).blocks
    assert_law(block.attention.query.weight, 2 / 320, uniform=True)
    assert_law(block.feed_forward.expand.weight, 2 / 480, uniform=True)
    assert bool((block.around_attention.norm.weight == 1).all())


def test_a_decoder_without_a_memory_is_refused():
    with pytest.raises(ValueError, match="attends to a memory, and none was given"):
        make_stack("pre", cross=True)(torch.randn(2, 4, WIDTH))
