"""Translation: pairs of sentences in, a Transformer (or any sequence model) out, scored by real decoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.config import Recipe
from saccade.config.tasks import TranslateSettings
from saccade.data.aligner import Aligner, Links, read_links
from saccade.data.cuts import VARIANTS, Cuts
from saccade.data.names import others_like, renamed, shared_name
from saccade.data.readers import Encoding, TextPair, hash_of, hold_out, read_pairs, references_of
from saccade.data.vocab import Pieces
from saccade.decode import Method
from saccade.errors import SaccadeError
from saccade.maps.render import AttentionMap
from saccade.metrics import Score, bleu, chrf
from saccade.models import MODELS
from saccade.models.shapes import EncoderDecoder
from saccade.tasks.alignment import AlignedBatch, Choice, aligned_batch, choose_attention, guided_loss, piece_links
from saccade.tasks.answers import best_tokens, validation_method
from saccade.tasks.base import Loss, Prediction, Scores
from saccade.tasks.fitting import fitting_model, fitting_pieces
from saccade.tasks.pairs import answer_pairs, collate_pairs, look_at_pair, predict_pairs
from saccade.tasks.starting import adopt_all
from saccade.tasks.written import WrittenBatch, agreeing_loss, written_loss

ENCODED_AT_ONCE = 10_000
FEW = 30  # sentences to validate on
GROWTH = 1.3  # batches are planned for sentences cut as usual: one that would become longer by more is left as it was


@dataclass(frozen=True)
class Example:
    """Ids of both sides; the texts, and the name in them that may be swapped, where they may be read otherwise; links
    between words where one head is taught to look along them."""

    source: list[int]
    target: list[int]
    text: TextPair | None = None
    name: str = ""
    links: Links | None = None


class Translate:
    """See saccade.tasks.base.Task for what each method is for."""

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, TranslateSettings)
        if recipe.model.kind not in ("fitted", *MODELS):
            raise SaccadeError(f"model.kind {recipe.model.kind!r} cannot translate; there are {', '.join(MODELS)}")
        self.recipe, self.settings = recipe, recipe.task
        self._pieces: Pieces | None = None
        self._not_learned: int | None = None  # pieces that were asked for, where another run's count
        self._own_model = True  # and not that of another run
        self._seeds: list[list[int]] = []  # of each piece that was added to another run's: what it was spelled with
        self.alignment = Choice()

    @property
    def pieces(self) -> Pieces:
        if self._pieces is None:
            raise SaccadeError("the vocabulary has not been learned yet")
        return self._pieces

    def start(self, vocabulary: Path, recipe: Recipe) -> None:
        """The other run's vocabulary and model: it goes on learning from other pairs."""
        if recipe.task.kind != "translate":
            raise SaccadeError(f"train.start: a model for {recipe.task.kind} cannot translate")
        self._pieces = Pieces.load(vocabulary)
        self._own_model = self.recipe.model.kind == "fitted" or self.recipe.model == recipe.model
        known, asked = len(self._pieces) + self.settings.extend, self.settings.pieces
        self._not_learned = asked if asked != known else None
        self.settings = self.settings.model_copy(update={"pieces": known})
        self.recipe = self.recipe.model_copy(update={"model": recipe.model, "task": self.settings})

    def adopt(self, model: EncoderDecoder, tensors: Mapping[str, Tensor]) -> Sequence[str]:
        return adopt_all(model, tensors, str(self.recipe.train.start), self._seeds)

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        train, valid = self.pairs
        recipe, reasons = self.recipe, [f"{len(train):,} pairs to train on, {len(valid):,} to validate on"]
        reasons += [*self._encoding.notes(), *self._doubts()]
        self._require_alignments()
        if self.settings.pieces is None:
            pieces = fitting_pieces(len(train))
            reasons.append(f"{pieces:,} pieces: as many as that many pairs can teach")
            self.settings = self.settings.model_copy(update={"pieces": pieces})
            recipe = recipe.model_copy(update={"task": self.settings})
        if recipe.model.kind == "fitted":
            model, reason = fitting_model(len(train))
            reasons.append(reason)
            recipe = recipe.model_copy(update={"model": model})
        rates = (getattr(recipe.model, name, 0.0) for name in ("dropout", "attention_dropout"))
        if self.settings.agreement and not any(rates):
            raise SaccadeError("task.agreement compares readings with other dropout, and model.dropout is 0")
        self.recipe = recipe
        return recipe, reasons

    def _doubts(self) -> Iterator[str]:
        """What may be meant otherwise, or makes scores say less than they seem to."""
        train, valid = self.pairs
        if all(pair.source == pair.target for pair in train):
            raise SaccadeError(f"{self.settings.source}: every sentence is its own translation: is it the right file?")
        if len(valid) < FEW:
            yield f"fewer than {FEW} sentences to validate on say little about which weights are best"
        known = {pair.source for pair in train}
        if seen := sum(pair.source in known for pair in valid):
            yield f"sentences to validate on that are trained on, too, so that scores are too good: {seen:,}"
        if self._in_neither:
            yield f"pairs in neither part, as their translation is one to validate on: {self._in_neither:,}"
        targets = {pair.target for pair in train}
        if self.settings.valid_source is None and (seen := sum(pair.target in targets for pair in valid)):
            yield f"translations are few: of those to validate on, {seen:,} occur in training with other sources"
        if not self._own_model:
            yield "the model is that of train.start: other model settings do not count"
        if self._not_learned is not None:
            yield f"the vocabulary is that of train.start: task.pieces, {self._not_learned:,}, does not count"

    def prepare(self, directory: Path) -> Sequence[str]:
        train, valid = self.pairs
        texts = (text for pair in train for text in (pair.source, pair.target))
        asked, longest = self.settings.pieces, self.settings.longest
        assert asked is not None, "fitted() decides it"
        if self._pieces is None:
            self._pieces = Pieces.learn(texts, asked)
        elif self.settings.extend:
            self._pieces, self._seeds = self._pieces.extended(texts, self.settings.extend)
        self._pieces.save(directory)
        learned, left_out = len(self._pieces), len(train) - len(self._short_enough)
        if left_out == len(train):
            raise SaccadeError(f"every pair of {self.settings.source} is longer than task.longest, {longest} pieces")
        long = sum(len(ids) > longest for ids in self._pieces.encode_all([pair.source for pair in valid]))
        if long == len(valid):
            raise SaccadeError(f"every sentence to validate on is longer than task.longest, {longest} pieces")
        notes = [] if learned == asked else [f"asked for {asked:,} pieces, the text yields {learned:,}"]
        if left_out:
            notes.append(f"pairs longer than task.longest, {longest} pieces, left out of training: {left_out:,}")
        if long:
            notes.append(f"sentences to validate on longer than task.longest, left out of its scores: {long:,}")
        return notes

    def load(self, directory: Path) -> None:
        self._pieces = Pieces.load(directory)

    @cached_property
    def pairs(self) -> tuple[list[TextPair], list[TextPair]]:
        """Train and validation pairs; those with an empty side are left out."""
        settings = self.settings
        self._encoding = encoding = Encoding(settings.encoding_errors)
        columns = (settings.source_column, settings.target_column)

        def read(source: str, target: str | None) -> list[TextPair]:
            found = read_pairs(source, target, columns=columns, encoding=encoding)
            pairs = [pair for pair in found if pair.source and pair.target]
            if not pairs:
                raise SaccadeError(f"no text found in {source}")
            return pairs

        train = read(settings.source, settings.target)
        self._in_neither = 0
        if settings.valid_source is None:
            pairs = len(train)
            train, valid = hold_out(train)
            self._in_neither = pairs - len(train) - len(valid)
        else:
            valid = read(settings.valid_source, settings.valid_target)
        if not train or not valid:
            raise SaccadeError(
                f"{settings.source}: {len(train)} pairs are left for training and {len(valid)} for validation; "
                "give more data, or validation files"
            )
        return train, valid

    @cached_property
    def _short_enough(self) -> list[TextPair]:
        """The pairs of examples("train"), in their order."""
        longest = self.settings.longest

        def fits(pair: TextPair) -> bool:
            # a piece has a byte at least, so that few bytes need no counting; a space stands before, an end behind
            if max(len(pair.source.encode()) + 1, len(pair.target.encode()) + 2) <= longest:
                return True
            source, target = self.pieces.encode_all([pair.source, pair.target])
            return self.length(Example(source, target)) <= longest

        return [pair for pair in self.pairs[0] if fits(pair)]

    def place(self, number: int) -> str:
        return f"{self.settings.source}:{self._short_enough[number].line}"

    def examples(self, split: str) -> Sequence[Example]:
        pairs = self._short_enough if split == "train" else self.pairs[1]
        examples: list[Example] = []
        swaps = split == "train" and self.settings.swap_names > 0
        cuts = split == "train" and self._cuts is not None
        guided = split == "train" and self.settings.guided_alignment > 0
        for first in range(0, len(pairs), ENCODED_AT_ONCE):
            chunk = pairs[first : first + ENCODED_AT_ONCE]
            sources = self.pieces.encode_all([pair.source for pair in chunk])
            targets = self.pieces.encode_all([pair.target for pair in chunk])
            for pair, source, target in zip(chunk, sources, targets, strict=True):
                name = shared_name(pair) if swaps else None
                links = self._links(pair) if guided else None
                examples.append(Example(source, target, pair if name or cuts else None, name or "", links))
        return examples

    def length(self, example: Example) -> int:
        return max(len(example.source), len(example.target) + 1)

    def collate(self, examples: Sequence[Example], numbers: Sequence[int]) -> WrittenBatch:
        chosen = [self._varied(example) for example in examples]
        pairs = [(each.source, each.target) for each in chosen]
        batch = collate_pairs(pairs, numbers)
        if self.settings.agreement:
            return replace(batch, counts=batch.counts | {"disagreement": batch.counts["loss"]})
        if all(each.links is None for each in chosen):
            return batch
        links = [each.links or [] for each in chosen]
        return aligned_batch(batch, [piece_links(p, each, self.pieces) for p, each in zip(pairs, links, strict=True)])

    def model(self) -> EncoderDecoder:
        return MODELS[self.recipe.model.kind](self.recipe.model, len(self.pieces), len(self.pieces))

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        smoothing = self.recipe.train.smoothing
        if isinstance(batch, AlignedBatch):
            return guided_loss(model, batch, smoothing=smoothing, weight=self.settings.guided_alignment)
        if self.settings.agreement:
            return agreeing_loss(model, batch, smoothing=smoothing, weight=self.settings.agreement)
        return written_loss(model, batch, smoothing=smoothing)

    def predict(self, model: EncoderDecoder, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        return predict_pairs(model, inputs, (self.pieces, self.pieces), self.recipe.decode, method)

    def score(self, model: EncoderDecoder) -> Scores:
        """BLEU and chrF of some validation sentences, translated for real, against all their references."""
        return self._scored(model, validation_method(self.recipe.decode))

    def _scored(self, model: EncoderDecoder, method: Method | None) -> Scores:
        """The sentences are chosen by hash: files are often sorted, and the first are then the shortest."""
        references = references_of(self.pairs[1])
        fitting = [each for each in references if len(self.pieces.encode(each)) <= self.settings.longest]
        sources = sorted(fitting, key=hash_of)[: self.settings.valid_examples]
        decode = self.recipe.decode
        found = answer_pairs(model, self.pieces.encode_all(sources), decode, self.pieces, method)
        answers = [self.pieces.decode(hypotheses[0].tokens) for hypotheses in found]
        known = [references[source] for source in sources]
        samples = [(source, answer, refs[0]) for source, answer, refs in zip(sources, answers, known, strict=True)]
        cut = sum(hypotheses[0].stopped != "eos" for hypotheses in found) / len(found)
        values = {"bleu": bleu(answers, known).value, "chrf": chrf(answers, known).value, "cut": cut}
        return Scores("bleu", values, samples, known)

    def evaluate(self, model: EncoderDecoder, split: str) -> Sequence[Score]:
        """Of the sentences that are translated while training, by the recipe's search; whole files are scored in
        `saccade.translation`."""
        if split != "valid":
            raise SaccadeError(f"a translation run knows no part called {split}; give its files: --source and --target")
        found = self._scored(model, None)
        answers = [answer for _, answer, _ in found.samples]
        return [measure(answers, found.references, interval=True) for measure in (bleu, chrf)]

    def look(
        self, model: EncoderDecoder, text: str, target: str | None = None, *, pieces: bool = False
    ) -> list[AttentionMap]:
        written = best_tokens(self.predict(model, [text])[0]) if target is None else self.pieces.encode(target)
        return look_at_pair(model, self.pieces.encode(text), written, (self.pieces, self.pieces), pieces=pieces)

    def conclude(self, model: EncoderDecoder) -> dict[str, Any]:
        """Which attention shows alignment best, by links between words that the training pairs alone teach."""
        chosen = sorted(self.pairs[1], key=lambda pair: hash_of(pair.source))[: self.settings.valid_examples]
        pairs = [((self.pieces.encode(pair.source), self.pieces.encode(pair.target)), pair) for pair in chosen]
        short = [(ids, self._aligner.links(pair)) for ids, pair in pairs if max(map(len, ids)) <= self.settings.longest]
        choice = choose_attention(model, short, self.pieces)
        return {} if choice is None else {"alignment": asdict(choice)}

    def recall(self, conclusions: Mapping[str, Any]) -> None:
        self.alignment = Choice(**conclusions.get("alignment", {}))

    @cached_property
    def _aligner(self) -> Aligner:
        return Aligner.learn(self._short_enough)

    def _links(self, pair: TextPair) -> Links:
        given = self._given_links
        return self._aligner.links(pair) if given is None else given[pair.line - 1]

    def _require_alignments(self) -> None:
        """Refuse what guided alignment cannot do, before a run is made."""
        if self.settings.guided_alignment and self.recipe.model.kind == "sutskever":
            raise SaccadeError("task.guided_alignment needs a model with attention, and sutskever has none")
        for pair in self.pairs[0] if self._given_links is not None else ():
            left, right = len(pair.source.split()), len(pair.target.split())
            for i, j in self._links(pair):
                if i >= left or j >= right:
                    raise SaccadeError(
                        f"{self.settings.alignments}:{pair.line}: {i}-{j} is outside the pair, which has {left} and "
                        f"{right} words; links count from 0, words are between spaces, the source is first"
                    )

    @cached_property
    def _given_links(self) -> list[Links] | None:
        """Those of the file task.alignments, by line."""
        path = self.settings.alignments
        if path is None:
            return None
        found = list(read_links(path))
        last = max(pair.line for pair in self.pairs[0])
        if len(found) < last:
            raise SaccadeError(f"{path} has {len(found):,} lines, and {self.settings.source} has {last:,} or more")
        return found

    @cached_property
    def _cuts(self) -> Cuts | None:
        probability = self.settings.bpe_dropout
        if not probability:
            return None
        return Cuts(self.pieces.tokenizer, probability, lambda count: torch.randint(VARIANTS, (count,)).tolist())

    def _varied(self, example: Example) -> Example:
        """Now and then about somebody else, and with words cut otherwise: drawn from the training's own random stream,
        so that a resume repeats it."""
        if example.text is None:
            return example
        pair = self._swapped(example.text, example.name)
        usual = example if pair is example.text else self._encoded(example, pair)
        if self._cuts is None:
            return usual
        cut = self._encoded(example, pair, self._cuts)
        most = min(self.settings.longest, GROWTH * self.length(usual))
        return cut if self.length(cut) <= most else usual

    def _encoded(self, example: Example, pair: TextPair, cuts: Cuts | None = None) -> Example:
        source, target = self.pieces.encode_all([pair.source, pair.target], cuts)
        return replace(example, source=source, target=target)

    def _swapped(self, pair: TextPair, name: str) -> TextPair:
        if not name or float(torch.rand(())) >= self.settings.swap_names:
            return pair
        others = others_like(name, pair)
        return renamed(pair, name, others[int(torch.randint(len(others), ()))])
