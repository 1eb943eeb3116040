"""Transformer blocks agree with PyTorch's layers in both norm orders; vectors meet only in attention."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from saccade import formulas as f

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)

WIDTH, HEADS, INNER = 8, 2, 16
SUBLAYERS = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}


def from_torch(layer):
    """PyTorch's names of an encoder or decoder layer's parameters, to ours."""
    state = {name: value.detach() for name, value in layer.named_parameters()}
    present = [(ours, theirs) for ours, theirs in SUBLAYERS.items() if f"{theirs}.in_proj_weight" in state]
    weights = {}
    for number, (ours, theirs) in enumerate(present, start=1):
        for kind in ("weight", "bias"):
            pieces = state[f"{theirs}.in_proj_{kind}"].chunk(3)
            weights |= {f"{ours}.{name}.{kind}": p for name, p in zip(("query", "key", "value"), pieces, strict=True)}
            weights[f"{ours}.output.{kind}"] = state[f"{theirs}.out_proj.{kind}"]
            weights[f"{ours}_norm.{kind}"] = state[f"norm{number}.{kind}"]
    for kind in ("weight", "bias"):
        weights[f"feed_forward.inner.{kind}"] = state[f"linear1.{kind}"]
        weights[f"feed_forward.outer.{kind}"] = state[f"linear2.{kind}"]
        weights[f"feed_forward_norm.{kind}"] = state[f"norm{len(present) + 1}.{kind}"]
    return weights


def torch_layer(kind, norm_first, activation="relu"):
    torch.manual_seed(1)
    layer = kind(WIDTH, HEADS, INNER, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    for parameter in layer.parameters():  # biases begin at zero and gammas at one, which would hide mistakes
        nn.init.normal_(parameter, std=0.5)
    return layer


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_block_is_the_same_as_torch_s_layer(draw, norm_first, activation):
    layer = torch_layer(nn.TransformerEncoderLayer, norm_first, activation)
    x = torch.tensor(draw(2, 5, WIDTH))
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    ours = f.encoder_block(
        x,
        from_torch(layer),
        heads=HEADS,
        mask=~padding[:, None, None, :],
        norm_first=norm_first,
        activation=getattr(f, activation),
    )
    assert_close(ours, layer(x, src_key_padding_mask=padding))


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_a_decoder_block_is_the_same_as_torch_s_layer(draw, norm_first):
    layer = torch_layer(nn.TransformerDecoderLayer, norm_first)
    y, memory = torch.tensor(draw(2, 5, WIDTH)), torch.tensor(draw(2, 3, WIDTH))
    visible = f.causal_mask(torch.arange(5))
    seen = torch.tensor([[True, True, True], [True, False, False]])
    ours = f.decoder_block(
        y,
        memory,
        from_torch(layer),
        heads=HEADS,
        mask=visible,
        memory_mask=seen[:, None, None, :],
        norm_first=norm_first,
    )
    assert_close(ours, layer(y, memory, tgt_mask=~visible, memory_key_padding_mask=~seen))


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-norm", "pre-norm"])
def test_stacks_of_blocks_are_the_same_as_torch_s_encoder_and_decoder(draw, norm_first):
    layers = [torch_layer(kind, norm_first) for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)]
    norms = [nn.LayerNorm(WIDTH, dtype=torch.float64) if norm_first else None for _ in layers]
    their_encoder = nn.TransformerEncoder(layers[0], 3, norms[0], enable_nested_tensor=False)
    their_decoder = nn.TransformerDecoder(layers[1], 2, norms[1])
    for parameter in (*their_encoder.parameters(), *their_decoder.parameters()):  # the stacks hold copies of one layer
        nn.init.normal_(parameter, std=0.5)
    x, y = torch.tensor(draw(2, 5, WIDTH)), torch.tensor(draw(2, 4, WIDTH))
    visible = f.causal_mask(torch.arange(4))

    encoder_blocks, decoder_blocks = ([from_torch(layer) for layer in s.layers] for s in (their_encoder, their_decoder))
    first_norm, second_norm = (norm and dict(norm.named_parameters()) for norm in norms)
    memory = f.encoder(x, encoder_blocks, heads=HEADS, norm_first=norm_first, last_norm=first_norm)
    ours = f.decoder(y, memory, decoder_blocks, heads=HEADS, mask=visible, norm_first=norm_first, last_norm=second_norm)
    assert_close(ours, their_decoder(y, their_encoder(x), tgt_mask=~visible))


def test_attention_is_the_only_place_where_vectors_meet(draw):
    weights = from_torch(torch_layer(nn.TransformerEncoderLayer, True))
    x = torch.tensor(draw(1, 5, WIDTH))
    blind = f.encoder_block(x, weights, heads=HEADS, mask=torch.eye(5, dtype=torch.bool))  # each sees only itself
    for t in range(5):
        alone = f.encoder_block(x[:, t : t + 1], weights, heads=HEADS)
        assert_close(blind[:, t : t + 1], alone)


def test_an_encoder_without_positions_is_permutation_equivariant(draw):
    blocks = [from_torch(torch_layer(nn.TransformerEncoderLayer, False))] * 2
    x, order = torch.tensor(draw(1, 5, WIDTH)), [4, 2, 0, 1, 3]
    assert_close(f.encoder(x[:, order], blocks, heads=HEADS), f.encoder(x, blocks, heads=HEADS)[:, order])


def test_a_pre_norm_block_whose_outputs_are_zero_passes_its_input_on_and_a_post_norm_block_norms_it(draw):
    weights = from_torch(torch_layer(nn.TransformerEncoderLayer, True))
    silent = {
        name: torch.zeros_like(value) if ".output." in name or ".outer." in name else value
        for name, value in weights.items()
    } | {"self_attention_norm.weight": torch.ones(WIDTH), "self_attention_norm.bias": torch.zeros(WIDTH)}
    x = torch.tensor(draw(1, 5, WIDTH))
    assert_close(f.encoder_block(x, silent, heads=HEADS, norm_first=True), x)
    assert (f.encoder_block(x, silent, heads=HEADS) - x).abs().max() > 0.1


def test_a_gated_feed_forward_is_swiglu_between_two_projections(draw):
    x, inner, gate, outer = draw(3, WIDTH), draw(INNER, WIDTH), draw(INNER, WIDTH), draw(WIDTH, INNER)
    weights = {"inner.weight": inner, "gate.weight": gate, "outer.weight": outer}
    expected = f.swiglu(x @ gate.T, x @ inner.T) @ outer.T
    np.testing.assert_allclose(f.feed_forward(x, weights, f.silu), expected)


def test_fifteen_in_a_hundred_tokens_are_chosen_and_not_all_of_them_masked_as_one_deck_says():
    generator = np.random.default_rng(5)
    size, mask_token, vocabulary = 200_000, 1000, 1000
    tokens, random_tokens = generator.integers(vocabulary, size=(2, size))
    shown, asked = f.corrupt_tokens(tokens, generator.random(size), generator.random(size), random_tokens, mask_token)
    assert asked.mean() == pytest.approx(0.15, abs=0.003)
    np.testing.assert_array_equal(shown[~asked], tokens[~asked])
    masked, kept = shown[asked] == mask_token, shown[asked] == tokens[asked]
    assert masked.mean() == pytest.approx(0.8, abs=0.01)  # deck 004: every chosen token becomes [MASK]
    assert kept.mean() == pytest.approx(0.1, abs=0.01)
    assert (~masked & ~kept).mean() == pytest.approx(0.1, abs=0.01)
