"""Models that hear: what their memory stands for; that they obey the laws is checked with all other models."""

from __future__ import annotations

import math

import pytest
import torch

from saccade.config.sound import ListenAttendSpellSettings, SpeechTransformerSettings
from saccade.models import SPEECH_MODELS

SETTINGS = {
    "no halving": ListenAttendSpellSettings(listener=4, halvings=0, width=6, hidden=5),
    "listen, attend and spell": ListenAttendSpellSettings(listener=4, halvings=3, width=6, hidden=5),
    "speech transformer": SpeechTransformerSettings(width=8, heads=2, hidden=12),
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("length", [1, 7, 8, 21])
def test_a_position_of_the_memory_stands_for_stride_frames(name: str, length: int) -> None:
    settings = SETTINGS[name]
    model = SPEECH_MODELS[settings.kind](settings, 3, 11).eval()
    memory = model.encode(torch.randn(2, 30, 3), torch.arange(30) < torch.tensor([[30], [length]]))
    assert memory.mask is not None
    assert memory.states.shape[1] == memory.mask.shape[1] == math.ceil(30 / settings.stride)
    assert memory.mask.sum(1).tolist() == [math.ceil(30 / settings.stride), math.ceil(length / settings.stride)]


def test_a_transformer_that_hears_knows_when_it_heard_something() -> None:
    """The same sound all the time: only positions tell its moments apart."""
    settings = SETTINGS["speech transformer"]
    model = SPEECH_MODELS[settings.kind](settings, 3, 11).eval()
    states = model.encode(torch.ones(1, 80, 3)).states[0, 3:-3]  # away from both ends, which the convolutions feel
    assert torch.cdist(states, states).fill_diagonal_(1).min() > 1e-3


def test_the_speller_starts_from_the_mean_of_what_was_heard() -> None:
    settings = SETTINGS["listen, attend and spell"]
    memory = SPEECH_MODELS[settings.kind](settings, 3, 11).eval().encode(torch.randn(2, 30, 3))
    assert memory.summary is not None
    torch.testing.assert_close(memory.summary, memory.states.mean(1, keepdim=True))
