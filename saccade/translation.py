"""Translating lines of text: in order, batch by batch, nothing cut in silence; scores of files, and two runs
compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from saccade.api import Predictor
from saccade.config.tasks import TranslateSettings
from saccade.data.readers import read_lines, read_pairs, references_of
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.metrics import TextScore, bleu, chrf, paired_p_value
from saccade.tasks.base import Prediction
from saccade.tasks.translate import Translate

LINES_AT_ONCE = 32
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+")


@dataclass(frozen=True)
class Translation:
    """One translation of a line: of a long line, that of its sentences put together."""

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
    predictor: Predictor, lines: Iterable[str], method: Method | None = None, *, at_once: int = LINES_AT_ONCE
) -> Iterator[Translated]:
    """Translate lines in their order; a blank line stays blank, a long one is split into its sentences.

    Lines are taken `at_once` at a time, and a batch is handed out before the next is read. A sentence longer than any
    that the model was trained on is refused, and only it.
    """
    task = predictor.task
    if not isinstance(task, Translate):
        raise SaccadeError(f"this model was trained to {predictor.recipe.task.kind}, not to translate: use predict")
    source, number = iter(lines), 0
    while chunk := list(islice(source, at_once)):
        parts = [_parts(task, line, f"line {number + place}") for place, line in enumerate(chunk, start=1)]
        flat = [part for each in parts if not isinstance(each, str) for part in each]
        predictions = iter(predictor.predict(flat, method) if flat else [])
        for place, (line, each) in enumerate(zip(chunk, parts, strict=True), start=1):
            if isinstance(each, str):
                yield Translated(line, refusal=each)
            else:
                yield _joined(line, [next(predictions) for _ in each], f"line {number + place}")
        number += len(chunk)


def alignment(predictor: Predictor, translation: Translation) -> str:
    """Which source word each target word looked at most, as Pharaoh pairs i-j over words between spaces."""
    pairs: list[str] = []
    sources = targets = 0
    for source, target in translation.parts:
        if target.strip():
            maps = predictor.look(source, target)
            if not maps:
                raise SaccadeError("this model has no attention, so it knows no alignment")
            best = maps[0].mean[:-1].argmax(-1).tolist()  # the last row is the end of the sentence
            pairs += [f"{sources + place}-{targets + word}" for word, place in enumerate(best)]
        sources, targets = sources + len(source.split()), targets + len(target.split())
    return " ".join(pairs)


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, ended by a full stop, an exclamation or question mark."""
    return [part for part in SENTENCE_END.split(text.strip()) if part]


@dataclass(frozen=True)
class Evaluation:
    """The scores of a run's translations of a file."""

    sentences: int
    cut: int  # translations that hit the length limit
    scores: tuple[TextScore, ...]
    answers: tuple[str, ...]
    refused: tuple[str, ...]  # sentences that were too long, scored as empty


def evaluate_files(
    predictor: Predictor, source: str | Path, targets: Sequence[str | Path], method: Method | None = None
) -> Evaluation:
    """Translate a file and score it against one or more files of references, with intervals.

    Without reference files the source is a table with both sides in the columns of the run's recipe; a sentence that
    has several lines there has so many references.
    """
    lines, references = _read_evaluation(predictor, source, targets)
    found = list(translate_lines(predictor, lines, method, at_once=64))
    answers = [each.text for each in found]
    cut = sum(each.translations[0].stopped == "length" for each in found if each.translations)
    scores = (
        bleu(answers, references, interval=True),
        bleu(answers, references, lowercase=True, interval=True),
        chrf(answers, references, interval=True),
    )
    refused = tuple(each.refusal for each in found if each.refusal is not None)
    return Evaluation(len(lines), cut, scores, tuple(answers), refused)


@dataclass(frozen=True)
class Comparison:
    """BLEU of two runs on the same file, and the probability of so large a difference by chance."""

    first: float
    second: float
    p_value: float
    signature: str


def compare_files(
    predictors: tuple[Predictor, Predictor], source: str | Path, targets: Sequence[str | Path]
) -> Comparison:
    """Paired bootstrap resampling (Koehn 2004) by sacrebleu."""
    lines, references = _read_evaluation(predictors[0], source, targets)
    answers = [[each.text for each in translate_lines(one, lines, at_once=64)] for one in predictors]
    first, second = (bleu(each, references) for each in answers)
    return Comparison(first.value, second.value, paired_p_value(answers[0], answers[1], references), first.signature)


def _parts(task: Translate, line: str, where: str) -> list[str] | str:
    """The line itself if it is short enough, else its sentences; as text, why it is refused."""
    if not line.strip():
        return []
    longest = task.settings.longest
    if len(task.pieces.encode(line)) <= longest:
        return [line]
    sentences = split_sentences(line)
    for sentence in sentences:
        length = len(task.pieces.encode(sentence))
        if length > longest:
            return (
                f"{where}: refused, a sentence of {length} pieces where the model was trained on {longest} at most; "
                f"break it up: {_shown(sentence)}"
            )
    return sentences


def _joined(line: str, predictions: Sequence[Prediction], where: str) -> Translated:
    if not predictions:
        return Translated(line)
    translations = []
    for answers in zip(*(each.answers for each in predictions), strict=False):
        stopped = next((a.hypothesis.stopped for a in answers if a.hypothesis.stopped != "eos"), "eos")
        parts = tuple((each.input, answer.text) for each, answer in zip(predictions, answers, strict=True))
        score = sum(answer.hypothesis.score for answer in answers)
        translations.append(Translation(" ".join(text for _, text in parts), score, stopped, parts))
    cut = [each for each in predictions if each.answers[0].hypothesis.stopped == "length"]
    notes = [f"{where}: the translation of {_shown(each.input)} hit the length limit" for each in cut]
    if len(predictions) > 1:
        notes.append(f"{where}: long, translated as {len(predictions)} sentences")
    return Translated(line, tuple(translations), tuple(notes))


def _read_evaluation(
    predictor: Predictor, source: str | Path, targets: Sequence[str | Path]
) -> tuple[list[str], list[list[str]]]:
    settings = predictor.recipe.task
    if not targets and isinstance(settings, TranslateSettings):
        columns = (settings.source_column, settings.target_column)
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
