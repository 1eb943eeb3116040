"""The pictures show what they say."""

from __future__ import annotations

import numpy as np

from saccade.bench import pictures


def test_every_activation_has_its_panel() -> None:
    titles = [axes.get_title() for axes in pictures.activations().axes]
    assert titles[:7] == [name.replace("_", " ") for name in pictures.ACTIVATIONS]


def test_twenty_words_and_512_dimensions_in_two_layouts_that_hold_the_same_columns() -> None:
    interleaved, halves = (axes.images[0].get_array() for axes in pictures.positions().axes if axes.images)
    assert interleaved.shape == halves.shape == (20, 512)
    assert np.array_equal(np.concatenate([interleaved[:, 0::2], interleaved[:, 1::2]], axis=1), halves)
