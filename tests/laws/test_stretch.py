"""A search that takes several steps at once, in which hypotheses go on and end, finds what one finds that asks after
each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from saccade.decode import Beam, Greedy, Hypothesis, Live, Method, Sample, minimum_length, never, no_repeat, search
from saccade.errors import SaccadeError
from saccade.models.shapes import EncoderDecoder, Ensemble, LanguageModel
from saccade.nn import native
from saccade.nn import packed as packing
from saccade.nn.cache import Past
from saccade.nn.choice import Asked, Stretch
from saccade.nn.layers import Output
from saccade.nn.packed import Precision, packed
from saccade.tasks.continuing import prefilled
from tests.laws.models import LANGUAGE_MODELS, VOCABULARY, language_model, lengths_mask, sequence_model, tokens

pytestmark = pytest.mark.skipif(
    native.library() is None, reason="needs a compiler: only our own code takes several steps"
)

START, END, LIMIT = 1, 2, 30
NAMES = ["transformer", "transformer post", "transformer modern", "transformer learned"]
METHODS: dict[str, Method] = {
    "greedy": Greedy(),
    "beam of one": Beam(1),
    "beam": Beam(3),
    "several answers, no penalty": Beam(4, best=3, length_penalty=0.0),
}


@pytest.fixture(autouse=True)
def packs_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small: models as small as these would be left as they are."""
    monkeypatch.setattr(packing, "LEAST", {"float32": 0, "int8": 0})
    monkeypatch.setattr(packing, "LEAST_NATIVE", {"float32": 0, "int8": 0})


class Watched:
    """A model whose stretches are counted."""

    def __init__(self, model: EncoderDecoder | LanguageModel):
        self.model, self.taken, self.alone = model, list[int](), 0

    def step(self, *given: Any) -> Any:
        self.alone += 1
        return self.model.step(*given)

    def stretch(self, past: Past, asked: Asked) -> tuple[Stretch, Past] | None:
        found = self.model.stretch(past, asked)
        if found is not None:
            self.taken.append(found[0].steps)
        return found


def asked(*, rows: int, sentences: int, steps: int = 9, ways: int = 1, **more: Any) -> Asked:
    """To go on from the start, with scores as ranks."""
    usual: dict[str, Any] = {"end": END, "forbidden": [], "ranks": [[-math.inf]] * sentences}
    factors = {"factor": [1.0] * steps, "last_factor": [1.0] * sentences}
    return Asked(token=[START] * rows, score=[0.0] * rows, ways=ways, **(usual | factors | more))


def begun(model: EncoderDecoder, sentences: int) -> Past:
    source, mask = tokens(sentences, 7, seed=5), lengths_mask(([7, 3, 5, 1] * 9)[:sentences], 7)
    return model.begin(model.encode(source, mask), LIMIT)


def both(model: EncoderDecoder, sentences: int, **how: Any) -> tuple[list[list[Hypothesis]], ...]:
    """With stretches and without."""
    how = {"start": START, "end": END, "limits": [LIMIT - row % 3 for row in range(sentences)], **how}
    ways = model.stretch, None
    with torch.no_grad():
        return tuple(search(model.step, begun(model, sentences), stretch=stretch, **how) for stretch in ways)


def unlike_itself(model: EncoderDecoder) -> EncoderDecoder:
    """Answers of several lengths: freshly drawn models say the same again and again."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.7)
    return model


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sentences", [1, 3, 17])
@pytest.mark.parametrize("name", NAMES)
def test_answers_scores_and_reasons_are_the_same_to_the_bit(
    name: str, sentences: int, method: str, precision: Precision, threads: int
) -> None:
    model, before = packed(unlike_itself(sequence_model(name).float()), precision), torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        several, one = both(model, sentences, method=METHODS[method], rules=[never([0, START]), minimum_length(4, END)])
    finally:
        torch.set_num_threads(before)
    assert several == one


def alike(weight: Tensor) -> Tensor:
    """Words of seven kinds: of the best there are a hundred, which are as good as each other."""
    return weight[torch.arange(len(weight)) % 7]


def nearly_alike(weight: Tensor) -> Tensor:
    """Logits that differ, and log-probabilities that hardly do: what is taken away is a million times more."""
    return weight * 1e-6


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sentences", [1, 9])
@pytest.mark.parametrize("change", [Tensor.clone, alike, nearly_alike])
def test_the_best_of_many_words_are_the_same_to_the_bit(
    change: Callable[[Tensor], Tensor], sentences: int, method: str, precision: Precision, threads: int
) -> None:
    words = 715  # more than ten panels of 64, and a part of one
    model, before = unlike_itself(sequence_model("transformer", words).float()), torch.get_num_threads()
    with torch.no_grad():
        model.output.weight.copy_(change(model.output.weight))
    ready, how = packed(model, precision), {"method": METHODS[method]}
    try:
        torch.set_num_threads(threads)
        several, one = both(ready, sentences, rules=[minimum_length(9, END)], **how)
        liked = {token for hypotheses in one for each in hypotheses for token in each.tokens}
        others, one_of_others = both(ready, sentences, rules=[never(liked), minimum_length(9, END)], **how)
    finally:
        torch.set_num_threads(before)
    assert several == one and others == one_of_others


@pytest.mark.parametrize("method", ["greedy", "beam"])
@torch.no_grad()
def test_where_nothing_can_end_few_calls_do(method: str) -> None:
    model, rules = packed(sequence_model("transformer").float()), [never([0, START]), minimum_length(LIMIT, END)]
    watched = Watched(model)
    how: Any = {"limits": [LIMIT] * 3, "method": METHODS[method], "rules": rules}
    search(watched.step, begun(model, 3), start=START, end=END, stretch=watched.stretch, **how)
    assert watched.alone == 0 and sum(watched.taken) == LIMIT
    assert len(watched.taken) <= 4  # a beam's first step is one of its own; the others, as far as there is room


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@torch.no_grad()
def test_texts_of_several_lengths_go_on_as_they_did(name: str) -> None:
    model = packed(language_model(name).float())
    prompts = [tokens(1, n, seed=n)[0].tolist() for n in (5, 1, 18, 5)]
    for end in range(2, VOCABULARY):
        several, one = (
            search(model.step, prefilled(model, prompts, 20), start=START, end=end, limits=[20] * 4, stretch=stretch)
            for stretch in (model.stretch, None)
        )
        assert several == one


@torch.no_grad()
def test_hypotheses_of_a_text_are_asked_for_one_by_one() -> None:
    model = packed(language_model("gpt").float())
    watched = Watched(model)
    past = prefilled(model, [[4, 5, 6]], 8)
    search(watched.step, past, start=START, end=END, limits=[8], method=Beam(3), stretch=watched.stretch)
    assert watched.taken[:1] == [1] and watched.alone > 0  # one row at first, then rows whose cells must be copied


@torch.no_grad()
def test_whoever_listens_hears_every_step() -> None:
    model, heard = packed(sequence_model("transformer").float()), list[int]()

    def tell(live: Live) -> None:
        heard.append(live.written)

    how: Any = {"limits": [9], "rules": [never([END])], "tell": tell, "stretch": model.stretch}
    search(model.step, begun(model, 1), start=START, end=END, **how)
    assert heard == list(range(1, 9))


def test_a_text_to_stop_at_is_seen_when_it_is_written() -> None:
    model = packed(unlike_itself(sequence_model("transformer").float()))

    def stop(written: Sequence[int]) -> bool:
        return len(written) == 3

    several, one = both(model, 3, method=Beam(3), rules=[never([END])], stop=stop)
    assert several == one
    assert {each.stopped for hypotheses in several for each in hypotheses} == {"stop"}


@pytest.mark.parametrize("method", [Greedy(), Sample(seed=3)])
def test_rules_and_methods_that_have_a_say_in_each_step_are_asked(method: Method) -> None:
    model = packed(unlike_itself(sequence_model("transformer").float()))
    several, one = both(model, 3, method=method, rules=[never([END]), no_repeat(2)])
    assert several == one
    for hypotheses in several:
        written = hypotheses[0].tokens
        pairs = list(itertools.pairwise(written))
        assert len(set(pairs)) == len(pairs)


@torch.no_grad()
def test_several_models_agree_at_every_step() -> None:
    models = [packed(sequence_model(name).float()) for name in ("transformer", "transformer post")]
    together = Ensemble(models)
    assert together.stretch(begun(models[0], 1), asked(rows=1, sentences=1)) is None


def test_numbers_that_are_none_are_refused_as_before() -> None:
    model = sequence_model("transformer").float()
    with torch.no_grad():
        model.output.weight[5] = torch.nan
    with pytest.raises(SaccadeError, match="produced NaN for sentence 0 after 0 tokens"):
        both(packed(model), 2)


@pytest.mark.parametrize("wrong", [{"rules": [never([VOCABULARY])]}, {"start": VOCABULARY}])
def test_a_token_that_is_none_is_refused_as_before(wrong: dict[str, Any]) -> None:
    with pytest.raises((IndexError, ValueError)):
        both(packed(sequence_model("transformer").float()), 2, **wrong)


@torch.no_grad()
def test_learned_places_end_where_they_end() -> None:
    model = packed(sequence_model("transformer learned").float())
    with pytest.raises(ValueError, match="position 40 is beyond the table of 40 learned positions"):
        search(
            model.step, begun(model, 1), start=START, end=END, limits=[60], rules=[never([END])], stretch=model.stretch
        )


@torch.no_grad()
def test_a_sentence_leaves_a_stretch_when_nothing_better_can_come() -> None:
    model = packed(sequence_model("transformer").float())

    def taken(rank: float, steps: int) -> Stretch:
        """Where a hypothesis of this rank has ended in the second of two sentences."""
        given = asked(rows=2, sentences=2, steps=steps, forbidden=[0, START, END], ranks=[[-math.inf], [rank]])
        found, past = model.stretch(begun(model, 2), given)
        assert found.steps == steps and len(past.position) == len(found.left) == len(found.score)
        return found

    whole = taken(-math.inf, steps=12)
    scores = torch.tensor([log_p for _, _, log_p in whole.notes]).double().cumsum(0)[:, 1]
    above, below = float(scores[4]) + 1e-6, float(scores[4]) - 1e-6  # what was said after five steps
    left = {(rank, steps): list(taken(rank, steps).left) for rank in (above, below) for steps in (5, 6, 7)}
    both_go_on, first_goes_on = [0, 1], [0]
    assert [left[above, steps] for steps in (5, 6, 7)] == [both_go_on, first_goes_on, first_goes_on]
    assert [left[below, steps] for steps in (5, 6, 7)] == [both_go_on, both_go_on, first_goes_on]


@pytest.mark.parametrize("method", ["greedy", "beam", "several answers, no penalty"])
@pytest.mark.parametrize("name", ["transformer modern", "transformer learned"])
@pytest.mark.parametrize("threads", [1, 2])
@torch.no_grad()
def test_sentences_that_end_at_any_time_are_answered_in_few_calls(method: str, name: str, threads: int) -> None:
    """Whatever token is the end: some answers are over at once, and some never."""
    model = packed(unlike_itself(unlike_itself(sequence_model(name).float())))
    before, sentences = torch.get_num_threads(), 36
    reasons, lengths = set(), set()
    try:
        torch.set_num_threads(threads)
        for end in range(2, VOCABULARY):
            watched, how = Watched(model), {"method": METHODS[method], "rules": [never([0, START])]}
            how |= {"start": START, "end": end, "limits": [LIMIT] * sentences}
            several = search(watched.step, begun(model, sentences), stretch=watched.stretch, **how)
            assert several == search(model.step, begun(model, sentences), **how)
            assert watched.alone == 0 and len(watched.taken) <= 5
            reasons |= {each.stopped for hypotheses in several for each in hypotheses}
            lengths |= {len(each.tokens) for hypotheses in several for each in hypotheses}
    finally:
        torch.set_num_threads(before)
    assert reasons == {"eos", "length"} and len(lengths) > 8


@torch.no_grad()
def test_sentences_that_go_on_apart_from_a_past_do_not_disturb_each_other() -> None:
    model = packed(unlike_itself(sequence_model("transformer").float()))

    def said(past: Past, words: Sequence[int]) -> Tensor:
        for word in words:
            log_p, past = model.step(torch.tensor([[word]]), past)
        return log_p

    past, others = begun(model, 3), begun(model, 3)
    second, third = (past.select([row]).keep([row]) for row in (1, 2))
    said(second, [START, 5])
    expected = said(others.select([2]).keep([2]), [START, 6])
    _, third = model.step(torch.tensor([[START]]), third)
    said(second, [START, 5, 7])
    assert torch.equal(said(third, [6]), expected)


@torch.no_grad()
def test_a_past_can_be_searched_again() -> None:
    """Of what was begun nothing is written over, though finished sentences make room for others."""
    model = packed(unlike_itself(sequence_model("transformer").float()))
    past = begun(model, 3)
    how: Any = {"start": START, "end": END, "limits": [2, 9, 9], "rules": [never([END])], "stretch": model.stretch}
    assert search(model.step, past, **how) == search(model.step, past, **how)


@torch.no_grad()
def test_words_that_cannot_be_read_are_not_written() -> None:
    plain = sequence_model("transformer").float()
    model = EncoderDecoder(plain.encoder, plain.decoder, Output(plain.output.weight.shape[1], 40)).eval()
    with pytest.raises(ValueError, match=r"token id \d+ is outside the vocabulary"):
        both(packed(model), 2, rules=[never(range(VOCABULARY))])


@torch.no_grad()
def test_rows_that_begin_together_see_what_they_wrote() -> None:
    model = packed(sequence_model("transformer").float())
    past = begun(model, 2).select([0, 0, 1, 1])
    found = model.stretch(past, asked(rows=4, sentences=2, steps=1, ways=4))
    assert found is not None and found[0].seen is not None
    assert found[0].seen.tolist() == torch.eye(2, dtype=torch.bool).repeat(2, 1).tolist()
