"""Sound as a model reads it: log-mel spectra, or cepstra of one's own or ready-made, normalised over each recording."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.config.sound import TranscribeSettings
from saccade.data.sound import Sound, read_sound
from saccade.data.speech import read_frames
from saccade.errors import SaccadeError
from saccade.maps.render import Frames
from saccade.modality.audio import Cepstra, LogMel, SpecAugment, normalised, resample, with_deltas

DELTAS = 2  # that cepstra are given beside them: slopes, and slopes of those
FRAMES = ".npy"
STRIPES = 2  # of bands and of time that augmentation hides


class Hearing:
    """From what was recorded to frames, as a recipe says."""

    def __init__(self, settings: TranscribeSettings):
        self.settings = settings

    @property
    def width(self) -> int:
        """Numbers in a frame."""
        return self.settings.mels if self._cepstra is None else self._cepstra * (1 + DELTAS)

    @property
    def _cepstra(self) -> int | None:
        """Numbers in a frame without their slopes; none: bands, which have no slopes beside them."""
        return self.settings.cepstra if self.settings.features is None else self.settings.features

    @cached_property
    def augment(self) -> SpecAugment:
        share = self.settings.augment
        band = round(share * self.width)
        return SpecAugment(bands=STRIPES, band=band, stretches=STRIPES, stretch=1 << 30, share=share)

    @cached_property
    def _spectrum(self) -> LogMel | Cepstra:
        settings = self.settings
        assert settings.rate is not None, "Transcribe.fitted decides it"
        try:
            bands = LogMel(settings.rate, mels=settings.mels, window=settings.window, hop=settings.hop)
        except ValueError as error:
            raise SaccadeError(f"task.mels, task.window and task.hop: {error}") from error
        return bands if settings.cepstra is None else Cepstra(bands, coefficients=settings.cepstra, deltas=DELTAS)

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
        """Frames of a sound file, or of a file of ready-made ones, if the model is for such and of that length."""
        features, longest = self.settings.features, self.settings.longest
        heard: Sound | np.ndarray
        if features is None:
            heard = read_sound(path)
            seconds = heard.seconds
        elif path.suffix.lower() == FRAMES:
            heard = read_frames(path, features)
            seconds = len(heard) * self.settings.hop
        else:
            raise SaccadeError(
                f"{path}: this model reads frames of {features} numbers that somebody has made, and not sound; "
                f"it answers {FRAMES} files of (frames, {features}), and names of its validation part"
            )
        if seconds > longest:
            raise SaccadeError(f"{path}: {seconds:,.1f} seconds; the model was trained with up to {longest:g}")
        return self.frames(heard)

    def time(self, frames: Tensor, stride: int) -> Frames:
        """The positions of a memory with one for `stride` frames, over the spectrum (or the cepstra alone).
        Behind the end of the sound, in the last position, the spectrum is not a number."""
        shown = frames[:, : self._cepstra or self.width].float()
        count = -(-len(frames) // stride)
        spectrogram = np.full((count * stride, shown.shape[1]), np.nan, dtype=np.float32)
        spectrogram[: len(shown)] = shown
        return Frames(count, stride * self.settings.hop, spectrogram, self._hertz)

    @property
    def _hertz(self) -> tuple[float, ...]:
        """The middle of each band; cepstra are no bands."""
        if self._cepstra is not None:
            return ()
        assert isinstance(self._spectrum, LogMel)
        filters = self._spectrum.filters  # (bins, F)
        lines = torch.linspace(0, self._spectrum.rate / 2, len(filters), dtype=filters.dtype)
        return tuple((lines @ filters / filters.sum(0)).tolist())


def padded_frames(frames: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(B, longest, F) in full precision with zeros behind each, and which are real: (B, longest)."""
    lengths = torch.tensor([len(each) for each in frames])
    batch = torch.nn.utils.rnn.pad_sequence([each.float() for each in frames], batch_first=True)
    return batch, torch.arange(batch.shape[1]) < lengths[:, None]
