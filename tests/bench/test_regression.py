"""The picture of kernel regression: every kernel beats the mean, and attention is told by what it looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from saccade.bench import regression


def test_kernels_are_fitted_told_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        regression, "KERNELS", {name: ["train.steps=5"] for name in ("learned width", "learned embeddings")}
    )
    found = regression.fits(lambda text: None)
    assert [(fit.data, fit.kernel) for fit in found] == [
        (data, kernel) for data in ("curve", "heights") for kernel in ("learned width", "learned embeddings")
    ]
    for fit in found:
        own, process, baseline = fit.scores[:3]
        assert own.value < baseline.value and process.value < baseline.value
    first = found[0]
    assert first.seen is not None
    np.testing.assert_allclose(first.seen.mean.sum(1), 1, atol=1e-5)
    figure = regression.to_figure(found)
    figure.savefig(tmp_path / "fits.png")
    below = figure.axes[2]
    assert below.get_title().startswith("attention, up")
    assert len(below.get_xticks()) < len(first.seen.columns) / 2  # some labels only: they do not overlap
    assert (tmp_path / "fits.png").stat().st_size > 10_000
    assert regression.to_table(found).row_count == 4
