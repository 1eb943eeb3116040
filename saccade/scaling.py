"""What a published size costs: operations, memory on many devices, days, energy and money.

    training operations = 6 N D                                  N parameters, D tokens (Kaplan et al. 2020)
    bytes per parameter = 2 weights + 2 gradients + 12 optimizer (mixed precision: a float32 copy and two moments)
    activations of a block = s b h (10 + 24 / t + 5 a s / (h t))            (Korthikanti et al. 2022, bytes)
    days = operations / (devices x peak x utilisation)

s tokens of a text, b texts of a device's batch, h width, a heads, t devices that share each layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from saccade.errors import SaccadeError, did_you_mean
from saccade.models.sizes import SIZES, Size, parameters

WEIGHTS, GRADIENTS, OPTIMIZER = 2, 2, 12  # bytes per parameter
UTILISATION = 0.3  # of the peak, that trainings of these years reached, roughly: see docs/results/language.md
NEAR = 0.1  # of each other, that two sizes have one label in the plot
OVERHEAD = 1.1  # of a data centre, on top of what its devices take


@dataclass(frozen=True)
class Accelerator:
    """Peak of matrix products in the precision that trainings use, memory, power, and a price to reckon with."""

    title: str
    peak: float  # operations per second
    memory: float  # bytes
    watts: float
    price: float  # dollars per hour

    @property
    def gigabytes(self) -> float:
        return self.memory / 1e9


ACCELERATORS = {
    "P100": Accelerator("P100, float32", 10.6e12, 16e9, 300, 1.46),
    "V100": Accelerator("V100, float16", 125e12, 32e9, 300, 2.48),
    "A100": Accelerator("A100, bfloat16", 312e12, 80e9, 400, 3.67),
    "H100": Accelerator("H100, bfloat16", 989e12, 80e9, 700, 6.98),
    "TPUv2": Accelerator("TPU v2 chip, bfloat16", 45e12, 16e9, 280, 1.13),
    "TPUv3": Accelerator("TPU v3 chip, bfloat16", 123e12, 32e9, 220, 2.00),
}


@dataclass(frozen=True)
class Layout:
    """Bytes on each device, however the model is spread."""

    name: str
    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class Cost:
    """A training on given devices."""

    operations: float
    days: float
    kilowatt_hours: float
    dollars: float


def find_size(name: str) -> Size:
    if name not in SIZES:
        near = did_you_mean(name, SIZES) or f"; there are {', '.join(SIZES)}"
        raise SaccadeError(f"no published size {name!r}{near}")
    return SIZES[name]


def find_accelerator(name: str) -> Accelerator:
    if name not in ACCELERATORS:
        raise SaccadeError(f"no accelerator {name!r}; there are {', '.join(ACCELERATORS)}")
    return ACCELERATORS[name]


def operations(size: Size, count: int) -> float | None:
    return None if size.tokens is None else 6 * count * size.tokens


def layouts(size: Size, count: int, *, devices: int, shared: int = 8, batch: int = 1) -> list[Layout]:
    """Memory of a device with data-parallel copies, with everything sharded, and with layers shared by some devices."""
    if devices < 1 or shared < 1 or devices % shared:
        raise SaccadeError(f"{devices} devices cannot be parted in groups of {shared} that share each layer (--shared)")

    def layout(name: str, parted: int, held: float) -> Layout:
        mine = count / parted
        return Layout(name, WEIGHTS * mine, GRADIENTS * mine, OPTIMIZER * mine, held)

    whole = activations(size, batch=batch)
    return [
        layout("data parallel", 1, whole),
        layout("sharded", devices, whole),
        layout(f"tensor parallel, {shared} share a layer", shared, activations(size, batch=batch, shared=shared)),
    ]


def activations(size: Size, *, batch: int = 1, shared: int = 1) -> float:
    """Bytes that the backward pass needs of one batch."""
    model = size.model
    layers = model.layers if hasattr(model, "layers") else model.encoder_layers + model.decoder_layers
    tokens, width, heads = size.longest, model.width, model.heads
    return layers * tokens * batch * width * (10 + 24 / shared + 5 * heads * tokens / (width * shared))


def cost(
    size: Size, count: int, *, devices: int, accelerator: Accelerator, utilisation: float = UTILISATION
) -> Cost | None:
    """Nothing where it is not known what the model was trained on."""
    needed = operations(size, count)
    if needed is None:
        return None
    if not 0 < utilisation <= 1:
        raise SaccadeError(f"the utilisation is a share of the peak, above 0 and at most 1; got {utilisation}")
    hours = needed / (devices * accelerator.peak * utilisation) / 3600
    energy = devices * accelerator.watts * hours / 1000 * OVERHEAD
    return Cost(needed, hours / 24, energy, devices * hours * accelerator.price)


def reached(size: Size, count: int) -> float | None:
    """The utilisation that the published training time means."""
    if size.tokens is None or size.devices is None or size.days is None:
        return None
    peak = size.devices * ACCELERATORS[size.accelerator].peak * size.days * 86400
    return 6 * count * size.tokens / peak


def to_figure(counts: dict[str, int]) -> Figure:
    """Size against year, and against the operations of its training."""
    figure = Figure(figsize=(10, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    years = {name: float(SIZES[name].year) for name in counts}
    needed = {name: operations(SIZES[name], count) for name, count in counts.items()}
    for axes, places, colour in ((left, years, "#1f5f9f"), (right, needed, "#c0602f")):
        points = {name: (place, counts[name]) for name, place in places.items() if place is not None}
        for names in _close(points):
            axes.plot(*zip(*(points[name] for name in names), strict=True), "o", color=colour)
            title = ", ".join(SIZES[name].title for name in names)
            axes.annotate(title, points[names[0]], fontsize=8, xytext=(5, -3), textcoords="offset points")
        axes.grid(alpha=0.3)
    left.set(xlabel="year", ylabel="parameters", yscale="log", xlim=(2016.5, 2022.6))
    right.set(xlabel="operations of the training", xscale="log", yscale="log", xlim=(3e17, 1e25))
    return figure


def _close(points: dict[str, tuple[float, int]]) -> list[list[str]]:
    """Points so near each other that they need one label."""
    groups: list[list[str]] = []
    for name, (place, count) in points.items():
        for group in groups:
            first, other = points[group[0]]
            if abs(count / other - 1) < NEAR and abs(place / first - 1) < 1e-9 + (place > 1e10):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def all_parameters() -> dict[str, int]:
    return {name: parameters(size) for name, size in SIZES.items()}
