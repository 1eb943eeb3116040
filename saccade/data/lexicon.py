"""Vocabularies of running text: characters, words, byte-level BPE, and published ones as they were published.

Unlike those of pairs of sentences they keep every character, line ends included: decode(encode(text)) == text, but
for what is unknown and, with words, for spaces. Special ids stand before the library's, which never hears of them: no
text can spell one.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import unescape
from itertools import islice
from pathlib import Path
from typing import Literal
from unicodedata import normalize

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from saccade.data.extension import extended
from saccade.data.vocab import LONGEST_WORD
from saccade.errors import SaccadeError

Unit = Literal["characters", "words", "pieces", "gpt2", "clip", "bert"]
UNKNOWN = {"characters": "\ufffd", "words": "<unk>"}
CLIP_DECODER = decoders.Sequence([decoders.Replace("</w>", "Ġ"), decoders.ByteLevel()])
LIGATURES = (0x132, 0x133, *range(0x1C4, 0x1CD), *range(0x1F1, 0x1F4), *range(0xFB00, 0xFB07))
FULL_WIDTH = range(0xFF01, 0xFFF0)
WEB = {
    **{number: normalize("NFKC", chr(number)) for number in (*LIGATURES, *FULL_WIDTH)},
    **dict.fromkeys((0x2BC, *range(0x2018, 0x201C)), "'"),
    **dict.fromkeys(range(0x201C, 0x2020), '"'),
    **dict.fromkeys((*range(9), 11, *range(14, 32), 127)),
}
CLIP_MERGES = 49152 - 256 - 2  # of the lines in its published file


@dataclass(frozen=True)
class Marks:
    """Ids that are no text; published vocabularies do not have them all."""

    pad: int = 0
    start: int = 1  # also what a whole text is judged by, [CLS]
    end: int = 2  # also what stands between two texts, [SEP]
    mask: int | None = 3

    @property
    def names(self) -> dict[int, str]:
        shown = {self.pad: "<pad>", self.start: "<start>", self.end: "<end>"}
        return shown if self.mask is None else shown | {self.mask: "<mask>"}


OWN = Marks()
PUBLISHED = {
    "gpt2": Marks(pad=50256, start=50256, end=50256, mask=None),
    "clip": Marks(pad=49407, start=49406, end=49407, mask=None),
    "bert": Marks(pad=0, start=101, end=102, mask=103),
}


class Lexicon:
    """Text to ids and back, through the tokenizers library. `offset` ids stand before the library's own.

    `marks` are other special ids than the unit's, among those of the library; `size` counts ids that no text has, too.
    """

    FILE, MARKS = "tokenizer.json", "lexicon.json"

    def __init__(self, tokenizer: Tokenizer, unit: Unit, *, marks: Marks | None = None, size: int = 0):
        self.unit = unit
        self.marks = marks or PUBLISHED.get(unit, OWN)
        self.offset = 0 if unit in PUBLISHED or marks is not None else len(OWN.names)
        self.size = size
        tokenizer.encode_special_tokens = True  # spelled out in a text they are text
        self._tokenizer = tokenizer
        self._pieces = {id_ + self.offset: piece for piece, id_ in tokenizer.get_vocab().items()}

    @classmethod
    def learn(cls, texts: Iterable[str], unit: Unit, *, size: int) -> Lexicon:
        """From texts: all their characters, their most frequent words, or the most frequent merges of bytes."""
        makers = {"characters": _characters, "words": _words, "pieces": _byte_pieces}
        if unit not in makers:
            raise SaccadeError(f"{unit} is a published vocabulary, which is read and not learned")
        return cls(makers[unit](texts, size - len(OWN.names)), unit)

    @classmethod
    def published(cls, unit: Unit, path: str | Path) -> Lexicon:
        """From the files of the original: a folder with its vocabulary, plain or .gz, or the file itself."""
        makers = {"gpt2": _gpt2, "clip": _clip, "bert": _bert}
        if unit not in makers:
            raise SaccadeError(f"no vocabulary {unit!r} was published; there are {', '.join(makers)}")
        return cls(makers[unit](Path(path)), unit)

    def __len__(self) -> int:
        return max(self.size, self.offset + self._tokenizer.get_vocab_size())

    @property
    def tokenizer(self) -> Tokenizer:
        """The library's own, whose ids are `offset` lower."""
        return self._tokenizer

    @property
    def published_ids(self) -> bool:
        """Whether models that others trained know the special ids: those trained here on running text never saw one."""
        return self.offset == 0

    @property
    def unknown(self) -> int | None:
        known = self._tokenizer.token_to_id(UNKNOWN.get(self.unit, "[UNK]"))
        return None if known is None else known + self.offset

    def extended(self, texts: Iterable[str], count: int) -> tuple[Lexicon, list[list[int]]]:
        """With so many more pieces, the most frequent words that take two or more so far; and for each of the new ones
        the ids that spelled it."""
        if not count:
            return self, []
        if self.unit not in ("pieces", "gpt2"):
            raise SaccadeError(f"a vocabulary of {self.unit} cannot be extended: only pieces of bytes can")
        if len(self) > self.offset + self._tokenizer.get_vocab_size():
            raise SaccadeError(f"a vocabulary with ids that no text has cannot be extended: it counts {len(self):,}")
        larger, spelled = extended(self._tokenizer, self.encode, texts, count)
        return Lexicon(larger, self.unit, marks=self.marks if self.published_ids else None), spelled

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Many texts at the speed of the library. A lone surrogate, half a character, becomes U+FFFD."""
        clean = [text.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for text in texts]
        if self.unit == "clip":
            clean = [_of_the_web(text) for text in clean]
        found = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
        return [[id_ + self.offset for id_ in each.ids] for each in found]

    def decode(self, ids: Sequence[int]) -> str:
        plain = [number - self.offset for number in ids if number not in self.marks.names]
        if self.unit == "words":
            return re.sub(r" ?\n ?", "\n", " ".join(self._pieces[number + self.offset] for number in plain))
        return self._tokenizer.decode(plain, skip_special_tokens=False)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Each piece as text, a space as ▁ and a line end as ↵."""
        return [self.marks.names.get(number) or self._readable(number) for number in ids]

    def words(self, ids: Sequence[int]) -> list[tuple[str, list[int]]]:
        """Pieces joined to words; characters and words stand alone."""
        groups: list[list[int]] = []
        for place, number in enumerate(ids):
            if groups and not self._begins(ids[place - 1], number):
                groups[-1].append(place)
            else:
                groups.append([place])
        return [(self._label([ids[place] for place in group]), group) for group in groups]

    def spellings(self) -> list[str]:
        return ["" if n in self.marks.names else self._pieces.get(n, "") for n in range(len(self))]

    def save(self, directory: Path) -> None:
        (directory / self.FILE).write_text(self._tokenizer.to_str(), encoding="utf-8")
        said = {"unit": self.unit, "marks": asdict(self.marks), "offset": self.offset, "size": self.size}
        (directory / self.MARKS).write_text(json.dumps(said) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Lexicon:
        path = directory / cls.MARKS
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
            marks = None if said.get("offset", 1) else Marks(**said["marks"])
            path = directory / cls.FILE
            tokenizer = Tokenizer.from_str(path.read_text(encoding="utf-8"))
            return cls(tokenizer, said["unit"], marks=marks, size=said.get("size", 0))
        except Exception as error:  # the library raises plain Exception for a broken file
            raise SaccadeError(f"{path}: cannot read the vocabulary: {error}") from error

    def _begins(self, before: int, number: int) -> bool:
        """Whether a piece begins a word, given the one before it."""
        if {before, number} & self.marks.names.keys() or self.unit in ("characters", "words"):
            return True
        left, piece = self._pieces.get(before, ""), self._pieces.get(number, "")
        if self.unit == "bert":
            return not piece.startswith("##")
        if self.unit == "clip":
            return left.endswith("</w>")
        return piece[:1] in " ĠĊ▁" or left.endswith("Ċ")  # a space as it is: a word that was added

    def _label(self, ids: Sequence[int]) -> str:
        """A word as text, whole characters even where its pieces have parts of them."""
        if len(ids) == 1 or self.unit == "bert":
            return "".join(self.pieces(ids)).removeprefix("▁") or "▁"
        return _visible(self.decode(ids).strip(" ")) or "▁"

    def _readable(self, number: int) -> str:
        if number not in self._pieces:
            return f"<{number}>"
        if self.unit in ("characters", "words", "bert"):
            text = self._pieces[number].removeprefix("##") if self.unit == "bert" else self._pieces[number]
        else:
            text = self._tokenizer.decode([number - self.offset], skip_special_tokens=False)
            text = self._pieces[number] if "\ufffd" in text else text
            text = text.rstrip() if self.unit == "clip" else text
        return _visible(text)


def _of_the_web(text: str) -> str:
    """As CLIP reads captions of web pages: &amp; is &, quotes are straight, ﬁ is two letters, controls are none.

    The original also repairs text that was decoded with the wrong table (by ftfy); that is not done.
    """
    return unescape(unescape(text)).translate(WEB)


def _visible(text: str) -> str:
    return text.replace(" ", "▁").replace("\n", "↵")


def _characters(texts: Iterable[str], size: int) -> Tokenizer:
    counted = Counter(character for text in texts for character in text)
    return _listed(counted, "characters", size, pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated"))


def _words(texts: Iterable[str], size: int) -> Tokenizer:
    counted = Counter(word for text in texts for word in text.replace("\n", " \n ").split(" ") if word)
    lines = pre_tokenizers.Split("\n", "isolated")
    return _listed(counted, "words", size, pre_tokenizers.Sequence([lines, pre_tokenizers.Split(" ", "removed")]))


def _listed(counted: Counter[str], unit: Unit, size: int, split: pre_tokenizers.PreTokenizer) -> Tokenizer:
    """A closed list, the most frequent first; everything else is unknown."""
    unknown = UNKNOWN[unit]
    del counted[unknown]
    common = [unknown, *(each for each, _ in sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))]
    tokenizer = Tokenizer(models.WordLevel({each: n for n, each in enumerate(common[:size])}, unk_token=unknown))
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def _byte_pieces(texts: Iterable[str], size: int) -> Tokenizer:
    tokenizer = _byte_level(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
    )
    # merging inside one word takes time with the square of its length: a million letters would take minutes
    short = (" ".join(w for w in text.split(" ") if len(w) <= LONGEST_WORD) for text in texts)
    tokenizer.train_from_iterator(short, trainer)
    return tokenizer


def _byte_level(model: models.Model) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _gpt2(path: Path) -> Tokenizer:
    """Radford et al. (2019): encoder.json or vocab.json, and vocab.bpe or merges.txt."""
    vocabulary = json.loads("".join(_lines(_find(path, ("encoder.json", "vocab.json", "gpt2_encoder.json")))))
    merges = _merges(_find(path, ("vocab.bpe", "merges.txt", "gpt2_vocab.bpe")))
    try:
        return _byte_level(models.BPE(vocabulary, merges))
    except Exception as error:  # which is all that the library says it is
        why = str(error).splitlines()[0]
        raise SaccadeError(f"{path}: pieces and merges that do not belong together: {why}") from error


def _clip(path: Path) -> Tokenizer:
    """Radford et al. (2021): lower case, words end with </w>."""
    names = ("bpe_simple_vocab_16e6.txt", "clip_bpe_simple_vocab_16e6.txt", "merges.txt")
    merges = _merges(_find(path, names), CLIP_MERGES + 1)
    letters = _bytes_in_order()
    listed = letters + [f"{letter}</w>" for letter in letters] + ["".join(merge) for merge in merges]
    vocabulary = {piece: number for number, piece in enumerate([*listed, "<|startoftext|>", "<|endoftext|>"])}
    model = models.BPE(vocabulary, merges, end_of_word_suffix="</w>", unk_token="<|endoftext|>")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()]
    )
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    words = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, bytes_])
    tokenizer.decoder = CLIP_DECODER
    return tokenizer


def _bert(path: Path) -> Tokenizer:
    """Devlin et al. (2019), uncased WordPiece."""
    listed = list(_lines(_find(path, ("vocab.txt", "bert_base_uncased_vocab.txt"))))
    vocabulary = {piece: number for number, piece in enumerate(listed)}
    # the original reads words of up to 200 letters, the library 100 unless told
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=200))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    return tokenizer


def _bytes_in_order() -> list[str]:
    """The 256 letters by which bytes are written, printable bytes first, as the originals count them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(byte) for byte in plain] + [chr(256 + n) for n in range(256 - len(plain))]


def _merges(path: Path, most: int | None = None) -> list[tuple[str, str]]:
    """What is merged, first things first, by a file of which the first `most` lines count."""
    found = []
    for number, line in enumerate(islice(_lines(path), most), start=1):
        if "#version" not in line and line.strip():
            if len(pair := line.split()) != 2:
                raise SaccadeError(f"{path}:{number}: must be two pieces that are merged; got {line!r}")
            found.append((pair[0], pair[1]))
    return found


def _find(path: Path, names: Sequence[str]) -> Path:
    if path.is_file():
        path = path.parent
    for name in names:
        for candidate in (path / name, path / f"{name}.gz"):
            if candidate.exists():
                return candidate
    raise SaccadeError(f"{path}: there is none of {', '.join(names)}")


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                raise SaccadeError(f"{path}:{number}: not UTF-8 text (byte {error.start} of the line)") from error
