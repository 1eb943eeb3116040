"""Recurrent layers: one function of an input and a state, used again at every step of time.

(y, s') = f(x, s). The parameters are PyTorch's: weight_ih (gates * H, D), weight_hh (gates * H, H), bias_ih, bias_hh,
with the gates stacked in PyTorch's order. Every step returns its output and its new state.

Elman 1990, "Finding structure in time"; Cho et al. 2014, "Learning phrase representations using RNN encoder-decoder"
(GRU); Hochreiter and Schmidhuber 1997, "Long short-term memory".
"""

from collections.abc import Callable
from typing import TypeVar

from array_api_compat import array_namespace

from saccade.formulas.activations import sigmoid, tanh
from saccade.formulas.arrays import Activation, Array
from saccade.formulas.basics import linear

State = TypeVar("State")


def rnn_step(
    x: Array,
    state: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
    activation: Activation = tanh,
) -> tuple[Array, Array]:
    """Mix the input into the state: h' = phi(W_ih x + b_ih + W_hh h + b_hh), y = h'. [A4] Elman 1990."""
    state = activation(linear(x, weight_ih, bias_ih) + linear(state, weight_hh, bias_hh))
    return state, state


def gru_step(
    x: Array,
    state: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
) -> tuple[Array, Array]:
    """Keep or renew each feature of the state: h' = (1 - z) * n + z * h, y = h'. Gates in the order r, z, n.

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr), z likewise, n = tanh(W_in x + b_in + r * (W_hn h + b_hn)): the hidden
    bias is inside the reset gate. [A4] Cho et al. 2014.
    """
    width = state.shape[-1]
    of_input = linear(x, weight_ih, bias_ih)  # (..., 3H)
    of_state = linear(state, weight_hh, bias_hh)  # (..., 3H)
    gates = sigmoid((of_input + of_state)[..., : 2 * width])
    reset, keep = gates[..., :width], gates[..., width:]
    new = tanh(of_input[..., 2 * width :] + reset * of_state[..., 2 * width :])
    state = (1 - keep) * new + keep * state
    return state, state


def lstm_step(
    x: Array,
    state: tuple[Array, Array],
    weight_ih: Array,
    weight_hh: Array,
    bias_ih: Array | None = None,
    bias_hh: Array | None = None,
) -> tuple[Array, tuple[Array, Array]]:
    """Carry a cell beside the state: c' = f * c + i * g, h' = o * tanh(c'), y = h'. Gates in the order i, f, g, o.

    i, f, o = sigmoid(W x + b + U h + d), g = tanh of the same. The state is (h, c). [A4] Hochreiter 1997.
    """
    hidden, cell = state
    width = hidden.shape[-1]
    gates = linear(x, weight_ih, bias_ih) + linear(hidden, weight_hh, bias_hh)  # (..., 4H)
    write = sigmoid(gates[..., :width])
    forget = sigmoid(gates[..., width : 2 * width])
    candidate = tanh(gates[..., 2 * width : 3 * width])
    show = sigmoid(gates[..., 3 * width :])
    cell = forget * cell + write * candidate
    hidden = show * tanh(cell)
    return hidden, (hidden, cell)


def unroll(step: Callable[[Array, State], tuple[Array, State]], inputs: Array, state: State) -> tuple[Array, State]:
    """Run a step over given inputs, as in training, each step fed the truth: (y_t, s_t) = f(x_t, s_{t-1}). [A4]

    Inputs (..., T, D) give outputs (..., T, H) and the last state.
    """
    outputs = []
    for t in range(inputs.shape[-2]):
        output, state = step(inputs[..., t, :], state)
        outputs.append(output)
    return array_namespace(inputs).stack(outputs, axis=-2), state


def run_freely(
    step: Callable[[Array, State], tuple[Array, State]], start: Array, state: State, length: int
) -> tuple[Array, State]:
    """Run a step on its own outputs, as at inference: (y_t, s_t) = f(y_{t-1}, s_{t-1}), y_0 = start. [A4]

    Returns the outputs (..., T, H) and the last state.
    """
    outputs = [start]
    for _ in range(length):
        output, state = step(outputs[-1], state)
        outputs.append(output)
    return array_namespace(start).stack(outputs[1:], axis=-2), state
