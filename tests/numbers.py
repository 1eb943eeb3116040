"""A small real parallel corpus that needs no file: numbers in French and English words."""

from __future__ import annotations

ENGLISH = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
ENGLISH_TENS = ["_", "_", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
FRENCH = [
    "zéro",
    "un",
    "deux",
    "trois",
    "quatre",
    "cinq",
    "six",
    "sept",
    "huit",
    "neuf",
    "dix",
    "onze",
    "douze",
    "treize",
    "quatorze",
    "quinze",
    "seize",
    "dix-sept",
    "dix-huit",
    "dix-neuf",
]
FRENCH_TENS = [
    "_",
    "_",
    "vingt",
    "trente",
    "quarante",
    "cinquante",
    "soixante",
    "soixante",
    "quatre-vingt",
    "quatre-vingt",
]


def english(number: int) -> str:
    if number < 20:
        return ENGLISH[number]
    if number < 100:
        return ENGLISH_TENS[number // 10] + (f"-{ENGLISH[number % 10]}" if number % 10 else "")
    rest = f" and {english(number % 100)}" if number % 100 else ""
    return f"{ENGLISH[number // 100]} hundred{rest}"


def french(number: int) -> str:
    if number < 20:
        return FRENCH[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        if tens in (7, 9):
            ones += 10
        if ones == 0:
            return FRENCH_TENS[tens] + ("s" if tens == 8 else "")
        return FRENCH_TENS[tens] + (" et " if ones in (1, 11) and tens < 8 else "-") + FRENCH[ones]
    hundreds = "cent" if number < 200 else f"{FRENCH[number // 100]} cent"
    return f"{hundreds} {french(number % 100)}" if number % 100 else hundreds


def corpus() -> list[tuple[str, str]]:
    """Sentences about every number below a thousand, twice: French, English."""
    counted = [(f"Il y en a {french(n)}.", f"There are {english(n)} of them.") for n in range(1000)]
    return counted + [(f"Tom en veut {french(n)}.", f"Tom wants {english(n)}.") for n in range(1000)]
