"""The laws of search, over every sequence model."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from saccade.decode import (
    Beam,
    Greedy,
    Hypothesis,
    Method,
    Rule,
    Sample,
    Stop,
    minimum_length,
    no_repeat,
    prefix,
    search,
)
from saccade.decode.methods import Live
from saccade.models.shapes import EncoderDecoder
from tests.laws.models import (
    LANGUAGE_MODELS,
    SEQUENCE_MODELS,
    VOCABULARY,
    language_model,
    lengths_mask,
    sequence_model,
    tokens,
)

SEQUENCE = pytest.mark.parametrize("name", SEQUENCE_MODELS)
START, END = 1, 2
SOURCE, LENGTHS = tokens(4, 7), [7, 4, 2, 5]
METHODS: dict[str, Method] = {
    "greedy": Greedy(),
    "beam": Beam(3, best=2),
    "wide beam, no penalty": Beam(5, best=5, length_penalty=0.0),
    "sample": Sample(answers=2, temperature=1.3, top_k=6, top_p=0.95, seed=4),
}


def found(
    model: EncoderDecoder,
    method: Method,
    rows: Sequence[int] = range(4),
    limits: Sequence[int] | None = None,
    rules: Sequence[Rule] = (),
    stop: Stop | None = None,
) -> list[list[Hypothesis]]:
    longest = max(LENGTHS[row] for row in rows)
    source, mask = SOURCE[list(rows), :longest], lengths_mask([LENGTHS[row] for row in rows], longest)
    limits = limits or [LENGTHS[row] + 3 for row in rows]
    past = model.begin(model.encode(source, mask), max(limits))
    return search(
        model.step,
        past,
        start=START,
        end=END,
        limits=limits,
        method=method,
        rules=rules,
        stop=stop,
        stretch=model.stretch,
    )


@torch.no_grad()
def rescored(model: EncoderDecoder, row: int, hypothesis: Hypothesis) -> Tensor:
    """The log-probability of each token, teacher-forced, alone."""
    written = [*hypothesis.tokens, *([END] if hypothesis.stopped == "eos" else [])]
    states = model(SOURCE[row : row + 1, : LENGTHS[row]], None, torch.tensor([[START, *written[:-1]]]))
    return model.output(states).log_softmax(-1)[0, torch.arange(len(written)), torch.tensor(written)]


@SEQUENCE
def test_a_beam_of_one_is_greedy(name: str) -> None:
    model = sequence_model(name)
    greedy, beam = found(model, Greedy()), found(model, Beam(1, length_penalty=0.0))
    assert [each[0].tokens for each in greedy] == [each[0].tokens for each in beam]
    assert [each[0].stopped for each in greedy] == [each[0].stopped for each in beam]


@SEQUENCE
@pytest.mark.parametrize("method", METHODS)
def test_a_score_is_what_teacher_forcing_gives(name: str, method: str) -> None:
    model = sequence_model(name)
    for row, hypotheses in enumerate(found(model, METHODS[method])):
        for hypothesis in hypotheses:
            again = rescored(model, row, hypothesis)
            torch.testing.assert_close(torch.tensor(hypothesis.token_scores).double(), again, rtol=0, atol=1e-5)
            rank = METHODS[method].rank(hypothesis.log_probability, len(hypothesis.token_scores))
            assert hypothesis.score == pytest.approx(rank)


@SEQUENCE
@pytest.mark.parametrize("method", METHODS)
def test_batch_size_and_padding_change_nothing(name: str, method: str) -> None:
    model = sequence_model(name)
    together = found(model, METHODS[method])
    for row in range(4):
        chosen = METHODS[method]
        if method == "sample":
            chosen = Sample(answers=2, temperature=1.3, top_k=6, top_p=0.95, seed=4, numbers=[row])
        alone = found(model, chosen, [row])[0]
        assert [each.tokens for each in alone] == [each.tokens for each in together[row]]
        assert [each.stopped for each in alone] == [each.stopped for each in together[row]]


@pytest.mark.parametrize("name", ["sutskever once", "bahdanau", "convolutional", "transformer"])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_as_wide_as_the_tree_is_exhaustive(name: str, penalty: float) -> None:
    """All sequences of up to three tokens, scored one by one, against a beam that can hold them all."""
    model, limit, row = sequence_model(name), 3, 1
    method = Beam(VOCABULARY**limit, best=3, length_penalty=penalty)
    every = []
    others = [token for token in range(VOCABULARY) if token != END]
    for length in range(limit):  # the end token takes the last place at the latest
        for written in itertools.product(others, repeat=length):
            hypothesis = Hypothesis(written, 0.0, (), "eos")
            every.append((method.rank(float(rescored(model, row, hypothesis).sum()), length + 1), written))
    best = sorted(every, reverse=True)[:3]
    hypotheses = [each for each in found(model, method, [row], limits=[limit])[0] if each.stopped == "eos"]
    assert [each.tokens for each in hypotheses] == [written for _, written in best]
    assert [each.score for each in hypotheses] == pytest.approx([score for score, _ in best], abs=1e-5)


@SEQUENCE
def test_a_wider_beam_returns_sorted_distinct_answers(name: str) -> None:
    for hypotheses in found(sequence_model(name), Beam(4, best=4)):
        ended = [each for each in hypotheses if each.stopped == "eos"]
        assert [each.score for each in ended] == sorted((each.score for each in ended), reverse=True)
        assert len({(each.tokens, each.stopped) for each in hypotheses}) == len(hypotheses)
        assert hypotheses[: len(ended)] == ended


@SEQUENCE
def test_rules_are_kept_and_leave_scores_the_models_own(name: str) -> None:
    model = sequence_model(name)
    beginnings = [[3, 4], [5], [], [6, 6]]
    rules = [prefix(beginnings), minimum_length(3, END), no_repeat(2)]
    for row, hypotheses in enumerate(found(model, Beam(3, best=3), rules=rules)):
        for hypothesis in hypotheses:
            written = hypothesis.tokens
            assert list(written[: len(beginnings[row])]) == beginnings[row]
            assert len(written) >= 3 or hypothesis.stopped != "eos"
            pairs = list(itertools.pairwise(written))
            assert len(pairs) == len(set(pairs))
            torch.testing.assert_close(
                torch.tensor(hypothesis.log_probability).double(),
                rescored(model, row, hypothesis).sum(),
                rtol=0,
                atol=1e-4,
            )


def test_an_answer_ends_where_the_caller_says_so() -> None:
    model = sequence_model("transformer")
    free = found(model, Greedy(), limits=[9] * 4)[0][0]
    assert len(free.tokens) > 2
    stopped = found(model, Greedy(), limits=[9] * 4, stop=lambda tokens: len(tokens) == 3)[0][0]
    assert stopped.tokens == free.tokens[:3]
    assert stopped.stopped == "stop"


def test_rules_that_leave_nothing_end_with_constraint() -> None:
    def only_once(live: Live, log_p: Tensor) -> None:
        if live.written:
            log_p.fill_(-torch.inf)

    for method in METHODS.values():
        hypotheses = [each for row in found(sequence_model("bahdanau"), method, rules=[only_once]) for each in row]
        stopped = {each.stopped for each in hypotheses}
        assert "constraint" in stopped and stopped <= {"constraint", "eos"}
        assert all(len(each.tokens) == (each.stopped == "constraint") for each in hypotheses)


def test_limits_are_each_sentences_own() -> None:
    hypotheses = found(sequence_model("luong"), Beam(2), limits=[1, 2, 3, 4], rules=[minimum_length(99, END)])
    assert [len(each[0].tokens) for each in hypotheses] == [1, 2, 3, 4]
    assert {each[0].stopped for each in hypotheses} == {"length"}


def test_samples_follow_the_models_probabilities() -> None:
    model = sequence_model("transformer")
    first = model.output(model(SOURCE[:1], None, torch.tensor([[START]])))[0, 0].softmax(-1)
    drawn = torch.zeros(VOCABULARY)
    for seed in range(40):
        for hypothesis in found(model, Sample(answers=50, seed=seed), [0], limits=[1])[0]:
            drawn[hypothesis.tokens[0] if hypothesis.tokens else END] += 1
    torch.testing.assert_close((drawn / drawn.sum()).double(), first, rtol=0, atol=0.035)


def test_a_cold_sample_is_greedy_and_top_k_one_too() -> None:
    model = sequence_model("convolutional")
    greedy = [each[0].tokens for each in found(model, Greedy())]
    for method in (Sample(temperature=1e-4), Sample(top_k=1), Sample(top_p=1e-6)):
        assert [each[0].tokens for each in found(model, method)] == greedy


def test_the_same_seed_gives_the_same_answers_and_another_seed_others() -> None:
    model = sequence_model("transformer")
    one, again, other = (
        [each.tokens for row in found(model, Sample(answers=3, seed=seed)) for each in row] for seed in (1, 1, 2)
    )
    assert one == again != other


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
@torch.no_grad()
def test_a_language_model_is_searched_by_the_same_loop(name: str) -> None:
    model = language_model(name)
    beam = search(model.step, model.begin(2, 6), start=START, end=END, limits=[6, 4], method=Beam(3))
    greedy = search(model.step, model.begin(2, 6), start=START, end=END, limits=[6, 4])
    for one, other in zip(beam, greedy, strict=True):
        if one[0].stopped == other[0].stopped == "length":
            assert one[0].log_probability >= other[0].log_probability - 1e-6
    for hypotheses in beam:
        hypothesis = hypotheses[0]
        written = [*hypothesis.tokens, *([END] if hypothesis.stopped == "eos" else [])]
        log_p = model.output(model(torch.tensor([[START, *written[:-1]]]))).log_softmax(-1)[0]
        assert hypothesis.log_probability == pytest.approx(
            float(log_p[torch.arange(len(written)), torch.tensor(written)].sum()), abs=1e-5
        )
