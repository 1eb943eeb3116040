"""Transcription: recorded speech in, its text out, letter by letter; scored by real decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from torch import Tensor

from saccade.config import Recipe
from saccade.config.sound import ListenAttendSpellSettings, SpeechTransformerSettings, TranscribeSettings
from saccade.data.readers import hash_of, is_file, warn_of_broken
from saccade.data.speech import PARTS, Part, Speech, open_speech
from saccade.data.vocab import Characters
from saccade.decode import Hypothesis, Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.metrics import Score, accuracy, character_error_rate, word_error_rate
from saccade.metrics.score import exchanged
from saccade.models import SPEECH_MODELS
from saccade.models.shapes import EncoderDecoder, Memory
from saccade.tasks.answers import Plan, at_rest, search_answers, validation_method
from saccade.tasks.base import Loss, Prediction, Scores
from saccade.tasks.hearing import FRAMES, Hearing, padded_frames
from saccade.tasks.written import (
    WrittenBatch,
    as_prediction,
    load_most_frequent,
    look_while_writing,
    save_most_frequent,
    written_batch,
    written_loss,
)

FILES = (".wav", ".flac", FRAMES)
NAMED = 5  # recordings that were left out and are told by name


@dataclass(frozen=True, eq=False)
class Example:
    """Normalised frames of a recording, and what was said as text and as ids."""

    name: str
    frames: Tensor  # (T, F), in half precision: a corpus stays in memory
    text: str
    target: list[int]


class Transcribe:
    """See saccade.tasks.base.Task for what each method is for."""

    FILE = "transcripts.json"

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, TranscribeSettings)
        if not isinstance(recipe.model, ListenAttendSpellSettings | SpeechTransformerSettings):
            raise SaccadeError(
                f"model.kind {recipe.model.kind!r} cannot transcribe; there are {', '.join(SPEECH_MODELS)}"
            )
        if recipe.decode.coverage_penalty:
            raise SaccadeError("decode.coverage_penalty is for words of a source, and sound has none: set it to 0")
        self.recipe, self.settings = recipe, recipe.task
        self.hearing, self.stride = Hearing(self.settings), recipe.model.stride
        self._vocabulary: Characters | None = None
        self._frequent = ""
        self._parts: dict[Part, list[Example]] = {}

    @property
    def vocabulary(self) -> Characters:
        if self._vocabulary is None:
            raise SaccadeError("the characters have not been learned yet")
        return self._vocabulary

    @cached_property
    def speech(self) -> Speech:
        speech, features = open_speech(self.settings), self.settings.features
        if features is not None and features != speech.features:
            found = "sound" if speech.features is None else f"frames of {speech.features} numbers"
            raise SaccadeError(f"{self.settings.data}: {found}, and task.features is {features}")
        return speech

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        found, reasons = {}, []
        if self.speech.features is not None:
            if self.settings.cepstra is not None:
                raise SaccadeError(f"{self.settings.data}: frames that somebody has made; task.cepstra is for sound")
            found["features"] = self.speech.features
            reasons.append(f"ready-made frames of {self.speech.features} numbers, with their slopes beside them")
        elif self.settings.rate is None:
            found["rate"] = self.speech.usual_rate()
            reasons.append(f"{found['rate']:,} samples a second: as most recordings have, up to what speech needs")
        self.settings = self.settings.model_copy(update=found)
        self.hearing = Hearing(self.settings)
        self.recipe = self.recipe.model_copy(update={"task": self.settings})
        return self.recipe, reasons

    def prepare(self, directory: Path) -> Sequence[str]:
        heard = {part: self._heard(part) for part in PARTS[:2]}
        texts = [text for _, text, _ in heard["train"]]
        self._vocabulary = Characters.learn(texts)
        self._vocabulary.save(directory)
        self._frequent = save_most_frequent(directory / self.FILE, texts)
        self._parts = {part: self._encoded(found) for part, found in heard.items()}
        seconds = self.settings.hop * sum(len(frames) for _, _, frames in heard["train"])
        notes = [
            f"{len(texts):,} recordings, {seconds / 60:,.1f} minutes, to train on; {len(heard['valid']):,} to validate",
            f"{len(self._vocabulary.characters)} characters",
        ]
        for part in heard:
            reasons = list(self.speech.left_out[part].values())
            if reasons:
                notes += [f"left out of the part {part}: {len(reasons):,} recordings", *reasons[:NAMED]]
                notes += [f"... and {len(reasons) - NAMED:,} more"] if len(reasons) > NAMED else []
        return notes

    def load(self, directory: Path) -> None:
        self._vocabulary = Characters.load(directory)
        self._frequent = load_most_frequent(directory / self.FILE)

    def place(self, number: int) -> str:
        return self.examples("train")[number].name

    def examples(self, split: str) -> Sequence[Example]:
        part = _part(split)
        if part not in self._parts:
            self._parts[part] = self._encoded(self._heard(part))
            warn_of_broken(list(self.speech.left_out[part].values()), part, self.settings.data)
        return self._parts[part]

    def length(self, example: Example) -> int:
        return max(self._positions(example.frames), len(example.target) + 1)

    def collate(self, examples: Sequence[Example], numbers: Sequence[int]) -> WrittenBatch:
        frames, mask = padded_frames([each.frames for each in examples])
        return written_batch(frames, mask, [each.target for each in examples], numbers)

    def model(self) -> EncoderDecoder:
        return SPEECH_MODELS[self.recipe.model.kind](self.recipe.model, self.hearing.width, len(self.vocabulary))

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        if self.settings.augment and model.training and batch.source_mask is not None:
            batch = replace(batch, source=self.hearing.augment(batch.source, batch.source_mask))
        return written_loss(model, batch, smoothing=self.recipe.train.smoothing)

    def predict(self, model: EncoderDecoder, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """Of sound files, or of ready-made frames in .npy files; or of recordings of the validation part by name."""
        heard: dict[int, Tensor] = {}
        refusals: dict[int, str] = {}
        for number, name in enumerate(inputs):
            try:
                heard[number] = self._frames_of(name)
            except SaccadeError as error:
                refusals[number] = str(error)
        found = dict(zip(heard, self._answers(model, list(heard.values()), method), strict=True))
        return [
            Prediction(name, refusal=refusals[number])
            if number in refusals
            else as_prediction(name, found[number], self.vocabulary)
            for number, name in enumerate(inputs)
        ]

    def score(self, model: EncoderDecoder) -> Scores:
        """Error rates of some validation recordings, chosen by hash; `words`, which decides, is 1 - WER."""
        chosen = sorted(self.examples("valid"), key=lambda each: hash_of(each.name))[: self.settings.valid_examples]
        found = self._answers(model, [each.frames for each in chosen], validation_method(self.recipe.decode))
        answers = [self.vocabulary.decode(hypotheses[0].tokens) for hypotheses in found]
        references = [each.text for each in chosen]
        wer, cer = (rate(answers, references).value for rate in (word_error_rate, character_error_rate))
        values = {
            "words": 1 - wer / 100,
            "wer": wer,
            "cer": cer,
            "exact": accuracy(answers, references).value / 100,
            "cut": sum(hypotheses[0].stopped != "eos" for hypotheses in found) / len(found),
        }
        names = [each.name for each in chosen]
        return Scores("words", values, list(zip(names, answers, references, strict=True)))

    def evaluate(self, model: EncoderDecoder, split: str) -> Sequence[Score]:
        """Of the whole part, by the recipe's search."""
        examples = self.examples(split)
        found = self._answers(model, [each.frames for each in examples])
        answers = [self.vocabulary.decode(hypotheses[0].tokens) for hypotheses in found]
        references = [each.text for each in examples]
        frequent = [self._frequent] * len(references)

        def scores(given: Sequence[str], whose: str = "") -> list[Score]:
            found = (
                word_error_rate(given, references, interval=True),
                character_error_rate(given, references, interval=True),
                replace(accuracy(given, references), name="exact transcripts"),
            )
            return [replace(score, name=f"{score.name}{whose}") for score in found]

        return [
            *scores(answers),
            *scores(frequent, f" of always {self._frequent!r}"),
            *scores(exchanged(answers), " with recordings and transcripts shuffled"),
        ]

    def look(
        self,
        model: EncoderDecoder,
        text: str,
        target: str | None = None,
        *,
        pieces: bool = False,  # noqa: ARG002 - letters are both what is written and what people read
    ) -> list[AttentionMap]:
        """Letters against time, for the sound file or the validation recording called `text`."""
        frames = self._frames_of(text)
        ids = list(self._answers(model, [frames])[0][0].tokens) if target is None else self.vocabulary.encode(target)
        batch = self.collate([Example(text, frames, "", ids)], [0])
        return look_while_writing(model, batch, self.hearing.time(frames, self.stride), self.vocabulary)

    def _answers(
        self, model: EncoderDecoder, frames: Sequence[Tensor], method: Method | None = None
    ) -> list[list[Hypothesis]]:
        decode = self.recipe.decode

        def encode(numbers: Sequence[int]) -> Memory:
            return model.encode(*padded_frames([frames[number] for number in numbers]))

        limits = [max(1, int(decode.limit_factor * self._positions(each)) + decode.limit_extra) for each in frames]
        with at_rest(model):
            return search_answers(model, encode, limits, Plan.of(decode, self.vocabulary, method))

    def _positions(self, frames: Tensor) -> int:
        return math.ceil(len(frames) / self.stride)

    def _heard(self, part: Part) -> list[tuple[str, str, Tensor]]:
        """Name, text and frames of all that can be used of a part."""
        heard = [(each.name, each.text, self.hearing.frames(each.heard)) for each in self.speech.read(part)]
        if not heard:
            raise self.speech.nothing(part)
        return heard

    def _encoded(self, heard: Sequence[tuple[str, str, Tensor]]) -> list[Example]:
        """With ids; characters that training never saw have none, and no answer will match them."""
        encode, known = self.vocabulary.encode, self.vocabulary.known
        return [Example(name, frames, text, encode(known(text))) for name, text, frames in heard]

    def _frames_of(self, name: str) -> Tensor:
        """Of a file, or of a recording of the validation part."""
        path = Path(name)
        if path.suffix.lower() in FILES or is_file(path):
            return self.hearing.read(path)
        known = {each.name: each.frames for each in self.examples("valid")}
        if name not in known:
            raise SaccadeError(
                f"{name}: neither a sound file nor a recording of the validation part, such as {next(iter(known))}"
            )
        return known[name]


def _part(split: str) -> Part:
    for part in PARTS:
        if part == split:
            return part
    raise SaccadeError(f"speech has no part called {split!r}; there are {', '.join(PARTS)}")
