"""Every task goes on from a checkpoint as if it had never stopped, also where a part of the model is not trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from saccade.config import parse_recipe
from tests.commands import scan
from tests.corridors import write_corridors
from tests.numbers import english, french
from tests.scenes import scenes, write_scenes
from tests.shapes import write_captions
from tests.squares import squares, write_squares
from tests.triples import assert_resumed_equals_whole

IMAGE = "{kind: cnn, width: 8, stages: 2}"
TRAIN = "train: {steps: 6, batch_tokens: 60, threads: 1, average: 0.9, evaluate_every: 100, save_every: 100}\n"


def pictures(folder: Path) -> str:
    data = write_scenes(folder / "scenes", {"train": scenes(40), "valid": scenes(8, seed=1)})
    task = f"{{kind: caption, data: {data}, size: 16, pieces: 300, valid_examples: 8, augment: {{shift: 2}}}}"
    return f"task: {task}\nmodel: {{kind: show_attend_tell, width: 16, hidden: 16, dropout: 0.2, image: {IMAGE}}}\n"


def named_pictures(folder: Path) -> str:
    data = write_captions(folder, train=40, valid=8)
    task = f"{{kind: contrast, data: {data}, size: 16, pieces: 300}}"
    return f"task: {task}\nmodel: {{kind: clip, width: 16, text: {{width: 16, heads: 2}}, image: {IMAGE}}}\n"


def questions(folder: Path) -> str:
    data = write_squares(folder / "squares", {"train": squares(40), "valid": squares(8, seed=1)})
    task = f"{{kind: answer, data: {data}, size: 16, pieces: 300}}"
    return f"task: {task}\nmodel: {{kind: stacked_attention, width: 16, dropout: 0.2, image: {IMAGE}}}\n"


def walks(folder: Path) -> str:
    data = write_corridors(folder / "corridors.json", paragraphs=150)
    model = "{kind: listen_attend_walk, width: 16, hidden: 16, dropout: 0.2}"
    return f"task: {{kind: walk, data: {data}, test_map: fir}}\nmodel: {model}\n"


def worlds(folder: Path) -> str:
    """Without a loss for what the lamp says: that head has no gradient."""
    task = "{kind: interact, goal: 0, side: 6, things: 2, train_worlds: 20, valid_worlds: 4, test_worlds: 4}"
    return f"task: {task}\nmodel: {{kind: show_attend_interact, width: 16, heads: 2, image: {IMAGE}}}\n"


def words(folder: Path) -> str:
    task = "{kind: read, rendered: 40, height: 16, width: 32, longest: 3, letters: '0123', valid_examples: 8}"
    return f"task: {task}\nmodel: {{kind: show_attend_tell, width: 16, hidden: 16, image: {IMAGE}}}\n"


def commands(folder: Path) -> str:
    task = f"{{kind: follow, data: {scan(folder / 'scan.txt')}, valid_examples: 8}}"
    return f"task: {task}\nmodel: {{kind: bahdanau, width: 16, hidden: 16, dropout: 0.2}}\n"


def numbers(folder: Path) -> str:
    return "task: {kind: regress}\nmodel: {kind: kernel, embedding: learned}\n"


def texts(folder: Path) -> str:
    """Pooled by attention, so that the pooler of next sentences has no gradient."""
    path = folder / "texts.tsv"
    rows = "".join(f"it is {n} degrees\t{'warm' if n % 2 else 'cold'}\n" for n in range(100))
    path.write_text(f"text\tlabel\n{rows}")
    model = "{kind: bert, width: 16, heads: 2, layers: 1, next_sentence: true, dropout: 0.2}"
    return f"task: {{kind: classify, data: [{path}], pool: attention}}\nmodel: {model}\n"


def sentences(folder: Path) -> str:
    """Names swapped and words cut at random, both drawn while batches are made; each read twice."""
    path = folder / "pairs.tsv"
    path.write_text("".join(f"{french(n)} Tom\t{english(n)} Tom\n" for n in range(300)), encoding="utf-8")
    task = f"kind: translate, source: {path}, pieces: 320, valid_examples: 8"
    varied = "swap_names: 0.5, bpe_dropout: 0.3, agreement: 1.0"
    return f"task: {{{task}, {varied}}}\nmodel: {{kind: transformer, width: 16, heads: 2, hidden: 16, dropout: 0.2}}\n"


@pytest.mark.parametrize(
    "made",
    [sentences, pictures, named_pictures, questions, walks, worlds, words, commands, numbers, texts],
    ids=lambda f: f.__name__,
)
def test_a_task_resumes_bit_for_bit(made: Callable[[Path], str], tmp_path: Path) -> None:
    assert_resumed_equals_whole(parse_recipe(made(tmp_path) + TRAIN, "recipe"), tmp_path)
