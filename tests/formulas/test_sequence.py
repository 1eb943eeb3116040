"""Recurrent decoders with a fixed context and with attention, written out and compared."""

import numpy as np
import pytest
import torch

from saccade import formulas as f

WORD, STATE, MEMORY, VOCABULARY = 3, 4, 5, 7


def cell(draw, gates, inputs):
    shapes = {"weight_ih": (gates * STATE, inputs), "weight_hh": (gates * STATE, STATE)}
    shapes |= {"bias_ih": (gates * STATE,), "bias_hh": (gates * STATE,)}
    return {f"cell.{name}": draw(*shape) for name, shape in shapes.items()}


@pytest.fixture
def bahdanau(draw):
    weights = cell(draw, 3, WORD + MEMORY) | {"readout.weight": draw(VOCABULARY, WORD + STATE + MEMORY)}
    weights |= {"score.query.weight": draw(6, STATE), "score.key.weight": draw(6, MEMORY), "score.vector": draw(6)}
    return weights | {"first.weight": draw(STATE, MEMORY), "first.bias": draw(STATE)}


@pytest.fixture
def luong(draw):
    weights = cell(draw, 4, WORD) | {"score.weight": draw(STATE, MEMORY), "readout.weight": draw(VOCABULARY, STATE)}
    return weights | {"attentional.weight": draw(STATE, MEMORY + STATE)}


def torch_cell(kind, weights, inputs):
    module = kind(inputs, STATE, dtype=torch.float64)
    module.load_state_dict({k.removeprefix("cell."): torch.tensor(v) for k, v in weights.items() if "cell." in k})
    return lambda x, state: module(torch.tensor(x), state)


def test_a_step_of_bahdanau_is_its_five_equations(draw, bahdanau):
    word, state, memory = draw(2, WORD), draw(2, STATE), draw(2, 6, MEMORY)
    step = f.bahdanau_step(word, state, memory, bahdanau)
    for b in range(2):
        hidden = bahdanau["score.query.weight"] @ state[b]
        energies = [bahdanau["score.vector"] @ np.tanh(hidden + bahdanau["score.key.weight"] @ h) for h in memory[b]]
        looks = np.exp(energies) / np.exp(energies).sum()
        np.testing.assert_allclose(step.weights[b], looks)
        np.testing.assert_allclose(step.context[b], sum(a * h for a, h in zip(looks, memory[b], strict=True)))
    module = torch_cell(torch.nn.GRUCell, bahdanau, WORD + MEMORY)
    moved = module(np.concatenate([word, step.context], axis=1), torch.tensor(state)).detach()
    np.testing.assert_allclose(step.state, moved)
    readout = np.concatenate([word, moved, step.context], axis=1) @ bahdanau["readout.weight"].T
    np.testing.assert_allclose(step.logits, readout)


def test_a_step_of_bahdanau_over_one_cell_is_the_fixed_context_decoder(draw, bahdanau):
    word, state, summary = draw(2, WORD), draw(2, STATE), draw(2, MEMORY)
    looking = f.bahdanau_step(word, state, summary[:, None], bahdanau)
    logits, moved = f.fixed_context_step(word, state, summary, bahdanau)
    np.testing.assert_allclose(looking.logits, logits)
    np.testing.assert_allclose(looking.state, moved)


def test_a_step_of_luong_moves_before_it_looks(draw, luong):
    word, state, memory = draw(2, WORD), (draw(2, STATE), draw(2, STATE)), draw(2, 6, MEMORY)
    step = f.luong_step(word, state, memory, luong)
    hidden, carried = torch_cell(torch.nn.LSTMCell, luong, WORD)(word, tuple(map(torch.tensor, state)))
    hidden = hidden.detach().numpy()
    np.testing.assert_allclose(step.state, (hidden, carried.detach().numpy()))
    for b in range(2):
        energies = [hidden[b] @ luong["score.weight"] @ h for h in memory[b]]
        np.testing.assert_allclose(step.weights[b], np.exp(energies) / np.exp(energies).sum())
    attentional = np.tanh(np.concatenate([step.context, hidden], axis=1) @ luong["attentional.weight"].T)
    np.testing.assert_allclose(step.logits, attentional @ luong["readout.weight"].T)


def test_padding_of_the_memory_changes_nothing_under_its_mask(draw, bahdanau, luong):
    word, state, memory = draw(2, WORD), draw(2, STATE), draw(2, 6, MEMORY)
    padded, mask = np.concatenate([memory, draw(2, 3, MEMORY)], axis=1), np.asarray([[True] * 6 + [False] * 3] * 2)
    for decoder_step, start, weights in (
        (f.bahdanau_step, state, bahdanau),
        (f.luong_step, (state, state), luong),
    ):
        alone, among = decoder_step(word, start, memory, weights), decoder_step(word, start, padded, weights, mask)
        np.testing.assert_allclose(among.logits, alone.logits, atol=1e-12)
        np.testing.assert_array_equal(among.weights[:, 6:], 0)


def test_a_decoder_starts_from_the_encoder_s_last_state(draw, bahdanau):
    summary = draw(2, MEMORY)
    expected = np.tanh(summary @ bahdanau["first.weight"].T + bahdanau["first.bias"])
    np.testing.assert_allclose(f.first_state(summary, bahdanau), expected)
