"""Gated convolutions against a direct loop, padding that does not leak, decoding step by step."""

import math

import pytest
import torch

from saccade import formulas as f
from saccade.nn.attention import Attention
from saccade.nn.convolution import ConvolutionDecoder, ConvolutionEncoder, GatedConvolution

from .workbench import assert_agree, assert_close, assert_law, both_ways, stir

WIDTH = 4


def loop(layer, x):
    """glu(sum over the kernel of W_k x_{t+k} + b), place by place."""
    kernel = layer.convolution.weight.unbind(-1)  # kernel x (2D, D)
    places = []
    for t in range(x.shape[1] - len(kernel) + 1):
        total = sum(f.linear(x[:, t + k], weight) for k, weight in enumerate(kernel))
        places.append(f.glu(total + layer.convolution.bias))
    return torch.stack(places, dim=1)


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_a_gated_convolution_equals_a_direct_loop(kernel):
    layer, x = stir(GatedConvolution(WIDTH, kernel=kernel)), torch.randn(2, 7, WIDTH, requires_grad=True)
    assert layer(x).shape == (2, 8 - kernel, WIDTH)
    assert_agree(layer(x), loop(layer, x), x, *layer.parameters())


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_an_encoder_equals_a_direct_loop_over_each_row_alone(kernel):
    encoder, x = stir(ConvolutionEncoder(WIDTH, layers=3, kernel=kernel)), torch.randn(2, 6, WIDTH, requires_grad=True)
    lengths, around, rows = [6, 2], torch.zeros(1, kernel // 2, WIDTH), []
    for row, length in zip(x.split(1), lengths, strict=True):
        row = embedded = row[:, :length]
        for layer in encoder.layers:
            row = (row + loop(layer, torch.cat([around, row, around], dim=1))) / math.sqrt(2)
        row = (row + embedded) / math.sqrt(2)
        rows.append(torch.cat([row, row.new_zeros(1, 6 - length, WIDTH)], dim=1))
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    assert_agree(encoder(x, mask), torch.cat(rows), x, *encoder.parameters())


def test_an_encoder_without_a_mask_reads_everything():
    encoder, x = stir(ConvolutionEncoder(WIDTH)), torch.randn(2, 6, WIDTH)
    assert_close(encoder(x), encoder(x, torch.ones(2, 6, dtype=torch.bool)))


def decoder_of(kernel):
    return stir(ConvolutionDecoder(WIDTH, (Attention(WIDTH, heads=2) for _ in range(2)), kernel=kernel))


@pytest.mark.parametrize("kernel", [1, 2, 3])
def test_a_decoder_equals_a_direct_loop(kernel):
    decoder, x = decoder_of(kernel), torch.randn(2, 5, WIDTH, requires_grad=True)
    source = torch.randn(2, 7, WIDTH, requires_grad=True)
    ours, _ = decoder(x, decoder.remember(source, None), decoder.begin(2, x))
    expected = x
    for layer, attention in zip(decoder.layers, decoder.attentions, strict=True):
        before = torch.zeros(2, kernel - 1, WIDTH)
        expected = (expected + loop(layer, torch.cat([before, expected], dim=1))) / math.sqrt(2)
        asking = (expected + x) / math.sqrt(2)
        looked = f.multi_head_attention(asking, source, dict(attention.named_parameters()), heads=2)
        expected = (expected + looked) / math.sqrt(2)
    assert_agree(ours, expected, x, source, *decoder.parameters())


@pytest.mark.parametrize("sizes", [[1] * 5, [2, 1, 2]])
@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_steps_one_by_one_equal_all_at_once(kernel, sizes):
    decoder, x = decoder_of(kernel), torch.randn(2, 5, WIDTH)
    memory, state, outputs = decoder.remember(torch.randn(2, 7, WIDTH), None), decoder.begin(2, x), []
    whole, last = decoder(x, memory, state)
    for part in x.split(sizes, dim=1):
        output, state = decoder(part, memory, state)
        outputs.append(output)
    assert_close(torch.cat(outputs, dim=1), whole)
    for one, other in zip(state, last, strict=True):
        assert_close(one, other)


def test_hypotheses_of_a_sentence_share_its_memory():
    decoder, x, source = decoder_of(3), torch.randn(6, 2, WIDTH), torch.randn(2, 7, WIDTH)
    start = decoder.begin(6, x)
    shared, _ = decoder(x, decoder.remember(source, None), start)
    assert_close(shared, decoder(x, decoder.remember(source.repeat_interleave(3, dim=0), None), start)[0])


@both_ways
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_gated_convolutions_start_normal_for_what_the_gate_and_dropout_let_pass(dropout, build):
    layer = build(lambda: GatedConvolution(100, kernel=3, dropout=dropout))
    assert_law(layer.convolution.weight, 4 * (1 - dropout) / (3 * 100))
    assert not layer.convolution.bias.any()


def test_no_two_layers_of_an_encoder_share_their_initial_values():
    first, second = ConvolutionEncoder(WIDTH, layers=2).layers
    assert not torch.equal(first.convolution.weight, second.convolution.weight)


@pytest.mark.parametrize("kernel", [2, 4])
def test_an_even_kernel_of_an_encoder_is_refused(kernel):
    with pytest.raises(ValueError, match=f"must be odd.*got {kernel}, try {kernel + 1}"):
        ConvolutionEncoder(WIDTH, kernel=kernel)
