"""Search on a step function made by hand: no network, every number known."""

from __future__ import annotations

import math
from random import Random

import pytest
import torch
from torch import Tensor

from saccade.decode import Beam, Greedy, Hypothesis, Sample, never, no_repeat, rerank_by_coverage, search
from saccade.decode.search import Ledger
from saccade.errors import SaccadeError
from saccade.nn.cache import Past

END = 0
# From each last token (row) to the next: token 3 is the start. Greedy takes 1 (0.6), then is left with 0.5 at best;
# the other way round 2 (0.4) is followed by the end with 0.9: 0.36 against 0.30.
TABLE = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.5, 0.3, 0.2, 0.0], [0.9, 0.05, 0.05, 0.0], [0.0, 0.6, 0.4, 0.0]])


def step(tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
    return TABLE[tokens[:, -1]].log(), past.advanced(past.state, 1)


def begun(rows: int = 1) -> Past:
    return Past(torch.arange(rows), torch.arange(rows), torch.zeros(rows, dtype=torch.long))


def test_greedy_takes_the_nearest_and_a_beam_the_better_way() -> None:
    greedy = search(step, begun(), start=3, end=END, limits=[5])[0][0]
    beam = search(step, begun(), start=3, end=END, limits=[5], method=Beam(2, length_penalty=0.0))[0][0]
    assert (greedy.tokens, beam.tokens) == ((1,), (2,))
    assert greedy.log_probability == pytest.approx(math.log(0.6 * 0.5))
    assert beam.log_probability == pytest.approx(math.log(0.4 * 0.9))
    assert beam.token_scores == pytest.approx((math.log(0.4), math.log(0.9)))


def test_a_length_penalty_divides_by_its_power() -> None:
    hypothesis = search(step, begun(), start=3, end=END, limits=[5], method=Beam(2, length_penalty=1.0))[0][0]
    assert hypothesis.score == pytest.approx(hypothesis.log_probability / (7 / 6))


def test_finished_sentences_are_dropped_from_the_past_and_the_last_take_their_places() -> None:
    seen = []

    def watching(tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        seen.append((len(tokens), past.memory.tolist()))
        return step(tokens, past)

    search(watching, begun(3), start=3, end=END, limits=[1, 3, 2], rules=[never([END])])
    assert seen == [(3, [0, 1, 2]), (2, [2, 1]), (1, [1])]


def test_the_past_follows_the_surviving_hypotheses() -> None:
    """The state carries each row's own history; after reordering it must still match the tokens."""

    def remembering(tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        history = torch.cat([past.state, tokens[:, -1:]], dim=1)
        histories.append(history)
        return TABLE[tokens[:, -1]].log(), past.advanced(history, 1)

    histories: list[Tensor] = []
    past = Past(torch.zeros(1, 0, dtype=torch.long), None, torch.zeros(1, dtype=torch.long))
    found = search(remembering, past, start=3, end=END, limits=[4], method=Beam(3, best=3), rules=[never([END])])
    written = {tuple(history[1:]) for history in histories[-1].tolist()}
    assert {each.tokens[:-1] for each in found[0]} <= written


def test_nan_is_an_error_and_never_token_zero() -> None:
    def broken(tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        return torch.full((len(tokens), 4), torch.nan), past

    for method in (Greedy(), Beam(2), Sample()):
        with pytest.raises(SaccadeError, match="produced NaN for sentence 0 after 0 tokens"):
            search(broken, begun(), start=3, end=END, limits=[5], method=method)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Beam(0), "width=0"),
        (lambda: Beam(2, best=3), "best=3"),
        (lambda: Sample(temperature=0.0), "got 0.0"),
        (lambda: Sample(temperature=float("nan")), "got nan"),
        (lambda: Sample(temperature=float("inf")), "got inf"),
        (lambda: Sample(top_k=0), "got 0"),
        (lambda: Sample(top_p=1.5), "got 1.5"),
        (lambda: Sample(answers=0), "got 0"),
        (lambda: no_repeat(0), "got 0"),
        (lambda: search(step, begun(2), start=3, end=END, limits=[5]), "each of 2 sentences"),
        (lambda: search(step, begun(), start=3, end=END, limits=[0]), "limit of 1 or more"),
    ],
)
def test_impossible_searches_are_refused_by_value(make, message: str) -> None:
    with pytest.raises(SaccadeError, match=message):
        make()


def test_coverage_prefers_the_answer_that_looked_everywhere() -> None:
    short = Hypothesis((1,), -1.0, (-1.0,), "eos")
    full = Hypothesis((1, 2), -1.2, (-0.6, -0.6), "eos")
    weights = [torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])]
    assert rerank_by_coverage([short, full], weights, strength=0.0)[0].tokens == (1,)
    best = rerank_by_coverage([short, full], weights, strength=0.2)[0]
    assert best.tokens == (1, 2)
    assert best.score == pytest.approx(-1.2)
    with pytest.raises(SaccadeError, match="do not match"):
        rerank_by_coverage([short], weights, strength=0.2)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_early_stopping_keeps_an_overtaking_hypothesis(width: int) -> None:
    """One answer ends at once with a poor score; a longer one that ends later with a better one must still be found."""
    table = torch.tensor([[1.0, 0, 0, 0], [0.01, 0.0, 0.99, 0.0], [0.99, 0.0, 0.01, 0.0], [0.2, 0.8, 0.0, 0.0]])

    def late(tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        return table[tokens[:, -1]].log(), past.advanced(past.state, 1)

    found = search(late, begun(), start=3, end=END, limits=[6], method=Beam(width, length_penalty=0.0))[0][0]
    assert found.tokens == (1, 2)
    assert found.log_probability == pytest.approx(math.log(0.8 * 0.99 * 0.99))


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.4])
def test_a_sentence_is_done_where_nothing_that_goes_on_can_rank_higher(penalty: float) -> None:
    random, method = Random(3), Beam(4, best=2, length_penalty=penalty)
    for _ in range(500):
        ledger = Ledger(method, limit=random.randrange(1, 60))
        assert ledger.ranks == [-math.inf] * 2
        ledger.add((None, 5, -random.expovariate(0.2)), "eos")
        assert ledger.ranks[1] == -math.inf
        assert not ledger.done([-1e9])
        for _ in range(3):
            ledger.add((None, 5, -random.expovariate(0.2)), "eos")
        assert ledger.ranks == sorted((each.score for each in ledger.ended), reverse=True)[:2]
        score = ledger.ranks[1] / method.rank(1.0, ledger.limit + 1)  # ranks the same when it is as long as it may be
        assert not ledger.done([score + 1e-9 * abs(score)])
        assert ledger.done([score - 1e-9 * abs(score)])
