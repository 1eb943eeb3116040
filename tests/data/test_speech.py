"""Speech from lists, archives of digits and ready-made frames: parts that never mix, and what is left out by name."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from saccade.config.sound import TranscribeSettings
from saccade.data.sound import Sound
from saccade.data.speech import DIGITS, PARTS, Speech, open_speech, read_frames
from saccade.errors import SaccadeError
from tests.tones import write_tones


def opened(data: Path, **settings: object) -> Speech:
    return open_speech(TranscribeSettings(data=str(data), **settings))


def wav(length: int, *, rate: int = 8000, height: float = 0.1) -> bytes:
    stream = io.BytesIO()
    soundfile.write(stream, np.full(length, height), rate, format="WAV")
    return stream.getvalue()


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """Two speakers, three digits, takes 0 to 9; every recording has a length of its own."""
    path = tmp_path / "digits.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for digit in (0, 3, 7):
            for number, speaker in enumerate(("ann", "bob")):
                for take in range(10):
                    samples = wav(200 + 100 * digit + 10 * take + number)
                    archive.writestr(f"recordings/{digit}_{speaker}_{take}.wav", samples)
    return path


def test_strings_of_digits_are_the_same_every_time_and_say_what_they_are(digits: Path) -> None:
    settings = {"strings": 20, "fewest": 2, "most": 4}
    first, again = (list(opened(digits, **settings).read("train")) for _ in range(2))
    assert len(first) == 20
    assert {len(each.text.split()) for each in first} == {2, 3, 4}
    for one, other in zip(first, again, strict=True):
        assert (one.name, one.text) == (other.name, other.text)
        assert isinstance(one.heard, Sound) and isinstance(other.heard, Sound)
        assert np.array_equal(one.heard.samples, other.heard.samples)
        takes = [name.split("_") for name in one.name.split("+")]
        assert one.text == " ".join(DIGITS[int(digit)] for digit, _, _ in takes)
        assert len({speaker for _, speaker, _ in takes}) == 1
    other_seed = list(opened(digits, **settings, seed=2).read("train"))
    assert [each.name for each in other_seed] != [each.name for each in first]


def test_a_string_holds_its_recordings_with_pauses_of_faint_noise(digits: Path) -> None:
    (string, *_) = opened(digits, strings=1, fewest=2, most=2).read("train")
    assert isinstance(string.heard, Sound)
    loud = np.abs(string.heard.samples) > 0.05
    edges = np.flatnonzero(np.diff(loud.astype(int)))
    expected = []
    for name in string.name.split("+"):
        digit, speaker, take = name.split("_")
        expected.append(200 + 100 * int(digit) + 10 * int(take) + (speaker == "bob"))
    assert [edges[1] - edges[0], edges[3] - edges[2]] == expected
    assert 0.05 <= (edges[2] - edges[1]) / 8000 <= 0.25
    assert 0 < string.heard.samples[~loud].std() < 0.002


def test_takes_of_test_validation_and_training_never_meet(digits: Path) -> None:
    speech = opened(digits, strings=200)
    takes = {part: {n.split("_")[2] for each in speech.read(part) for n in each.name.split("+")} for part in PARTS}
    assert takes == {"test": set("01234"), "valid": set("567"), "train": set("89")}


def test_a_broken_recording_of_a_digit_is_left_out_by_name(digits: Path) -> None:
    with zipfile.ZipFile(digits, "a") as archive:
        archive.writestr("recordings/3_ann_20.wav", wav(900)[:-100])
        archive.writestr("recordings/3_ann_21.wav", wav(900, rate=16000))
        archive.writestr("notes.txt", "no recording")
    speech = opened(digits, strings=300)
    names = {name for each in speech.read("train") for name in each.name.split("+")}
    assert not names & {"3_ann_20", "3_ann_21"}
    reasons = sorted(speech.left_out["train"].values())
    assert len(reasons) == 2
    assert "3_ann_20.wav: cut short" in reasons[0]
    assert "3_ann_21.wav: 16,000 samples a second, and those before it have 8,000" in reasons[1]


def test_broken_recordings_are_an_error_if_they_are_to_be_and_others_are_left_out(digits: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(digits, "a") as archive:
        archive.writestr("recordings/3_ann_20.wav", wav(900, rate=16000))  # whole, and of no use here
    assert list(opened(digits, strings=3, broken="refuse").read("train"))
    with zipfile.ZipFile(digits, "a") as archive:
        archive.writestr("recordings/3_ann_21.wav", wav(900)[:-100])
    with pytest.raises(SaccadeError, match=r"3_ann_21\.wav: cut short.*; task\.broken=skip would leave it out"):
        list(opened(digits, strings=3, broken="refuse").read("train"))
    listed = write_tones(tmp_path / "list", 8)
    with listed.open("a") as file:
        file.write("tones/0.wav\t\ntones/gone.wav\tab\n")
    own = opened(listed, valid=str(write_tones(tmp_path / "valid", 2)), broken="refuse")
    with pytest.raises(SaccadeError, match=r"gone\.wav: cannot read: No such file.*; task\.broken=skip"):
        list(own.read("train"))
    (told,) = own.left_out["train"].values()
    assert "has no transcript" in told


def test_a_pipe_in_a_list_is_left_out_and_not_waited_for(tmp_path: Path) -> None:
    listed = write_tones(tmp_path, 8)
    os.mkfifo(tmp_path / "tones" / "pipe.wav")
    (tmp_path / "tones" / "null.wav").symlink_to("/dev/null")
    listed.write_text(f"tones/null.wav\tab\ntones/pipe.wav\tab\n{listed.read_text()}")
    speech = opened(listed, valid=str(write_tones(tmp_path / "valid", 2)))
    assert speech.usual_rate() == 8000
    assert len(list(speech.read("train"))) == 8
    assert [reason.split(": ")[-1] for reason in speech.left_out["train"].values()] == ["not a plain file"] * 2


def test_what_is_left_out_of_one_part_is_not_said_of_another(tmp_path: Path) -> None:
    train, valid = write_tones(tmp_path, 3, name="train"), write_tones(tmp_path, 2, name="valid")
    for listed, name in ((train, "gone"), (valid, "lost")):
        listed.write_text(f"{name}.wav\tab\n{listed.read_text()}")
    speech = opened(train, valid=str(valid))
    assert [len(list(speech.read(part))) for part in PARTS[:2]] == [3, 2]
    assert [[Path(name).name for name in speech.left_out[part]] for part in PARTS] == [["gone.wav"], ["lost.wav"], []]
    valid.write_text("lost.wav\tab\n")
    alone = opened(train, valid=str(valid))
    assert not list(alone.read("valid")) and list(alone.read("train"))
    assert "lost.wav" in str(alone.nothing("valid")) and "gone.wav" not in str(alone.nothing("valid"))


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.wav", wav(100))
    with pytest.raises(SaccadeError, match=r"no recordings called DIGIT_SPEAKER_TAKE.wav.*come as a .tsv"):
        list(opened(path).read("train"))
    with pytest.raises(SaccadeError, match="cannot read: No such file"):
        opened(tmp_path / "nowhere")
    with pytest.raises(SaccadeError, match=r"task.valid and task.test go with a .tsv"):
        opened(path, valid="more.tsv")


def test_a_list_is_split_by_the_names_in_it_whatever_the_order_and_the_folder(tmp_path: Path) -> None:
    held = []
    for place, turned in (("here", False), ("there", True)):
        path = write_tones(tmp_path / place, 40)
        if turned:
            path.write_text("\n".join(path.read_text().splitlines()[::-1]) + "\n")
        speech = opened(path)
        train, valid = ({Path(each.name).name: each.text for each in speech.read(part)} for part in ("train", "valid"))
        assert len(train) == 38
        assert len(valid) == 2
        assert not train.keys() & valid.keys()
        held.append(valid)
    assert held[0] == held[1]
    assert held[0].keys() != {"0.wav", "1.wav"} and held[0].keys() != {"0.wav", "10.wav"}  # chosen by hash, not first


def test_own_lists_for_validation_and_test_are_used_and_never_trained_with(tmp_path: Path) -> None:
    train = write_tones(tmp_path, 5, name="train")
    valid, test = write_tones(tmp_path, 3, name="valid"), write_tones(tmp_path, 2, name="test")
    train.write_text(train.read_text() + "valid/0.wav\tab\n")
    speech = opened(train, valid=str(valid), test=str(test))
    assert [len(list(speech.read(part))) for part in PARTS] == [5, 3, 2]
    assert list(speech.left_out["train"].values()) == [
        f"{tmp_path}/valid/0.wav: is in the validation or test list as well, and not trained with"
    ]
    with pytest.raises(SaccadeError, match="has no test part"):
        list(opened(train).read("test"))


def test_recordings_that_cannot_be_used_are_named_with_the_reason(tmp_path: Path) -> None:
    path = write_tones(tmp_path, 40)
    soundfile.write(tmp_path / "tones" / "long.wav", np.zeros(5 * 8000), 8000)
    (tmp_path / "tones" / "empty.wav").write_bytes(wav(0))
    (tmp_path / "tones" / "text.wav").write_text("not sound")
    bad = ["tones/long.wav\tab", "tones/empty.wav\tab", "tones/text.wav\tab", "tones/none.wav\tab", "tones/0.wav\t  "]
    bad.append("tones/zero\0.wav\tab")
    path.write_text("\n".join([*bad, *path.read_text().splitlines()[1:]]) + "\n")
    speech = opened(path, longest=4.0)
    assert len(list(speech.read("train"))) + len(list(speech.read("valid"))) == 39
    told = "\n".join(reason for part in PARTS for reason in speech.left_out[part].values())
    for reason in (
        "long.wav: 5.0 seconds; task.longest is 4",
        "empty.wav: 0 samples",
        "text.wav: cannot read as sound",
        "none.wav: cannot read: No such file",
        "0.wav: has no transcript",
        "zero\0.wav: cannot read: embedded null byte",
    ):
        assert reason in told
    path.write_text("tones/0.wav and no tab\n")
    with pytest.raises(
        SaccadeError, match=r"tones.tsv:1: 1 columns.*; a line is a sound file, a tab and its transcript"
    ):
        list(opened(path).read("train"))


def test_the_usual_rate_is_that_of_most_recordings_up_to_what_speech_needs(tmp_path: Path) -> None:
    path = write_tones(tmp_path, 30)
    assert opened(path).usual_rate() == 8000
    for number in range(30):
        soundfile.write(tmp_path / "tones" / f"{number}.wav", np.zeros(4800), 48000)
    assert opened(path).usual_rate() == 16000
    path.write_text("tones/none.wav\tab\n" * 3)
    with pytest.raises(SaccadeError, match=r"no recording is left for the train part"):
        opened(path).usual_rate()


def frames_in(folder: Path, lengths: list[int], names: list[str], part: str = "train") -> None:
    features = np.arange(2 * sum(lengths), dtype=np.float16).reshape(-1, 2)
    np.savez(folder / f"{part}.npz", features=features, lengths=np.array(lengths, dtype=np.int32))
    rows = [f"{name}\t{length}\tWHAT  {name} SAID" for name, length in zip(names, lengths, strict=True)]
    (folder / f"{part}.tsv").write_text("\n".join(["utt_id\tframes\ttext", *rows]) + "\n")


def test_ready_frames_belong_to_their_recordings_and_speakers_are_held_out(tmp_path: Path) -> None:
    names = [f"an{number}-s{number // 2}-b" for number in range(80)]
    lengths = [number % 7 + 1 for number in range(80)]
    frames_in(tmp_path, lengths, names)
    speech = opened(tmp_path)
    assert speech.features == 2
    parts = {part: list(speech.read(part)) for part in PARTS[:2]}
    speakers = {part: {each.name.split("-")[1] for each in found} for part, found in parts.items()}
    assert speakers["train"] and speakers["valid"]
    assert not speakers["train"] & speakers["valid"]
    assert len(parts["train"]) + len(parts["valid"]) == 80
    starts = np.cumsum([0, *lengths])
    for each in [*parts["train"], *parts["valid"]]:
        number = names.index(each.name)
        assert each.text == f"WHAT {each.name} SAID"
        assert each.heard.tolist() == [[2.0 * row, 2.0 * row + 1] for row in range(*starts[number : number + 2])]


def test_a_validation_part_of_its_own_is_used_as_it_is(tmp_path: Path) -> None:
    frames_in(tmp_path, [3] * 40, [f"a-s{number}-b" for number in range(40)])
    frames_in(tmp_path, [4, 5], ["v-x-b", "v-y-b"], "valid")
    speech = opened(tmp_path)
    assert [each.name for each in speech.read("valid")] == ["v-x-b", "v-y-b"]
    assert len(list(speech.read("train"))) == 40


def test_frames_that_do_not_fit_their_list_are_refused(tmp_path: Path) -> None:
    frames_in(tmp_path, [3, 4], ["a-s-b", "b-t-b"])
    good = (tmp_path / "train.tsv").read_text()
    (tmp_path / "train.tsv").write_text(good.replace("\t4\t", "\t5\t"))
    with pytest.raises(SaccadeError, match=r"train.tsv:3: b-t-b \| 5 \| .*: must be a name, 4 as in train.npz"):
        list(opened(tmp_path).read("train"))
    (tmp_path / "train.tsv").write_text(good.splitlines()[0] + "\n")
    with pytest.raises(SaccadeError, match=r"0 recordings, and 2 in train.npz"):
        list(opened(tmp_path).read("train"))
    np.savez(tmp_path / "train.npz", features=np.zeros((5, 2)), lengths=np.array([3, 4]))
    with pytest.raises(SaccadeError, match="do not fit"):
        opened(tmp_path)


def test_ready_frames_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train.npz"

    def refused(message: str) -> None:
        with pytest.raises(SaccadeError, match=rf"train\.npz: cannot read: {message}"):
            opened(tmp_path)

    path.write_bytes(b"nothing")
    refused("File is not a zip file")
    with path.open("wb") as file:
        np.save(file, np.zeros((7, 2)))
    refused("File is not a zip file")
    np.savez(path, features=np.zeros((7, 2)))
    refused(".*lengths.npy")
    np.savez(path, features=np.array([[{}, {}]]), lengths=np.array([1]), allow_pickle=True)
    refused("Object arrays cannot be loaded")
    whole = io.BytesIO()
    np.save(whole, np.zeros((7, 2)))
    shape = b"(7, 2), }" + b" " * 20  # a header has blanks at its end
    for forged, message in (
        (
            b"(6500000000000, 2), }".ljust(len(shape)),
            r"features \(6500000000000, 2\) would be 104,000,000,000,000 bytes",
        ),
        (b"(7, 9), }".ljust(len(shape)), r"features \(7, 9\) would be 504 bytes, and can be 240 at most"),
        (b"(((7, 2".ljust(len(shape)), ""),
    ):
        with zipfile.ZipFile(path, "w") as arrays:
            arrays.writestr("features.npy", whole.getvalue().replace(shape, forged))
        refused(message)


def test_frames_of_a_file_are_read_and_what_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    given = np.random.default_rng(1).standard_normal((7, 3))
    for kind in (np.float16, np.float32, np.float64, ">f4"):
        np.save(path, given.astype(kind))
        found = read_frames(path, 3)
        assert found.dtype == np.float32 and found.flags.writeable
        assert np.array_equal(found, given.astype(kind).astype(np.float32))

    def refused(message: str) -> None:
        with pytest.raises(SaccadeError, match=rf"x\.npy: {message}"):
            read_frames(path, 3)

    for wrong, message in (
        (given[0], r"float64 \(3,\); frames are one array of real numbers \(frames, 3\)"),
        (given[:, :2], r"float64 \(7, 2\); frames"),
        (given[:0], r"float64 \(0, 3\); frames"),
        (given.astype(int), r"int64 \(7, 3\); frames"),
        (np.where(given > 0, np.nan, given), r"frame \d has numbers that are not finite"),
        (np.full((2, 3), 1e300), "frame 0 has numbers that are not finite"),
        (np.array([[{}, {}, {}]]), "cannot read as frames: "),  # a pickle
    ):
        np.save(path, wrong, allow_pickle=True)
        refused(message)
    with path.open("wb") as file:
        np.savez(file, given)
    refused("several arrays; frames are one array")
    np.save(path, given)
    whole = path.read_bytes()
    for content in (b"", b"junk" * 50, whole[:60], whole[:-1], whole.replace(b"(7, 3)", b"(9999999999999, 3)")):
        path.write_bytes(content)
        refused("cannot read as frames: ")
    path.unlink()
    refused("cannot read as frames: No such file")
    path.symlink_to("/dev/null")
    refused("not a plain file")


def test_a_recording_without_frames_or_with_wild_ones_is_left_out(tmp_path: Path) -> None:
    names = [f"a{number}-s{number}-b" for number in range(40)]
    frames_in(tmp_path, [0, *[2] * 39], names)
    with np.load(tmp_path / "train.npz") as arrays:
        features = arrays["features"].copy()
    features[0, 1] = np.inf
    np.savez(tmp_path / "train.npz", features=features, lengths=np.array([0, *[2] * 39]))
    speech = opened(tmp_path)
    assert sum(len(list(speech.read(part))) for part in PARTS[:2]) == 38
    assert sorted(reason for part in PARTS for reason in speech.left_out[part].values()) == [
        "a0-s0-b: has no frames",
        "a1-s1-b: has frames that are not finite",
    ]
