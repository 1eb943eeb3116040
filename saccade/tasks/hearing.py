"""Sound as a model reads it: log-mel spectra, or cepstra that somebody has made, normalised over each recording."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.config.sound import TranscribeSettings
from saccade.data.sound import Sound, read_sound
from saccade.errors import SaccadeError
from saccade.maps.render import Frames
from saccade.modality.audio import LogMel, SpecAugment, normalised, resample, with_deltas

DELTAS = 2  # that ready-made frames are given beside them: slopes, and slopes of those
STRIPES = 2  # of bands and of time that augmentation hides


class Hearing:
    """From what was recorded to frames, as a recipe says."""

    def __init__(self, settings: TranscribeSettings):
        self.settings = settings

    @property
    def width(self) -> int:
        """Numbers in a frame."""
        features = self.settings.features
        return self.settings.mels if features is None else features * (1 + DELTAS)

    @cached_property
    def augment(self) -> SpecAugment:
        share = self.settings.augment
        band = round(share * self.width)
        return SpecAugment(bands=STRIPES, band=band, stretches=STRIPES, stretch=1 << 30, share=share)

    @cached_property
    def _spectrum(self) -> LogMel:
        settings = self.settings
        assert settings.rate is not None, "Transcribe.fitted decides it"
        try:
            return LogMel(settings.rate, mels=settings.mels, window=settings.window, hop=settings.hop)
        except ValueError as error:
            raise SaccadeError(f"task.mels, task.window and task.hop: {error}") from error

    def frames(self, heard: Sound | np.ndarray) -> Tensor:
        """(T, F), each feature with zero mean and unit variance; in half precision, so that a corpus fits in memory."""
        if isinstance(heard, Sound):
            samples = resample(torch.from_numpy(heard.samples), heard.rate, self._spectrum.rate)
            frames, mask = self._spectrum(samples)
        else:
            cepstra = torch.from_numpy(heard)[None]
            mask = torch.ones(cepstra.shape[:2], dtype=torch.bool)
            frames = with_deltas(cepstra, mask, DELTAS)
        return normalised(frames, mask)[0].half()

    def read(self, path: Path) -> Tensor:
        """Frames of a sound file, if the model is for sounds of that length."""
        features, longest = self.settings.features, self.settings.longest
        if features is not None:
            raise SaccadeError(
                f"{path}: this model reads frames of {features} numbers that somebody has made, and not sound; "
                "it answers recordings of its validation part, by their names"
            )
        sound = read_sound(path)
        if sound.seconds > longest:
            raise SaccadeError(f"{path}: {sound.seconds:,.1f} seconds; the model was trained with up to {longest:g}")
        return self.frames(sound)

    def time(self, frames: Tensor, stride: int) -> Frames:
        """The positions of a memory with one for `stride` frames, over the spectrum (or the cepstra alone)."""
        shown = frames[:, : self.settings.features or self.width].float()
        count = -(-len(frames) // stride)
        spectrogram = np.full((count * stride, shown.shape[1]), float(shown.min()), dtype=np.float32)
        spectrogram[: len(shown)] = shown
        return Frames(count, stride * self.settings.hop, spectrogram)


def padded_frames(frames: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(B, longest, F) in full precision with zeros behind each, and which are real: (B, longest)."""
    lengths = torch.tensor([len(each) for each in frames])
    batch = torch.nn.utils.rnn.pad_sequence([each.float() for each in frames], batch_first=True)
    return batch, torch.arange(batch.shape[1]) < lengths[:, None]
