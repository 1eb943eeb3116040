"""A model made ready to write says what it said before: for every decoder, every search, padding and prompts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.decode import Beam, Method, search
from saccade.models import MODELS, cells, swift_encoder
from saccade.models.shapes import Ensemble
from saccade.models.swift import SwiftDecoder
from saccade.nn import native
from saccade.nn import packed as packing
from saccade.nn.layers import ACTIVATIONS, GATES, Embedding
from saccade.nn.packed import PackedLinear, Precision, packed
from saccade.tasks.continuing import prefilled
from tests.laws.models import (
    LANGUAGE_MODELS,
    SEQUENCE_MODELS,
    VOCABULARY,
    language_model,
    ready,
    sequence_model,
    tokens,
)
from tests.laws.test_search import END, LENGTHS, METHODS, SOURCE, START, found
from tests.laws.test_search import lengths_mask as real


@pytest.fixture(autouse=True, params=["our own code", "torch"])
def packs_everything(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small: models as small as these would be left as they are. With our own code, and where there is none."""
    monkeypatch.setattr(packing, "LEAST", {"float32": 0, "int8": 0})
    monkeypatch.setattr(packing, "LEAST_NATIVE", {"float32": 0, "int8": 0})
    if request.param == "torch":
        monkeypatch.setattr(native, "library", lambda: None)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SEQUENCE_MODELS)
def test_answers_and_scores_stay_what_they_were(name: str, method: str) -> None:
    model = sequence_model(name).float()
    for plain, fast in zip(found(model, METHODS[method]), found(packed(model), METHODS[method]), strict=True):
        assert [each.tokens for each in fast] == [each.tokens for each in plain]
        assert [each.score for each in fast] == pytest.approx([each.score for each in plain], abs=1e-4)
        assert [each.stopped for each in fast] == [each.stopped for each in plain]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_prompts_of_any_length_go_on_as_they_did(name: str, method: str) -> None:
    model = language_model(name).float()
    prompts = [tokens(1, n, seed=n)[0].tolist() for n in (5, 1, 18, 5)]

    def continued(model: nn.Module, method: Method) -> list[tuple[int, ...]]:
        past = prefilled(model, prompts, 20)
        answers = search(model.step, past, start=START, end=END, limits=[20] * 4, method=method, stretch=model.stretch)
        return [each.tokens for hypotheses in answers for each in hypotheses]

    with torch.no_grad():
        assert continued(packed(model), METHODS[method]) == continued(model, METHODS[method])


@pytest.mark.parametrize("name", ["transformer", "transformer post", "transformer modern", "transformer learned"])
@torch.no_grad()
def test_several_tokens_at_a_time_are_the_same_as_one_by_one(name: str) -> None:
    model = packed(sequence_model(name).float())
    assert isinstance(model.decoder, SwiftDecoder)
    target, mask = tokens(4, 6, seed=3), real(LENGTHS, 7)
    whole = model(SOURCE, mask, target)
    past, said = model.begin(model.encode(SOURCE, mask), 6), []
    for part in target.split([3, 1, 2], dim=1):
        states, past = model.decoder.step(part, past)
        said.append(states)
    torch.testing.assert_close(torch.cat(said, 1), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("at_most", [4096, 8, 0])
@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@torch.no_grad()
def test_a_language_model_may_read_several_tokens_at_a_time(
    name: str, at_most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "AT_MOST", at_most)
    plain = language_model(name).float()
    model, given = packed(plain), tokens(4, 24, seed=3)
    past, said = model.begin(4, 24), []
    for part in given.split([19, 1, 1, 3], dim=1):
        states, past = model.decoder.step(part, past)
        said.append(states)
    torch.testing.assert_close(torch.cat(said, 1), plain(given), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["transformer", "transformer post", "transformer modern"])
@torch.no_grad()
def test_a_wide_model_says_what_it_said(name: str) -> None:
    """Tables of more inputs than are multiplied at once, behind which something is added, for few rows and for many."""
    settings = SEQUENCE_MODELS[name].model_copy(update={"hidden": 1300})
    plain = ready(MODELS[settings.kind](settings, VOCABULARY, VOCABULARY)).float()
    fast, source, target = packed(plain), tokens(31, 7, seed=5), tokens(31, 6, seed=3)
    for count in (1, 5, 31):
        said, expected = fast(source[:count], None, target[:count]), plain(source[:count], None, target[:count])
        torch.testing.assert_close(said, expected, atol=3e-5, rtol=1e-5)  # sums of 1,300 products


@pytest.mark.parametrize("name", [name for name in SEQUENCE_MODELS if name.startswith("transformer")])
def test_every_transformer_has_a_step_of_our_own_code_where_there_is_such(name: str) -> None:
    decoder = packed(sequence_model(name).float()).decoder
    has_one = getattr(decoder, "native", None) is not None
    assert has_one == (native.library() is not None and name != "transformer relative")


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("sentences", [17, 3, 1])
@pytest.mark.parametrize("name", ["transformer", "transformer post", "transformer modern", "transformer learned"])
@torch.no_grad()
def test_answers_are_the_same_whoever_shares_the_work(
    name: str, sentences: int, beam: int, precision: Precision
) -> None:
    """Of many sentences every thread takes its own, of few all threads take parts of each, but for what only concerns
    rows, if these are few, too. By torch up to rounding."""
    model, source = packed(sequence_model(name).float(), precision), tokens(sentences, 7, seed=5)
    mask, limits = real(([7, 3, 5, 1] * 5)[:sentences], 7), [12] * sentences
    threads, answers = torch.get_num_threads(), []
    try:
        for count in (1, 2, 3, 4):
            torch.set_num_threads(count)
            past = model.begin(model.encode(source, mask), 12)
            found_now = search(
                model.step, past, start=START, end=END, limits=limits, method=Beam(beam), stretch=model.stretch
            )
            answers.append(found_now)
    finally:
        torch.set_num_threads(threads)
    for found_by in answers[1:]:
        for ours, theirs in zip(found_by, answers[0], strict=True):
            assert [each.tokens for each in ours] == [each.tokens for each in theirs]
            assert native.library() is None or ours == theirs


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("name", ["transformer", "transformer post"])
@torch.no_grad()
def test_few_positions_are_read_alike_however_many_threads_wait_for_each_other(name: str, precision: Precision) -> None:
    model, source = packed(sequence_model(name).float(), precision), tokens(1, 3, seed=5)
    expected, threads = model.encode(source).states, torch.get_num_threads()
    near = 0.0 if native.library() is not None else 1e-5
    try:
        torch.set_num_threads(4)
        for _ in range(300):
            torch.testing.assert_close(model.encode(source).states, expected, rtol=near, atol=near)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("activation", [*ACTIVATIONS, *GATES])
@torch.no_grad()
def test_a_step_has_the_activation_of_its_model(activation: str) -> None:
    settings = SEQUENCE_MODELS["transformer"].model_copy(update={"activation": activation})
    model = MODELS["transformer"](settings, VOCABULARY, VOCABULARY).eval()
    ready, target = packed(model), tokens(4, 3, seed=3)
    past, expected = ready.begin(ready.encode(SOURCE), 3), model(SOURCE, None, target)
    for at in range(3):
        states, past = ready.decoder.step(target[:, at : at + 1], past)
        torch.testing.assert_close(states[:, 0], expected[:, at], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [4, 24, 32, 64, 128])
@torch.no_grad()
def test_heads_of_any_width_see_the_same_and_zeros_where_nothing_is_real(width: int) -> None:
    settings = SEQUENCE_MODELS["transformer"].model_copy(update={"width": 2 * width, "heads": 2})
    model = MODELS["transformer"](settings, VOCABULARY, VOCABULARY).eval()
    memory = replace(model.encode(SOURCE), mask=real([0, 4, 2, 5], 7))
    ready, target = packed(model), tokens(4, 3, seed=3)
    plain, fast = model.begin(memory, 3), ready.begin(memory, 3)
    for token in target.split(1, dim=1):
        expected, plain = model.step(token, plain)
        said, fast = ready.step(token, fast)
        torch.testing.assert_close(said, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [4, 1])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.parametrize("heads", [1, 3, 4, 5, 6])
@torch.no_grad()
def test_any_number_of_heads_see_what_they_saw(heads: int, positions: str, rows: int) -> None:
    changed = {"width": 32 * heads, "heads": heads, "positions": positions}
    settings = SEQUENCE_MODELS["transformer"].model_copy(update=changed)
    model = MODELS["transformer"](settings, VOCABULARY, VOCABULARY).eval()
    ready, source, mask = packed(model), SOURCE[:rows], real([3, 4, 2, 5], 7)[:rows]
    target, threads = tokens(rows, 19, seed=3), torch.get_num_threads()  # more than a vector of cells
    past, states = ready.begin(ready.encode(source, mask), 19), list[Tensor]()
    try:
        torch.set_num_threads(1 if native.library() is None else 2)  # our own share out heads
        for token in target.split(1, dim=1):
            state, past = ready.decoder.step(token, past)
            states.append(state)
    finally:
        torch.set_num_threads(threads)
    torch.testing.assert_close(torch.cat(states, 1), model(source, mask, target), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("at_once", [1, 10, 1024])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", [name for name in SEQUENCE_MODELS if name.startswith("transformer")])
@torch.no_grad()
def test_sentences_are_read_as_they_were_however_many_at_once(
    name: str, masked: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(swift_encoder, "AT_ONCE", at_once)
    model, mask = sequence_model(name).float(), real(LENGTHS, 7) if masked else None
    plain, fast = model.encode(SOURCE, mask).states, packed(model).encode(SOURCE, mask).states
    if mask is not None:
        plain, fast = plain[mask], fast[mask]
    torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)
    narrow = packed(model).encode(SOURCE.int(), mask).states
    torch.testing.assert_close(narrow if mask is None else narrow[mask], fast)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@torch.no_grad()
def test_a_sentence_is_read_the_same_whatever_stands_beside_it(precision: Precision) -> None:
    """To the last bit, up to the length that our own code reads; torch's kernels promise less."""
    exact = {"atol": 0.0, "rtol": 0.0} if native.library() is not None else {"atol": 1e-5, "rtol": 1e-5}
    ready = packed(sequence_model("transformer").float(), precision)
    long, short = tokens(3, 90, seed=5), tokens(1, 4, seed=6)
    mask = torch.ones(4, 90, dtype=torch.bool)
    mask[3, 4:] = False
    beside = ready.encode(torch.cat([long, F.pad(short, (0, 86))]), mask).states
    torch.testing.assert_close(beside[3:, :4], ready.encode(short).states, **exact)
    torch.testing.assert_close(beside[:3], ready.encode(long).states, **exact)


@torch.no_grad()
def test_what_is_padded_for_the_sake_of_others_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each call's sentences, whose real positions need not be the first, of one that has none; torch reads it."""
    exact = {"atol": 0.0, "rtol": 0.0} if native.library() is not None else {"atol": 1e-5, "rtol": 1e-5}
    monkeypatch.setattr(swift_encoder, "AT_ONCE", 60)  # two sentences
    ready = packed(sequence_model("transformer").float())
    mask = torch.zeros(5, 30, dtype=torch.bool)
    mask[0], mask[1, 2:5], mask[2, :4], mask[3, 7] = True, True, True, True
    states = ready.encode(tokens(5, 30, seed=5), mask).states
    read = states.any(-1).sum(1).tolist()
    assert read == ([30, 30, 8, 8, 1] if native.library() is not None else [30] * 5)
    for row, (first, last) in enumerate([(0, 30), (2, 5), (0, 4), (7, 8)]):
        alone = ready.encode(tokens(5, 30, seed=5)[row : row + 1, :last], mask[row : row + 1, :last]).states
        torch.testing.assert_close(states[row, first:last], alone[0, first:last], **exact)


@torch.no_grad()
def test_long_sentences_are_read_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = sequence_model("transformer").float()
    ready, source = packed(model), tokens(2, swift_encoder.LONGEST + 1, seed=5)
    for encoder in (each for each in ready.modules() if isinstance(each, swift_encoder.SwiftEncoder)):
        monkeypatch.setattr(encoder, "native", lambda *_: pytest.fail("too long"))
    torch.testing.assert_close(ready.encode(source).states, model.encode(source).states, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("wrong", [-1, VOCABULARY])
@torch.no_grad()
def test_a_token_without_a_vector_is_named(wrong: int) -> None:
    model = packed(sequence_model("transformer").float())
    told = f"token id {wrong} is outside the vocabulary of {VOCABULARY} ids"
    with pytest.raises(ValueError, match=told):
        model.encode(torch.tensor([[3, wrong]]))
    past = model.begin(model.encode(torch.tensor([[3]])), 5)
    with pytest.raises(ValueError, match=told):
        model.step(torch.tensor([[wrong]]), past)


@torch.no_grad()
def test_what_does_not_fit_is_refused_before_it_is_read() -> None:
    model = packed(sequence_model("transformer").float())
    with pytest.raises(ValueError, match="mask"):
        model.encode(SOURCE, torch.ones(4, 3, dtype=torch.bool))
    with pytest.raises(ValueError, match="mask"):
        model.encode(SOURCE, torch.ones(4, 7))
    memory = model.encode(SOURCE)
    with pytest.raises(ValueError, match="mask"):
        model.begin(replace(memory, mask=torch.ones(4, 3, dtype=torch.bool)), 5)
    _, past = model.step(torch.full((4, 1), START), model.begin(memory, 5))
    with pytest.raises((ValueError, RuntimeError)):
        model.step(torch.full((5, 1), START), past)


@torch.no_grad()
def test_no_rows_are_no_trouble() -> None:
    model = packed(language_model("gpt").float())
    logits, past = model.step(torch.zeros(0, 1, dtype=torch.long), model.begin(0, 5))
    assert logits.shape == (0, VOCABULARY) and len(past.position) == 0


def test_a_beam_copies_no_cells() -> None:
    model = packed(sequence_model("transformer").float())
    past = model.begin(model.encode(SOURCE, real(LENGTHS, 7)), 9)
    _, past = model.step(torch.full((4, 1), START), past)
    wider = past.select([sentence for sentence in range(4) for _ in range(3)])
    _, grown = model.step(tokens(12, 1), wider)
    reordered = grown.select(list(range(12))[::-1])
    for one, other in zip(grown.memory[1:], reordered.memory[1:], strict=True):
        assert one.key.data_ptr() == other.key.data_ptr() and one.value.data_ptr() == other.value.data_ptr()


def test_several_models_answer_together_as_before() -> None:
    members = [sequence_model(name).float() for name in ("transformer", "transformer post", "bahdanau")]
    plain, fast = (found(model, Beam(3)) for model in (Ensemble(members), packed(Ensemble(members))))
    assert [each[0].tokens for each in plain] == [each[0].tokens for each in fast]


def test_the_model_itself_stays_as_it_was_and_its_tables_are_shared() -> None:
    model = sequence_model("transformer").float()
    before = {name: type(module) for name, module in model.named_modules()}
    ready = packed(model)
    assert {name: type(module) for name, module in model.named_modules()} == before
    assert all(parameter.requires_grad for parameter in model.parameters())
    table = next(module.weight for module in ready.encoder.modules() if isinstance(module, Embedding))
    assert table is model.encoder.embedding.weight
    assert not any(type(module) is nn.Linear for module in ready.encoder.modules())


def weights(outputs: int = 40, inputs: int = 33) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(outputs, inputs, generator=draw), torch.randn(outputs, generator=draw)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 33), (7, 33), (2, 3, 33)])
def test_a_packed_map_is_the_map(shape: tuple[int, ...], bias: bool) -> None:
    weight, shift = weights()
    x, shift = torch.randn(shape, generator=torch.Generator().manual_seed(2)), shift if bias else None
    expected = F.linear(x, weight, shift)
    torch.testing.assert_close(PackedLinear(weight, shift, "float32")(x), expected, atol=1e-5, rtol=1e-5)
    eight = PackedLinear(weight, shift, "int8")
    assert float((eight(x) - expected).abs().max()) < 0.02 * float(expected.abs().max())


def test_eight_bits_of_a_row_do_not_depend_on_its_neighbours() -> None:
    eight = PackedLinear(*weights(), "int8")
    quiet = torch.randn(1, 33, generator=torch.Generator().manual_seed(2))
    beside = eight(torch.cat([1000 * torch.ones(1, 33), quiet, torch.zeros(1, 33)]))
    assert torch.equal(beside[1:2], eight(quiet))
    assert torch.equal(beside[2], weights()[1])  # of nothing, the bias is left
