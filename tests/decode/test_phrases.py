"""Phrases that an answer must or must not contain, however it is cut into tokens."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from saccade.decode import Beam, Including, Phrase, Rule, containing, never, search, without
from saccade.errors import SaccadeError
from saccade.nn.cache import Past

SPELLINGS = ["", "a", "b", "ab", "ba", "aab", "c"]  # the first is the end
END = 0


@given(st.text("ab", min_size=1, max_size=5), st.lists(st.integers(1, 6), max_size=8))
def test_a_phrase_is_found_exactly_where_the_text_has_it(phrase: str, tokens: list[int]) -> None:
    found = Phrase(phrase, SPELLINGS)
    text = "".join(SPELLINGS[token] for token in tokens)
    state = int(found.states([tokens]))
    assert (state == found.found) == (phrase in text)
    if phrase not in text:
        longest = max(n for n in range(len(phrase)) if text.endswith(phrase[:n]))
        assert state == longest


def table(seed: int) -> Tensor:
    logits = torch.randn(8, len(SPELLINGS), generator=torch.Generator().manual_seed(seed)).mul(2)
    logits[3:, END] += 3.0  # it would like to end
    return logits.log_softmax(-1)


def found(seed: int, method: Beam | Including, rules: list[Rule], limit: int = 6) -> list[tuple[str, float, str]]:
    """Search with a model whose next token depends on the number of tokens before it."""
    log_p = table(seed)

    def step(tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        return log_p[past.position], past.advanced(past.state, tokens.shape[1])

    past = Past((), (), torch.zeros(1, dtype=torch.long))
    (answers,) = search(step, past, start=1, end=END, limits=[limit], method=method, rules=rules)
    return [("".join(SPELLINGS[t] for t in each.tokens), each.log_probability, each.stopped) for each in answers]


def best_of_all(seed: int, good: str | None = None, bad: str | None = None, limit: int = 6) -> float:
    """The highest log-probability of any ended text with the one phrase and without the other."""
    log_p, best = table(seed).tolist(), -math.inf
    for length in range(limit):
        for tokens in product(range(1, len(SPELLINGS)), repeat=length):
            text = "".join(SPELLINGS[token] for token in tokens)
            if (good is None or good in text) and (bad is None or bad not in text):
                score = sum(log_p[place][token] for place, token in enumerate((*tokens, END)))
                best = max(best, score)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_what_must_not_come_does_not_and_the_rest_is_searched_as_before(seed: int) -> None:
    rules = [without([Phrase("ab", SPELLINGS)])]
    answers = found(seed, Beam(300, length_penalty=0.0), rules)
    assert all("ab" not in text for text, _, _ in answers)
    assert answers[0][1] == pytest.approx(best_of_all(seed, bad="ab"), abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_what_must_come_does_and_a_wide_beam_finds_the_best_of_these(seed: int) -> None:
    phrase = Phrase("bc", SPELLINGS, [2, 6])
    rules = [containing([phrase], END)]
    wide = found(seed, Including(Beam(300, length_penalty=0.0), (phrase,)), rules)
    assert wide[0][1] == pytest.approx(best_of_all(seed, good="bc"), abs=1e-5)
    narrow = found(seed, Including(Beam(4, length_penalty=0.0), (phrase,)), rules)
    for text, score, stopped in (wide[0], narrow[0]):
        assert stopped == "eos"
        assert "bc" in text
        assert score <= wide[0][1] + 1e-6


def test_two_phrases_both_come() -> None:
    phrases = (Phrase("aab", SPELLINGS, [5]), Phrase("cb", SPELLINGS))
    ((text, _, stopped),) = found(0, Including(Beam(6), phrases), [containing(phrases, END)], limit=8)
    assert stopped == "eos"
    assert "aab" in text
    assert "cb" in text


def test_a_phrase_that_cannot_be_written_or_is_empty_is_refused() -> None:
    with pytest.raises(SaccadeError, match="cannot write 'xa'"):
        Phrase("xa", SPELLINGS).toward  # noqa: B018
    with pytest.raises(SaccadeError, match="empty phrase"):
        Phrase("", SPELLINGS)


def test_a_phrase_that_is_forbidden_and_wanted_ends_at_the_limit_and_says_so() -> None:
    phrase = Phrase("ab", SPELLINGS)
    rules = [containing([phrase], END), without([phrase]), never([])]
    ((_, _, stopped),) = found(1, Including(Beam(4), (phrase,)), rules)
    assert stopped == "length"
