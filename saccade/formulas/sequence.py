"""Sequence to sequence with recurrent decoders: a fixed context, look then move, move then look.

e_{t,i} = f(s_{t-1}, h_i), a_t = softmax(e_t), c_t = sum_i a_{t,i} h_i, s_t = g(y_{t-1}, s_{t-1}, c_t),
p(y_t) = softmax(readout(y_{t-1}, s_t, c_t)). Nothing but the loss of the words teaches the weights a.

Sutskever et al. 2014, "Sequence to sequence learning with neural networks"; Bahdanau et al. 2015, "Neural machine
translation by jointly learning to align and translate"; Luong et al. 2015, "Effective approaches to attention-based
neural machine translation".
"""

from typing import Any, NamedTuple

from array_api_compat import array_namespace

from saccade.formulas.activations import tanh
from saccade.formulas.arrays import Array, Weights
from saccade.formulas.attention import attention_weights
from saccade.formulas.basics import named_linear, part
from saccade.formulas.recurrent import gru_step, lstm_step
from saccade.formulas.scores import additive_score, bilinear_score


class Step(NamedTuple):
    """What one step of a decoder that looks gives: scores of the words, its new state, where it looked, what it saw."""

    logits: Array  # (B, V)
    state: Any  # (B, D), or a pair of them for an LSTM
    weights: Array  # (B, S)
    context: Array  # (B, M)


def first_state(summary: Array, weights: Weights) -> Array:
    """Predict the first state from the encoder's last: s_0 = tanh(W h_T + b), weights `first`. [B1] Cho et al. 2014."""
    return tanh(named_linear(summary, weights, "first"))


def fixed_context_step(word: Array, state: Array, context: Array, weights: Weights) -> tuple[Array, Array]:
    """Write one word knowing a context: s_t = g(y_{t-1}, s_{t-1}, c), logits = readout(y_{t-1}, s_t, c).

    With c = h_T at every step, the whole source must fit into one vector. word (B, D) is embedded, g is a GRU. Weights:
    `cell.weight_ih`, ..., `readout.weight`. Returns logits and state. [B1] Sutskever et al. 2014, Cho et al. 2014.
    """
    xp = array_namespace(word)
    _, state = gru_step(xp.concat([word, context], axis=-1), state, **part(weights, "cell"))
    return named_linear(xp.concat([word, state, context], axis=-1), weights, "readout"), state


def bahdanau_step(word: Array, state: Array, memory: Array, weights: Weights, mask: Array | None = None) -> Step:
    """Look, then move: e_i = v^T tanh(W s_{t-1} + U h_i), a = softmax(e), c_t = sum_i a_i h_i, then write with c_t.

    memory (B, S, M), mask (B, S). Weights: `score.query.weight`, `score.key.weight`, `score.vector`, and those of
    `fixed_context_step`, of which this is the same with a context of its own at each step. [B2] Bahdanau et al. 2015.
    """
    scores = additive_score(
        state[:, None, :],
        memory,
        weights["score.query.weight"],
        weights["score.key.weight"],
        weights["score.vector"],
        weights.get("score.query.bias"),
    )  # (B, 1, S)
    looks = attention_weights(scores, None if mask is None else mask[:, None, :])
    context = (looks @ memory)[:, 0, :]  # (B, M)
    logits, state = fixed_context_step(word, state, context, weights)
    return Step(logits, state, looks[:, 0, :], context)


def luong_step(
    word: Array, state: tuple[Array, Array], memory: Array, weights: Weights, mask: Array | None = None
) -> Step:
    """Move, then look: s_t = g(y_{t-1}, s_{t-1}), e_i = s_t^T W h_i, c = sum_i a_i h_i, readout(tanh(W_c [c; s_t])).

    g is an LSTM. Weights: `cell.weight_ih`, ..., `score.weight`, `attentional.weight`, `readout.weight`. [B2] Luong et
    al. 2015, the "general" score; for their input feeding, append the last attentional vector to the word.
    """
    xp = array_namespace(word)
    hidden, state = lstm_step(word, state, **part(weights, "cell"))
    scores = bilinear_score(hidden[:, None, :], memory, weights["score.weight"])  # (B, 1, S)
    looks = attention_weights(scores, None if mask is None else mask[:, None, :])
    context = (looks @ memory)[:, 0, :]  # (B, M)
    attentional = tanh(named_linear(xp.concat([context, hidden], axis=-1), weights, "attentional"))
    return Step(named_linear(attentional, weights, "readout"), state, looks[:, 0, :], context)
