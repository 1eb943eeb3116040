"""Where the norm stands in a residual, with and without warm-up: which of the four trains, and how soon.

    post: x <- norm(x + f(x))       the original order                                    (Vaswani et al. 2017)
    pre:  x <- x + f(norm(x))       the sum itself is never normed inside the stack       (Xiong et al. 2020)
    rate of update t: rate * min(1, t / warmup)

Xiong et al. (2020, "On layer normalization in the Transformer architecture") trace the need of warm-up to the
gradients near the output, which at the start are large with post-norm and not with pre-norm. Here four deep and narrow
Transformers, 6 + 6 layers of width 64, learn to reverse sequences, with the same seed, data, batches, clipping, updates
and rate, which stays as it is once it is reached.

The rate was chosen for the question, 2e-3, after short trials with this very seed. Loss of post-norm without warm-up:
about 2.1 after 250 updates at 1e-3 (pre-norm: 1.0), 2.9 and hardly falling at 3e-3, 2.6 after 110 updates at 2e-3;
with warm-up over 200, 2.1 after 320 updates at 2e-3. Another rate or depth may move the difference or remove it, and
one seed tells nothing of the spread.
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
from saccade.metrics import wilson_interval
from saccade.train.progress import Evaluated, Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MINUTES = 4.0
STEPS_PER_MINUTE = 225  # of each model, about, on one core; a fixed number, so that results do not hang on speed
LAYERS, WIDTH, HEADS, HIDDEN = 6, 64, 4, 128  # layers of the encoder, and as many of the decoder
RATE, WARMUP = 2e-3, 200
SEED = 1
SEQUENCES = 400  # of the validation data
WINDOW = 20  # updates whose mean is the loss in table and figure: single batches jump


@dataclass(frozen=True)
class Contestant:
    """Where the norm stands, and over how many updates the rate rises."""

    order: str
    warmup: int

    @property
    def label(self) -> str:
        return f"{self.order}-norm, {f'warm-up over {self.warmup}' if self.warmup else 'no warm-up'}"

    @property
    def settings(self) -> tuple[str, ...]:
        return f"model.order={self.order}", f"train.schedule.warmup={self.warmup}"


CONTESTANTS = {
    "pre": Contestant("pre", 0),
    "pre-warm": Contestant("pre", WARMUP),
    "post": Contestant("post", 0),
    "post-warm": Contestant("post", WARMUP),
}
# the colours of Okabe and Ito (2008), which every eye tells apart
STYLES: dict[str, dict[str, Any]] = {
    "pre": {"color": "#0072B2", "linestyle": "-"},
    "pre-warm": {"color": "#56B4E9", "linestyle": "--"},
    "post": {"color": "#D55E00", "linestyle": "-"},
    "post-warm": {"color": "#E69F00", "linestyle": "--"},
}


@dataclass(frozen=True)
class Curve:
    """Of one model: loss and gradient norm (before clipping) of every update, and exact answers after the last."""

    model: str
    losses: tuple[float, ...]
    gradient_norms: tuple[float, ...]
    exact: float
    low: float  # of a 95% interval
    high: float
    last_loss: float  # mean over the last WINDOW updates, as below
    half_at: int | None  # the first update at which the loss is below half of that of the first one
    parameters: int
    seconds: float


@dataclass(frozen=True)
class Norms:
    """All that `saccade bench norms` found out."""

    curves: tuple[Curve, ...]
    settings: dict[str, Any]
    circumstances: dict[str, Any]

    def content(self) -> dict[str, Any]:
        return asdict(self)


def common_settings(minutes: float) -> list[str]:
    """What all four are trained with."""
    steps = max(1, round(minutes * STEPS_PER_MINUTE))
    return [
        f"model.encoder_layers={LAYERS}",
        f"model.decoder_layers={LAYERS}",
        f"model.width={WIDTH}",
        f"model.heads={HEADS}",
        f"model.hidden={HIDDEN}",
        f"task.valid_examples={SEQUENCES}",
        f"train.optimizer.rate={RATE}",
        "train.schedule.kind=constant",
        f"train.seed={SEED}",
        f"train.steps={steps}",
        "train.batch_tokens=512",
        "train.threads=1",  # models this narrow only wait for a second one
        "train.log_every=1",  # the curves are of every update
        f"train.evaluate_every={steps}",
        f"train.save_every={steps}",
    ]


def measure(
    minutes: float = MINUTES, *, keep: Path | None = None, tell: Callable[[str], None] = lambda _: None
) -> Norms:
    """Train all four; `keep` is where their runs stay, `tell` hears how it goes."""
    common = common_settings(minutes)
    settings = {
        "common": common,
        "models": {name: ["reverse", *each.settings] for name, each in CONTESTANTS.items()},
        "window": WINDOW,
    }
    tell("all: reverse " + " ".join(common))
    with alone(), tempfile.TemporaryDirectory() as temporary:
        around = circumstances()
        curves = tuple(train(name, common, (keep or Path(temporary)) / name, tell) for name in CONTESTANTS)
    around["threads"] = torch.get_num_threads()  # as the training set them
    return Norms(curves, settings, around)


def train(name: str, common: Sequence[str], out: Path, tell: Callable[[str], None]) -> Curve:
    """Train one of them into the run `out`."""
    contestant = CONTESTANTS[name]
    training = api.begin("reverse", out=out, settings=[*common, *contestant.settings])
    losses, norms = [], []
    exact, tries = 0.0, 1
    begun = time.monotonic()
    for event in training.events():
        if isinstance(event, Progress):
            losses.append(event.means["loss"])
            norms.append(event.gradient_norm)
            if event.step % 100 == 0:
                tell(f"{contestant.label}: update {event.step}, loss {smooth(losses)[-1]:.2f}")
        elif isinstance(event, Evaluated):
            exact, tries = event.scores.decisive, len(event.scores.samples)
    tell(f"{contestant.label}: {exact:.1%} right")
    return Curve(
        name,
        tuple(losses),
        tuple(norms),
        exact,
        *wilson_interval(round(exact * tries), tries),
        last_loss=smooth(losses)[-1],
        half_at=half_at(losses),
        parameters=training.parameters,
        seconds=time.monotonic() - begun,
    )


def smooth(losses: Sequence[float]) -> list[float]:
    """At each update the mean over the last WINDOW updates, or as many as there are."""
    ends = range(1, len(losses) + 1)
    return [sum(losses[max(0, end - WINDOW) : end]) / min(end, WINDOW) for end in ends]


def half_at(losses: Sequence[float]) -> int | None:
    """The first update, counted from 1, at which the smooth loss is below half of the first loss."""
    return next((step for step, loss in enumerate(smooth(losses), 1) if loss < losses[0] / 2), None)


def to_table(result: Norms) -> Table:
    """One row per model."""
    table = Table("order", box=None, pad_edge=False)
    for column in ("warm-up", "last loss", "exact answers", "loss halved at update"):
        table.add_column(column, justify="right")
    for curve in result.curves:
        contestant = CONTESTANTS[curve.model]
        table.add_row(
            contestant.order,
            str(contestant.warmup or "none"),
            f"{curve.last_loss:.3f}",
            f"{curve.exact:.1%} [{curve.low:.1%}, {curve.high:.1%}]",
            "never" if curve.half_at is None else str(curve.half_at),
        )
    return table


def to_figure(result: Norms) -> Figure:
    """The loss against updates."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    for curve in result.curves:
        line = smooth(curve.losses)
        label = CONTESTANTS[curve.model].label
        axes.plot(range(1, len(line) + 1), line, label=label, linewidth=2.2, **STYLES[curve.model])
    axes.set_title(f"{LAYERS} + {LAYERS} layers that reverse a sequence, rate {RATE:g}, one seed", fontsize=12)
    axes.set_xlabel("updates", fontsize=12)
    axes.set_ylabel(f"training loss, mean over {WINDOW} updates", fontsize=12)
    axes.tick_params(labelsize=11)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=11)
    return figure
