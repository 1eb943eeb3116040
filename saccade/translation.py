"""Translating lines of text: in order, batch by batch, whole or sentence by sentence, nothing cut in silence; scores of
files, and two runs compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from saccade.config import Recipe
from saccade.config.training import DecodeSettings
from saccade.data.readers import read_lines, read_pairs, references_of
from saccade.decode import Beam, Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.metrics import Score, bleu, chrf, paired_p_value
from saccade.tasks.base import Prediction, Task
from saccade.tasks.translate import Translate

BATCH_TOKENS = 4096  # of lines that are read before they are translated, like lengths together
BATCH_BEAM = 8  # of a wider beam fewer: it takes longer, and what is done is handed out
# Where a sentence may end, and where it does, mostly; Chinese and Japanese ones have no space between them.
MARK = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*(?=.)")
# Marks are taken whole and from their first on: a thousand dots are looked at once, not from each of them.
SENTENCE_END = re.compile(
    r"((?<![.!?…])[.!?…]++(?:\s?[»”\")\]]+)?(?=\s)|(?<![。！？])[。！？]++(?=.))\s*(?![\s»”」』)）\]!?。！？….,;:])"
)
ABBREVIATION = re.compile(r"MM?|Mme|Mlle|Mrs?|Ms|Dr|Pr|Prof|Ste?|Hr|Fr|cf|pp?|vs")
INITIALS = re.compile(r"(?!I$)(?:[^\W\d_]\.-?)*[^\W\d_]")  # I alone is a person, not a name
LONGEST_ABBREVIATION = 64  # letters before a full stop that are looked at


class Translator(Protocol):
    """What is asked of a model here; `saccade.load` gives one."""

    @property
    def task(self) -> Task: ...

    @property
    def recipe(self) -> Recipe: ...

    @property
    def writer(self) -> Any: ...

    def predict(self, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]: ...

    def look(self, text: str, target: str | None = None, *, pieces: bool = False) -> list[AttentionMap]: ...


@dataclass(frozen=True)
class Translation:
    """One translation of a line: of a line that was split, those of its sentences put together."""

    text: str
    score: float
    stopped: str
    parts: tuple[tuple[str, str], ...]  # source and target of each sentence


@dataclass(frozen=True)
class Translated:
    """One line's translations, best first; none for a blank line, or for one that was refused as `refusal` says."""

    line: str
    translations: tuple[Translation, ...] = ()
    notes: tuple[str, ...] = ()
    refusal: str | None = None

    @property
    def text(self) -> str:
        return self.translations[0].text if self.translations else ""


def translate_lines(
    translator: Translator,
    lines: Iterable[str | None],
    method: Method | None = None,
    *,
    split: bool = False,
    batch_tokens: int | None = None,
) -> Iterator[Translated]:
    """Translate lines in their order; a blank line stays blank.

    With `split` every sentence of a line is translated by itself, else those of a line only that is too long to be
    translated whole. A prefix (`decode.prefix`) is then that of the first sentence; where a line must include a text
    (`decode.must_include`) it is never split. What is longer than all that the model was trained on is refused, and
    only it.

    Lines are gathered until they have some `batch_tokens` pieces, and a batch is handed out before more is read. None
    among the lines says that no other is waiting: what has come is translated at once.
    """
    task = _translating(translator)
    _refuse_contradictions(task.recipe.decode)
    beam = method.width if isinstance(method, Beam) else task.recipe.decode.beam
    most = batch_tokens or BATCH_TOKENS * BATCH_BEAM // max(BATCH_BEAM, beam)
    gathered: list[tuple[str, list[str] | str]] = []  # a line with its parts, or why it is refused
    tokens = number = 0
    for line in lines:
        if line is not None:
            number += 1
            parts, pieces = _parts(task, line, f"line {number}", split)
            gathered.append((line, parts))
            tokens += pieces
        if gathered and (line is None or tokens >= most):
            yield from _translated(translator, gathered, number - len(gathered), method, split)
            gathered, tokens = [], 0
    yield from _translated(translator, gathered, number - len(gathered), method, split)


def _translated(
    translator: Translator, gathered: list[tuple[str, list[str] | str]], before: int, method: Method | None, split: bool
) -> Iterator[Translated]:
    predictions = _predictions(translator, [parts for _, parts in gathered if not isinstance(parts, str)], method)
    for number, (line, parts) in enumerate(gathered, start=before + 1):
        if isinstance(parts, str):
            yield Translated(line, refusal=parts)
        else:
            yield _joined(line, [next(predictions) for _ in parts], f"line {number}", split)


def _predictions(translator: Translator, lines: Sequence[list[str]], method: Method | None) -> Iterator[Prediction]:
    """Of all sentences, in their order; a prefix is the beginning of a line: its other sentences go without."""
    task = _translating(translator)
    decode = task.recipe.decode
    later = [sentence for parts in lines for sentence in parts[1:]]
    if not decode.prefix or not later:
        sentences = [sentence for parts in lines for sentence in parts]
        return iter(translator.predict(sentences, method) if sentences else [])
    free = copy(task)
    free.recipe = task.recipe.model_copy(update={"decode": decode.model_copy(update={"prefix": ""})})
    first = iter(translator.predict([parts[0] for parts in lines if parts], method))
    rest = iter(free.predict(translator.writer, later, method))
    return (next(rest if place else first) for parts in lines for place in range(len(parts)))


def alignment(translator: Translator, translation: Translation) -> str:
    """Which source word each target word looked at most, as Pharaoh pairs i-j over words between spaces.

    In the head or layer that showed it best on the validation part, where a finished training has found one.
    """
    task = _translating(translator)
    pairs: list[str] = []
    sources = targets = 0
    for source, target in translation.parts:
        if target.strip():
            maps = translator.look(source, target)
            if not maps:
                raise SaccadeError("this model has no attention, so it knows no alignment")
            weights = task.alignment.weights(maps)
            best = weights[:-1].argmax(-1).tolist()  # the last row is the end of the sentence
            pairs += [f"{sources + place}-{targets + word}" for word, place in enumerate(best)]
        sources, targets = sources + len(source.split()), targets + len(target.split())
    return " ".join(pairs)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text: each ends with a full stop, an exclamation or question mark, and perhaps a quotation
    mark. One that goes on in lower case has not ended, nor has one with the stop of "M." or of initials."""
    text = text.strip()
    cased, begin = text != text.lower(), 0
    sentences = []
    for end in SENTENCE_END.finditer(text):
        goes_on = cased and text[end.end()].islower()
        before = text[max(begin, end.start() - LONGEST_ABBREVIATION) : end.start()]
        if not goes_on and not (end[1] == "." and _abbreviated(before)):
            sentences.append(text[begin : end.end(1)])
            begin = end.end()
    return [*sentences, text[begin:]] if text else []


def _abbreviated(text: str) -> bool:
    word = (text.split() or [""])[-1].lstrip("«“\"'(")
    return bool(ABBREVIATION.fullmatch(word) or (word.isupper() and INITIALS.fullmatch(word)))


@dataclass(frozen=True)
class Answers:
    """A run's translations of a file, and what came in between."""

    texts: tuple[str, ...]
    cut: int  # translations that hit the length limit
    split: int  # lines that were too long to be translated whole, but not their sentences
    refused: tuple[str, ...]  # why, of lines with a sentence that was too long: blank

    def __str__(self) -> str:
        split = f"; long lines, translated sentence by sentence: {self.split}" if self.split else ""
        return f"{len(self.texts):,} sentences, {self.cut} translations hit the length limit{split}"


@dataclass(frozen=True)
class Evaluation:
    """The scores of a run's translations of a file."""

    scores: tuple[Score, ...]
    answers: Answers


def evaluate_files(
    translator: Translator,
    source: str | Path,
    targets: Sequence[str | Path],
    method: Method | None = None,
    *,
    columns: tuple[int, int] | None = None,
) -> Evaluation:
    """Translate a file line by line and score it against one or more files of references, with intervals.

    Without reference files the source is a table with both sides in `columns`, by default those of the run's recipe; a
    sentence that has several lines there has so many references.
    """
    lines, references = _read_evaluation(source, targets, columns or columns_of(translator))
    answers = _answers(translator, lines, method)
    scores = (
        bleu(answers.texts, references, interval=True),
        bleu(answers.texts, references, lowercase=True, interval=True),
        chrf(answers.texts, references, interval=True),
    )
    return Evaluation(scores, answers)


@dataclass(frozen=True)
class Comparison:
    """BLEU of two runs on the same file, and the probability of so large a difference by chance."""

    first: Score
    second: Score
    p_value: float
    answers: tuple[Answers, Answers]


def compare_files(
    translators: tuple[Translator, Translator],
    source: str | Path,
    targets: Sequence[str | Path],
    methods: tuple[Method | None, Method | None] = (None, None),
    *,
    columns: tuple[int, int] | None = None,
) -> Comparison:
    """Paired bootstrap resampling (Koehn 2004) by sacrebleu; files are read as for `evaluate_files`, with the first
    run's columns."""
    lines, references = _read_evaluation(source, targets, columns or columns_of(translators[0]))
    one, other = (_answers(translator, lines, method) for translator, method in zip(translators, methods, strict=True))
    first, second = (bleu(each.texts, references, interval=True) for each in (one, other))
    return Comparison(first, second, paired_p_value(one.texts, other.texts, references), (one, other))


def _answers(translator: Translator, lines: Sequence[str], method: Method | None) -> Answers:
    found = list(translate_lines(translator, lines, method))
    best = [each.translations[0] for each in found if each.translations]
    return Answers(
        texts=tuple(each.text for each in found),
        cut=sum(each.stopped == "length" for each in best),
        split=sum(len(each.parts) > 1 for each in best),
        refused=tuple(each.refusal for each in found if each.refusal is not None),
    )


def columns_of(translator: Translator) -> tuple[int, int]:
    """Where a run's recipe has source and target of a table, counted from one."""
    settings = _translating(translator).settings
    return settings.source_column, settings.target_column


def _translating(translator: Translator) -> Translate:
    if not isinstance(translator.task, Translate):
        kind = translator.recipe.task.kind
        raise SaccadeError(f"files of sentences are for models that translate, and this one was trained for {kind}")
    return translator.task


def _refuse_contradictions(decode: DecodeSettings) -> None:
    for avoided in filter(None, decode.must_not_include):
        for wanted in (decode.prefix, *decode.must_include):
            if avoided in wanted:
                raise SaccadeError(f"no translation can have {wanted!r} in it and be without {avoided!r}")


def _parts(task: Translate, line: str, where: str, split: bool) -> tuple[list[str] | str, int]:
    """The line itself, or its sentences, and how many pieces they have; as text, why it is refused."""
    longest = task.settings.longest

    @cache  # most lines are one sentence
    def pieces(text: str) -> int:
        return len(task.pieces.encode(text))

    if not line.strip():
        return [], 0
    fits = pieces(line) <= longest
    if task.recipe.decode.must_include and not fits:
        return (
            f"{where}: refused, {pieces(line)} pieces where the model was trained on {longest} at most; "
            f"a line that must include a text is not split: {_shown(line)}"
        ), 1
    if task.recipe.decode.must_include or (fits and not split):
        return [line], pieces(line)
    sentences: list[str] = []
    for sentence in split_sentences(line):
        sentences += [sentence] if pieces(sentence) <= longest else MARK.split(sentence)
    for sentence in sentences:
        if (length := pieces(sentence)) > longest:
            return (
                f"{where}: refused, a sentence of {length} pieces where the model was trained on {longest} at most; "
                f"break it up: {_shown(sentence)}"
            ), 1
    return sentences, sum(map(pieces, sentences))


def _joined(line: str, predictions: Sequence[Prediction], where: str, split: bool) -> Translated:
    if not predictions:
        return Translated(line)
    translations = []
    for answers in zip(*(each.answers for each in predictions), strict=False):
        stopped = next((answer.stopped for answer in answers if answer.stopped != "eos"), "eos")
        parts = tuple((each.input, answer.text) for each, answer in zip(predictions, answers, strict=True))
        score = sum(answer.score for answer in answers)
        translations.append(Translation(" ".join(text for _, text in parts), score, stopped, parts))
    cut = [each for each in predictions if each.answers[0].stopped == "length"]
    notes = [f"{where}: the translation of {_shown(each.input)} hit the length limit" for each in cut]
    if len(predictions) > 1 and not split:
        notes.append(f"{where}: long, translated as {len(predictions)} sentences")
    return Translated(line, tuple(translations), tuple(notes))


def _read_evaluation(
    source: str | Path, targets: Sequence[str | Path], columns: tuple[int, int]
) -> tuple[list[str], list[list[str]]]:
    if not targets:
        known = references_of(
            [pair for pair in read_pairs(source, None, columns=columns) if pair.source and pair.target]
        )
        if not known:
            raise SaccadeError(f"{source} has no lines to translate")
        return list(known), list(known.values())
    lines = list(read_lines(source))
    others = [list(read_lines(target)) for target in targets]
    for target, column in zip(targets, others, strict=True):
        if len(column) != len(lines):
            raise SaccadeError(f"{source} has {len(lines):,} lines and {target} has {len(column):,}; they must match")
    if not lines:
        raise SaccadeError(f"{source} has no lines to translate")
    return lines, [list(each) for each in zip(*others, strict=True)]


def _shown(text: str, most: int = 40) -> str:
    return repr(text if len(text) <= most else text[: most - 1] + "…")
