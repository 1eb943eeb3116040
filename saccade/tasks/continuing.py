"""Texts continued by a language model: prompts of any length, beyond the window if need be, and told as they grow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

import torch

from saccade.data.lexicon import Lexicon
from saccade.decode import Beam, Greedy, Hypothesis, Method, Sample, never, no_repeat, search
from saccade.decode.methods import Live
from saccade.errors import RunWarning, SaccadeError
from saccade.models.shapes import LanguageModel
from saccade.nn.cache import Past
from saccade.tasks.answers import at_rest

AT_ONCE = 32  # prompts continued together
HELD_PIECES = 8  # of an answer's end are read again for a text to stop at: pieces may overlap it


@dataclass(frozen=True)
class Continuation:
    """How a text goes on: up to `tokens` more, to the end of the `window` or sliding with it, until a text to stop at.

    A window slides by half its length: what is dropped makes room for as much again, read anew.
    """

    tokens: int
    window: int
    beyond: Literal["slide", "stop"] = "slide"
    stop: tuple[str, ...] = ()
    method: Method = field(default_factory=Greedy)
    no_repeat: int | None = None  # no run of so many tokens twice in what is new


def continue_texts(
    model: LanguageModel,
    lexicon: Lexicon,
    prompts: Sequence[Sequence[int]],
    how: Continuation,
    tell: Callable[[Sequence[int]], None] | None = None,
) -> list[list[Hypothesis]]:
    """The continuations of each prompt, best first. `tell` hears of the one prompt's one answer as it grows."""
    found: list[list[Hypothesis]] = []
    named = how.method.numbers if isinstance(how.method, Sample) else None  # of the prompts, for their draws
    if how.beyond == "slide":
        _tell_of_long(prompts, how)
    with at_rest(model):
        for first in range(0, len(prompts), AT_ONCE):
            numbers = (named or range(len(prompts)))[first : first + AT_ONCE]
            method = replace(how.method, numbers=numbers) if isinstance(how.method, Sample) else how.method
            heard = [list(prompt) for prompt in prompts[first : first + AT_ONCE]]
            begun = _pass(model, lexicon, heard, [how.tokens] * len(heard), replace(how, method=method), tell)
            for number, prompt, best in zip(numbers, heard, begun, strict=True):
                whole = [
                    _finished(model, lexicon, prompt, each, (number, place), how, tell)
                    for place, each in enumerate(best)
                ]
                # as a search sorts what it finds within one window
                found.append(sorted(whole, key=lambda each: (each.stopped not in ("eos", "stop"), -each.score)))
    return found


def _tell_of_long(prompts: Sequence[Sequence[int]], how: Continuation) -> None:
    """Of a prompt that is not read as a whole, people must know."""
    cut = [len(prompt) for prompt in prompts if len(prompt) > how.window]
    if cut:
        of = f"{len(cut):,} prompts have up to" if len(cut) > 1 else "the prompt has"
        told = f"{of} {max(cut):,} tokens and the model reads {how.window}: only the last {_kept(how)} are read"
        warnings.warn(told, RunWarning, stacklevel=2)


def _finished(
    model: LanguageModel,
    lexicon: Lexicon,
    prompt: list[int],
    begun: Hypothesis,
    number: tuple[int, int],
    how: Continuation,
    tell: Callable[[Sequence[int]], None] | None,
) -> Hypothesis:
    """A continuation that the window cut short goes on, window by window."""
    passes = 0
    while begun.stopped == "length" and len(begun.tokens) < how.tokens and how.beyond == "slide":
        passes += 1
        written = begun.tokens

        def grown(tokens: Sequence[int], written: tuple[int, ...] = written) -> None:
            assert tell is not None
            tell([*written, *tokens])

        left = how.tokens - len(written)
        more = _pass(
            model,
            lexicon,
            [[*prompt, *written]],
            [left],
            replace(how, method=_alone(how.method, passes, number)),
            None if tell is None else grown,
            written,
        )[0][0]
        scores = begun.token_scores + more.token_scores
        begun = Hypothesis.of(how.method, written + more.tokens, scores, more.stopped)
    return begun


def _alone(method: Method, passes: int, number: tuple[int, int]) -> Method:
    """The same method for one answer, with other draws than the passes before."""
    if isinstance(method, Sample):
        stream = number[0] * method.answers + number[1]
        return replace(method, answers=1, seed=method.seed + 1_000_003 * passes, numbers=[stream])
    return replace(method, best=1) if isinstance(method, Beam) else method


def _pass(
    model: LanguageModel,
    lexicon: Lexicon,
    prompts: Sequence[list[int]],
    limits: Sequence[int],
    how: Continuation,
    tell: Callable[[Sequence[int]], None] | None,
    written: tuple[int, ...] = (),
) -> list[list[Hypothesis]]:
    """As far as the window reaches. A text to stop at may begin in what was `written` in the windows before."""
    read = [_fitting(prompt, how) for prompt in prompts]
    # the last token written is not read, so a window holds one more than it reads
    rooms = [min(limit, how.window - len(prompt) + 1) for prompt, limit in zip(read, limits, strict=True)]
    marks = lexicon.marks
    forbidden = {marks.pad, marks.start, marks.mask, marks.end} - ({marks.end} if lexicon.published_ids else set())

    rules = [never(sorted(each for each in forbidden if each is not None))]
    if how.no_repeat is not None:
        rules.append(no_repeat(how.no_repeat, written))

    def stops(tokens: Sequence[int]) -> bool:
        held = {text: len(text.encode()) + HELD_PIECES for text in how.stop}
        return any(text in lexicon.decode([*written[-last:], *tokens][-last:]) for text, last in held.items())

    def heard(live: Live) -> None:
        if tell is not None:
            tell(live.tokens[0])

    return search(
        model.step,
        prefilled(model, [prompt[:-1] for prompt in read], max(rooms)),
        start=[prompt[-1] for prompt in read],
        end=marks.end,
        limits=rooms,
        method=how.method,
        rules=rules,
        stop=stops if how.stop else None,
        tell=None if tell is None else heard,
        stretch=model.stretch,
    )


def _fitting(prompt: list[int], how: Continuation) -> list[int]:
    """What of a prompt is read: all of it, or its end where the window must slide."""
    if not prompt:
        raise SaccadeError("there is nothing to continue: the prompt is empty")
    if len(prompt) <= how.window:
        return prompt
    if how.beyond == "stop":
        raise SaccadeError(
            f"the prompt has {len(prompt)} tokens and the window {how.window}: let it slide, or shorten the prompt"
        )
    return prompt[-_kept(how) :]


def _kept(how: Continuation) -> int:
    """Tokens that are read again where the window slides."""
    return max(how.window // 2, 1)


def prefilled(model: LanguageModel, prompts: Sequence[Sequence[int]], room: int) -> Past:
    """A past that has read each of the prompts, one row each. Prompts of one length are read together, so that no
    padding is ever read and a recurrent state is exact."""
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))
    pasts = []
    for length, same in groupby(order, key=lambda number: len(prompts[number])):
        rows = [list(prompts[number]) for number in same]
        past = model.begin(len(rows), length + room)
        if length:
            _, past = model.decoder.step(torch.tensor(rows), past)  # what would follow is not asked for
        pasts.append(past)
    return Past.joined(pasts).select(sorted(range(len(order)), key=lambda place: order[place]))


def cut_at(text: str, stop: Sequence[str]) -> str:
    """The text before the first of the texts to stop at."""
    return text[: min((place for place in map(text.find, stop) if place >= 0), default=None)]


def without_beginning(text: str, stop: Sequence[str]) -> str:
    """A text that still grows, without an end that may be the beginning of a text to stop at."""
    held = (size for each in stop for size in range(1, len(each)) if text.endswith(each[:size]))
    return text[: len(text) - max(held, default=0)]
