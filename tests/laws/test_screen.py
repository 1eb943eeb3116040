"""A greedy search that nobody asks for scores finds the words that one with scores finds."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.config.models import TransformerSettings
from saccade.decode import Greedy, Hypothesis, Rule, minimum_length, never, no_repeat, search
from saccade.errors import SaccadeError
from saccade.models import MODELS
from saccade.models.shapes import EncoderDecoder
from saccade.nn import native
from saccade.nn import packed as packing
from saccade.nn import screen as screening
from saccade.nn.choice import Asked
from saccade.nn.layers import Output
from saccade.nn.packed import PackedOutput, Precision, packed
from saccade.nn.screen import Screen
from tests.laws.models import lengths_mask, sequence_model, tokens

has_bytes = (made := native.library()) is not None and bool(made.has_bytes())
pytestmark = pytest.mark.skipif(not has_bytes, reason="needs a compiler, and a processor with sums of eight bits")

START, END, LIMIT = 1, 2, 24
WORDS = 715  # more than ten panels of 64, and a part of one


@pytest.fixture(autouse=True)
def screens_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small: models as small as these would be left as they are."""
    monkeypatch.setattr(packing, "LEAST_NATIVE", {"float32": 0, "int8": 0})
    monkeypatch.setattr(screening, "LEAST", 0)
    monkeypatch.setattr(screening, "AFTER", 0)
    monkeypatch.setattr(screening, "MOST_COMPUTED", math.inf)


def drawn(words: int = WORDS, name: str = "transformer") -> EncoderDecoder:
    """A model with answers of several lengths."""
    model = sequence_model(name, words).float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.7)
    return model


@torch.no_grad()
def answers(
    model: EncoderDecoder,
    sentences: int,
    *,
    scored: bool,
    rules: Sequence[Rule] = (minimum_length(9, END),),
    stretches: bool = True,
) -> list[Hypothesis]:
    source, mask = tokens(sentences, 7, seed=5), lengths_mask(([7, 3, 5, 1] * 9)[:sentences], 7)
    past, limits = model.begin(model.encode(source, mask), LIMIT), [LIMIT - row % 3 for row in range(sentences)]
    stretch = model.stretch if stretches else None
    how: Any = {"start": START, "end": END, "rules": rules, "stretch": stretch}
    return [best for [best] in search(model.step, past, limits=limits, method=Greedy(scored), **how)]


def said(found: Sequence[Hypothesis]) -> list[tuple[tuple[int, ...], str]]:
    return [(each.tokens, each.stopped) for each in found]


def screen_of(model: EncoderDecoder) -> Screen:
    assert isinstance(model.output, PackedOutput) and model.output.screening is not None
    assert model.output.screening.screen is not None
    return model.output.screening.screen


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("sentences", [1, 3, 17])
@pytest.mark.parametrize("name", ["transformer", "transformer post", "transformer modern", "transformer learned"])
def test_the_words_are_those_of_a_search_with_scores(
    name: str, sentences: int, precision: Precision, threads: int
) -> None:
    model, threads_before = packed(drawn(name=name), precision), torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with_scores = answers(model, sentences, scored=True, stretches=False)
        liked = never({token for each in with_scores for token in each.tokens})
        seen = 0
        for rules in ([minimum_length(9, END)], [never([0, START]), liked]):
            found = answers(model, sentences, scored=False, rules=rules)
            if precision == "float32":
                before, seen = seen, screen_of(model).looked_at
                assert seen > before
            assert said(found) == said(answers(model, sentences, scored=True, rules=rules, stretches=False))
            assert all(math.isnan(each.score) and each.token_scores == () for each in found)
    finally:
        torch.set_num_threads(threads_before)
    if precision == "float32":
        screen = screen_of(model)
        assert 0 < screen.computed < screen.looked_at / 5


def alike(weight: Tensor) -> Tensor:
    """Words of seven kinds: of the best there are a hundred, which are as good as each other."""
    return weight[torch.arange(len(weight)) % 7]


def hardly_different(weight: Tensor) -> Tensor:
    """Words of seven kinds, which differ by what eight bits do not see."""
    places = torch.linspace(0, 1e-5, len(weight))[
        torch.randperm(len(weight), generator=torch.Generator().manual_seed(1))
    ]
    return alike(weight) + places[:, None]


def some_far_larger(weight: Tensor) -> Tensor:
    """Rows of all sizes: those of eight bits are as far apart as others are long."""
    return weight * torch.logspace(-3, 2, len(weight))[:, None]


def nothing(weight: Tensor) -> Tensor:
    return weight * 0


def tiny(weight: Tensor) -> Tensor:
    """Numbers whose squares are nothing in float32."""
    return hardly_different(weight) * 1e-24


def without_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "LEAST", sys.maxsize)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("words", [16, 64, 100, WORDS])
@pytest.mark.parametrize("change", [alike, hardly_different, some_far_larger, nothing, tiny])
def test_of_words_that_are_nearly_as_good_it_is_the_best_and_of_equals_the_first(
    change: Callable[[Tensor], Tensor], words: int, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = drawn(words)
    model.output = Output(model.output.weight.shape[1], words, tied=model.output.tied, bias=bias).eval()
    with torch.no_grad():
        model.output.weight.copy_(change(model.output.weight))
        if model.output.bias is not None:
            model.output.bias.copy_(torch.randn(words, generator=torch.Generator().manual_seed(3)) / 100)
    screened, whole = packed(model), packed(model)
    found = answers(screened, 9, scored=False)
    assert screen_of(screened).looked_at > 0
    without_screen(monkeypatch)
    assert said(found) == said(answers(whole, 9, scored=False))


def test_wide_states_are_summed_as_the_packed_table_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block: words that differ in their last digits only are told apart in the same way."""
    settings = TransformerSettings(width=1200, heads=2, hidden=8, encoder_layers=1, decoder_layers=1)
    model = MODELS["transformer"](settings, 200, 200).eval()
    with torch.no_grad():
        weight = model.output.weight
        weight.copy_(weight[:1] + torch.randn(weight.shape, generator=torch.Generator().manual_seed(4)) * 1e-8)
    screened, whole = packed(model), packed(model)
    found = answers(screened, 9, scored=False)
    without_screen(monkeypatch)
    assert said(found) == said(answers(whole, 9, scored=False))
    assert len({token for each in found for token in each.tokens}) > 1


def test_a_screen_that_lets_much_through_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number far above the others leaves them no levels in eight bits; words are the same all the while."""
    monkeypatch.setattr(screening, "MOST_COMPUTED", 1 / 16)
    model = drawn()
    with torch.no_grad():
        norm = model.decoder.stack.norm
        norm.weight[3], norm.bias[3] = 0.0, 1e4
        model.output.weight[:, 3] *= 1e-4
    made: list[Screen] = []
    monkeypatch.setattr(Screen, "of", lambda *given, of=Screen.of: made.append(of(*given)) or made[-1])
    ready = packed(model)
    found = [answers(ready, 5, scored=False) for _ in range(3)]
    (screen,) = made  # once
    assert not screen.pays and screen.computed > screen.looked_at / 2
    assert isinstance(ready.output, PackedOutput) and ready.output.screening is not None
    assert ready.output.screening.screen is None
    assert all(said(each) == said(answers(ready, 5, scored=True)) for each in found)


def test_a_screen_is_not_judged_by_a_single_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "MOST_COMPUTED", 1 / 64)
    screen = Screen.of(torch.randn(3000, 100, dtype=torch.float32), None)
    assert screen is not None
    screen.note(looked_at=3000, computed=3000)
    assert screen.pays
    screen.note(looked_at=3000, computed=17)
    assert not screen.pays
    screen.note(looked_at=100 * 3000, computed=100 * 17)
    assert screen.pays


@pytest.mark.parametrize("seed", range(8))
def test_what_eight_bits_lose_of_the_weights_is_allowed_for(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a state they lose nothing whose numbers are all of one size."""
    model, draw = drawn(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        norm, weight = model.decoder.stack.norm, model.output.weight
        norm.weight.zero_()
        norm.bias.copy_(torch.randint(2, norm.bias.shape, generator=draw) * 2.0 - 1.0)
        weight.copy_(weight[:1] + torch.randn(weight.shape, generator=draw) * 1e-4)
    screened, whole = packed(model), packed(model)
    found = answers(screened, 1, scored=False)
    without_screen(monkeypatch)
    assert said(found) == said(answers(whole, 1, scored=False))


def test_a_screen_is_made_when_it_pays_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "AFTER", 9 * LIMIT)
    model = packed(drawn())
    assert isinstance(model.output, PackedOutput) and model.output.screening is not None
    first = answers(model, 3, scored=False)
    assert model.output.screening.screen is None
    again = [answers(model, 3, scored=False) for _ in range(8)]
    assert screen_of(model).looked_at > 0
    assert all(said(found) == said(first) for found in again)


def test_logits_beyond_all_numbers_are_refused() -> None:
    model = drawn()
    with torch.no_grad():
        model.decoder.stack.norm.bias.fill_(1e10)
        model.output.weight.mul_(1e32)
    with pytest.raises(SaccadeError, match="produced NaN"):
        answers(packed(model), 2, scored=False)


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["output", "norm"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_numbers_that_are_none_are_refused(broken: float, where: str, precision: Precision) -> None:
    model = drawn()
    with torch.no_grad():
        (model.output.weight[5] if where == "output" else model.decoder.stack.norm.bias)[:] = broken
    with pytest.raises(SaccadeError, match="produced NaN for sentence 0 after 0 tokens"):
        answers(packed(model, precision), 2, scored=False)


def test_where_nothing_may_follow_an_answer_says_so() -> None:
    found = answers(packed(drawn()), 3, scored=False, rules=[never(range(WORDS))])
    assert said(found) == [((), "constraint")] * 3


def test_rules_that_have_a_say_in_each_step_are_asked() -> None:
    model, rules = packed(drawn()), [never([END]), no_repeat(2)]
    found = answers(model, 3, scored=False, rules=rules)
    assert said(found) == said(answers(model, 3, scored=True, rules=rules))
    assert all(math.isnan(each.score) for each in found)


def test_several_ways_cannot_be_compared_without_scores() -> None:
    model = packed(drawn())
    given = Asked([START], [0.0], 2, END, [], [[-math.inf]], [1.0], [1.0], scored=False)
    source = tokens(1, 7)
    with pytest.raises(ValueError, match="2 ways to go on have to be compared by their scores"):
        model.stretch(model.begin(model.encode(source, torch.ones_like(source).bool()), 9), given)
