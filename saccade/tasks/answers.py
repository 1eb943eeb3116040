"""Searching answers with any decoder: what a recipe asks of the search, in tokens of the answers' vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor, nn

from saccade.config.training import DecodeSettings
from saccade.data.vocab import END, PAD, START, Vocabulary
from saccade.decode import (
    Beam,
    Greedy,
    Hypothesis,
    Including,
    Method,
    Phrase,
    Rule,
    Sample,
    containing,
    minimum_length,
    never,
    no_repeat,
    prefix,
    search,
    without,
)
from saccade.errors import SaccadeError
from saccade.models.shapes import Memory
from saccade.nn.cache import Past
from saccade.nn.choice import Asked, Stretch
from saccade.tasks.base import Prediction

AT_ONCE = 64  # answers searched together, at most
MOST_TOKENS = 1 << 14  # that all their hypotheses may have, if they were as long as they may be: each is kept in memory
SMALLEST_INCLUDING_BEAM = 4  # places for hypotheses with and without what an answer must include


class Writer(Protocol):
    """What searching needs of a model from something to text."""

    def begin(self, memory: Memory, limit: int) -> Past: ...

    def step(self, tokens: Tensor, past: Past) -> tuple[Tensor, Past]: ...

    def stretch(self, past: Past, asked: Asked) -> tuple[Stretch, Past] | None: ...


def method_of(settings: DecodeSettings) -> Method:
    """The search that a recipe asks for."""
    if settings.beam == 1:
        return Greedy()
    return Beam(settings.beam, length_penalty=settings.length_penalty)


def validation_method(settings: DecodeSettings) -> Method:
    """The search that a recipe asks for while it is trained."""
    return method_of(settings.model_copy(update={"beam": settings.valid_beam}))


@dataclass(frozen=True)
class Plan:
    """How answers are searched, with a recipe's texts turned into tokens of the answers' vocabulary."""

    method: Method
    rules: tuple[Rule, ...]  # padding and start are never written
    beginning: tuple[int, ...]
    extra: int  # tokens that an answer may have beyond its usual limit, for the texts it must contain

    @staticmethod
    def of(settings: DecodeSettings, vocabulary: Vocabulary, method: Method | None = None) -> Plan:
        method = method or method_of(settings)
        rules = [never([PAD, START])]
        if settings.minimum_length:
            rules.append(minimum_length(settings.minimum_length, END))
        if settings.no_repeat is not None:
            rules.append(no_repeat(settings.no_repeat))
        if settings.must_not_include:
            rules.append(without([forbidden_phrase(text, vocabulary) for text in settings.must_not_include]))
        if settings.must_include:
            if isinstance(method, Sample):
                raise SaccadeError("decode.must_include is searched for by a beam; it cannot be sampled")
            phrases = tuple(wanted_phrase(text, vocabulary) for text in settings.must_include)
            rules.append(containing(phrases, END))
            beam = method if isinstance(method, Beam) else Beam(length_penalty=settings.length_penalty)
            wide = max(beam.width, SMALLEST_INCLUDING_BEAM)
            method = Including(replace(beam, width=wide), phrases)
        # a word brings the space before it: one at the end would stand alone, which no answer has
        beginning = tuple(vocabulary.encode(settings.prefix.rstrip(" "))) if settings.prefix.strip(" ") else ()
        extra = len(beginning) + sum(len(vocabulary.encode(text)) for text in settings.must_include)
        return Plan(method, tuple(rules), beginning, extra)


@lru_cache(maxsize=64)  # a table over the whole vocabulary: made once, not for every batch
def forbidden_phrase(text: str, vocabulary: Vocabulary) -> Phrase:
    """A text that is not to occur, not even inside a word."""
    spellings = vocabulary.spellings()
    spelled = "".join(spellings[token] for token in vocabulary.encode(text))
    return Phrase(spelled[1:], spellings)  # without the space that a vocabulary puts before a text


@lru_cache(maxsize=64)
def wanted_phrase(text: str, vocabulary: Vocabulary) -> Phrase:
    """A text that is to occur: as a word of its own if it begins like a word."""
    spellings, tokens = vocabulary.spellings(), vocabulary.encode(text)
    spelled = "".join(spellings[token] for token in tokens)
    return Phrase(spelled, spellings, tokens) if text[:1].isalnum() else Phrase(spelled[1:], spellings)


def search_answers(
    model: Writer, encode: Callable[[Sequence[int]], Memory], limits: Sequence[int], plan: Plan
) -> list[list[Hypothesis]]:
    """Answers to inputs 0, 1, ..., of `limits` tokens at most, in their order; like limits are searched together.

    `encode` makes the memory of the inputs with the given numbers. The model must be `at_rest`.
    """
    order = sorted(range(len(limits)), key=lambda number: -limits[number])
    answers: list[list[Hypothesis]] = [[] for _ in limits]
    while order:
        longest = limits[order[0]] + plan.extra
        count = max(1, min(AT_ONCE, MOST_TOKENS // (longest * plan.method.width)))
        chunk, order = order[:count], order[count:]
        allowed = [limits[number] + plan.extra for number in chunk]
        past = model.begin(encode(chunk), longest)
        # every input has its own draws, whatever else is in its part
        method = replace(plan.method, numbers=chunk) if isinstance(plan.method, Sample) else plan.method
        rules = [*plan.rules, prefix([plan.beginning] * len(chunk))] if plan.beginning else plan.rules
        found = search(
            model.step,
            past,
            start=START,
            end=END,
            limits=allowed,
            method=method,
            rules=rules,
            stretch=model.stretch,
        )
        for number, hypotheses in zip(chunk, found, strict=True):
            answers[number] = hypotheses
    return answers


def best_tokens(prediction: Prediction) -> list[int]:
    """What a search wrote, as it wrote it: the same text can be spelled with other tokens, which nobody chose."""
    if prediction.refusal is not None:
        raise SaccadeError(prediction.refusal)
    found = prediction.answers[0].hypothesis
    assert found is not None, "it was searched for"
    return list(found.tokens)


def wanted_answers(method: Method | None) -> int:
    """How many answers are asked for, where they are ranked and none is written step by step."""
    if isinstance(method, Sample):
        raise SaccadeError("this model ranks its answers by their probability, none is drawn: leave sampling out")
    return 1 if method is None else method.best


def refuse_target(target: str | None, instead: str = "leave the target out") -> None:
    """Where no answer is written, none can be forced."""
    if target is not None:
        raise SaccadeError(f"this model writes no answer that could be {target!r}: {instead}")


@contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """Without dropout and gradients for a while; then as before. A model that rests is left alone: to tell all its
    modules takes longer than to translate a sentence."""
    was_training = model.training
    if was_training:
        model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        if was_training:
            model.train()
