"""Transcription from recordings to scores: a small run on generated tones, and on generated frames."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from saccade import api
from saccade.config import load_recipe
from saccade.data.sound import read_sound
from saccade.data.speech import open_speech
from saccade.data.vocab import Characters
from saccade.decode import Beam, Sample
from saccade.errors import RunWarning, SaccadeError
from saccade.maps.render import Frames, Tokens, save_maps, to_text
from saccade.modality.audio import Cepstra, LogMel, normalised, with_deltas
from saccade.tasks.hearing import Hearing, padded_frames
from saccade.tasks.transcribe import Transcribe
from saccade.verify import verify
from tests.tasks.test_pairs import hurried
from tests.tones import LETTERS, RATE, spoken, write_tones

TINY = {
    "listen_attend_spell": ("model.listener=6", "model.halvings=2", "model.width=8", "model.hidden=12"),
    "speech_transformer": ("model.width=8", "model.hidden=12", "model.encoder_layers=2", "model.decoder_layers=2"),
}
SHORT = ("train.threads=1", "train.steps=3", "train.batch_tokens=200", "train.evaluate_every=3", "train.save_every=1")


@pytest.fixture(scope="module")
def tones(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tones")
    write_tones(folder, 6, seed=2, name="test")
    return write_tones(folder, 60)


@pytest.fixture(scope="module", params=TINY)
def run(request: pytest.FixtureRequest, tones: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    test = tones.with_name("test.tsv")
    settings = (f"model.kind={request.param}", *TINY[request.param], *SHORT, f"task.data={tones}", f"task.test={test}")
    api.train("transcribe-quick", out=path, settings=settings)
    return path


def made(*settings: str) -> Transcribe:
    task = api.make_task(load_recipe("transcribe-quick", settings))
    assert isinstance(task, Transcribe)
    return task


def test_every_law_holds_on_a_model_of_speech(run: Path) -> None:
    assert [law.name for law in verify(api.load(run)) if not law.holds] == []


def test_evaluation_tells_errors_baselines_and_the_control_with_intervals(run: Path) -> None:
    model = api.load(run)
    for split in ("valid", "test"):
        scores = model.evaluate(split)
        names = [score.name for score in scores]
        assert names[:3] == ["WER", "CER", "exact transcripts"]
        assert [name.split(" of always ")[0] for name in names[3:6]] == names[:3]
        assert names[6:] == [f"{name} with recordings and transcripts shuffled" for name in names[:3]]
        assert all(score.interval is not None for score in scores)
    with pytest.raises(SaccadeError, match=r"no part 'dev' to be scored; there are valid and test"):
        model.evaluate("dev")


def test_a_model_that_is_always_right_has_no_errors_and_fails_the_control(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers of the search are replaced by the references."""
    model = api.load(run)
    task = model.task
    assert isinstance(task, Transcribe)
    right = [each.target for each in task.examples("test")]

    class Found:
        def __init__(self, tokens: list[int]):
            self.tokens, self.stopped = tokens, "eos"

    monkeypatch.setattr(task, "_answers", lambda *_: [[Found(target)] for target in right])
    wer, cer, exact, frequent, _, _, shuffled, letters, kept = model.evaluate("test")
    assert (wer.value, cer.value, exact.value) == (0.0, 0.0, 100.0)
    assert frequent.value > 50
    assert shuffled.value > 50
    assert letters.value > 25
    assert kept.value < 50


def test_predictions_keep_their_order_and_a_bad_file_is_refused_alone(run: Path, tones: Path, tmp_path: Path) -> None:
    model = api.load(run)
    (tmp_path / "bad.wav").write_text("not sound")
    soundfile.write(tmp_path / "long.wav", np.zeros(21 * RATE), RATE)
    good = [str(tones.parent / "tones" / f"{number}.wav") for number in (3, 4)]
    found = model.predict([good[0], str(tmp_path / "bad.wav"), str(tmp_path / "long.wav"), "nothing" * 1000, good[1]])
    assert [each.refusal is None for each in found] == [True, False, False, False, True]
    assert "cannot read as sound" in str(found[1].refusal)
    assert "21.0 seconds; the model was trained with up to 20" in str(found[2].refusal)
    assert "neither a sound file nor a recording of the validation part, such as" in str(found[3].refusal)
    assert [each.text for each in found[::4]] == [model.predict([name])[0].text for name in good]


def test_beams_samples_and_the_rules_of_a_recipe_are_those_of_other_tasks(run: Path, tones: Path) -> None:
    name = str(tones.parent / "tones" / "3.wav")
    model = api.load(run)
    assert len(model.predict([name], Beam(3, best=3))[0].answers) == 3
    assert len(model.predict([name], Sample(answers=2, seed=1))[0].answers) == 2
    wishes = ["decode.prefix=ab c", "decode.must_include=de", "decode.must_not_include=cc", "decode.beam=4"]
    wishing = api.load(run, settings=wishes)
    hurried(wishing.model)
    (answer,) = wishing.predict([name])[0].answers
    assert answer.text.startswith("ab c")
    assert "cc" not in answer.text
    assert "de" in answer.text.split()
    assert answer.stopped == "eos"
    with pytest.raises(SaccadeError, match="'Q' of 'Q' is in no training text"):
        api.load(run, settings=["decode.prefix=Q"]).predict([name])


def test_the_picture_has_letters_against_time(run: Path, tones: Path, tmp_path: Path) -> None:
    model = api.load(run)
    name = tones.parent / "tones" / "3.wav"
    maps = model.look(str(name), "ab c")
    first = maps[0]
    assert first.rows == Tokens(("▁", "a", "b", "▁", "c", "<end>"))
    assert isinstance(first.columns, Frames)
    seconds = soundfile.info(name).duration
    assert first.columns.seconds == pytest.approx(0.08)  # four frames of twenty milliseconds
    assert 0 <= first.columns.duration - (seconds - 0.005) < 0.08 + 0.02
    assert first.columns.spectrogram is not None
    assert first.columns.spectrogram.shape == (4 * first.columns.count, 40)
    assert list(first.columns.hertz) == sorted(first.columns.hertz)
    assert 0 < first.columns.hertz[0] < 100 < 3500 < first.columns.hertz[-1] < 4000
    heard = np.isfinite(first.columns.spectrogram).all(1)
    assert heard.sum() == int((seconds - 0.025) / 0.02) + 1  # frames; what is behind them is not drawn
    assert not heard[heard.sum() :].any()
    torch.testing.assert_close(first.mean.sum(-1), torch.ones(6))
    model_is_recurrent = len(maps) == 1
    how = "where it looked while it wrote" if model_is_recurrent else "average of all cross-attentions"
    assert first.name == f"alignment: {how}"
    kinds = {(type(each.rows), type(each.columns)) for each in maps}
    assert kinds == {(Tokens, Frames)} | (set() if model_is_recurrent else {(Tokens, Tokens), (Frames, Frames)})
    assert "s" in to_text(first)
    save_maps(maps, tmp_path / "map.html")
    save_maps(maps[:1], tmp_path / "map.png")
    answer = model.predict([str(name)])[0].answers[0].hypothesis
    assert answer is not None
    assert len(model.look(str(name))[0].rows) == len(answer.tokens) + 1


def test_a_packed_run_hears_without_its_data(run: Path, tones: Path, tmp_path: Path) -> None:
    packed = api.pack(run, tmp_path / "packed")
    assert "tones.tsv" in packed.recipe_text and str(tones.parent) not in packed.recipe_text
    model, name = api.load(packed.path), str(tones.parent / "tones" / "3.wav")
    assert model.predict([name])[0].refusal is None
    assert "cannot read" in str(model.predict(["nothing"])[0].refusal)


def test_what_is_left_out_of_training_is_told(tones: Path, tmp_path: Path) -> None:
    listed = tones.with_name("more.tsv")
    listed.write_text("".join(f"tones/none{number}.wav\tab\n" for number in range(8)) + tones.read_text())
    training = api.begin("transcribe-quick", out=tmp_path / "run", settings=(f"task.data={listed}", *SHORT))
    told = "\n".join(training.reasons)
    assert "8,000 samples a second" in told
    assert "57 recordings" in told or "58 recordings" in told
    assert "left out of the part train: 8 recordings" in told
    assert "none0.wav: cannot read: No such file" in told
    assert "... and 3 more" in told
    assert training.recipe.task.rate == 8000


def test_a_broken_recording_is_told_of_its_own_part(tones: Path, tmp_path: Path) -> None:
    listed, valid = tones.with_name("torn.tsv"), tones.with_name("held.tsv")
    listed.write_text(f"tones/torn.wav\tab\n{tones.read_text()}")
    valid.write_text("tones/1.wav\tab\n")
    settings = (f"task.data={listed}", f"task.valid={valid}", *SHORT)
    task = made(*settings)
    task.fitted()
    notes = task.prepare(tmp_path)
    assert any("left out of the part train: 2 recordings" in note for note in notes)  # the torn one, and the held one
    assert not any("of the part valid" in note for note in notes)
    loaded = made(*settings, "task.rate=8000")
    loaded.load(tmp_path)
    assert len(loaded.examples("train")) == 59
    assert len(loaded.examples("valid")) == 1  # a warning would be an error here
    valid.write_text("tones/1.wav\tab\ntones/lost.wav\tab\n")
    again = made(*settings, "task.rate=8000")
    again.load(tmp_path)
    again.examples("train")
    with pytest.warns(RunWarning, match=r"1 of the part valid are left out of its scores: .*lost\.wav"):
        again.examples("valid")


def test_sounds_of_another_rate_become_the_same_frames(tones: Path, tmp_path: Path) -> None:
    """A tone of 300 hertz has its band wherever it was recorded."""
    hearing = Hearing(load_recipe("transcribe-quick", (f"task.data={tones}", "task.rate=8000")).task)
    found = []
    for rate in (8000, 22050):
        path = tmp_path / f"{rate}.wav"
        soundfile.write(path, np.sin(2 * np.pi * 300 * np.arange(rate) / rate) * np.hanning(rate), rate)
        found.append(hearing.read(path).float())
    assert found[0].shape == found[1].shape == (49, 40)
    inside = slice(5, -5)
    torch.testing.assert_close(found[0][inside, 3:8], found[1][inside, 3:8], rtol=0, atol=0.1)


def test_frames_are_normalised_and_padding_is_zero(tones: Path) -> None:
    hearing = Hearing(load_recipe("transcribe-quick", (f"task.data={tones}", "task.rate=8000")).task)
    frames = [hearing.read(tones.parent / "tones" / f"{number}.wav") for number in (1, 2)]
    batch, mask = padded_frames(frames)
    assert mask.sum(1).tolist() == [len(each) for each in frames]
    assert not batch[~mask].any()
    for row, own in zip(batch, mask, strict=True):
        torch.testing.assert_close(row[own].mean(0), torch.zeros(40), rtol=0, atol=1e-2)
        torch.testing.assert_close(row[own].std(0, unbiased=False), torch.ones(40), rtol=0, atol=1e-2)


def test_augmentation_hides_stripes_in_training_only(tones: Path, tmp_path: Path) -> None:
    task = made(f"task.data={tones}", "task.augment=0.3", *SHORT)
    task.fitted()
    task.prepare(tmp_path)
    batch = task.collate(task.examples("train")[:4], range(4))
    seen = []

    class Ear(torch.nn.Module):
        output = torch.nn.Linear(3, len(task.vocabulary))

        def forward(self, source: torch.Tensor, _: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            seen.append(source)
            return torch.zeros(*target.shape, 3)

    ear = Ear()
    torch.manual_seed(1)
    task.loss(ear, batch)
    task.loss(ear.eval(), batch)
    hidden, plain = seen
    assert torch.equal(plain, batch.source)
    assert torch.equal(hidden[hidden != 0], plain[hidden != 0])
    assert (hidden == 0).sum() > (plain == 0).sum()


def test_the_length_of_an_example_is_that_of_its_longer_side(tones: Path, tmp_path: Path) -> None:
    task = made(f"task.data={tones}", *SHORT)
    task.fitted()
    task.prepare(tmp_path)
    example = task.examples("train")[0]
    assert task.length(example) == max(-(-len(example.frames) // 4), len(example.target) + 1)
    assert task.place(0) == example.name


def test_characters_that_training_never_saw_are_scored_and_do_no_harm(tones: Path, tmp_path: Path) -> None:
    odd = tones.with_name("odd.tsv")
    odd.write_text("tones/1.wav\tab Q\ntones/2.wav\tÄ\n")
    settings = (f"task.data={tones}", f"task.valid={odd}", *TINY["listen_attend_spell"], *SHORT)
    model = api.train("transcribe-quick", out=tmp_path / "run", settings=settings)
    assert {reference for *_, reference in model.score().samples} == {"ab Q", "Ä"}
    assert model.evaluate("valid")[0].value > 0
    assert [law.name for law in verify(model) if not law.holds] == []


def test_a_resumed_training_repeats_its_augmentation_bit_for_bit(tones: Path, tmp_path: Path) -> None:
    settings = (f"task.data={tones}", "task.augment=0.2", *TINY["listen_attend_spell"], *SHORT)
    api.train("transcribe-quick", out=tmp_path / "whole", settings=settings)
    api.train("transcribe-quick", out=tmp_path / "parts", settings=(*settings, "train.steps=2"))
    api.resume(tmp_path / "parts", settings=["train.steps=3"], override=True)
    whole, parts = (api.load(tmp_path / name, step=3).model.state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_a_model_that_cannot_hear_is_refused_with_those_that_can(tones: Path) -> None:
    with pytest.raises(SaccadeError, match=r"'transformer' cannot transcribe.*listen_attend_spell, speech_transformer"):
        made(f"task.data={tones}", "model.kind=transformer")
    with pytest.raises(SaccadeError, match=r"'speech_transformer' cannot reverse; there are sutskever, bahdanau"):
        api.make_task(load_recipe("reverse", ["model.kind=speech_transformer"]))
    with pytest.raises(SaccadeError, match=r"coverage_penalty"):
        made(f"task.data={tones}", "decode.coverage_penalty=0.2")
    with pytest.raises(SaccadeError, match=r"heads 3 does not divide width 128"):
        made(f"task.data={tones}", "model.kind=speech_transformer", "model.heads=3")
    with pytest.raises(SaccadeError, match=r"task.features is 13"):
        made(f"task.data={tones}", "task.features=13").fitted()


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirteen numbers a frame, as cepstra have, of forty speakers."""
    folder = tmp_path_factory.mktemp("frames")
    random = np.random.default_rng(1)
    for part, count in (("train", 40), ("test", 4)):
        lengths = random.integers(10, 40, size=count)
        features = random.standard_normal((lengths.sum(), 13)).astype(np.float16)
        np.savez(folder / f"{part}.npz", features=features, lengths=lengths)
        rows = [f"a-s{number}-{part}\t{length}\tYES NO" for number, length in enumerate(lengths)]
        (folder / f"{part}.tsv").write_text("\n".join(["utt_id\tframes\ttext", *rows]) + "\n")
    return folder


def test_ready_made_frames_are_read_by_name_and_sound_is_refused(frames: Path, tones: Path, tmp_path: Path) -> None:
    settings = (f"task.data={frames}", "task.hop=0.01", *TINY["listen_attend_spell"], *SHORT)
    model = api.train("transcribe-quick", out=tmp_path / "run", settings=settings)
    assert model.recipe.task.features == 13
    name = model.score().samples[0][0]
    answer, refused = model.predict([name, str(tones.parent / "tones" / "1.wav")])
    assert answer.refusal is None
    assert "reads frames of 13 numbers that somebody has made, and not sound" in str(refused.refusal)
    assert ".npy files of (frames, 13)" in str(refused.refusal)
    columns = model.look(name)[0].columns
    assert isinstance(columns, Frames)
    assert columns.seconds == pytest.approx(0.04)
    assert columns.spectrogram is not None and columns.spectrogram.shape[1] == 13
    assert model.evaluate("test")[3].name == "WER of always 'YES NO'"
    assert model.evaluate("test")[3].value == 0.0


def test_ready_made_frames_of_a_file_are_answered_as_those_of_the_data(frames: Path, tmp_path: Path) -> None:
    settings = (f"task.data={frames}", *TINY["listen_attend_spell"], *SHORT)
    model = api.train("transcribe-quick", out=tmp_path / "run", settings=settings)
    name = model.score().samples[0][0]
    (own,) = [each.heard for each in open_speech(model.recipe.task).read("valid") if each.name == name]
    assert isinstance(own, np.ndarray)
    wrong = {
        "narrow": (own[:, :12], r"float32 \(\d+, 12\); frames are one array of real numbers \(frames, 13\)"),
        "wild": (np.full((9, 13), np.nan), "frame 0 has numbers that are not finite"),
        "long": (np.zeros((1001, 13)), "20.0 seconds; the model was trained with up to 20"),
    }
    for called, (array, _) in {"own": (own, ""), "one": (own[:1], ""), **wrong}.items():
        np.save(tmp_path / f"{called}.npy", array)
    paths = [str(tmp_path / f"{called}.npy") for called in ("own", *wrong, "absent", "one")]
    by_name, by_file, *refused, short = model.predict([name, *paths])
    assert by_file.refusal is None and short.refusal is None
    assert by_file.answers[0].score == pytest.approx(by_name.answers[0].score)
    for each, (_, message) in zip(refused, (*wrong.values(), (None, "cannot read as frames: No such")), strict=True):
        assert re.search(rf"\.npy: {message}", str(each.refusal))
    assert torch.equal(model.look(paths[0], "YES")[0].weights, model.look(name, "YES")[0].weights)


def test_a_sound_model_says_that_frames_are_no_sound(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((9, 40)))
    assert "x.npy: cannot read as sound" in str(api.load(run).predict([str(tmp_path / "x.npy")])[0].refusal)


def test_cepstra_are_read_with_their_slopes_in_place_of_bands(tones: Path, frames: Path, tmp_path: Path) -> None:
    settings = (f"task.data={tones}", "task.cepstra=13", *TINY["listen_attend_spell"], *SHORT)
    model = api.train("transcribe-quick", out=tmp_path / "run", settings=settings)
    task, name = model.task, tones.parent / "tones" / "3.wav"
    assert isinstance(task, Transcribe)
    heard = read_sound(name)
    bands = LogMel(RATE, mels=40, window=task.settings.window, hop=task.settings.hop)
    cepstra, mask = Cepstra(bands, coefficients=13)(torch.from_numpy(heard.samples))
    expected = normalised(with_deltas(cepstra, mask, 2), mask)[0]
    torch.testing.assert_close(task.hearing.read(name).float(), expected, rtol=0, atol=5e-3)  # half precision
    assert task.examples("train")[0].frames.shape[1] == 39
    assert model.predict([str(name)])[0].refusal is None
    columns = model.look(str(name), "ab c")[0].columns
    assert isinstance(columns, Frames)
    assert columns.spectrogram is not None and columns.spectrogram.shape[1] == 13
    with pytest.raises(SaccadeError, match="cepstra 41 is above mels 40"):
        load_recipe("transcribe-quick", (f"task.data={tones}", "task.cepstra=41"))
    with pytest.raises(SaccadeError, match=r"frames that somebody has made; task\.cepstra is for sound"):
        made(f"task.data={frames}", "task.cepstra=13").fitted()


def test_a_vocabulary_without_its_transcripts_is_refused(run: Path, tmp_path: Path) -> None:
    recipe = api.load(run).recipe
    Characters(LETTERS).save(tmp_path)
    task = api.make_task(recipe)
    with pytest.raises(SaccadeError, match=r"transcripts.json: cannot read"):
        task.load(tmp_path)
    (tmp_path / Transcribe.FILE).write_text(json.dumps({"most_frequent": "ab"}))
    task.load(tmp_path)


def test_the_language_of_tones_says_what_it_is_told() -> None:
    """Of the tests' own data: a letter's band is the loudest."""
    random = np.random.default_rng(0)
    for number, letter in enumerate(LETTERS):
        spectrum = np.abs(np.fft.rfft(spoken(letter, random), RATE))
        assert abs(int(spectrum.argmax()) - 300 * 1.5**number) < 20
