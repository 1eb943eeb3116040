"""Caption scores against those of the COCO caption evaluation."""

from __future__ import annotations

import pytest

from saccade.errors import SaccadeError
from saccade.metrics import caption_bleu, caption_tokens, cider_d, rouge_l

from .captioned import ANSWERS, REFERENCES


def values(answers: list[str]) -> list[float]:
    scores = [*caption_bleu(answers, REFERENCES), rouge_l(answers, REFERENCES), cider_d(answers, REFERENCES)]
    return [score.value for score in scores]


def test_scores_equal_those_of_the_coco_evaluation() -> None:
    """Values computed with pycocoevalcap 1.2 and its Penn Treebank tokenizer."""
    expected = [
        89.09090909036915,
        80.42539452560327,
        69.53052973858259,
        60.69294318846077,
        68.46648958495102,
        178.49044946807697,
    ]
    assert values(ANSWERS) == pytest.approx(expected, rel=1e-8)


def test_short_answers_are_penalised_as_in_the_coco_evaluation() -> None:
    short = [" ".join(caption_tokens(answer)[:4]) for answer in ANSWERS]
    expected = [
        43.22796710609791,
        40.35980589804337,
        34.982515753675775,
        28.31669160295545,
        50.34166814810924,
        111.21196870924153,
    ]
    assert values(short) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("I can't see it; they're gone, we'd say \"hello\"!", "i ca n't see it they 're gone we 'd say hello"),
        ("The dogs' bowls (two of them) cost $5 and 50% more.", "the dogs bowls two of them cost $ 5 and 50 % more"),
        ("A 'stop' sign, John\u2019s car... at 2:08", "a stop sign john 's car at 2:08"),
        ("Somebody 's mother-in-law's T-shirt", "somebody 's mother-in-law 's t-shirt"),
        (
            "1,000 people, 3.5 metres: him/her, but one cannot tell",
            "1,000 people 3.5 metres him/her but one can not tell",
        ),
        ("cat,dog\nÉté -- 東京", "cat dog été 東京"),
        (" .,!? ", ""),
    ],
)
def test_words_are_lower_case_and_without_punctuation(text: str, tokens: str) -> None:
    assert caption_tokens(text) == tokens.split()


def test_a_reference_given_back_is_perfect() -> None:
    exact = [known[-1] for known in REFERENCES]
    assert [score.value for score in caption_bleu(exact, REFERENCES)] == pytest.approx([100] * 4)
    assert rouge_l(exact, REFERENCES).value == pytest.approx(100)
    assert cider_d(exact, [[text] for text in exact]).value == pytest.approx(1000)


def test_nothing_right_is_zero() -> None:
    for answer in ("", "xyz", "."):
        scores = [*caption_bleu([answer], [["a dog"]]), rouge_l([answer], [["a dog"]]), cider_d([answer], [["a dog"]])]
        assert [score.value for score in scores] == [0] * 6
    assert rouge_l(["a dog"], [["", "!"]]).value == 0


def test_a_repeated_word_is_counted_as_often_as_a_reference_has_it() -> None:
    assert caption_bleu(["the the the the"], [["the cat", "the dog the cat"]])[0].value == pytest.approx(50)


def test_of_two_equally_close_references_the_shorter_sets_the_length() -> None:
    assert caption_bleu(["a b c"], [["a b", "a b c d"]])[0].value == pytest.approx(100)
    assert caption_bleu(["a b c"], [["a b c d"]])[0].value == pytest.approx(71.65313105737893)  # exp(1 - 4 / 3)


def test_rare_words_count_more_than_common_ones() -> None:
    references = [["a dog"], ["a cat"], ["a bird"]]
    common, rare = (cider_d([answer, "x", "x"], references).value for answer in ("a", "dog"))
    assert common == 0 < rare


def test_each_score_says_how_it_was_counted_and_its_interval_repeats() -> None:
    for first, second in zip(
        [*caption_bleu(ANSWERS, REFERENCES, interval=True), rouge_l(ANSWERS, REFERENCES, interval=True)],
        [*caption_bleu(ANSWERS, REFERENCES, interval=True), rouge_l(ANSWERS, REFERENCES, interval=True)],
        strict=True,
    ):
        assert first == second
        assert first.interval is not None
        assert first.interval[0] < first.value < first.interval[1]
        assert "tok:ptb-like" in first.signature
    score = cider_d(ANSWERS, REFERENCES, interval=True)
    assert score.interval is not None and str(score).startswith("CIDEr-D 178.5 [")
    assert score.interval[0] < score.value < score.interval[1]
    assert [each.name for each in caption_bleu(ANSWERS, REFERENCES)] == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]


@pytest.mark.parametrize("score", [caption_bleu, rouge_l, cider_d])
def test_lists_that_do_not_match_are_refused(score) -> None:
    with pytest.raises(SaccadeError, match="2 answers cannot be scored with 1 references"):
        score(["a", "b"], [["a"]])
    with pytest.raises(SaccadeError, match="nothing to score"):
        score([], [])
    with pytest.raises(SaccadeError, match=r"answer 2 needs a list of one or more references; got \[\]"):
        score(["a", "b"], [["a"], []])
    with pytest.raises(SaccadeError, match="answer 1 needs a list of one or more references; got 'a dog'"):
        score(["a"], ["a dog"])
