"""Tokenizers: from the files of a folder to a lexicon, and from a lexicon to files that others read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from saccade.data.lexicon import CLIP_DECODER, Lexicon, Marks, Unit
from saccade.data.vocab import END, PAD, SPECIALS, START, Pieces
from saccade.errors import SaccadeError
from saccade.exchange.folder import Config, read_json, write_json
from saccade.tasks.filling import SPACED

FILE, SETTINGS, SPECIAL = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"

# what each mark is called in their settings, and how it is usually spelled
CALLED = {"pad": ("pad",), "start": ("cls", "bos"), "end": ("sep", "eos"), "mask": ("mask",)}
SPELLED = {
    "pad": ("[PAD]", "<pad>"),
    "start": ("[CLS]", "<s>", "<start>", "<|startoftext|>"),
    "end": ("[SEP]", "</s>", "<end>", "<|endoftext|>"),
    "mask": ("[MASK]", "<mask>"),
}
# words with a space between and none around line ends, as Lexicon.decode has them; no word begins with a space
JOINED_WORDS = {
    "type": "Sequence",
    "decoders": [
        {"type": "WordPiece", "prefix": " ", "cleanup": False},
        {"type": "Fuse"},
        {"type": "Replace", "pattern": {"Regex": " ?\\n ?"}, "content": "\n"},
    ],
}


def read_tokenizer(folder: Path) -> Tokenizer:
    """tokenizer.json, or the vocabulary of GPT-2, CLIP or BERT as it was published."""
    if (folder / FILE).is_file():
        try:
            tokenizer = Tokenizer.from_str((folder / FILE).read_text(encoding="utf-8"))
        except Exception as error:  # the library raises plain Exception for a broken file
            raise SaccadeError(f"{folder / FILE}: cannot read the tokenizer: {error}") from error
        tokenizer.no_padding()  # of batches and of long texts we take care ourselves
        tokenizer.no_truncation()
        return tokenizer
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        pieces = read_json(folder / "vocab.json")
        ends = any(piece.endswith("</w>") for piece in pieces)
        tokenizer = Lexicon.published("clip" if ends else "gpt2", folder).tokenizer
        if not ends:
            spaced = _settings(folder).truth("add_prefix_space", False)
            tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
        if ends and tokenizer.get_vocab() != pieces:
            raise SaccadeError(
                f"{folder}: vocab.json is not what merges.txt makes of CLIP's letters: give {FILE} instead"
            )
        return tokenizer
    if (folder / "vocab.txt").is_file():
        tokenizer, settings = Lexicon.published("bert", folder).tokenizer, _settings(folder)
        accents = settings.values.get("strip_accents") is not None
        tokenizer.normalizer = normalizers.BertNormalizer(
            lowercase=settings.truth("do_lower_case", True),
            strip_accents=settings.truth("strip_accents", False) if accents else None,  # none: as lowercase is
            handle_chinese_chars=settings.truth("tokenize_chinese_chars", True),
        )
        return tokenizer
    raise SaccadeError(
        f"{folder}: there is no tokenizer: neither {FILE}, nor vocab.json with merges.txt, nor vocab.txt"
    )


def read_lexicon(folder: Path, config: Config) -> Lexicon:
    """The tokenizer of a folder as a vocabulary of as many ids as its model has."""
    tokenizer, size = read_tokenizer(folder), config.number("vocab_size")
    last = max(tokenizer.get_vocab().values(), default=-1)
    if last >= size:
        raise SaccadeError(f"{folder}: the tokenizer has an id {last}, and the model {size} ids, from 0 on")
    unit = _unit(tokenizer)
    if unit == "clip":  # the published one spells the end of each word out
        tokenizer.decoder = CLIP_DECODER
    return Lexicon(tokenizer, unit, marks=_marks(folder, config, tokenizer, size), size=size)


def write_lexicon(folder: Path, lexicon: Lexicon, longest: int, *, framed: bool = False, segments: int = 1) -> None:
    """A tokenizer that others read: our marks among its pieces, under the ids that the model knows; `framed`, it puts
    start and end around a text, or two, itself, and tells two apart where the model has `segments` for them."""
    said, marks, names = json.loads(lexicon.tokenizer.to_str()), lexicon.marks, lexicon.marks.names
    if lexicon.offset:
        said = _shifted(said, [names[id_] for id_ in range(lexicon.offset)])
    else:
        names = {id_: lexicon.tokenizer.id_to_token(id_) or name for id_, name in names.items()}
    special = [_special(n, id_, spaced=id_ == marks.mask and lexicon.unit in SPACED) for id_, n in names.items()]
    said["added_tokens"] = [each for each in said["added_tokens"] if each["id"] not in names] + special
    said["added_tokens"].sort(key=lambda each: each["id"])
    around = {names[id_]: id_ for id_ in (marks.start, marks.end)}
    said["post_processor"] = _frame(around, names[marks.start], names[marks.end], segments) if framed else None
    if lexicon.unit == "words":
        said["decoder"] = JOINED_WORDS
    write_json(folder / FILE, said)
    ids = {"pad": marks.pad, "bos": marks.start, "cls": marks.start, "eos": marks.end, "sep": marks.end}
    ids |= {} if marks.mask is None else {"mask": marks.mask}
    _write_settings(folder, {called: names[id_] for called, id_ in ids.items()}, longest, segments)


def _frame(ids: Mapping[str, int], start: str, end: str, segments: int) -> dict[str, Any]:
    """What makes start, text, end (, text, end) of one text or two, as `data.cloze.framed` does."""

    def mark(name: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": name, "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single, second = [mark(start, 0), text("A", 0), mark(end, 0)], min(1, segments - 1)
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", second), mark(end, second)],
        "special_tokens": {name: {"id": name, "ids": [id_], "tokens": [name]} for name, id_ in ids.items()},
    }


def read_pieces(folder: Path, config: Config) -> Pieces:
    """A tokenizer as `write_pieces` writes it: bytes in pieces, a space before the text, three marks before all."""
    tokenizer = read_tokenizer(folder)
    said = json.loads(tokenizer.to_str())
    ids = [config.id(key) for key in ("pad_token_id", "decoder_start_token_id", "eos_token_id")]
    if ids != [PAD, START, END]:
        raise SaccadeError(
            f"{config.path}: pad_token_id, decoder_start_token_id and eos_token_id are {ids}; only models with "
            f"{[PAD, START, END]} can be read"
        )
    kinds = [said["model"]["type"], *((said[part] or {}).get("type") for part in ("normalizer", "pre_tokenizer"))]
    if kinds != ["BPE", "Prepend", "ByteLevel"]:
        raise SaccadeError(f"{folder / FILE}: is made of {kinds}; only BPE over bytes after a space can be read")
    said["model"]["vocab"] = {p: n - len(SPECIALS) for p, n in said["model"]["vocab"].items() if n >= len(SPECIALS)}
    added = [each for each in said["added_tokens"] if each["id"] >= len(SPECIALS)]
    said["added_tokens"] = [each | {"id": each["id"] - len(SPECIALS)} for each in added]
    said["normalizer"] = None
    said["decoder"] = said["decoder"].get("decoders", [said["decoder"]])[0]
    pieces = Pieces(Tokenizer.from_str(json.dumps(said)))
    if len(pieces) != (size := config.number("vocab_size")):
        raise SaccadeError(f"{folder}: the tokenizer has {len(pieces)} pieces, and the model {size}")
    return pieces


def write_pieces(folder: Path, pieces: Pieces, longest: int) -> None:
    """The space before a text is put there, and taken away again, by the tokenizer itself."""
    said = _shifted(json.loads(pieces.tokenizer.to_str()), SPECIALS)
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    said["decoder"] = {"type": "Sequence", "decoders": [said["decoder"], strip]}
    write_json(folder / FILE, said | {"normalizer": {"type": "Prepend", "prepend": " "}})
    _write_settings(folder, dict(zip(("pad", "bos", "eos"), SPECIALS, strict=True)), longest)


def _shifted(said: dict[str, Any], marks: Sequence[str]) -> dict[str, Any]:
    """A tokenizer with marks before all its pieces."""
    count = len(marks)
    pieces = {piece: id_ + count for piece, id_ in said["model"]["vocab"].items()}
    moved = [each | {"id": each["id"] + count} for each in said["added_tokens"]]
    special = [_special(name, id_) for id_, name in enumerate(marks)]
    model = said["model"] | {"vocab": {name: id_ for id_, name in enumerate(marks)} | pieces}
    return said | {"model": model, "added_tokens": special + moved}


def _write_settings(folder: Path, names: Mapping[str, str], longest: int, segments: int = 1) -> None:
    """A model without segments is given none: GPT-2 would take them for words."""
    given = ["input_ids", *(["token_type_ids"] if segments > 1 else []), "attention_mask"]
    general = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": longest, "model_input_names": given}
    spelled = {f"{called}_token": name for called, name in names.items()}
    write_json(folder / SETTINGS, general | {"clean_up_tokenization_spaces": False} | spelled)


def _special(name: str, id_: int, *, spaced: bool = False) -> dict[str, Any]:
    """A mark; `spaced`, what it stands for begins with the space before it."""
    plain = dict.fromkeys(("single_word", "rstrip", "normalized"), False)
    return {"id": id_, "content": name, **plain, "lstrip": spaced, "special": True}


def _unit(tokenizer: Tokenizer) -> Unit:
    """How its pieces are joined to words."""
    said = json.loads(tokenizer.to_str())
    kind = said["model"]["type"]
    if kind == "WordPiece":
        return "bert"
    if kind == "WordLevel":
        return "characters" if (said["pre_tokenizer"] or {}).get("type") == "Split" else "words"
    return "clip" if said["model"].get("end_of_word_suffix") == "</w>" else "gpt2"


def _marks(folder: Path, config: Config, tokenizer: Tokenizer, size: int) -> Marks:
    settings = _settings(folder)

    def found(mark: str) -> int | None:
        by_name = (tokenizer.token_to_id(_text(settings.values.get(f"{each}_token"))) for each in CALLED[mark])
        by_id = (config.id(f"{each}_token_id") for each in CALLED[mark])
        usual = (tokenizer.token_to_id(each) for each in SPELLED[mark])
        return next((each for each in (*by_name, *by_id, *usual) if each is not None and each < size), None)

    end = found("end")
    if end is None:
        raise SaccadeError(f"{folder}: no token ends a text: {SETTINGS} should name its eos_token or sep_token")
    start, pad = found("start"), found("pad")
    return Marks(end if pad is None else pad, end if start is None else start, end, found("mask"))


def _settings(folder: Path) -> Config:
    there = [folder / name for name in (SPECIAL, SETTINGS) if (folder / name).is_file()]
    said = {key: value for path in there for key, value in read_json(path).items() if value is not None}
    return Config(folder / SETTINGS, said)


def _text(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")
