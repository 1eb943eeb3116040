"""A language of tones: every letter is a tone of its own height, a space is a silence, and all of it is a bit noisy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile

LETTERS = "abcdef"
RATE = 8000


def spoken(text: str, random: np.random.Generator) -> np.ndarray:
    """Letters of 80 to 140 milliseconds each, with faint noise."""
    parts = []
    for letter in text:
        time = np.arange(int(random.uniform(0.08, 0.14) * RATE)) / RATE
        height = 0.0 if letter == " " else 300 * 1.5 ** LETTERS.index(letter)
        loudness = random.uniform(0.1, 0.5)
        parts.append(loudness * np.sin(2 * np.pi * height * time + random.uniform(0, 6)) * np.hanning(len(time)) ** 0.3)
    samples = np.concatenate(parts)
    return samples + 0.01 * random.standard_normal(len(samples))


def write_tones(folder: Path, count: int, *, seed: int = 1, most: int = 4, name: str = "tones") -> Path:
    """A list of so many recordings of up to `most` different letters, and the recordings beside it."""
    random = np.random.default_rng(seed)
    lines = []
    (folder / name).mkdir(parents=True)
    for number in range(count):
        letters = "".join(random.permutation(list(LETTERS))[: random.integers(2, most + 1)])
        space = random.integers(1, len(letters))
        text = f"{letters[:space]} {letters[space:]}"
        soundfile.write(folder / name / f"{number}.wav", spoken(text, random), RATE)
        lines.append(f"{name}/{number}.wav\t{text}")
    path = folder / f"{name}.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
