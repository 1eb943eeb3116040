"""How many words were read right, as the field counts: small and capital letters alike, letters and digits only.

Words with fewer than three letters and digits are left out: 1,922 of the 2,077 test words of ICDAR 2015 remain
(Wang et al. 2011; Karatzas et al. 2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from saccade.errors import SaccadeError
from saccade.metrics.ranking import accuracy
from saccade.metrics.score import Score, check_matched

SHORTEST = 3


def letters_and_digits(text: str) -> str:
    """What counts of a text."""
    return "".join(letter for letter in text.lower() if letter.isalnum())


def word_accuracy(answers: Sequence[str], references: Sequence[str], *, shortest: int = SHORTEST) -> Score:
    """In percent, of references with `shortest` letters and digits or more; Wilson's interval."""
    check_matched(answers, references)
    pairs = [tuple(map(letters_and_digits, pair)) for pair in zip(answers, references, strict=True)]
    kept = [(answer, reference) for answer, reference in pairs if len(reference) >= shortest]
    if not kept:
        raise SaccadeError(f"none of {len(pairs):,} references has {shortest} letters and digits or more")
    score = accuracy([answer for answer, _ in kept], [reference for _, reference in kept])
    return replace(score, name="word accuracy", signature=f"of {len(kept):,} of {len(pairs):,} words")
