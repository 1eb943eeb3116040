"""Scores of captions as the COCO evaluation computes them (Chen et al. 2015), several references for each.

    BLEU-n:   100 BP (p_1 ... p_n)^(1/n) over the corpus, BP = min(1, exp(1 - r / c)), r the closest lengths
    ROUGE-L:  mean of (1 + b^2) P R / (R + b^2 P), b = 1.2, P and R the largest LCS / length over the references
    CIDEr-D:  mean over n = 1..4 and references of 10 exp(-(l - l')^2 / 2 s^2) min(g, g') . g' / |g| |g'|, s = 6,
              g and g' the n-gram counts of answer and reference times log(images / images that have the n-gram)

Papineni et al. 2002; Lin 2004; Vedantam et al. 2015. All are given times 100, as papers print them: CIDEr-D can reach
1000, and is 0 for a single image, whose n-grams tell it from no other.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from saccade.errors import SaccadeError
from saccade.metrics.score import Score, bootstrap_interval, check_matched, mean

ORDERS = 4
BETA = 1.2
SIGMA = 6.0
SIGNATURE = "tok:ptb-like|case:lower|punct:no|ref:closest"

# Words with what joins their parts (T-shirt, him/her, 3.5, 2:08), endings that stand alone, signs that are read out.
_ENDING = r"'(?:s|re|ve|ll|d|m)\b"
_WORD = re.compile(rf"\w+(?:(?:[-./&']|(?<=\d)[,:](?=\d))\w+)*|{_ENDING}|[$€£%&=+#@*/]")
_JOINED = re.compile(rf"(?<=\w)(n't|{_ENDING})$")

Grams = Counter[tuple[str, ...]]


def caption_tokens(text: str) -> list[str]:
    """Lower-case words without punctuation, close to the Penn Treebank: don't -> do n't, man's -> man 's."""
    words = _WORD.findall(text.lower().replace("\u2019", "'").replace("cannot", "can not"))
    return [part for word in words for part in _JOINED.sub(r" \1", word).split()]


def caption_bleu(
    answers: Sequence[str], references: Sequence[Sequence[str]], *, interval: bool = False
) -> tuple[Score, ...]:
    """BLEU-1, BLEU-2, BLEU-3 and BLEU-4."""
    counts = np.array([_matches(answer, known) for answer, known in _read(answers, references)])  # (n, 2 + 2 orders)
    scores = []
    for order in range(1, ORDERS + 1):
        ends = bootstrap_interval(counts, _bleu_of(order)) if interval else None
        scores.append(Score(f"BLEU-{order}", _bleu_of(order)(counts), ends, SIGNATURE))
    return tuple(scores)


def rouge_l(answers: Sequence[str], references: Sequence[Sequence[str]], *, interval: bool = False) -> Score:
    """Longest common subsequences; precision and recall may come from different references, as in COCO."""
    return _mean("ROUGE-L", [_rouge(answer, known) for answer, known in _read(answers, references)], interval)


def cider_d(answers: Sequence[str], references: Sequence[Sequence[str]], *, interval: bool = False) -> Score:
    """Consensus with the references, rare n-grams before common ones; how rare they are is counted in these
    references."""
    pairs = [(_grams(answer), [_grams(each) for each in known]) for answer, known in _read(answers, references)]
    images = Counter(gram for _, known in pairs for gram in set().union(*known))
    rarity = {gram: math.log(len(pairs) / count) for gram, count in images.items()}
    unseen = math.log(len(pairs))
    scores = []
    for answer, known in pairs:
        weighed = _weighed(answer, rarity, unseen)
        near = [_nearness(weighed, _weighed(each, rarity, unseen)) for each in known]
        lengths = [sum(each[gram] for gram in each if len(gram) == 1) for each in (answer, *known)]
        penalties = [math.exp(-((lengths[0] - length) ** 2) / (2 * SIGMA**2)) for length in lengths[1:]]
        scores.append(10 * float(np.dot(near, penalties)) / len(known))
    return _mean("CIDEr-D", scores, interval)


def _mean(name: str, scores: list[float], interval: bool) -> Score:
    values = 100 * np.array(scores)
    return Score(name, mean(values), bootstrap_interval(values) if interval else None, SIGNATURE)


def _read(answers: Sequence[str], references: Sequence[Sequence[str]]) -> list[tuple[list[str], list[list[str]]]]:
    check_matched(answers, references)
    for number, known in enumerate(references, start=1):
        if isinstance(known, str) or not known:
            raise SaccadeError(f"answer {number} needs a list of one or more references; got {known!r}")
    return [
        (caption_tokens(answer), [caption_tokens(each) for each in known])
        for answer, known in zip(answers, references, strict=True)
    ]


def _grams(tokens: list[str]) -> Grams:
    """How often each run of one to four tokens occurs."""
    return Counter(
        tuple(tokens[start : start + order])
        for order in range(1, ORDERS + 1)
        for start in range(len(tokens) - order + 1)
    )


# BLEU


def _matches(answer: list[str], known: list[list[str]]) -> list[int]:
    """Length of the answer and of the reference closest to it, then for each order what matches and what there is."""
    length = len(answer)
    closest = min((abs(len(each) - length), len(each)) for each in known)[1]  # the shorter of two equally close
    most: Grams = Counter()
    for each in known:
        most |= _grams(each)
    found = _grams(answer)
    matched = Counter[int]()
    for gram, count in (found & most).items():
        matched[len(gram)] += count
    orders = range(1, ORDERS + 1)
    return [length, closest, *(matched[n] for n in orders), *(max(length - n + 1, 0) for n in orders)]


def _bleu_of(order: int) -> Callable[[np.ndarray], float]:
    def bleu(counts: np.ndarray) -> float:
        length, closest, *rest = counts.sum(axis=0).tolist()
        matched, there = rest[:order], rest[ORDERS : ORDERS + order]
        if not all(matched):
            return 0.0
        precision = math.exp(sum(math.log(m / n) for m, n in zip(matched, there, strict=True)) / order)
        return 100 * precision * math.exp(min(0.0, 1 - closest / length))

    return bleu


# ROUGE-L


def _rouge(answer: list[str], known: list[list[str]]) -> float:
    common = [_common(answer, each) for each in known]
    if not any(common):
        return 0.0
    precision = max(common) / len(answer)
    recall = max(length / max(len(each), 1) for length, each in zip(common, known, strict=True))
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _common(one: list[str], other: list[str]) -> int:
    """Length of the longest common subsequence."""
    before = [0] * (len(other) + 1)
    for token in one:
        row = [0]
        for place, each in enumerate(other):
            row.append(before[place] + 1 if token == each else max(row[-1], before[place + 1]))
        before = row
    return before[-1]


# CIDEr-D


def _weighed(grams: Grams, rarity: dict[tuple[str, ...], float], unseen: float) -> list[dict[tuple[str, ...], float]]:
    """For each order, the counts times how rare the n-gram is."""
    vectors: list[dict[tuple[str, ...], float]] = [{} for _ in range(ORDERS)]
    for gram, count in grams.items():
        vectors[len(gram) - 1][gram] = count * rarity.get(gram, unseen)
    return vectors


def _nearness(answer: list[dict[tuple[str, ...], float]], reference: list[dict[tuple[str, ...], float]]) -> float:
    """The cosine between both, mean over the orders; what the answer repeats beyond the reference is not counted."""
    total = 0.0
    for ours, theirs in zip(answer, reference, strict=True):
        norms = math.sqrt(sum(value**2 for value in ours.values()) * sum(value**2 for value in theirs.values()))
        if norms:
            total += sum(min(value, theirs.get(gram, 0)) * theirs.get(gram, 0) for gram, value in ours.items()) / norms
    return total / ORDERS
