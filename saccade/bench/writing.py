"""Tokens per second of models that write: `saccade bench translate` and `saccade bench generate`, on the same weights.

Every contestant writes exactly so many tokens: none may end sooner. Each has a process of its own and is tried with one
thread and with all; its better figure counts. Encoding, search and everything between are measured; cutting text into
pieces is not.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from saccade import api
from saccade.bench import llama, peers
from saccade.bench.booth import Booth, Remote
from saccade.bench.measure import alone, circumstances, interleaved, warn_if_busy
from saccade.bench.peers import CTRANSLATE2, HUGGING_FACE, LLAMA, SACCADE, Contestant, Work, with_threads
from saccade.data.lexicon import Lexicon
from saccade.data.vocab import END, PAD, SPECIALS, START, Pieces
from saccade.decode import Beam, Greedy, minimum_length, never, search
from saccade.nn.packed import packed
from saccade.tasks.continuing import prefilled

ROUNDS = 3
SHORTEST = 0.2  # seconds of a round: a single call would only show how long caches take to fill after another's
SIZES = {
    "tiny": "width: 128, heads: 4, hidden: 256, encoder_layers: 4, decoder_layers: 4",
    "base": "width: 512, heads: 8, hidden: 2048, encoder_layers: 6, decoder_layers: 6",
}
VOCABULARIES = {"tiny": 10_000, "base": 32_000}
GPT2 = "width: 768, heads: 12, layers: 12"


@dataclass(frozen=True)
class Speed:
    """The best figure of one contestant at one place of the table."""

    size: str
    sequences: int
    beam: int
    contestant: str
    tokens: float  # per second
    median: float  # the same of the median round
    threads: int


@dataclass(frozen=True)
class Race:
    """All that was measured."""

    speeds: tuple[Speed, ...]
    settings: dict[str, Any]
    circumstances: dict[str, Any]

    def content(self) -> dict[str, Any]:
        return asdict(self)


def translate(
    sizes: Sequence[str] = tuple(SIZES),
    *,
    sentences: Sequence[int] = (1, 32),
    beams: Sequence[int] = (1, 4),
    tokens: int = 16,
    rounds: int = ROUNDS,
    tell: Callable[[str], None] = lambda _: None,
) -> Race:
    """Transformers of two sizes, `tokens` in and `tokens` out."""
    settings = {"sizes": list(sizes), "tokens": tokens, "rounds": rounds, "peers": peers.installed()}
    warn_if_busy()
    with alone(), tempfile.TemporaryDirectory() as place:
        around = circumstances()
        speeds: list[Speed] = []
        for size in sizes:
            vocabulary = Pieces(peers.byte_pairs(VOCABULARIES[size] - len(SPECIALS)))
            model = f"{{kind: transformer, order: post, tie: all, {SIZES[size]}}}"
            recipe = f"task: {{kind: translate, source: none}}\nmodel: {model}"
            peers.drawn(recipe, vocabulary, Path(place) / size)
            peers.exported(Path(place) / size)
            with booths_of(_contestants(), makes, TRANSLATE, Path(place) / size, tokens) as booths:
                for count in sentences:
                    draw = torch.Generator().manual_seed(1)
                    source = torch.randint(len(SPECIALS), VOCABULARIES[size], (count, tokens), generator=draw)
                    for beam in beams:
                        works = {name: booth.works(source.tolist(), beam) for name, booth in booths.items()}
                        speeds += raced(size, beam, count, count * tokens, works, rounds)
                        tell(f"{size}, {count} sentences, beam {beam}")
    return Race(tuple(speeds), settings, around)


def generate(
    *,
    sequences: Sequence[int] = (1, 16),
    prompt: int = 16,
    tokens: int = 48,
    model: str = GPT2,
    vocabulary: int = 50_257,
    rounds: int = ROUNDS,
    tell: Callable[[str], None] = lambda _: None,
) -> Race:
    """A language model of the size of GPT-2 small goes on from prompts, greedily."""
    tools = peers.installed(peers.OF_LANGUAGE_MODELS)
    settings = {"prompt": prompt, "tokens": tokens, "rounds": rounds, "peers": tools}
    warn_if_busy()
    with alone(), tempfile.TemporaryDirectory() as place:
        around = circumstances()
        speeds: list[Speed] = []
        recipe = (
            f"task: {{kind: language, data: none, window: {prompt + tokens}}}\n"
            f"model: {{kind: gpt, {model}, positions: learned}}"
        )
        specials = len(Lexicon(peers.byte_pairs(256), "pieces")) - 256
        lexicon = Lexicon(peers.byte_pairs(vocabulary - specials), "pieces")
        peers.drawn(recipe, lexicon, Path(place))
        peers.exported(Path(place))
        contestants = [*_contestants(), *(LLAMA if "llama.cpp" in tools else ())]
        with booths_of(contestants, makes, GENERATE, Path(place), tokens) as booths:
            for count in sequences:
                draw = torch.Generator().manual_seed(1)
                prompts = torch.randint(specials, vocabulary, (count, prompt), generator=draw)
                works = {name: booth.works(prompts.tolist(), 1) for name, booth in booths.items()}
                speeds += raced("GPT-2 small", 1, count, count * tokens, works, rounds)
                tell(f"{count} sequences")
    return Race(tuple(speeds), settings, around)


Make = Callable[[list[list[int]], int], Work]  # ids of what is read, and the beam


def thread_counts() -> tuple[int, ...]:
    return tuple(sorted({1, os.cpu_count() or 1}))


def raced(
    size: str, beam: int, sequences: int, tokens: int, works: dict[Contestant, list[Remote]], rounds: int
) -> Iterator[Speed]:
    """What each contestant makes of so many tokens in all."""
    flat = {(name, number): work for name, both in works.items() for number, work in enumerate(both)}
    timings = interleaved(flat, rounds=rounds, shortest=SHORTEST)
    for name in works:
        mine = ((timing.best, timing.median, number) for (its, number), timing in timings.items() if its == name)
        best, median, number = min(mine)
        threads = [*thread_counts(), *thread_counts()[-1:]][number]  # a third way has all of them, too
        yield Speed(size, sequences, beam, str(name), tokens / best, tokens / median, threads)


@dataclass(frozen=True)
class Job:
    """What is to be written, and how each tool is asked for it: its class, and from a model how its work is made."""

    ours: Callable[[Any, int, int], Make]
    hugging_face: str
    ctranslate2: str
    names: str  # file of its vocabulary
    asked: Callable[[Any, Sequence[str], int, int], Make]


def _contestants() -> list[Contestant]:
    tools = peers.installed()
    theirs = [*([HUGGING_FACE] if "Hugging Face" in tools else []), *(CTRANSLATE2 if "CTranslate2" in tools else ())]
    return [*SACCADE, *theirs]


@contextmanager
def booths_of(
    contestants: Sequence[Contestant], enter: Callable[..., Sequence[Callable[..., Work]]], *given: Any
) -> Iterator[dict[Contestant, Booth]]:
    """A process for each, which enters as itself with what is given."""
    booths = {each: Booth(str(each), enter, each, *given) for each in contestants}
    try:
        yield booths
    finally:
        for booth in booths.values():
            booth.close()


def makes(contestant: Contestant, job: Job, place: Path, tokens: int) -> list[Make]:
    """How a contestant's work is made, with one thread and with all, in the one way or two that it has, from what
    `peers.drawn` and `peers.exported` put into a place."""
    counts, precision = thread_counts(), contestant.precision
    theirs, converted = peers.folders(place)
    if contestant in SACCADE:
        ready: Any = packed(api.load(place / "run").model, precision)  # type: ignore[arg-type]
        return [job.ours(ready, tokens, threads) for threads in counts]
    if contestant == HUGGING_FACE:
        model = getattr(peers.quiet_transformers(), job.hugging_face).from_pretrained(theirs).eval()
        return [_hugging_face(model, tokens, threads) for threads in counts]
    if contestant in LLAMA:
        return _llamas(theirs, precision, tokens)
    names = peers.spelled(converted, job.names)
    return [
        job.asked(loaded, names, tokens, parts)
        for loaded, parts in peers.ctranslate2_ways(job.ctranslate2, converted, precision, counts)
    ]


def _ours(model: Any, tokens: int, threads: int) -> Make:
    rules = [never([PAD, START]), minimum_length(tokens, END)]

    def make(rows: list[list[int]], beam: int) -> Work:
        source = torch.tensor(rows)
        method = Greedy(scored=False) if beam == 1 else Beam(beam)  # no tool is asked for scores

        @torch.no_grad()
        def work() -> object:
            past = model.begin(model.encode(source), tokens)
            limits = [tokens] * len(source)
            return search(
                model.step,
                past,
                start=START,
                end=END,
                limits=limits,
                method=method,
                rules=rules,
                stretch=model.stretch,
            )

        return with_threads(threads, work)

    return make


def _hugging_face(model: Any, tokens: int, threads: int) -> Make:
    def make(rows: list[list[int]], beam: int) -> Work:
        source = torch.tensor(rows)
        real = torch.ones_like(source)
        how = {"num_beams": beam, "do_sample": False, "min_new_tokens": tokens, "max_new_tokens": tokens}
        return with_threads(threads, torch.no_grad()(lambda: model.generate(source, attention_mask=real, **how)))

    return make


def _ctranslate2(translator: Any, names: Sequence[str], tokens: int, parts: int) -> Make:
    def make(rows: list[list[int]], beam: int) -> Work:
        texts = [[names[id_] for id_ in row] for row in rows]
        how = {"beam_size": beam, "min_decoding_length": tokens, "max_decoding_length": tokens}
        return lambda: translator.translate_batch(texts, max_batch_size=-(-len(rows) // parts), **how)

    return make


def _going_on(model: Any, tokens: int, threads: int) -> Make:
    def make(rows: list[list[int]], beam: int) -> Work:  # noqa: ARG001 - greedily
        @torch.no_grad()
        def work() -> object:
            past = prefilled(model, [row[:-1] for row in rows], tokens)
            start, rules = [row[-1] for row in rows], [never([END])]
            return search(
                model.step,
                past,
                start=start,
                end=END,
                limits=[tokens] * len(rows),
                method=Greedy(scored=False),
                rules=rules,
                stretch=model.stretch,
            )

        return with_threads(threads, work)

    return make


def _ctranslate2_on(generator: Any, names: Sequence[str], tokens: int, parts: int) -> Make:
    def make(rows: list[list[int]], beam: int) -> Work:
        texts = [[names[id_] for id_ in row] for row in rows]
        how = {"beam_size": beam, "min_length": tokens, "max_length": tokens, "include_prompt_in_result": False}
        return lambda: generator.generate_batch(texts, max_batch_size=-(-len(rows) // parts), **how)

    return make


def _llamas(folder: Path, precision: str, tokens: int) -> list[Make]:
    file = folder.with_name(f"{precision}.gguf")
    llama.write_gguf(folder, file, precision)
    model = llama.load(file)

    def with_so_many(threads: int) -> Make:
        return lambda rows, beam: llama.continuation(model, rows, tokens, threads)  # noqa: ARG005

    return [with_so_many(threads) for threads in thread_counts()]


TRANSLATE = Job(_ours, "MarianMTModel", "Translator", "shared_vocabulary.json", _ctranslate2)
GENERATE = Job(_going_on, "GPT2LMHeadModel", "Generator", "vocabulary.json", _ctranslate2_on)


def to_table(race: Race) -> Table:
    """A row for each contestant, tokens per second at each size, number of sequences and beam; ours as multiples of the
    best of theirs; and how far the median round stays behind the best, of whoever it differs most."""
    places = list(dict.fromkeys((speed.size, speed.sequences, speed.beam) for speed in race.speeds))
    found = [{s.contestant: s for s in race.speeds if (s.size, s.sequences, s.beam) == place} for place in places]
    table = Table("size\nsequences\nbeam", box=None, pad_edge=False)
    for place in places:
        table.add_column("\n".join(map(str, place)), justify="right")
    for name in dict.fromkeys(speed.contestant for speed in race.speeds):
        table.add_row(name, *(f"{here[name].tokens:,.0f}" for here in found))
    for precision in ("float32", "int8"):
        table.add_row(f"x best {precision}", *(_multiple(here, precision) for here in found))
    behind = (max(1 - speed.median / speed.tokens for speed in here.values()) for here in found)
    table.add_row("median behind best", *(f"{share:.0%}" for share in behind))
    return table


def _multiple(found: dict[str, Speed], precision: str) -> str:
    """Ours over the best of the others at the same precision."""
    others = [s.tokens for name, s in found.items() if name.endswith(precision) and not name.startswith("saccade")]
    return f"{found[f'saccade {precision}'].tokens / max(others):.2f}" if others else "-"
