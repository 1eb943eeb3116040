"""Recurrent encoders and decoders against the formulas, row by row and step by step."""

from functools import partial

import pytest
import torch
from torch.utils import _pytree as pytree

from saccade import formulas as f
from saccade.nn.attention import Attention, Projections
from saccade.nn.recurrent import CELLS, RecurrentDecoder, RecurrentEncoder, make_cell
from saccade.nn.scores import Additive, Bilinear

from .workbench import assert_agree, assert_close, assert_law, both_ways, stir

STEPS = {"rnn": f.rnn_step, "gru": f.gru_step, "lstm": f.lstm_step}
WIDTH, HIDDEN, MEMORY = 5, 4, 6
BARE = Projections(query=False, key=False, value=False, output=False)


def parameters_of(cell, suffix="_l0"):
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return {name: getattr(cell, name + suffix) for name in names}


def run(name, cell, x, suffix="_l0"):
    """One direction over one row (T, D), by the formula: outputs and last state."""
    zero = x.new_zeros(HIDDEN)
    step = partial(STEPS[name], **parameters_of(cell, suffix))
    outputs, last = f.unroll(step, x, (zero, zero) if name == "lstm" else zero)
    return outputs, last[0] if name == "lstm" else last


def encode(name, encoder, x):
    """All layers over one row without padding, by the formula."""
    summaries = []
    for layer in encoder.layers:
        outputs, last = run(name, layer, x)
        if layer.bidirectional:
            backward, first = run(name, layer, x.flip(0), "_l0_reverse")
            outputs, last = torch.cat([outputs, backward.flip(0)], -1), torch.cat([last, first], -1)
        x = outputs
        summaries.append(last)
    return x, torch.stack(summaries)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("cell", CELLS)
def test_an_encoder_reads_each_row_as_the_formula_does_and_never_its_padding(cell, bidirectional, layers):
    encoder = stir(RecurrentEncoder(WIDTH, HIDDEN, cell=cell, layers=layers, bidirectional=bidirectional))
    x, lengths = torch.randn(3, 6, WIDTH, requires_grad=True), [4, 6, 1]
    mask = torch.arange(6) < torch.tensor(lengths)[:, None]
    expected = [encode(cell, encoder, row[:length]) for row, length in zip(x, lengths, strict=True)]
    padded = torch.stack([torch.cat([s, s.new_zeros(6 - len(s), s.shape[1])]) for s, _ in expected])
    states, summary = encoder(x, mask)
    assert_agree(states, padded, x, *encoder.parameters())
    assert_agree(summary, torch.stack([last for _, last in expected]), x, *encoder.parameters())
    assert states.shape[-1] == encoder.width


@pytest.mark.parametrize("cell", CELLS)
def test_an_encoder_without_a_mask_reads_everything(cell):
    encoder, x = stir(RecurrentEncoder(WIDTH, HIDDEN, cell=cell)), torch.randn(2, 6, WIDTH)
    for ours, theirs in zip(encoder(x), encoder(x, torch.ones(2, 6, dtype=torch.bool)), strict=True):
        assert_close(ours, theirs)


def test_a_row_without_a_real_cell_gives_zero_states_and_leaves_its_neighbours_alone():
    encoder, x = stir(RecurrentEncoder(WIDTH, HIDDEN)), torch.randn(2, 6, WIDTH)
    states, _ = encoder(x, torch.tensor([[False] * 6, [True] * 6]))
    assert not states[0].any()
    assert_close(states[1:], encoder(x[1:])[0])


def test_a_row_without_a_real_cell_has_a_summary_that_padding_does_not_change():
    encoder, mask = stir(RecurrentEncoder(WIDTH, HIDDEN)), torch.zeros(1, 6, dtype=torch.bool)
    one, other = (encoder(torch.randn(1, 6, WIDTH), mask)[1] for _ in range(2))
    assert_close(one, other)


def test_padding_in_front_is_refused_where_it_would_be_read():
    """Packing knows lengths only: here it would read the padding and leave out as many real cells."""
    encoder, x = RecurrentEncoder(WIDTH, HIDDEN), torch.randn(2, 6, WIDTH)
    with pytest.raises(ValueError, match="mask"):
        encoder(x, torch.tensor([[True] * 6, [False] * 2 + [True] * 4]))


def test_dropout_stands_between_the_layers_of_an_encoder_only():
    x = torch.randn(2, 6, WIDTH)
    one = RecurrentEncoder(WIDTH, HIDDEN, dropout=0.5)
    assert torch.equal(one(x)[0], one(x)[0])
    two = RecurrentEncoder(WIDTH, HIDDEN, layers=2, dropout=0.5)
    assert not torch.equal(two(x)[0], two(x)[0])


# Decoders


def decoder_of(context, cell="gru", **options):
    attentions = {
        "look-then-move": lambda: Attention(
            HIDDEN,
            memory_width=MEMORY,
            score=Additive(3),
            project=Projections(value=False, output=False, key_width=3),
        ),
        "move-then-look": lambda: Attention(HIDDEN, memory_width=MEMORY, score=Bilinear(HIDDEN, MEMORY), project=BARE),
    }
    attention = attentions[context]() if context in attentions else None
    return stir(
        RecurrentDecoder(WIDTH, HIDDEN, memory_width=MEMORY, cell=cell, context=context, attention=attention, **options)
    )


def source(rows=2):
    """States, which of them are real, and the last one of each of two layers."""
    mask = torch.arange(7) < torch.tensor([7, 4])[:, None]
    return torch.randn(rows, 7, MEMORY, requires_grad=True), mask[:rows], torch.randn(rows, 2, MEMORY)


def first_state(decoder, summary):
    return f.first_state(summary[:, -1], {"first.weight": decoder.bridge.weight, "first.bias": decoder.bridge.bias})


def weights_of(decoder):
    cell = {f"cell.{name}": tensor for name, tensor in parameters_of(decoder.cell).items()}
    return cell | {"readout.weight": decoder.readout.weight, "readout.bias": decoder.readout.bias}


@pytest.mark.parametrize("cell", CELLS)
def test_a_decoder_that_got_its_context_once_equals_its_cell_s_formula(cell):
    decoder, (states, mask, summary) = decoder_of("once", cell), source()
    x = torch.randn(2, 3, WIDTH, requires_grad=True)
    memory = decoder.remember(states, mask, summary)
    ours, after = decoder(x, memory, decoder.begin(memory))
    first = first_state(decoder, summary)
    state = (first[:, :HIDDEN], first[:, HIDDEN:]) if cell == "lstm" else first
    moved, last = f.unroll(partial(STEPS[cell], **parameters_of(decoder.cell)), x, state)
    seen = torch.cat([x, moved], dim=-1)
    expected = f.linear(seen, decoder.readout.weight, decoder.readout.bias)
    assert_agree(ours, expected, x, *decoder.parameters())
    for part, theirs in zip(after.hidden, last if cell == "lstm" else (last,), strict=True):
        assert_close(part[:, 0], theirs)


def test_a_decoder_that_gets_its_context_at_each_step_equals_the_fixed_context_formula():
    decoder, (states, mask, summary) = decoder_of("each"), source()
    x = torch.randn(2, 3, WIDTH, requires_grad=True)
    memory = decoder.remember(states, mask, summary)
    ours, _ = decoder(x, memory, decoder.begin(memory))
    state, outputs = first_state(decoder, summary), []
    for word in x.unbind(1):
        logits, state = f.fixed_context_step(word, state, summary[:, -1], weights_of(decoder))
        outputs.append(logits)
    assert_agree(ours, torch.stack(outputs, dim=1), x, *decoder.parameters())


def test_look_then_move_equals_the_formula_of_bahdanau():
    """Keys have a bias here too; inside the tanh the two biases are one."""
    decoder, (states, mask, summary) = decoder_of("look-then-move"), source()
    attend, looks = decoder.attention, []
    weights = weights_of(decoder) | {
        "score.query.weight": attend.query.weight,
        "score.query.bias": attend.query.bias + attend.key.bias,
        "score.key.weight": attend.key.weight,
        "score.vector": attend.score.vector[0],
    }
    attend.tap = looks.append
    x = torch.randn(2, 3, WIDTH, requires_grad=True)
    memory = decoder.remember(states, mask, summary)
    ours, after = decoder(x, memory, decoder.begin(memory))
    state, outputs = first_state(decoder, summary), []
    for word, look in zip(x.unbind(1), looks, strict=True):
        step = f.bahdanau_step(word, state, states, weights, mask)
        assert_close(look[:, 0, 0], step.weights)
        state = step.state
        outputs.append(step.logits)
    assert_agree(ours, torch.stack(outputs, dim=1), x, states, *decoder.parameters())
    assert_close(after.hidden[0][:, 0], state)


@pytest.mark.parametrize("feed", [False, True])
def test_move_then_look_equals_the_formula_of_luong(feed):
    """Our readout sees the word too: with those columns at zero it is Luong's attentional vector."""
    decoder, (states, mask, summary) = decoder_of("move-then-look", "lstm", feed=feed), source()
    torch.nn.init.zeros_(decoder.readout.weight[:, :WIDTH])
    _, of_state, of_context = decoder.readout.weight.split([WIDTH, HIDDEN, MEMORY], dim=1)
    weights = weights_of(decoder) | {
        "score.weight": decoder.attention.score.weight[0],
        "attentional.weight": torch.cat([of_context, of_state], dim=1),
        "attentional.bias": decoder.readout.bias,
        "readout.weight": torch.eye(WIDTH),
        "readout.bias": torch.zeros(WIDTH),
    }
    looks = []
    decoder.attention.tap = lambda each: looks.extend(each[:, 0].unbind(1))
    x = torch.randn(2, 3, WIDTH, requires_grad=True)
    memory = decoder.remember(states, mask, summary)
    ours, after = decoder(x, memory, decoder.begin(memory))
    first = first_state(decoder, summary)
    state, attentional, outputs = (first[:, :HIDDEN], first[:, HIDDEN:]), torch.zeros(2, WIDTH), []
    for word, look in zip(x.unbind(1), looks, strict=True):
        word = torch.cat([word, attentional], dim=-1) if feed else word
        step = f.luong_step(word, state, states, weights, mask)
        assert_close(look, step.weights)
        state, attentional = step.state, step.logits
        outputs.append(attentional)
    others = [p for p in decoder.parameters() if p is not decoder.readout.weight]
    assert_agree(ours, torch.stack(outputs, dim=1), x, states, *others)
    for part, theirs in zip(after.hidden, state, strict=True):
        assert_close(part[:, 0], theirs)


@pytest.mark.parametrize("context", ["look-then-move", "move-then-look"])
@pytest.mark.parametrize("cell", CELLS)
def test_the_top_layer_s_state_asks_the_old_one_or_the_new_one(cell, context):
    decoder, looks = decoder_of(context, cell, layers=2), []
    memory = decoder.remember(*source())
    before = decoder.begin(memory)
    decoder.attention.tap = looks.append
    _, after = decoder(torch.randn(2, 1, WIDTH), memory, before)
    decoder.attention.tap = None
    asks = before if context == "look-then-move" else after
    assert_close(looks[0], decoder.attention.weigh(asks.hidden[0][:, -1:], memory.kv))


@pytest.mark.parametrize("cell", CELLS)
def test_a_gate_scales_what_is_seen_by_what_the_old_state_says(cell):
    """The gated context goes both into the cell and into the readout."""
    decoder, memory_of = decoder_of("look-then-move", cell, layers=2, gate=True), source()
    memory = decoder.remember(*memory_of)
    before, x = decoder.begin(memory), torch.randn(2, 1, WIDTH)
    asks = before.hidden[0][:, -1:]
    context = torch.sigmoid(decoder.gate(asks)) * decoder.attention(asks, memory.kv)
    layers_first = tuple(part.transpose(0, 1).contiguous() for part in before.hidden)
    moved, _ = decoder.cell(torch.cat([x, context], -1), layers_first if cell == "lstm" else layers_first[0])
    expected = decoder.readout(torch.cat([x, moved, context], dim=-1))
    assert_close(decoder(x, memory, before)[0], expected)


def test_a_closed_gate_sees_nothing_and_an_open_one_all():
    gated, plain = decoder_of("look-then-move", gate=True), decoder_of("look-then-move")
    plain.load_state_dict({key: each for key, each in gated.state_dict().items() if not key.startswith("gate")})
    (states, mask, summary), x = source(), torch.randn(2, 3, WIDTH)

    def written(decoder, seen):
        memory = decoder.remember(seen, mask, summary)
        return decoder(x, memory, decoder.begin(memory))[0]

    torch.nn.init.zeros_(gated.gate.weight)
    torch.nn.init.constant_(gated.gate.bias, 100.0)
    assert_close(written(gated, states), written(plain, states))
    torch.nn.init.constant_(gated.gate.bias, -100.0)
    assert_close(written(gated, states), written(gated, torch.randn(2, 7, MEMORY)))


@pytest.mark.parametrize("context", ["once", "each", "move-then-look"])
def test_a_gate_where_nothing_is_seen_before_the_move_is_refused(context):
    with pytest.raises(ValueError, match=f"got context '{context}'"):
        decoder_of(context, gate=True)


CONTEXTS = ["once", "each", "look-then-move", "move-then-look"]


@pytest.mark.parametrize("feed", [False, True])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_steps_one_by_one_equal_all_at_once(context, cell, feed):
    decoder, x = decoder_of(context, cell, layers=2, feed=feed), torch.randn(2, 5, WIDTH)
    memory = decoder.remember(*source())
    state, outputs = decoder.begin(memory), []
    whole, last = decoder(x, memory, state)
    for part in x.split([1, 2, 1, 1], dim=1):
        output, state = decoder(part, memory, state)
        outputs.append(output)
    assert_close(torch.cat(outputs, dim=1), whole)
    for one, other in zip(pytree.tree_leaves(state), pytree.tree_leaves(last), strict=True):
        assert_close(one, other)


@pytest.mark.parametrize("context", CONTEXTS)
def test_hypotheses_of_a_sentence_share_its_memory(context):
    decoder, (states, mask, summary) = decoder_of(context), source()
    x = torch.randn(6, 2, WIDTH)
    memory = decoder.remember(states, mask, summary)
    own = decoder.remember(*(each.repeat_interleave(3, dim=0) for each in (states, mask, summary)))
    start = decoder.begin(own)
    for ours, theirs in zip(decoder(x, memory, start), decoder(x, own, start), strict=True):
        for one, other in zip(pytree.tree_leaves(ours), pytree.tree_leaves(theirs), strict=True):
            assert_close(one, other)


# Initial laws


@pytest.mark.parametrize("cell", CELLS)
def test_cells_start_xavier_from_the_input_orthogonal_from_the_state_and_remembering(cell):
    layer = make_cell(cell, 200, 128, layers=2, bidirectional=True)
    for name, parameter in layer.named_parameters():
        for number, gate in enumerate(parameter.split(128)):
            if name.startswith("weight_ih"):
                assert_law(gate, 2 / sum(gate.shape), uniform=True)
            elif name.startswith("weight_hh"):
                assert_close(gate @ gate.T, torch.eye(128))
            else:
                forget = cell == "lstm" and name.startswith("bias_ih") and number == 1
                assert bool((gate == (1 if forget else 0)).all())


@both_ways
@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_encoders_start_as_their_cells_do(cell, build):
    encoder = build(lambda: RecurrentEncoder(200, 128, cell=cell, layers=2))
    first, second = encoder.layers
    assert_law(first.weight_ih_l0[:128], 2 / 328, uniform=True)
    assert_law(second.weight_ih_l0_reverse[:128], 2 / (256 + 128), uniform=True)
    assert_close(second.weight_hh_l0[:128] @ second.weight_hh_l0[:128].T, torch.eye(128))
    assert not torch.equal(first.weight_hh_l0, second.weight_hh_l0)
    assert float(first.bias_ih_l0.detach().sum()) == (128 if cell == "lstm" else 0)


@both_ways
def test_recurrent_decoders_start_xavier_uniform_around_their_cell(build):
    decoder = build(lambda: RecurrentDecoder(160, 128, memory_width=256, cell="lstm", context="each"))
    assert_law(decoder.bridge.weight, 2 / (256 + 2 * 128), uniform=True)
    assert_law(decoder.readout.weight, 2 / (160 + 128 + 256 + 160), uniform=True)
    assert_law(decoder.cell.weight_ih_l0[:128], 2 / (160 + 256 + 128), uniform=True)
    assert not decoder.bridge.bias.any() and not decoder.readout.bias.any()
    assert bool((decoder.cell.bias_ih_l0[128:256] == 1).all())


# What is refused


@pytest.mark.parametrize("make", [RecurrentEncoder, partial(RecurrentDecoder, memory_width=3, context="once")])
def test_an_unknown_cell_is_refused_with_all_there_are(make):
    with pytest.raises(ValueError, match="unknown cell 'elman'; there are gru, lstm, rnn"):
        make(WIDTH, HIDDEN, cell="elman")


def test_an_unknown_context_is_refused_with_all_there_are():
    with pytest.raises(
        ValueError, match="unknown context 'twice'; there are once, each, look-then-move, move-then-look"
    ):
        RecurrentDecoder(WIDTH, HIDDEN, memory_width=MEMORY, context="twice")


@pytest.mark.parametrize("context", ["look-then-move", "move-then-look"])
def test_a_context_that_looks_needs_an_attention(context):
    with pytest.raises(ValueError, match=f"context '{context}' needs an attention"):
        RecurrentDecoder(WIDTH, HIDDEN, memory_width=MEMORY, context=context)


@pytest.mark.parametrize("context", ["once", "each"])
def test_a_context_that_does_not_look_has_no_use_for_an_attention(context):
    with pytest.raises(ValueError, match=f"context '{context}' has no use for an attention"):
        RecurrentDecoder(WIDTH, HIDDEN, memory_width=MEMORY, context=context, attention=Attention(HIDDEN))


def test_a_memory_of_another_width_is_refused():
    with pytest.raises(ValueError, match=rf"the memory must have shape .*{MEMORY}\); got \(2, 7, {MEMORY + 1}\)"):
        decoder_of("look-then-move").remember(torch.randn(2, 7, MEMORY + 1), None, torch.randn(2, 1, MEMORY))
