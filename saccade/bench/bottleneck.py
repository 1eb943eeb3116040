"""The bottleneck of a vector of fixed size: a recurrent model without attention and one with it, over length.

    without: s_0 = bridge(h_T); all that the decoder ever knows of the source             (Sutskever et al. 2014)
    with:    c_t = attend(s_{t-1}, h), a look back at all of the source at each step      (Bahdanau et al. 2015)

Cho et al. (2014, "On the properties of neural machine translation") saw translations of the first kind get worse with
the length of the sentence. Here both models learn to reverse sequences, from the same data, with as many updates and
about as many parameters; what is measured is the share of new sequences that are right from first to last symbol. The
model without attention would get further with more updates; how much further is what one pays for the vector.

The intervals are of the sequences drawn, with these two models as they are; another seed trains other models.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from rich.table import Table

from saccade import api
from saccade.bench.measure import alone, circumstances
from saccade.data.toy import ANSWERS, sequences, symbol_names
from saccade.metrics import wilson_interval
from saccade.predictor import Predictor
from saccade.train.progress import Evaluated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MINUTES = 3.0
STEPS_PER_MINUTE = 600  # of each model, about, on two cores; a fixed number, so that results do not hang on speed
SHORTEST, LONGEST, SYMBOLS = 2, 30, 20  # of the training data
LENGTHS = tuple(range(2, 41, 2))  # beyond the longest too: there neither model has been taught
SEQUENCES = 200  # per length
SEED = 1
TEST_SEED = 20_000  # apart from the training data's


@dataclass(frozen=True)
class Contestant:
    """A shipped recipe, and what is set on top of it."""

    label: str
    recipe: str
    settings: tuple[str, ...]


# narrower recurrent states make up for what the attention adds: 118,280 and 111,168 parameters
CONTESTANTS = {
    "without": Contestant("without attention", "reverse-rnn", ("model.width=32", "model.hidden=88")),
    "with": Contestant("with attention", "reverse-attention", ("model.width=32", "model.hidden=64")),
}
# the colours of Okabe and Ito (2008), which every eye tells apart
STYLES: dict[str, dict[str, Any]] = {
    "without": {"color": "#D55E00", "marker": "o", "linestyle": "-"},
    "with": {"color": "#0072B2", "marker": "^", "linestyle": "-"},
}


@dataclass(frozen=True)
class Accuracy:
    """Of one model at one length: how many of the sequences are right, with a 95% interval of the share."""

    model: str
    length: int
    right: int
    sequences: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Bottleneck:
    """All that `saccade bench bottleneck` found out."""

    accuracies: tuple[Accuracy, ...]
    parameters: dict[str, int]
    seconds: dict[str, float]  # of training
    settings: dict[str, Any]
    circumstances: dict[str, Any]

    def content(self) -> dict[str, Any]:
        return asdict(self)


def common_settings(minutes: float) -> list[str]:
    """What both models are trained with."""
    steps = max(1, round(minutes * STEPS_PER_MINUTE))
    return [
        f"task.symbols={SYMBOLS}",
        f"task.shortest={SHORTEST}",
        f"task.longest={LONGEST}",
        "task.train_examples=100000",  # so many that hardly one is seen twice
        "task.valid_examples=200",
        f"train.seed={SEED}",
        f"train.steps={steps}",
        "train.batch_tokens=1024",
        "train.threads=1",  # models this small only wait for a second one
        f"train.save_every={steps}",
    ]


def measure(
    minutes: float = MINUTES,
    *,
    lengths: Sequence[int] = LENGTHS,
    count: int = SEQUENCES,
    keep: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Bottleneck:
    """Train both models and try them at every length; `keep` is where their runs stay, `tell` hears how it goes."""
    common = common_settings(minutes)
    settings = {
        "common": common,
        "models": {name: [each.recipe, *each.settings] for name, each in CONTESTANTS.items()},
        "lengths": list(lengths),
        "sequences_per_length": count,
        "test_seed": TEST_SEED,
    }
    accuracies: list[Accuracy] = []
    parameters, seconds = {}, {}
    tell("both: " + " ".join(common))
    with alone(), tempfile.TemporaryDirectory() as temporary:
        around = circumstances()
        for name, contestant in CONTESTANTS.items():
            out = (keep or Path(temporary)) / contestant.recipe
            training = api.begin(contestant.recipe, out=out, settings=[*common, *contestant.settings])
            parameters[name] = training.parameters
            begun = time.monotonic()
            tell(
                f"{contestant.label}: {contestant.recipe} {' '.join(contestant.settings)}, "
                f"{training.parameters:,} parameters"
            )
            for event in training.events():
                if isinstance(event, Evaluated):
                    tell(f"{contestant.label}: step {event.step}, {event.scores.decisive:.1%} right")
            seconds[name] = time.monotonic() - begun
            accuracies += accuracy_by_length(name, api.load(out), lengths, count)
    around["threads"] = torch.get_num_threads()  # as the training set them
    return Bottleneck(tuple(accuracies), parameters, seconds, settings, around)


def accuracy_by_length(name: str, model: Predictor, lengths: Sequence[int], count: int) -> list[Accuracy]:
    """Try a model on new sequences of each length; of 2 and 3 symbols there are too few to be all new."""
    symbols, answer = symbol_names(SYMBOLS), ANSWERS["reverse"]
    found = []
    for length in lengths:
        asked = sequences(
            count, symbols=SYMBOLS, shortest=length, longest=length, seed=TEST_SEED + length, split="valid"
        )
        predictions = model.predict([" ".join(symbols[each] for each in sequence) for sequence in asked])
        wanted = [" ".join(symbols[each] for each in answer(sequence)) for sequence in asked]
        right = sum(got.text == text for got, text in zip(predictions, wanted, strict=True))
        found.append(Accuracy(name, length, right, count, right / count, *wilson_interval(right, count)))
    return found


def to_table(result: Bottleneck) -> Table:
    """One row per length: the share that is right, and its interval, of each model."""
    table = Table("length", box=None, pad_edge=False)
    for name, contestant in CONTESTANTS.items():
        table.add_column(f"{contestant.label}\n{result.parameters[name]:,} parameters", justify="right")
    by_place = {(each.model, each.length): each for each in result.accuracies}
    for length in result.settings["lengths"]:
        cells = (by_place[name, length] for name in CONTESTANTS)
        beyond = " (not taught)" if length > LONGEST else ""
        table.add_row(f"{length}{beyond}", *(f"{each.share:.1%}  {_interval(each)}" for each in cells))
    return table


def to_figure(result: Bottleneck) -> Figure:
    """Accuracy against length, with the intervals as bands."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.6), layout="constrained")
    axes = figure.subplots()
    for name, contestant in CONTESTANTS.items():
        mine = [each for each in result.accuracies if each.model == name]
        lengths = [each.length for each in mine]
        label = f"{contestant.label} ({result.parameters[name]:,} parameters)"
        axes.plot(lengths, [each.share for each in mine], label=label, markersize=6, **STYLES[name])
        low, high = [each.low for each in mine], [each.high for each in mine]
        axes.fill_between(lengths, low, high, color=STYLES[name]["color"], alpha=0.2, linewidth=0)
    axes.axvline(LONGEST, color="0.4", linestyle=":")
    axes.annotate("longest in training", (LONGEST - 0.3, 0.5), ha="right", rotation=90, va="center", color="0.3")
    steps = dict(setting.split("=") for setting in result.settings["common"])["train.steps"]
    axes.set_title(f"Recurrent models that reverse a sequence, after {steps} updates", fontsize=11)
    axes.set_xlabel("symbols in the sequence")
    axes.set_ylabel("right from first to last symbol")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    return figure


def _interval(accuracy: Accuracy) -> str:
    return f"[{accuracy.low:.1%}, {accuracy.high:.1%}]".rjust(16)
