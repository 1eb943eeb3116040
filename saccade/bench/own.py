"""A run and sentences of one's own: `saccade bench translate --model RUN --source FILE`, against CTranslate2.

From text to text: cutting and joining pieces is measured, too. Nobody is forced to anything: every tool writes what it
finds and ends where it ends. Speeds are pieces read per second, the same number for all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from saccade import api
from saccade.bench import peers
from saccade.bench.measure import alone, circumstances, warn_if_busy
from saccade.bench.peers import CTRANSLATE2, SACCADE, Contestant, Work, with_threads
from saccade.bench.writing import ROUNDS, Race, Speed, booths_of, raced, thread_counts
from saccade.data.readers import read_lines
from saccade.data.vocab import PAD, START
from saccade.decode import Beam, Greedy
from saccade.errors import SaccadeError, to_install
from saccade.exchange import ctranslate2
from saccade.predictor import Predictor, require_precision

AT_ONCE = 32  # sentences of a batch in CTranslate2, which sorts them by length, too


def translate(
    run: Path,
    source: Path,
    *,
    lines: int = 200,
    beams: Sequence[int] = (1, 4),
    rounds: int = ROUNDS,
    tell: Callable[[str], None] = lambda _: None,
) -> Race:
    """The first lines of a file, one at a time and all together."""
    if "CTranslate2" not in (tools := peers.installed()):
        raise SaccadeError(f"there is nothing to compare with: {to_install('ctranslate2')}")
    predictor = api.load(run)
    encode = _pieces(predictor).encode
    texts = _translatable(predictor, source, lines)
    pieces = sum(len(encode(text)) for text in texts)
    settings = {"run": str(run), "source": str(source), "lines": len(texts), "rounds": rounds, "peers": tools}
    warn_if_busy()
    with alone(), tempfile.TemporaryDirectory() as place:
        around, folder = circumstances(), Path(place) / "ctranslate2"
        ctranslate2.export_run(run, folder)
        speeds: list[Speed] = []
        with booths_of([*SACCADE, *CTRANSLATE2], makes, run, folder) as booths:
            for at_once in (1, len(texts)):
                for beam in beams:
                    works = {name: booth.works(texts, at_once, beam) for name, booth in booths.items()}
                    speeds += raced(run.name, beam, at_once, pieces, works, rounds)
                    tell(f"{at_once} at a time, beam {beam}")
    return Race(tuple(speeds), settings, around)


def _pieces(predictor: Predictor) -> Any:
    if predictor.recipe.task.kind != "translate":
        raise SaccadeError(f"--model is a run that translates; this one has task.kind={predictor.recipe.task.kind}")
    return predictor.task.pieces  # type: ignore[attr-defined]


def _translatable(predictor: Predictor, source: Path, lines: int) -> list[str]:
    """The first lines that are neither blank nor refused."""
    texts = list(islice((line for line in read_lines(source) if line.strip()), lines))
    found = predictor.predict(texts, Greedy(scored=False)) if texts else []
    kept = [text for text, each in zip(texts, found, strict=True) if each.refusal is None]
    if not kept:
        raise SaccadeError(f"{source}: there is no line in it that can be translated")
    return kept


def makes(contestant: Contestant, run: Path, folder: Path) -> list[Callable[[list[str], int, int], Work]]:
    """How a contestant's work is made of texts, the number of them that it is given at a time, and the beam."""
    counts = thread_counts()
    if contestant in CTRANSLATE2:
        torch.set_num_threads(1)  # a pool of torch's would send its threads to sleep
    predictor = api.load(run, precision=require_precision(contestant.precision))
    if contestant in SACCADE:
        return [_ours(predictor, threads) for threads in counts]
    ways = peers.ctranslate2_ways("Translator", folder, contestant.precision, counts)
    return [_theirs(translator, folder, _pieces(predictor), parts) for translator, parts in ways]


def _parts(texts: list[str], at_once: int) -> list[list[str]]:
    return [texts[first : first + at_once] for first in range(0, len(texts), at_once)]


def _ours(predictor: Predictor, threads: int) -> Callable[[list[str], int, int], Work]:
    def make(texts: list[str], at_once: int, beam: int) -> Work:
        method = Greedy(scored=False) if beam == 1 else Beam(beam)
        parts = _parts(texts, at_once)

        def work() -> list[str]:
            return [each.text for part in parts for each in predictor.predict(part, method)]

        return with_threads(threads, work)

    return make


def _theirs(translator: Any, folder: Path, pieces: Any, workers: int) -> Callable[[list[str], int, int], Work]:
    names = peers.spelled(folder, "shared_vocabulary.json")
    numbers = {name: number for number, name in enumerate(names)}
    never = [[names[PAD]], [names[START]]]

    def make(texts: list[str], at_once: int, beam: int) -> Work:
        parts = _parts(texts, at_once)
        size = min(AT_ONCE, -(-at_once // workers))

        def work() -> list[str]:
            found = []
            for part in parts:
                given = [[names[id_] for id_ in pieces.encode(text)] for text in part]
                found += translator.translate_batch(
                    given, beam_size=beam, max_batch_size=size, suppress_sequences=never
                )
            return [pieces.decode([numbers[name] for name in each.hypotheses[0]]) for each in found]

        return work

    return make
