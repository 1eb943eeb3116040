"""First names, and swapping one for another on both sides of a translation.

A corpus knows few names and many sentences about them; with the names swapped a model learns to carry over any name.
"""

from __future__ import annotations

import re

from saccade.data.readers import TextPair

# Common first names that are written alike in English and French; those that both sexes bear are left out.
WOMEN = tuple(  # one text, not a list of quoted words: it is read by people
    """
Agnes Alexandra Alice Amanda Amy Angela Anita Anna Annie Antonia Barbara Betty Brenda Carla Carmen Caroline
Catherine Cecilia Charlotte Christina Claire Clara Claudia Cynthia Deborah Diana Donna Dora Doris Dorothy Edith
Elena Elizabeth Ella Ellen Elsa Emily Emma Eva Evelyn Fiona Florence Frances Gina Gloria Grace Hannah Heather Helen
Ida Ingrid Irene Iris Isabel Jane Janet Jennifer Jessica Joan Joyce Judith Judy Julia Julie Karen Kate Katherine
Kathy Laura Lauren Lily Linda Lisa Louise Lucy Lydia Margaret Maria Marie Martha Mary Megan Melissa Michelle Mona
Monica Nancy Natalie Nicole Nina Nora Olivia Pamela Patricia Paula Rachel Rebecca Rita Rosa Rose Ruth Sabrina Sally
Samantha Sandra Sara Sarah Sharon Sofia Sonia Sophie Stella Stephanie Susan Sylvia Tania Teresa Tina Vera Veronica
Victoria Violet Virginia Wanda Wendy Yvonne Zoe
    """.split()  # noqa: SIM905
)
MEN = tuple(  # one text, not a list of quoted words: it is read by people
    """
Adam Adrian Albert Alexander Alfred Andrew Arnold Arthur Ben Benjamin Bernard Bill Bob Brandon Brian Bruce Bruno
Carl Charles Christian Colin Daniel David Denis Dominic Donald Douglas Dylan Eddie Edgar Edward Eric Ernest Ethan
Eugene Felix Frank Fred Gabriel Gary George Gerald Gordon Greg Gustav Harold Harry Harvey Henry Herbert Howard Hugo
Ian Igor Isaac Ivan Jack Jacob James Jason Jeff Jerry Jim Joe John Jonathan Joseph Joshua Julian Justin Karl Keith
Ken Kevin Leo Leon Leonard Lewis Louis Lucas Luke Marc Marcus Mark Martin Matthew Maurice Michael Mike Nathan Nick
Nicolas Norman Oliver Oscar Otto Patrick Paul Peter Philip Quentin Ralph Raymond Richard Robert Roger Roland Ronald
Roy Ryan Samuel Scott Sean Simon Stephen Steve Steven Stuart Ted Theo Thomas Tim Todd Tom Tony Victor Vincent Walter
William Xavier
    """.split()  # noqa: SIM905
)
NAMES = WOMEN + MEN
# English and French words that tell a sex: "Tom lost his key" must not become Jane's
TELLING = frozenset(
    """
he him his himself she her hers herself man men woman women boy boys girl girls guy husband wife father mother dad mom
son daughter brother sister uncle aunt boyfriend girlfriend mister mr mrs miss ms sir lady gentleman king queen
il elle lui celui celle homme femme garçon fille mec mari épouse époux père mère papa maman fils frère sœur oncle tante
monsieur madame mademoiselle copain copine ami amie roi reine
    """.split()  # noqa: SIM905
)
_KNOWN = frozenset(NAMES)
_WORD = re.compile(r"[^\W\d_]+")


def shared_name(pair: TextPair) -> str | None:
    """The one name that stands on both sides, or None when there is none or more than one."""
    left, right = (_KNOWN.intersection(_WORD.findall(text)) for text in (pair.source, pair.target))
    return next(iter(left)) if left == right and len(left) == 1 else None


def renamed(pair: TextPair, old: str, new: str) -> TextPair:
    """The same pair about somebody else."""
    pattern = re.compile(rf"\b{old}\b")
    return TextPair(pattern.sub(new, pair.source), pattern.sub(new, pair.target))


def others_like(name: str, pair: TextPair) -> tuple[str, ...]:
    """The names that may stand in a name's place: both elided in French or neither, and of the same sex where the pair
    has a word that tells it."""
    words = {word.lower() for text in (pair.source, pair.target) for word in _WORD.findall(text)}
    same = (WOMEN if name in WOMEN else MEN) if words & TELLING else NAMES
    return tuple(other for other in same if other != name and _elided(other) == _elided(name))


def _elided(name: str) -> bool:
    """d'Anna, but de Tom: before a vowel or a silent h."""
    return name[0] in "AEIOUYH"
