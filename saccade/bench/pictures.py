"""The course's pictures, drawn from the formulas: the activation functions, and the positional encoding of twenty
words."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from saccade import formulas

ACTIVATIONS = ("relu", "sigmoid", "tanh", "leaky_relu", "elu", "gelu", "silu")
WORDS, DIMENSIONS = 20, 512


def activations() -> Figure:
    """Each activation over [-4, 4], in its own panel."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    x = np.linspace(-4, 4, 401)
    for name, axes in zip(ACTIVATIONS, figure.subplots(2, 4, sharex=True, sharey=True).flat, strict=False):
        axes.axhline(0, color="0.8", linewidth=0.8)
        axes.axvline(0, color="0.8", linewidth=0.8)
        axes.plot(x, getattr(formulas, name)(x), color="#1f5f9f")
        axes.set_title(name.replace("_", " "), fontsize=10)
        axes.set_ylim(-1.5, 4)
    figure.axes[-1].set_axis_off()
    return figure


def positions() -> Figure:
    """Rows are positions, columns dimensions: in the course's interleaved layout, and in halves."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    at = np.arange(WORDS, dtype=np.float64)
    tables = {"interleaved (the course)": formulas.sinusoidal, "halves": formulas.sinusoidal_halves}
    for (title, table), axes in zip(tables.items(), figure.subplots(2, 1), strict=True):
        image = axes.imshow(table(at, DIMENSIONS), aspect="auto", cmap="RdBu", vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=10)
        axes.set_ylabel("position")
        axes.set_xlabel("dimension")
        figure.colorbar(image, ax=axes)
    return figure
