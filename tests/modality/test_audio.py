"""Resampled tones, spectra and cepstra against slow NumPy, frames that do not depend on the batch around them."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from saccade.modality import audio
from saccade.modality.audio import Cepstra, LogMel, SpecAugment, mel_filters, normalised, resample, with_deltas

RATE = 8000
LENGTHS = [1600, 1000, 199, 200, 201, 3, 1599]


@pytest.fixture(autouse=True)
def repeatable_and_double() -> Iterator[None]:
    torch.manual_seed(20190418)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def tone(hertz, rate, seconds=0.5):
    return torch.sin(2 * math.pi * hertz * torch.arange(round(seconds * rate)) / rate)


def middle(samples):
    """Without the ends, where the filter sees the silence outside."""
    return samples[len(samples) // 4 : -len(samples) // 4]


def sounds():
    """Sounds with loud nonsense behind each, and their lengths."""
    lengths = torch.tensor(LENGTHS)
    samples = torch.randn(len(LENGTHS), max(LENGTHS) + 500)
    return torch.where(torch.arange(samples.shape[1]) < lengths[:, None], samples, 1e3), lengths


def padded_frames(features=5):
    mask = torch.arange(12) < torch.tensor([12, 7, 1, 0])[:, None]
    return torch.where(mask[..., None], torch.randn(4, 12, features) * 3 + 2, 1e3), mask


# Resampling

RATES = [(44100, 16000), (16000, 8000), (8000, 16000), (22050, 8000), (8000, 11025), (1009, 800)]


@pytest.mark.parametrize(("rate", "to"), RATES)
def test_a_tone_below_the_new_nyquist_frequency_keeps_frequency_amplitude_and_phase(rate, to):
    for share in (0.02, 0.3, 0.8):
        hertz = share * min(rate, to) / 2
        assert (middle(resample(tone(hertz, rate), rate, to)) - middle(tone(hertz, to))).abs().max() < 1e-4


@pytest.mark.parametrize(("rate", "to"), [pair for pair in RATES if pair[0] > pair[1]])
def test_a_tone_above_the_new_nyquist_frequency_vanishes(rate, to):
    for hertz in (1.02 * to / 2, 1.3 * to / 2, 0.95 * rate / 2):
        assert middle(resample(tone(hertz, rate), rate, to)).abs().max() < 1e-4


def test_no_image_of_a_tone_appears_above_the_old_nyquist_frequency():
    spectrum = torch.fft.rfft(torch.hann_window(16000) * resample(tone(3000, 8000, 1), 8000, 16000)).abs()
    assert int(spectrum.argmax()) == 3000
    assert spectrum[4000:].max() < 1e-4 * spectrum.max()


@pytest.mark.parametrize(("count", "rate", "to"), [(1, 8000, 16000), (7, 16000, 8000), (441, 44100, 16000), (5, 3, 7)])
def test_resampling_keeps_the_duration_rounded_up(count, rate, to):
    assert resample(torch.randn(count), rate, to).shape == (math.ceil(count * to / rate),)


def test_a_constant_stays_what_it_is():
    torch.testing.assert_close(middle(resample(torch.ones(4410), 44100, 16000)), torch.ones(800), rtol=0, atol=1e-12)


def test_rows_are_resampled_as_if_alone_and_silence_behind_them_changes_nothing():
    rows = torch.randn(2, 3, 441)
    together = resample(rows, 44100, 16000)
    torch.testing.assert_close(together[1, 2], resample(rows[1, 2], 44100, 16000), rtol=0, atol=1e-12)
    longer = resample(torch.cat([rows, torch.zeros(2, 3, 441)], dim=-1), 44100, 16000)
    torch.testing.assert_close(longer[..., :160], together, rtol=0, atol=1e-12)


def test_filters_are_made_for_the_new_samples_there_are_and_a_few_at_a_time(monkeypatch):
    """383,999 and 16,000 have no common divisor: there are 16,000 filters, of 1,672 taps each."""
    made = []

    def counted(places, *given):
        made.append(len(places))
        return filters(places, *given)

    filters = audio._filters
    monkeypatch.setattr(audio, "_filters", counted)
    short = resample(tone(3000, 383_999, 0.05), 383_999, 16_000)
    assert sum(made) == len(short) and max(made) * 1672 <= audio.BLOCK
    assert (middle(short) - middle(tone(3000, 16_000, 0.05))).abs().max() < 1e-4


def test_how_many_filters_are_made_at_a_time_changes_nothing(monkeypatch):
    samples = torch.randn(2, 999)
    usual = {pair: resample(samples, *pair) for pair in RATES}
    monkeypatch.setattr(audio, "BLOCK", 1000)
    for pair, expected in usual.items():
        torch.testing.assert_close(resample(samples, *pair), expected, rtol=0, atol=1e-12)


def test_filters_are_as_exact_where_single_precision_is_the_default():
    samples = torch.randn(999)
    expected = resample(samples, 44100, 16000)
    torch.set_default_dtype(torch.float32)
    assert torch.equal(resample(samples, 44100, 16000), expected)


def test_the_same_rate_changes_nothing_and_an_impossible_one_is_refused():
    samples = torch.randn(9)
    assert torch.equal(resample(samples, 8000, 8000), samples)
    assert resample(samples[:0], 8000, 4000).shape == (0,)
    with pytest.raises(ValueError, match="must be positive; got 8000 and 0"):
        resample(samples, 8000, 0)
    with pytest.raises(ValueError, match=r"real numbers.*int16"):
        resample(samples.to(torch.int16), 8000, 4000)


# Spectra


def slow_log_mel(samples, rate, mels, window, hop, low, high):
    """Frame by frame, line by line, band by band."""
    size = 2 ** math.ceil(math.log2(window))

    def mel(f):
        return 2595 * math.log10(1 + f / 700)

    def hertz(m):
        return 700 * (10 ** (m / 2595) - 1)

    corners = [hertz(mel(low) + (mel(high) - mel(low)) * i / (mels + 1)) for i in range(mels + 2)]
    frames = []
    for start in range(0, len(samples) - window + 1, hop):
        taper = [0.5 - 0.5 * math.cos(2 * math.pi * i / window) for i in range(window)]
        piece = samples[start : start + window] * np.array(taper)
        power = [
            abs(np.sum(piece * np.exp(-2j * np.pi * line * np.arange(window) / size))) ** 2
            for line in range(size // 2 + 1)
        ]
        frame = []
        for left, centre, right in zip(corners, corners[1:], corners[2:], strict=False):
            energy = 0.0
            for line, value in enumerate(power):
                f = line * rate / size
                if left < f <= centre:
                    energy += value * (f - left) / (centre - left)
                elif centre < f < right:
                    energy += value * (right - f) / (right - centre)
            frame.append(math.log(energy))
        frames.append(frame)
    return np.array(frames)


@pytest.mark.parametrize(("low", "high"), [(0.0, 4000.0), (130.0, 3400.0)])
def test_log_mel_equals_a_slow_loop_in_numpy(low, high):
    samples = torch.randn(900)
    frames, mask = LogMel(RATE, mels=20, low=low, high=high)(samples)
    expected = slow_log_mel(samples.numpy(), RATE, 20, 200, 80, low, high)
    assert mask.all() and frames.shape == (1, 9, 20)
    np.testing.assert_allclose(frames[0].numpy(), expected, rtol=0, atol=1e-9)


def test_inside_the_range_the_bands_share_every_line_among_them():
    filters = mel_filters(RATE, 512, 30, 0.0, 4000.0)
    mels = 2595 * math.log10(1 + 4000 / 700) / 31
    first, last = 700 * (10 ** (mels / 2595) - 1), 700 * (10 ** (30 * mels / 2595) - 1)
    lines = torch.arange(257) * RATE / 512
    inner = (lines >= first) & (lines <= last)
    assert 200 < int(inner.sum()) < 257
    torch.testing.assert_close(filters.sum(1)[inner], torch.ones(int(inner.sum())), rtol=0, atol=1e-9)
    assert filters.min() >= 0


def test_a_tone_is_loudest_in_its_own_band():
    spectrum = LogMel(RATE, mels=30)
    for hertz in (300, 1000, 3000):
        band = int(spectrum(tone(hertz, RATE))[0][0].mean(0).argmax())
        line = round(hertz * spectrum.size / RATE)
        assert spectrum.filters[line, band] == spectrum.filters[line].max()


def test_silence_has_finite_frames():
    frames, mask = LogMel(RATE, mels=20)(torch.zeros(1000))
    assert mask.all() and torch.isfinite(frames).all()


FRONT_ENDS = {
    "log-mel": lambda: LogMel(RATE, mels=20),
    "cepstra": lambda: Cepstra(LogMel(RATE, mels=20), coefficients=7),
    "cepstra with deltas": lambda: Cepstra(LogMel(RATE, mels=20), coefficients=5, deltas=2),
}
every_front_end = pytest.mark.parametrize("make", FRONT_ENDS.values(), ids=FRONT_ENDS)


@every_front_end
def test_frames_in_a_padded_batch_are_the_frames_of_the_sound_alone(make):
    front_end, (samples, lengths) = make(), sounds()
    frames, mask = front_end(samples, lengths)
    assert frames.shape == (len(LENGTHS), mask.shape[1], front_end.width)
    for row, length in enumerate(LENGTHS):
        alone, real = front_end(samples[row, :length])
        count = alone.shape[1]
        assert real.all() and mask[row].tolist() == [True] * count + [False] * (mask.shape[1] - count)
        torch.testing.assert_close(frames[row, :count], alone[0], rtol=0, atol=1e-9)
        assert not frames[row, count:].any()


@pytest.mark.parametrize(("count", "frames"), [(1, 1), (199, 1), (200, 1), (279, 1), (280, 2), (1000, 11)])
def test_a_frame_is_made_where_a_window_fits_and_one_of_any_shorter_sound(count, frames):
    spectrum = LogMel(RATE, mels=20, window=0.025, hop=0.01)
    assert spectrum(torch.randn(count))[0].shape[1] == frames
    assert spectrum.frames(torch.tensor([count, 0])).tolist() == [frames, 0]


def test_front_ends_keep_the_precision_of_the_samples_and_survive_a_meta_device():
    with torch.device("meta"):
        front_end = Cepstra(LogMel(RATE, mels=20))
    frames, _ = front_end(torch.ones(400, dtype=torch.float32))
    assert frames.dtype == torch.float32 and torch.isfinite(frames).all()


def test_impossible_spectra_are_refused_with_the_value():
    with pytest.raises(ValueError, match="between 0 and 4000 hertz, half the rate; got 20 to 5000"):
        LogMel(RATE, low=20, high=5000)
    with pytest.raises(ValueError, match=r"band 1 of 128 is narrower than the 31.2 hertz.*fewer mels"):
        LogMel(RATE, mels=128)
    with pytest.raises(ValueError, match=r"hop of 0.0001 s is too short at 1000"):
        LogMel(1000, mels=4, hop=0.0001)
    with pytest.raises(ValueError, match="20 mels have 1 to 20 cepstral coefficients; got 21"):
        Cepstra(LogMel(RATE, mels=20), coefficients=21)


def test_impossible_sounds_are_refused_with_their_shape():
    spectrum = LogMel(RATE, mels=20)
    with pytest.raises(ValueError, match=r"not empty; got \(2, 0\)"):
        spectrum(torch.zeros(2, 0))
    with pytest.raises(ValueError, match=r"2 sounds are 0 to 400 samples; got \[400, 401\]"):
        spectrum(torch.zeros(2, 400), torch.tensor([400, 401]))
    with pytest.raises(ValueError, match=r"real numbers.*int64"):
        spectrum(torch.zeros(400).long())


# Cepstra, deltas, normalisation


def test_cepstra_are_the_cosine_transform_of_the_log_mel_frames():
    samples, spectrum = torch.randn(600), LogMel(RATE, mels=20)
    frame = spectrum(samples)[0][0, 0]
    ours = Cepstra(spectrum, coefficients=20)(samples)[0][0, 0]
    for k in range(20):
        total = sum(float(frame[m]) * math.cos(math.pi * k * (m + 0.5) / 20) for m in range(20))
        assert float(ours[k]) == pytest.approx(total * math.sqrt((1 if k == 0 else 2) / 20), abs=1e-9)
    assert float(ours.square().sum()) == pytest.approx(float(frame.square().sum()))  # a rotation: nothing is lost


def test_deltas_are_slopes_and_the_ends_stand_for_what_is_outside():
    frames = torch.arange(7.0).square()[None, :, None]
    c = frames[0, :, 0].tolist()
    out = with_deltas(frames, torch.ones(1, 7, dtype=torch.bool), 1)[0, :, 1].tolist()
    for t in range(7):
        at = [c[min(max(t + k, 0), 6)] for k in (-2, -1, 1, 2)]
        assert out[t] == pytest.approx((at[2] - at[1] + 2 * (at[3] - at[0])) / 10)
    line = 3 * torch.arange(9.0)[None, :, None]
    first, second = with_deltas(line, torch.ones(1, 9, dtype=torch.bool), 2)[0, 4, 1:]
    assert (float(first), float(second)) == pytest.approx((3, 0))


def test_deltas_do_not_see_padding():
    frames, mask = padded_frames()
    together = with_deltas(frames, mask)
    for row, count in enumerate([12, 7, 1]):
        alone = with_deltas(frames[row : row + 1, :count], mask[row : row + 1, :count])
        torch.testing.assert_close(together[row, :count], alone[0], rtol=0, atol=1e-12)


def test_normalised_frames_have_mean_zero_and_variance_one_over_real_frames_only():
    frames, mask = padded_frames()
    ours = normalised(frames, mask)
    assert not ours[~mask].any()
    for row, count in enumerate([12, 7]):
        real = ours[row, :count]
        torch.testing.assert_close(real.mean(0), torch.zeros(5), rtol=0, atol=1e-12)
        torch.testing.assert_close(real.var(0, unbiased=False), torch.ones(5), rtol=0, atol=1e-12)
    assert not ours[2:].any()  # one frame, or none, has no spread


def test_a_constant_feature_is_not_blown_up_to_noise():
    constant = torch.full((1, 777, 3), -23.02585, dtype=torch.float32)  # its mean is rounded
    assert normalised(constant, torch.ones(1, 777, dtype=torch.bool)).abs().max() < 0.1


# Masking in training


def test_masked_bands_and_stretches_lie_in_the_real_frames_and_are_not_too_wide():
    augment, mask = SpecAugment(bands=1, band=4, stretches=1, stretch=5, share=0.5), torch.arange(20) < 12
    mask = torch.stack([mask, torch.arange(20) < 20])
    frames = torch.ones(2, 20, 10)
    bands, stretches = set(), set()
    for _ in range(300):
        zero = augment(frames, mask) == 0
        for row, length in enumerate([12, 20]):
            columns, times = zero[row].all(0), zero[row].all(1)
            assert torch.equal(zero[row], columns[None] | times[:, None])
            assert not times[length:].any()
            bands.add(int(columns.sum()))
            stretches.add((row, int(times.sum())))
            for marked in (columns, times):  # one piece without holes
                places = marked.nonzero().flatten().tolist()
                assert places == list(range(places[0], places[-1] + 1)) if places else True
    assert bands == {0, 1, 2, 3, 4}
    assert stretches == {(row, width) for row in (0, 1) for width in range(6)}


def test_every_place_is_masked_sometimes_and_padding_keeps_its_zeros():
    frames, mask = padded_frames()
    augment = SpecAugment(bands=1, band=2, stretches=2, stretch=3, share=0.5)
    frames = normalised(frames, mask) + mask[..., None]
    ever = torch.zeros_like(mask)
    for _ in range(200):
        out = augment(frames, mask)
        assert not out[~mask].any()
        ever |= (out == 0).all(-1)
    assert ever[:2].logical_or(~mask[:2]).all()
    assert not ever[2, 0]  # half of one frame is none


def test_a_sound_too_short_and_a_spectrum_too_narrow_are_masked_within_reason():
    mask = torch.zeros(1, 4, dtype=torch.bool)
    assert SpecAugment(band=100)(torch.ones(1, 4, 3), mask).shape == (1, 4, 3)


def test_masks_repeat_from_a_restored_random_state_and_differ_otherwise():
    augment, frames, mask = SpecAugment(), torch.ones(3, 200, 80), torch.ones(3, 200, dtype=torch.bool)
    state = torch.get_rng_state()
    first, second = augment(frames, mask), augment(frames, mask)
    torch.set_rng_state(state)
    assert torch.equal(augment(frames, mask), first)
    assert not torch.equal(first, second)
    assert not torch.equal(first[0], first[1])


def test_nothing_is_masked_or_drawn_outside_training():
    augment, frames, mask = SpecAugment().eval(), torch.ones(3, 200, 80), torch.ones(3, 200, dtype=torch.bool)
    state = torch.get_rng_state()
    assert torch.equal(augment(frames, mask), frames)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("wrong", [{"band": -1}, {"share": 1.5}])
def test_impossible_masks_are_refused(wrong):
    with pytest.raises(ValueError, match=r"negative.*share between 0 and 1"):
        SpecAugment(**wrong)
