"""First names, and swapping one for another on both sides of a translation.

A corpus knows few names and many sentences about them; with the names swapped a model learns to carry over any name.
"""

from __future__ import annotations

import re

from saccade.data.readers import TextPair

# Common first names that are written alike in English and French.
NAMES = tuple(  # one text, not a list of quoted words: it is read by people
    """
Adam Adrian Agnes Albert Alex Alexander Alexandra Alfred Alice Amanda Amy Andrea Andrew Angela Anita Anna Annie
Antonia Arnold Arthur Ashley Barbara Ben Benjamin Bernard Betty Bill Bob Brandon Brenda Brian Bruce Bruno Carl Carla
Carmen Caroline Catherine Cecilia Charles Charlotte Chris Christian Christina Claire Clara Claudia Colin Cynthia
Daniel David Deborah Denis Diana Dominic Donald Donna Dora Doris Dorothy Douglas Dylan Eddie Edgar Edith Edward
Elena Elizabeth Ella Ellen Elsa Emily Emma Eric Ernest Ethan Eugene Eva Evelyn Felix Fiona Florence Frances Francis
Frank Fred Gabriel Gary George Gerald Gina Gloria Gordon Grace Greg Gustav Hannah Harold Harry Harvey Heather Helen
Henry Herbert Howard Hugo Ian Ida Igor Ingrid Irene Iris Isaac Isabel Ivan Jack Jacob James Jane Janet Jason Jean
Jeff Jennifer Jerry Jessica Jim Joan Joe John Jonathan Joseph Joshua Joyce Judith Judy Julia Julian Julie Justin
Karen Karl Kate Katherine Kathy Keith Kelly Ken Kevin Kim Kyle Laura Lauren Leo Leon Leonard Lewis Lily Linda Lisa
Louis Louise Lucas Lucy Luke Lydia Marc Marcus Margaret Maria Marie Marion Mark Martha Martin Mary Matthew Maurice
Max Megan Melissa Michael Michelle Mike Mona Monica Nancy Natalie Nathan Nick Nicolas Nicole Nina Nora Norman Oliver
Olivia Oscar Otto Pamela Patricia Patrick Paul Paula Peter Philip Quentin Rachel Ralph Raymond Rebecca Richard Rita
Robert Robin Roger Roland Ronald Rosa Rose Roy Ruth Ryan Sabrina Sally Sam Samantha Samuel Sandra Sara Sarah Scott
Sean Sharon Simon Sofia Sonia Sophie Stella Stephanie Stephen Steve Steven Stuart Susan Sylvia Tania Ted Teresa
Terry Theo Thomas Tim Tina Todd Tom Tony Tracy Vera Veronica Victor Victoria Vincent Violet Virginia Walter Wanda
Wendy William Xavier Yvonne Zoe
    """.split()  # noqa: SIM905
)
_KNOWN = frozenset(NAMES)
_WORD = re.compile(r"[^\W\d_]+")


def shared_name(pair: TextPair) -> str | None:
    """The one name that stands on both sides, or None when there is none or more than one."""
    left, right = (_KNOWN.intersection(_WORD.findall(text)) for text in (pair.source, pair.target))
    return next(iter(left)) if left == right and len(left) == 1 else None


def renamed(pair: TextPair, old: str, new: str) -> TextPair:
    """The same pair about somebody else. French elides before a vowel (d'Anna), so vowels stay with vowels."""
    pattern = re.compile(rf"\b{old}\b")
    return TextPair(pattern.sub(new, pair.source), pattern.sub(new, pair.target))


def others_like(name: str) -> tuple[str, ...]:
    """The names that may stand in a name's place: both begin with a vowel or a silent h, or neither does."""
    return tuple(other for other in NAMES if other != name and _elided(other) == _elided(name))


def _elided(name: str) -> bool:
    return name[0] in "AEIOUYH"
