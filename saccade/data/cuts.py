"""Words cut otherwise each time they are read, BPE-dropout (Provilkov, Emelianenko and Voita 2020).

    at each step of merging, every merge that could be made is left out with probability p;
    of the others the one that was learned first is made, until none is left

A model of few sentences so learns what words are spelled with, and does not learn every word by heart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from random import Random

from tokenizers import Tokenizer

VARIANTS = 32  # ways in which one word may be cut
REMEMBERED = 500_000  # of them, so that a corpus of any size fits into memory


class Cuts:
    """Cuts texts at random. How a word is cut in its n-th way follows from the word and n alone, and `draw(count)`
    gives that many n below VARIANTS: from a training's own random stream, so that a resume reads the same pieces."""

    def __init__(self, tokenizer: Tokenizer, probability: float, draw: Callable[[int], Sequence[int]]):
        model = json.loads(tokenizer.to_str())["model"]
        self._split = tokenizer.pre_tokenizer.pre_tokenize_str
        self._rank = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
        self._ids: dict[str, int] = model["vocab"]
        self._added = {token.content: id_ for id_, token in tokenizer.get_added_tokens_decoder().items()}
        longest_first = sorted(map(re.escape, self._added), key=len, reverse=True)
        self._whole = re.compile(f"({'|'.join(longest_first)})") if self._added else None
        self.probability, self._draw = probability, draw
        self._cut = lru_cache(maxsize=REMEMBERED)(self.cut)

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the tokenizer, of each text."""
        words = [self._words(text) for text in texts]
        drawn = iter(self._draw(sum(map(len, words))))
        return [[id_ for word in line for id_ in self._cut(word, next(drawn))] for line in words]

    def _words(self, text: str) -> list[str]:
        """In the tokenizer's alphabet of bytes, but for what was added to its vocabulary: that is found first and is
        never cut."""
        parts = [text] if self._whole is None else self._whole.split(text)
        return [
            word
            for part in parts
            for word in ([part] if part in self._added else [word for word, _ in self._split(part)])
        ]

    def cut(self, word: str, variant: int) -> list[int]:
        """The pieces of a word."""
        if word in self._added:
            return [self._added[word]]
        random = Random(f"{variant} {word}")
        pieces = list(word)
        while True:
            ranks = (self._rank.get(pair) for pair in pairwise(pieces))
            possible = [(rank, place) for place, rank in enumerate(ranks) if rank is not None]
            kept = [merge for merge in possible if random.random() >= self.probability]
            if not kept:
                return [self._ids[piece] for piece in pieces]
            _, place = min(kept)
            pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]
