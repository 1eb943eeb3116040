"""Sound files: what is read, and what is refused with the file's name and the value."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile

from saccade.data import sound
from saccade.data.sound import read_sound
from saccade.errors import SaccadeError

RATE = 8000
WAVE = (0.5 * np.sin(np.arange(4000) * 0.1)).astype(np.float32)


def written(samples: np.ndarray, rate: int = RATE, *, format: str = "WAV", subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=format, subtype=subtype)
    return file.getvalue()


def forged(data: bytes, place: int, value: int) -> bytes:
    """The same file with another number in its header."""
    return data[:place] + struct.pack("<I", value) + data[place + 4 :]


def refused(data: bytes, match: str) -> None:
    with pytest.raises(SaccadeError, match=match) as caught:
        read_sound(data, "a.wav")
    assert str(caught.value).startswith("a.wav: ")


RATE_PLACE, SIZE_PLACE = 24, 40  # in the 44 bytes before the samples of a plain wav


def test_wav_and_flac_read_alike_from_files_and_bytes(tmp_path: Path) -> None:
    for format in ("WAV", "FLAC"):
        data = written(WAVE, format=format)
        (tmp_path / "a").write_bytes(data)  # the bytes say what it is, not the name
        for source in (data, tmp_path / "a"):
            ours = read_sound(source)
            assert ours.rate == RATE and ours.seconds == 0.5
            assert ours.samples.dtype == np.float32 and ours.samples.shape == (4000,)
            np.testing.assert_allclose(ours.samples, WAVE, atol=1 / 32768)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"])
def test_every_sample_width_has_the_same_full_scale(subtype: str) -> None:
    np.testing.assert_allclose(read_sound(written(WAVE, subtype=subtype)).samples, WAVE, atol=1 / 120)


def test_the_headers_of_other_programs_are_read() -> None:
    plain = read_sound(written(WAVE)).samples
    big_endian = io.BytesIO()
    soundfile.write(big_endian, WAVE, RATE, format="WAV", subtype="PCM_16", endian="BIG")
    assert big_endian.getvalue()[:4] == b"RIFX"
    for data in (big_endian.getvalue(), written(WAVE, format="WAVEX", subtype="PCM_16")):
        assert np.array_equal(read_sound(data).samples, plain)
    piped = forged(written(WAVE), SIZE_PLACE, 0xFFFFFFFF)  # a program that could not go back to write the size
    assert np.array_equal(read_sound(piped).samples, plain)
    whole = written(WAVE)
    note = whole[:12] + b"note" + struct.pack("<I", 3) + b"abc\0" + whole[12:]  # an odd chunk before the others
    assert np.array_equal(read_sound(note).samples, plain)
    refused(note[:-100], "promises 8,000 bytes of samples, 7,900 are there")


def test_several_channels_become_one_by_their_mean() -> None:
    stereo = np.stack([WAVE, -0.5 * WAVE], axis=1)
    np.testing.assert_allclose(read_sound(written(stereo, 44100, subtype="FLOAT")).samples, WAVE / 4, atol=1e-7)


@pytest.mark.parametrize("junk", [b"", b"RIFF", b"junk" * 99, b"RIFF\0\0\0\0WAVEfmt ", written(WAVE)[:30]])
def test_junk_is_refused(junk: bytes) -> None:
    refused(junk, "cannot read as sound|samples per second")


@pytest.mark.parametrize("format", ["AIFF", "OGG", "W64"])
def test_other_formats_are_refused_by_name(format: str) -> None:
    refused(written(WAVE, format=format), f"a file of format {format}; wav and flac can be read")


def test_no_samples_are_refused() -> None:
    refused(written(WAVE[:0]), "0 samples")


@pytest.mark.parametrize("kept", [44, 45, 1000, 8043])
def test_a_wav_that_was_cut_short_is_refused_with_both_sizes(kept: int) -> None:
    refused(written(WAVE)[:kept], f"promises 8,000 bytes of samples, {kept - 44:,} are there")


def test_a_wav_that_promises_more_than_there_is_is_refused() -> None:
    refused(forged(written(WAVE), SIZE_PLACE, 1 << 31), "promises 2,147,483,648 bytes of samples, 8,000 are there")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_a_flac_that_was_cut_short_is_refused(share: float) -> None:
    noise = np.random.default_rng(0).normal(scale=0.1, size=30_000)
    data = written(noise, format="FLAC")
    refused(data[: int(share * len(data))], "cannot read as sound")


def flac_of(frames: int) -> bytes:
    """A flac whose header gives another number of frames, in the last 36 bits of these eight bytes."""
    data = written(WAVE, format="FLAC")
    header = int.from_bytes(data[18:26], "big") >> 36 << 36 | frames
    return data[:18] + header.to_bytes(8, "big") + data[26:]


def test_a_flac_that_promises_too_much_or_nothing_is_refused() -> None:
    assert len(read_sound(flac_of(4000)).samples) == 4000
    refused(flac_of(4001), "cannot read as sound|promises 4,001")
    refused(flac_of(0), "does not say how long")
    refused(flac_of(RATE * 3600 + RATE), "3,601 seconds by its header; at most 3,600")


@pytest.mark.parametrize("rate", [0, 1, 999, 384_001, (1 << 31) - 1, 1 << 31, (1 << 32) - 1])
def test_a_wild_rate_is_refused_with_the_rate(rate: int) -> None:
    refused(forged(written(WAVE), RATE_PLACE, rate), f"{rate:,} samples per second; 1,000 to 384,000")


@pytest.mark.parametrize("rate", [1000, 384_000])
def test_the_slowest_and_the_fastest_rate_are_read(rate: int) -> None:
    assert read_sound(written(WAVE, rate)).rate == rate


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_finite_are_refused_by_place_and_value(wrong: float) -> None:
    samples = np.stack([WAVE, WAVE], axis=1)
    samples[1234, 1] = wrong
    refused(written(samples, subtype="FLOAT"), f"sample 1,234 is .*{wrong}.*finite")


def test_limits_are_checked_before_anything_is_decoded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stereo = written(np.zeros((4000, 2), dtype=np.float32), subtype="PCM_U8")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(soundfile.SoundFile, "read", never)
    monkeypatch.setattr(sound, "LONGEST", 0.4)
    refused(stereo, "0 seconds by its header; at most 0.4")
    monkeypatch.setattr(sound, "LONGEST", 1)
    monkeypatch.setattr(sound, "LARGEST", 31_999)
    refused(stereo, r"32,000 bytes when decoded \(2 channels\); at most 31,999")
    monkeypatch.setattr(sound, "LARGEST", len(stereo) - 1)
    refused(stereo, "more than 8,0.. bytes")
    (tmp_path / "long.wav").write_bytes(stereo)
    with pytest.raises(SaccadeError, match=r"long\.wav: more than 8,0.. bytes"):
        read_sound(tmp_path / "long.wav")


def test_what_is_no_plain_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "link.wav").symlink_to("/dev/null")
    for name in ("link.wav", "pipe.wav"):
        with pytest.raises(SaccadeError, match=rf"{name}: not a plain file$"):
            read_sound(tmp_path / name)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"absent\.wav: cannot read: No such file"):
        read_sound(tmp_path / "absent.wav")
    with pytest.raises(SaccadeError, match="cannot read: Is a directory"):
        read_sound(tmp_path)
    for name, why in (("a\0.wav", "embedded null"), ("\ud800.wav", "surrogates not allowed")):
        with pytest.raises(SaccadeError, match=rf"\.wav: cannot read: .*{why}"):
            read_sound(tmp_path / name)
    (tmp_path / "bad.flac").write_bytes(b"fLaC and so on")
    with pytest.raises(SaccadeError, match=r"bad\.flac: cannot read as sound"):
        read_sound(tmp_path / "bad.flac")
