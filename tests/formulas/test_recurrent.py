"""Recurrent steps agree with PyTorch's cells and layers, gate for gate."""

from functools import partial

import pytest
import torch

from saccade import formulas as f

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)

NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def parameters(module, ending=""):
    return {name: getattr(module, name + ending).detach() for name in NAMES}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("step", "cell"), [(f.rnn_step, torch.nn.RNNCell), (f.gru_step, torch.nn.GRUCell)], ids=["rnn", "gru"]
)
def test_a_step_is_the_same_as_torch_s_cell(draw, step, cell, bias):
    module = cell(5, 4, bias=bias, dtype=torch.float64)
    x, state = torch.tensor(draw(3, 5)), torch.tensor(draw(3, 4))
    weights = {name: getattr(module, name) for name in NAMES}
    output, new = step(x, state, **weights)
    assert_close(new, module(x, state))
    assert output is new


@pytest.mark.parametrize("bias", [True, False])
def test_an_lstm_step_is_the_same_as_torch_s_cell(draw, bias):
    module = torch.nn.LSTMCell(5, 4, bias=bias, dtype=torch.float64)
    x, state = torch.tensor(draw(3, 5)), (torch.tensor(draw(3, 4)), torch.tensor(draw(3, 4)))
    output, new = f.lstm_step(x, state, **{name: getattr(module, name) for name in NAMES})
    assert_close(new, module(x, state))
    assert output is new[0]


def test_a_rectified_step_is_the_same_as_torch_s_cell(draw):
    module = torch.nn.RNNCell(5, 4, nonlinearity="relu", dtype=torch.float64)
    x, state = torch.tensor(draw(3, 5)), torch.tensor(draw(3, 4))
    assert_close(f.rnn_step(x, state, **parameters(module), activation=f.relu)[0], module(x, state))


def test_the_hidden_bias_of_a_gru_is_inside_the_reset_gate(draw):
    x, state = torch.tensor(draw(1, 2)), torch.tensor(draw(1, 2))
    shut = torch.tensor([-50.0, -50.0, -50.0, -50.0, 0.0, 0.0], dtype=torch.float64)  # r = z = 0
    weights = {"weight_ih": torch.zeros(6, 2), "weight_hh": torch.zeros(6, 2), "bias_ih": shut}
    weights = {name: value.double() for name, value in weights.items()}
    inside = torch.tensor([0, 0, 0, 0, 9.0, 9.0], dtype=torch.float64)
    assert_close(f.gru_step(x, state, **weights, bias_hh=inside)[0], torch.zeros(1, 2).double())


@pytest.mark.parametrize(
    ("step", "layer"),
    [(f.rnn_step, torch.nn.RNN), (f.gru_step, torch.nn.GRU), (f.lstm_step, torch.nn.LSTM)],
    ids=["rnn", "gru", "lstm"],
)
def test_an_unrolled_step_is_the_same_as_torch_s_layer(draw, step, layer):
    module = layer(5, 4, batch_first=True, dtype=torch.float64)
    x, zeros = torch.tensor(draw(3, 7, 5)), torch.zeros(3, 4, dtype=torch.float64)
    state = (zeros, zeros) if layer is torch.nn.LSTM else zeros
    outputs, last = f.unroll(partial(step, **parameters(module, "_l0")), x, state)
    their_outputs, their_last = module(x)
    assert_close(outputs, their_outputs)
    for ours, theirs in zip(last if isinstance(last, tuple) else [last], their_last, strict=False):
        assert_close(ours, theirs[0] if theirs.ndim == 3 else theirs)


def test_running_freely_is_unrolling_over_one_s_own_outputs(draw):
    module = torch.nn.GRUCell(4, 4, dtype=torch.float64)
    step = partial(f.gru_step, **parameters(module))
    start, state = torch.tensor(draw(2, 4)), torch.tensor(draw(2, 4))
    outputs, last = f.run_freely(step, start, state, 5)
    fed = torch.cat([start[:, None], outputs[:, :-1]], dim=1)
    assert_close(f.unroll(step, fed, state), (outputs, last))
