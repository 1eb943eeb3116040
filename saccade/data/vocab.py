"""From text to ids and back. Every vocabulary begins with the same three special ids."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from saccade.data.cuts import Cuts
from saccade.data.extension import extended
from saccade.errors import SaccadeError, did_you_mean

PAD, START, END = 0, 1, 2
SPECIALS = ("<pad>", "<start>", "<end>")
LONGEST_WORD = 1000  # letters between two spaces; no piece is learned from a longer word


class Vocabulary(Protocol):
    """What tasks ask of a vocabulary, whatever its pieces are."""

    def __len__(self) -> int: ...

    def __hash__(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...

    def pieces(self, ids: Sequence[int]) -> list[str]: ...

    def words(self, ids: Sequence[int]) -> list[tuple[str, list[int]]]:
        """The words of a text between spaces, each with the places of its pieces; specials stand alone."""

    def spellings(self) -> list[str]:
        """What each id adds to a text, in an alphabet of the vocabulary's own; specials add nothing."""

    def save(self, directory: Path) -> None: ...


class Symbols:
    """Words between spaces, from a closed list; a symbol that is not in it is an error, not an unknown."""

    FILE = "symbols.json"

    def __init__(self, symbols: Sequence[str]):
        self.symbols = tuple(symbols)
        self._ids = {symbol: number for number, symbol in enumerate(self.symbols, start=len(SPECIALS))}

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.symbols)

    def encode(self, text: str) -> list[int]:
        words = text.split()
        for place, word in enumerate(words, start=1):
            if word not in self._ids:
                near = (
                    did_you_mean(word, self.symbols)
                    or f"; the symbols are {shortened(self.symbols)}, with spaces between"
                )
                raise SaccadeError(
                    f"symbol {place} of {shortened([text])!r} is {word!r}, which is not in the vocabulary{near}"
                )
        return [self._ids[word] for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(self.pieces([number for number in ids if number >= len(SPECIALS)]))

    def pieces(self, ids: Sequence[int]) -> list[str]:
        return [(*SPECIALS, *self.symbols)[number] for number in ids]

    def words(self, ids: Sequence[int]) -> list[tuple[str, list[int]]]:
        return [(piece, [place]) for place, piece in enumerate(self.pieces(ids))]

    def spellings(self) -> list[str]:
        return ["" for _ in SPECIALS] + [f" {symbol}" for symbol in self.symbols]

    def save(self, directory: Path) -> None:
        _write(directory / self.FILE, json.dumps(self.symbols, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Symbols:
        path = directory / cls.FILE
        try:
            return cls(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise SaccadeError(f"{path}: cannot read the vocabulary: {error}") from error


class Characters:
    """Every character of the training texts, from a closed list; a space is put before the text, so that every word
    begins with one, at the beginning and inside."""

    FILE = "characters.json"

    def __init__(self, characters: Iterable[str]):
        self.characters = tuple(sorted({" ", *characters}))
        self._ids = {character: number for number, character in enumerate(self.characters, start=len(SPECIALS))}

    @classmethod
    def learn(cls, texts: Iterable[str]) -> Characters:
        return cls({character for text in texts for character in text})

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.characters)

    def encode(self, text: str) -> list[int]:
        if strange := sorted(set(text) - self._ids.keys()):
            raise SaccadeError(
                f"{strange[0]!r} of {shortened([text])!r} is in no training text; "
                f"the characters are {shortened([''.join(self.characters)])!r}"
            )
        return [self._ids[character] for character in f" {text}"]

    def known(self, text: str) -> str:
        """The text without what was never seen, and can therefore never be answered."""
        return "".join(character for character in text if character in self._ids)

    def decode(self, ids: Sequence[int]) -> str:
        plain = (self.characters[number - len(SPECIALS)] for number in ids if number >= len(SPECIALS))
        return "".join(plain).removeprefix(" ")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """A space is shown as ▁."""
        return [(*SPECIALS, *self.characters)[number].replace(" ", "▁") for number in ids]

    def words(self, ids: Sequence[int]) -> list[tuple[str, list[int]]]:
        groups: list[list[int]] = []
        space = self._ids[" "]
        for place, number in enumerate(ids):
            before = ids[place - 1] if groups else PAD
            if min(number, before) < len(SPECIALS) or (number == space and before != space):
                groups.append([])
            groups[-1].append(place)
        texts = ("".join(self.pieces([ids[place] for place in group])) for group in groups)
        return [(text.lstrip("▁") or "▁", group) for text, group in zip(texts, groups, strict=True)]

    def spellings(self) -> list[str]:
        return ["" for _ in SPECIALS] + list(self.characters)

    def save(self, directory: Path) -> None:
        _write(directory / self.FILE, json.dumps(self.characters, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Characters:
        path = directory / cls.FILE
        try:
            return cls(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise SaccadeError(f"{path}: cannot read the vocabulary: {error}") from error


class Pieces:
    """Byte-level BPE (Sennrich et al. 2016, over bytes), shared by both sides: any text goes in and comes back.

    The special ids stand before those of the library, which never hears of them: no text can spell a special token.
    A space is put before the text, so that a word is the same at the beginning and inside.
    """

    FILE = "tokenizer.json"

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        # a word that was added stands there as it is, pieces in the letters by which the library writes bytes
        added, letters = tokenizer.get_added_tokens_decoder(), pre_tokenizers.ByteLevel(False, use_regex=False)
        self._texts = {
            id_ + len(SPECIALS): "".join(part for part, _ in letters.pre_tokenize_str(piece)) if id_ in added else piece
            for piece, id_ in tokenizer.get_vocab().items()
        }

    @classmethod
    def learn(cls, texts: Iterable[str], size: int) -> Pieces:
        """Merge the most frequent neighbours until there are `size` pieces, specials included."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=size - len(SPECIALS),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        tokenizer.train_from_iterator((" " + _without_endless_words(text) for text in texts), trainer)
        return cls(tokenizer)

    @property
    def tokenizer(self) -> Tokenizer:
        """The library's own, which knows no special ids."""
        return self._tokenizer

    def __len__(self) -> int:
        return len(SPECIALS) + self._tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def extended(self, texts: Iterable[str], count: int) -> tuple[Pieces, list[list[int]]]:
        """With so many more pieces, frequent words that take several so far; and of each, the ids that spelled it."""
        larger, spelled = extended(self._tokenizer, lambda word: self.encode(word.removeprefix(" ")), texts, count)
        return Pieces(larger), spelled

    def encode_all(self, texts: Sequence[str], cuts: Cuts | None = None) -> list[list[int]]:
        """Many texts at the speed of the library. A lone surrogate, half a character, becomes U+FFFD."""
        clean = [" " + text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for text in texts]
        found = cuts.encode_all(clean) if cuts else [each.ids for each in self._tokenizer.encode_batch_fast(clean)]
        return [[id_ + len(SPECIALS) for id_ in ids] for ids in found]

    def decode(self, ids: Sequence[int]) -> str:
        plain = [number - len(SPECIALS) for number in ids if number >= len(SPECIALS)]
        return self._tokenizer.decode(plain, skip_special_tokens=False).removeprefix(" ")

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each piece as text, a space at its beginning as ▁; parts of a character as the library writes bytes."""
        return [SPECIALS[number] if number < len(SPECIALS) else self._readable(number) for number in ids]

    def words(self, ids: Sequence[int]) -> list[tuple[str, list[int]]]:
        groups: list[list[int]] = []
        spaces: list[int] = []  # they belong to the word that follows, at the end to the one before
        for place, number in enumerate(ids):
            special = number < len(SPECIALS)
            in_word = bool(groups) and not spaces and ids[groups[-1][-1]] >= len(SPECIALS)
            if not special and not self.decode([number]).strip():
                spaces.append(place)
            elif in_word and not special and not self._texts[number].startswith("Ġ"):
                groups[-1].append(place)
            elif special and spaces and groups and ids[groups[-1][-1]] >= len(SPECIALS):
                groups[-1] += spaces
                groups.append([place])
                spaces = []
            else:
                groups.append([*spaces, place])
                spaces = []
        if spaces:
            groups = [*groups[:-1], groups[-1] + spaces] if groups else [spaces]
        return [(self._label([ids[place] for place in group]), group) for group in groups]

    def spellings(self) -> list[str]:
        """In the alphabet of 256 letters by which the library writes bytes."""
        return ["" for _ in SPECIALS] + [self._texts[number] for number in range(len(SPECIALS), len(self))]

    def save(self, directory: Path) -> None:
        _write(directory / self.FILE, self._tokenizer.to_str())

    @classmethod
    def load(cls, directory: Path) -> Pieces:
        path = directory / cls.FILE
        try:
            return cls(Tokenizer.from_str(path.read_text(encoding="utf-8")))
        except Exception as error:  # the library raises plain Exception for a broken file
            raise SaccadeError(f"{path}: cannot read the vocabulary: {error}") from error

    def _label(self, ids: Sequence[int]) -> str:
        return SPECIALS[ids[-1]] if ids[-1] < len(SPECIALS) else self.decode(ids).strip()

    def _readable(self, number: int) -> str:
        text = self._tokenizer.decode([number - len(SPECIALS)], skip_special_tokens=False)
        return self._texts[number] if "\ufffd" in text else text.replace(" ", "▁")


def _write(path: Path, text: str) -> None:
    """Whole or not at all: a killed process must not leave half a vocabulary."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _without_endless_words(text: str) -> str:
    """Merging inside one word takes time with the square of its length: a million letters would take minutes."""
    if len(text) <= LONGEST_WORD:
        return text
    return " ".join(word for word in text.split(" ") if len(word) <= LONGEST_WORD)


def shortened(words: Sequence[str], most: int = 60) -> str:
    """Words with spaces between, or their beginning."""
    text = " ".join(words)
    return text if len(text) <= most else f"{text[:most]}..."
