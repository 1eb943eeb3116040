"""Sound as frames: resampling, log-mel spectra, cepstra, normalisation, and masking of bands in training.

    mel(f) = 2595 log10(1 + f / 700)
    log-mel:  s_m = log sum_f w_m(f) |X(f)|^2,  X the spectrum under a Hann window, w_m a triangle (see mel_filters)
    cepstra:  c_k = sqrt(2 / M) sum_m s_m cos(pi k (m + 1/2) / M),  c_0 divided by sqrt(2)
    deltas:   d_t = sum_{k=1,2} k (c_{t+k} - c_{t-k}) / 10

Davis and Mermelstein 1980, "Comparison of parametric representations for monosyllabic word recognition" (cepstra); the
mel scale is HTK's (Young et al. 2006); Furui 1986 (deltas); Park et al. 2019, "SpecAugment".

Letters: B sounds, n samples, T frames, F features. Padded samples and frames are never read.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CROSSINGS = 32  # of zero, on each side of the resampling filter: 80 dB down at the lower Nyquist frequency ...
ROLLOFF = 0.92  # ... with the middle of its slope here, so that 84% of the band is flat
BETA = 8.6  # of the Kaiser window
BLOCK = 1 << 18  # old samples that are laid out at a time: they stay in the processor's cache
FLOOR = 1e-10  # of the energy in a band: digital silence has a logarithm too
SPREAD = 1e-3  # least deviation of a feature: a constant one is not blown up to noise


def resample(samples: Tensor, rate: int, to: int) -> Tensor:
    """(..., n) at `rate` -> (..., ceil(n to / rate)) at `to`: y(t) = sum_i x_i h(t - i / rate).

    h is a sinc under a Kaiser window that ends at the lower of both Nyquist frequencies, so nothing folds back. New
    samples stand at to / gcd different places between old ones, and each place has its filter.
    """
    _check_real(samples)
    if rate <= 0 or to <= 0:
        raise ValueError(f"rates must be positive; got {rate} and {to}")
    if rate == to or samples.shape[-1] == 0:
        return samples
    common = math.gcd(rate, to)
    up, down = to // common, rate // common
    reach = math.ceil(CROSSINGS / ROLLOFF * max(1.0, down / up))  # old samples on each side
    taps = 2 * reach + 2
    rows = max(1, BLOCK // taps)  # of so many numbers that are laid out at a time
    count = -(-samples.shape[-1] * up // down)
    turns = -(-count // up)
    padded = F.pad(samples, (reach, reach + 1 + down))
    # new sample k stands k down / up old ones from the start: every `up`-th has the same filter, `down` further on
    places, order = (torch.arange(min(up, max(count, rows)), device="cpu") * down % up).sort()
    resampled = samples.new_empty(*samples.shape[:-1], turns, len(places))
    # not all filters at once: for a rate of 383,999, which shares no divisor with others, they take a gigabyte
    for some, news in zip(places.split(rows), order.split(rows), strict=True):
        filters = _filters(some.double() / up, reach, min(1.0, up / down)).to(samples)  # (rows, taps)
        for new, own in zip(news.tolist(), filters, strict=True):
            here = padded[..., new * down // up :]
            windows = here.unfold(-1, taps, down)[..., :turns, :]  # (..., turns, taps), a view
            resampled[..., new] = torch.cat([block @ own for block in windows.split(rows, dim=-2)], dim=-1)
    return resampled.flatten(-2)[..., :count]


def _filters(places: Tensor, reach: int, band: float) -> Tensor:
    """A row of taps for each place after an old sample, from 0 to 1, which keep that part of the old band; rows sum to
    one, so a constant stays what it is."""
    tap = torch.arange(-reach, reach + 2, dtype=torch.float64, device="cpu")
    cycles = (tap - places[:, None]) * ROLLOFF * band  # between -crossings and crossings
    inside = (1 - (cycles / CROSSINGS) ** 2).clamp(min=0)
    taps = torch.sinc(cycles) * torch.special.i0(BETA * inside.sqrt()) * (inside > 0)
    return taps / taps.sum(1, keepdim=True)


class LogMel:
    """Samples (n,), or (B, n) padded behind their lengths (B,) -> log-mel frames (B, T, F) and their mask (B, T).

    `window` and `hop` are in seconds, `low` and `high` in hertz (by default all there is). A frame is made where a
    whole window fits, and one of a sound that is shorter, with silence behind it.
    """

    def __init__(
        self,
        rate: int,
        *,
        mels: int = 80,
        window: float = 0.025,
        hop: float = 0.01,
        low: float = 0.0,
        high: float | None = None,
    ):
        high = rate / 2 if high is None else high
        if not 0 <= low < high <= rate / 2:
            raise ValueError(f"bands must lie between 0 and {rate / 2:g} hertz, half the rate; got {low:g} to {high:g}")
        self.rate, self.width = rate, mels
        self.window, self.hop = round(window * rate), round(hop * rate)
        if self.window < 2 or self.hop < 1:
            raise ValueError(f"a window of {window:g} s or a hop of {hop:g} s is too short at {rate} samples a second")
        self.size = 1 << (self.window - 1).bit_length()  # of the Fourier transform
        self.filters = mel_filters(rate, self.size, mels, low, high)  # (bins, F)
        empty = (self.filters.sum(0) == 0).nonzero()
        if len(empty):
            raise ValueError(
                f"band {int(empty[0]) + 1} of {mels} is narrower than the {rate / self.size:.1f} hertz between the "
                f"lines of the spectrum: use fewer mels or a longer window than {window:g} s"
            )
        self.taper = torch.hann_window(self.window, dtype=torch.float64, device="cpu")

    def frames(self, samples: Tensor) -> Tensor:
        """How many frames so many samples give."""
        return torch.where(samples > 0, (samples - self.window).clamp(min=0) // self.hop + 1, 0)

    def __call__(self, samples: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        samples, lengths = _batched(samples, lengths)
        heard = torch.arange(samples.shape[1], device=samples.device) < lengths[:, None]
        samples = F.pad(samples * heard, (0, max(0, self.window - samples.shape[1])))
        pieces = samples.unfold(1, self.window, self.hop) * self.taper.to(samples)  # (B, T, window)
        power = torch.fft.rfft(pieces, self.size).abs().square()  # (B, T, bins)
        frames = (power @ self.filters.to(samples)).clamp(min=FLOOR).log()  # (B, T, F)
        mask = torch.arange(frames.shape[1], device=samples.device) < self.frames(lengths)[:, None]
        return frames * mask[..., None], mask


def _batched(samples: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    _check_real(samples)
    batch = samples[None] if samples.dim() == 1 else samples
    if batch.dim() != 2 or batch.shape[1] == 0:
        raise ValueError(f"sounds have shape (samples) or (batch, samples), not empty; got {tuple(samples.shape)}")
    if lengths is None:
        return batch, torch.full((len(batch),), batch.shape[1], device=batch.device)
    if lengths.shape != batch.shape[:1] or not bool(((lengths >= 0) & (lengths <= batch.shape[1])).all()):
        raise ValueError(f"lengths of {len(batch)} sounds are 0 to {batch.shape[1]} samples; got {lengths.tolist()}")
    return batch, lengths.to(batch.device)


def _check_real(samples: Tensor) -> None:
    if not samples.is_floating_point():
        raise ValueError(f"samples must be real numbers, with 1.0 for full scale; got {samples.dtype}")


def mel_filters(rate: int, size: int, mels: int, low: float, high: float) -> Tensor:
    """Triangles (size / 2 + 1, mels) over the lines of a spectrum: each rises from the middle of the one before it and
    falls to that of the one behind; the middles are equally far apart in mel."""
    ends = 2595 * torch.log10(1 + torch.tensor([low, high], dtype=torch.float64, device="cpu") / 700)
    steps = torch.linspace(0, 1, mels + 2, dtype=torch.float64, device="cpu")
    corners = 700 * (10 ** ((ends[0] + (ends[1] - ends[0]) * steps) / 2595) - 1)  # hertz
    lines = torch.arange(size // 2 + 1, dtype=torch.float64, device="cpu")[:, None] * rate / size
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    return torch.minimum((lines - left) / (middle - left), (right - lines) / (right - middle)).clamp(min=0)


class Cepstra:
    """Samples as LogMel takes them -> mel-frequency cepstral coefficients (B, T, F) and their mask: the cosine
    transform of a log-mel frame, its first coefficients only; with their deltas, and the deltas of those, beside
    them."""

    def __init__(self, spectrum: LogMel, *, coefficients: int = 13, deltas: int = 0):
        mels = spectrum.width
        if not 1 <= coefficients <= mels:
            raise ValueError(f"{mels} mels have 1 to {mels} cepstral coefficients; got {coefficients}")
        self.spectrum, self.rate, self.deltas = spectrum, spectrum.rate, deltas
        self.width = coefficients * (1 + deltas)
        order = torch.arange(coefficients, dtype=torch.float64, device="cpu")
        place = torch.arange(mels, dtype=torch.float64, device="cpu")[:, None] + 0.5
        self.transform = torch.cos(torch.pi / mels * place * order) * math.sqrt(2 / mels)  # (mels, coefficients)
        self.transform[:, 0] /= math.sqrt(2)

    def __call__(self, samples: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        frames, mask = self.spectrum(samples, lengths)
        return with_deltas(frames @ self.transform.to(frames), mask, self.deltas), mask


def with_deltas(frames: Tensor, mask: Tensor, orders: int = 2, *, reach: int = 2) -> Tensor:
    """(B, T, F) -> (B, T, (1 + orders) F): beside the frames their slopes over time, and the slopes of those; the
    first and last real frames stand for what lies outside."""
    last = (mask.sum(1, keepdim=True) - 1).clamp(min=0)  # (B, 1)
    here = torch.arange(frames.shape[1], device=frames.device)
    parts = [frames]
    for _ in range(orders):
        slope = torch.zeros_like(frames)
        for far in range(1, reach + 1):
            before, behind = (
                parts[-1].gather(1, at.clamp(min=0).minimum(last)[..., None].expand_as(frames))
                for at in (here - far, here + far)
            )
            slope = slope + far * (behind - before)
        parts.append(slope / (2 * sum(far**2 for far in range(1, reach + 1))) * mask[..., None])
    return torch.cat(parts, dim=-1)


def normalised(frames: Tensor, mask: Tensor) -> Tensor:
    """(B, T, F) -> zero mean and unit variance for each feature over the real frames of each sound; zeros behind."""
    real = mask[..., None].to(frames)
    count = real.sum(1, keepdim=True).clamp(min=1)
    centred = (frames - (frames * real).sum(1, keepdim=True) / count) * real
    deviation = (centred.square().sum(1, keepdim=True) / count).sqrt()
    return centred / deviation.clamp(min=SPREAD)


class SpecAugment(nn.Module):
    """In training, zero bands of features and stretches of time in normalised frames (B, T, F), drawn for each sound.

    The width of a band is drawn up to the given one, that of a stretch also up to a share of the sound, and then the
    place, inside the real frames. Draws are made by torch's own generator, so that a resumed training repeats them.
    Park et al. (2019) without the time warp, which they found to help least.
    """

    def __init__(self, *, bands: int = 2, band: int = 27, stretches: int = 2, stretch: int = 100, share: float = 0.2):
        super().__init__()
        if min(bands, band, stretches, stretch) < 0 or not 0 <= share <= 1:
            raise ValueError(
                "numbers and widths must not be negative, and the share between 0 and 1; "
                f"got {bands} x {band}, {stretches} x {stretch}, {share:g}"
            )
        self.bands, self.band, self.stretches, self.stretch, self.share = bands, band, stretches, stretch, share

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        if not self.training:
            return frames
        rows, times, features = frames.shape
        wide = torch.full((rows,), features)
        long = mask.sum(1).cpu()
        hidden = _stripes(times, long, (self.share * long).long().clamp(max=self.stretch), self.stretches)[:, :, None]
        hidden = hidden | _stripes(features, wide, wide.clamp(max=self.band), self.bands)[:, None]
        return frames.masked_fill(hidden.to(frames.device), 0)


def _stripes(size: int, lengths: Tensor, most: Tensor, number: int) -> Tensor:
    """(B, size) bool: in row b, up to `number` stripes of up to most[b] cells within the first lengths[b]. Drawn on the
    processor: the same on every device."""
    width, place = torch.rand(2, len(lengths), number).unbind()
    width = (width * (most[:, None] + 1)).floor()  # 0 to most
    start = (place * (lengths[:, None] - width + 1)).floor()  # 0 to length - width
    cell = torch.arange(size)[:, None]
    return ((cell >= start[:, None]) & (cell < (start + width)[:, None])).any(-1)
