"""Translating lines of text: in order, batch by batch, nothing cut in silence; scores of files, and two runs
compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from saccade.config import Recipe
from saccade.config.tasks import TranslateSettings
from saccade.data.readers import read_lines, read_pairs, references_of
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.metrics import Score, bleu, chrf, paired_p_value
from saccade.tasks.base import Prediction, Task
from saccade.tasks.translate import Translate

BATCH_TOKENS = 1024
SENTENCE_END = re.compile(r"(?<=[.!?…])\s+")


class Translator(Protocol):
    """What is asked of a model here; `saccade.load` gives one."""

    @property
    def task(self) -> Task: ...

    @property
    def recipe(self) -> Recipe: ...

    def predict(self, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]: ...

    def look(self, text: str, target: str | None = None, *, pieces: bool = False) -> list[AttentionMap]: ...


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
    translator: Translator,
    lines: Iterable[str | None],
    method: Method | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
) -> Iterator[Translated]:
    """Translate lines in their order; a blank line stays blank, a long one is split into its sentences.

    Lines are gathered until they have some `batch_tokens` pieces, and a batch is handed out before more is read. None
    among the lines says that no other is waiting: what has come is translated at once. A sentence longer than any that
    the model was trained on is refused, and only it.
    """
    task = _translating(translator)
    gathered: list[tuple[str, list[str] | str]] = []  # a line with its parts, or why it is refused
    tokens = number = 0
    for line in lines:
        if line is not None:
            number += 1
            parts = _parts(task, line, f"line {number}")
            gathered.append((line, parts))
            tokens += 1 if isinstance(parts, str) else sum(len(task.pieces.encode(part)) for part in parts)
        if gathered and (line is None or tokens >= batch_tokens):
            yield from _translated(translator, gathered, number - len(gathered), method)
            gathered, tokens = [], 0
    yield from _translated(translator, gathered, number - len(gathered), method)


def _translated(
    translator: Translator, gathered: list[tuple[str, list[str] | str]], before: int, method: Method | None
) -> Iterator[Translated]:
    flat = [part for _, parts in gathered if not isinstance(parts, str) for part in parts]
    predictions = iter(translator.predict(flat, method) if flat else [])
    for number, (line, parts) in enumerate(gathered, start=before + 1):
        if isinstance(parts, str):
            yield Translated(line, refusal=parts)
        else:
            yield _joined(line, [next(predictions) for _ in parts], f"line {number}")


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
    """The sentences of a text, ended by a full stop, an exclamation or question mark."""
    return [part for part in SENTENCE_END.split(text.strip()) if part]


@dataclass(frozen=True)
class Evaluation:
    """The scores of a run's translations of a file."""

    sentences: int
    cut: int  # translations that hit the length limit
    scores: tuple[Score, ...]
    answers: tuple[str, ...]
    refused: tuple[str, ...]  # sentences that were too long, scored as empty


def evaluate_files(
    translator: Translator, source: str | Path, targets: Sequence[str | Path], method: Method | None = None
) -> Evaluation:
    """Translate a file and score it against one or more files of references, with intervals.

    Without reference files the source is a table with both sides in the columns of the run's recipe; a sentence that
    has several lines there has so many references.
    """
    lines, references = _read_evaluation(translator, source, targets)
    found = list(translate_lines(translator, lines, method))
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
    translators: tuple[Translator, Translator], source: str | Path, targets: Sequence[str | Path]
) -> Comparison:
    """Paired bootstrap resampling (Koehn 2004) by sacrebleu."""
    lines, references = _read_evaluation(translators[0], source, targets)
    answers = [[each.text for each in translate_lines(one, lines)] for one in translators]
    first, second = (bleu(each, references) for each in answers)
    return Comparison(first.value, second.value, paired_p_value(answers[0], answers[1], references), first.signature)


def _translating(translator: Translator) -> Translate:
    if not isinstance(translator.task, Translate):
        kind = translator.recipe.task.kind
        raise SaccadeError(f"files of sentences are for models that translate, and this one was trained for {kind}")
    return translator.task


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
        stopped = next((answer.stopped for answer in answers if answer.stopped != "eos"), "eos")
        parts = tuple((each.input, answer.text) for each, answer in zip(predictions, answers, strict=True))
        score = sum(answer.score for answer in answers)
        translations.append(Translation(" ".join(text for _, text in parts), score, stopped, parts))
    cut = [each for each in predictions if each.answers[0].stopped == "length"]
    notes = [f"{where}: the translation of {_shown(each.input)} hit the length limit" for each in cut]
    if len(predictions) > 1:
        notes.append(f"{where}: long, translated as {len(predictions)} sentences")
    return Translated(line, tuple(translations), tuple(notes))


def _read_evaluation(
    translator: Translator, source: str | Path, targets: Sequence[str | Path]
) -> tuple[list[str], list[list[str]]]:
    settings = translator.recipe.task
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
