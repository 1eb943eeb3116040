"""Reading: the image of a word in, its letters out; scored by real decoding.

Li et al. (2019), "Show, attend and read": a convolutional grid and a recurrent decoder that looks at a spot of it
before each letter. Nothing straightens the word first: attention finds its way over tilted and bent ones by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from saccade.config import Recipe
from saccade.config.captions import CaptionTransformerSettings, ShowAttendTellSettings
from saccade.config.words import ReadSettings
from saccade.data.images import Pixels, read_image
from saccade.data.pictures import told
from saccade.data.readers import hash_of, is_file, read_lines
from saccade.data.rendered import RANDOM_LONGEST, DrawnWord, RenderedWords, Renderer
from saccade.data.spelled import Example, Examples, Row, SeenWord
from saccade.data.vocab import END, START, Characters
from saccade.data.words import PARTS, WordImages, framed
from saccade.decode import Hypothesis, Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.metrics import Score, accuracy, character_error_rate, word_accuracy
from saccade.metrics.reading import SHORTEST, letters_and_digits
from saccade.metrics.score import exchanged
from saccade.models import CAPTIONERS
from saccade.models.shapes import EncoderDecoder
from saccade.tasks.answers import Plan, validation_method
from saccade.tasks.base import Loss, Prediction, Scores
from saccade.tasks.sights import look_while_describing, predictions_of, search_descriptions
from saccade.tasks.space import as_batch
from saccade.tasks.written import WrittenBatch, load_most_frequent, save_most_frequent, written_batch, written_loss

COUNTED = 5000  # rendered words among which the most frequent is looked for, where there are no others


class ReadWords:
    """See saccade.tasks.base.Task for what each method is for."""

    FILE = "words.json"

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, ReadSettings)
        if not isinstance(recipe.model, ShowAttendTellSettings | CaptionTransformerSettings):
            raise SaccadeError(f"model.kind {recipe.model.kind!r} cannot read; there are {', '.join(CAPTIONERS)}")
        if recipe.decode.coverage_penalty:
            raise SaccadeError("decode.coverage_penalty is for words of a source, and images have none: set it to 0")
        self.recipe, self.settings = recipe, recipe.task
        settings = self.settings
        self.size = settings.height, settings.width
        self.data = None
        if settings.data is not None:
            self.data = WordImages(settings.data, settings.test, settings.valid, self.size, settings.broken)
        self._vocabulary: Characters | None = None
        self._frequent = ""
        self._photographed: dict[str, list[SeenWord]] = {}

    @property
    def vocabulary(self) -> Characters:
        if self._vocabulary is None:
            raise SaccadeError("the characters have not been learned yet")
        return self._vocabulary

    @cached_property
    def renderer(self) -> Renderer:
        fonts = [*_fonts_at_hand(), *map(Path, self.settings.fonts)]
        return Renderer(fonts, size=self.size, roughness=self.settings.roughness)

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        reasons = []
        if self.data is not None:
            reasons += [f"{part}: {len(found):,} words" for part, found in self.data.parts.items()]
        if self.settings.rendered:
            reasons.append(
                f"{self.settings.rendered:,} rendered words to train on, in {len(self.renderer.fonts)} fonts"
            )
        return self.recipe, reasons

    def prepare(self, directory: Path) -> Sequence[str]:
        notes: list[str] = []
        if self.data is not None:
            there, broken = self.data.read("train")
            notes += told(broken, len(there) + len(broken), "images")
            kept: list[SeenWord] = [each for each in there if len(each.text) <= self.settings.longest]
            if long := len(there) - len(kept):
                notes.append(
                    f"words of more than {self.settings.longest} letters are left out, {long:,} of {len(there):,}"
                )
            self._photographed["train"] = kept
        texts = [each.text for each in self._photographed.get("train", ())]
        spelled, counted = list(texts), texts
        if self.settings.rendered:
            drawn = self._drawn("train")
            if not self.renderer.able(drawn.letters):
                raise SaccadeError(
                    f"no font has all of task.letters {drawn.letters!r}; name one that does in task.fonts"
                )
            if left := len(wanted := self._wanted()) - len(drawn.words):
                notes.append(f"words that are too long or in no font are not rendered, {left:,} of {len(wanted):,}")
            spelled += [drawn.letters, *(case for each in drawn.words for case in _cases(each))]
            counted = texts or [drawn[number].text for number in range(min(COUNTED, len(drawn)))]
        self._vocabulary = Characters.learn(spelled)
        self._vocabulary.save(directory)
        self._frequent = save_most_frequent(directory / self.FILE, counted)
        return [*notes, f"{len(self._vocabulary.characters)} characters"]

    def load(self, directory: Path) -> None:
        self._vocabulary = Characters.load(directory)
        self._frequent = load_most_frequent(directory / self.FILE)

    def place(self, number: int) -> str:
        return f"{self.settings.data or 'no data'}: {self.examples('train')[number].word.name}"

    def words(self, split: str) -> Sequence[SeenWord]:
        """The words of a part as they are; where there is no data, drawn ones, by another seed in each part."""
        if split not in PARTS:
            raise SaccadeError(f"words have no part called {split!r}; there are {', '.join(PARTS)}")
        if self.data is None:
            return list(self._drawn(split))
        if split not in self._photographed:
            found, _ = self.data.read(split)
            short = (each for each in found if split != "train" or len(each.text) <= self.settings.longest)
            self._photographed[split] = list(short)
        return self._photographed[split]

    def examples(self, split: str) -> Examples:
        if split != "train":
            return Examples(self.vocabulary, (self.words(split),))
        rows: list[Row] = []
        if self.data is not None:
            photos, change, seed = self.words("train"), self.renderer.changed, (self.settings.seed, len(PARTS))
            rows.append(photos)
            rows += [
                [
                    DrawnWord(each.name, each.text, (*seed, time, n), partial(change, each.image))
                    for n, each in enumerate(photos)
                ]
                for time in range(1, self.settings.repeat)
            ]
        if self.settings.rendered:
            rows.append(self._drawn("train"))
        return Examples(self.vocabulary, tuple(rows))

    def length(self, example: Example) -> int:
        return len(example.target) + 1

    def collate(self, examples: Sequence[Example], numbers: Sequence[int]) -> WrittenBatch:
        images = as_batch([each.word.image for each in examples])
        return written_batch(images, None, [each.target for each in examples], numbers)

    def model(self) -> EncoderDecoder:
        return CAPTIONERS[self.recipe.model.kind](self.recipe.model, len(self.vocabulary), self.size)

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        return written_loss(model, batch, smoothing=self.recipe.train.smoothing)

    def predict(self, model: EncoderDecoder, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """Of image files, or of words of the validation part by name."""
        read = [self._pixels_of(name) for name in inputs]
        found = self._answers(model, [pixels for pixels in read if not isinstance(pixels, str)], method)
        return predictions_of(inputs, read, found, self.vocabulary)

    def score(self, model: EncoderDecoder) -> Scores:
        """Of some validation words, chosen by hash."""
        chosen = sorted(self.words("valid"), key=lambda each: hash_of(each.name))[: self.settings.valid_examples]
        found = self._answers(model, [each.image for each in chosen], validation_method(self.recipe.decode))
        answers = [self.vocabulary.decode(hypotheses[0].tokens) for hypotheses in found]
        references = [each.text for each in chosen]
        values = {
            "words": word_accuracy(answers, references, shortest=0).value / 100,
            "exact": accuracy(answers, references).value / 100,
            "cer": character_error_rate(answers, references).value,
            "cut": sum(hypotheses[0].stopped != "eos" for hypotheses in found) / len(found),
        }
        names = [each.name for each in chosen]
        return Scores("words", values, list(zip(names, answers, references, strict=True)))

    def evaluate(self, model: EncoderDecoder, split: str) -> Sequence[Score]:
        """Of the whole part, by the recipe's search."""
        words = self.words(split)
        found = self._answers(model, [each.image for each in words])
        answers = [self.vocabulary.decode(hypotheses[0].tokens) for hypotheses in found]
        references = [each.text for each in words]
        # where no word is as long as the field wants it, all count
        shortest = SHORTEST if any(len(letters_and_digits(text)) >= SHORTEST for text in references) else 0

        def right(given: Sequence[str], whose: str = "") -> Score:
            score = word_accuracy(given, references, shortest=shortest)
            return replace(score, name=f"{score.name}{whose}")

        frequent, always = [self._frequent] * len(words), f"of always {self._frequent!r}"
        turned, against = exchanged(answers), "with images shuffled against texts"
        return [
            right(answers),
            replace(accuracy(answers, references), name="exact words", signature="with case and punctuation"),
            character_error_rate(answers, references, interval=True),
            right(frequent, f" {always}"),
            replace(accuracy(frequent, references), name=f"exact words {always}"),
            right(turned, f" {against}"),
            replace(accuracy(turned, references), name=f"exact words {against}"),
            replace(character_error_rate(turned, references, interval=True), name=f"CER {against}"),
        ]

    def look(
        self, model: EncoderDecoder, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        """Letters against spots of the image in the file `text`, or of a validation word of that name."""
        pixels = self._pixels_of(text)
        if isinstance(pixels, str):
            raise SaccadeError(pixels)
        ids = (
            self.vocabulary.encode(target) if target is not None else list(self._answers(model, [pixels])[0][0].tokens)
        )
        letters, given = self.vocabulary.pieces([*ids, END]), self.vocabulary.pieces([START, *ids])
        rows, columns = ([(each, [place]) for place, each in enumerate(part)] for part in (letters, given))
        # the space that a vocabulary puts before a text stands nowhere in the image
        return look_while_describing(model, pixels, ids, self.vocabulary, None if pieces else (rows[1:], columns))

    def _answers(
        self, model: EncoderDecoder, images: Sequence[Pixels], method: Method | None = None
    ) -> list[list[Hypothesis]]:
        plan = Plan.of(self.recipe.decode, self.vocabulary, method)
        return search_descriptions(model, images, self.settings.longest + 2, plan)  # with a space first, and the end

    def _pixels_of(self, name: str) -> Pixels | str:
        """Of a file, or of a word of the validation part; for what is neither, why."""
        path = Path(name)
        try:
            if not is_file(path) and name in (known := self._known()):
                return known[name].image
            return framed(read_image(path, first_frame=True), self.size)
        except SaccadeError as error:
            return str(error)

    def _known(self) -> dict[str, SeenWord]:
        try:
            return {each.name: each for each in self.words("valid")}
        except SaccadeError:  # a model is used where its data is not
            return {}

    def _drawn(self, split: str) -> RenderedWords:
        settings = self.settings
        return RenderedWords(
            self.renderer,
            settings.rendered if split == "train" else settings.valid_examples,
            settings.letters,
            words=self._drawable,
            lengths=(settings.shortest, max(settings.shortest, min(settings.longest, RANDOM_LONGEST))),
            seed=(settings.seed, PARTS.index(split)),
        )

    @cached_property
    def _drawable(self) -> tuple[str, ...]:
        """Words that may be drawn, in every case they are drawn in."""
        able, longest = self.renderer.able, self.settings.longest
        return tuple(
            word for word in self._wanted() if all(len(case) <= longest and able(case) for case in _cases(word))
        )

    def _wanted(self) -> list[str]:
        """Of a list; else the texts of the data, as often as they are there."""
        if self.settings.words is not None:
            return [word for line in read_lines(self.settings.words) if (word := " ".join(line.split()))]
        return [] if self.data is None else [each.text for each in self.words("train")]


def _cases(text: str) -> tuple[str, ...]:
    return text, text.upper(), text.capitalize()


def _fonts_at_hand() -> list[Path]:
    """Free fonts with the letters of most of Europe, sans and serif, that come with matplotlib."""
    from matplotlib import get_data_path

    folder = Path(get_data_path(), "fonts", "ttf")
    found = (path for family in ("DejaVuSans", "DejaVuSerif", "STIXGeneral") for path in folder.glob(f"{family}*.ttf"))
    return sorted(path for path in found if "Display" not in path.name)
