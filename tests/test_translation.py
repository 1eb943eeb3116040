"""Translation from files to scores, on a small real corpus: numbers in French and English."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from threading import Event

import pytest
import torch

from saccade import api
from saccade.cli.terminal import arriving
from saccade.decode import Beam
from saccade.errors import SaccadeError
from saccade.translation import (
    alignment,
    compare_files,
    evaluate_files,
    translate_lines,
)
from tests.numbers import corpus, english, french
from tests.test_cli import saccade, sets  # noqa: F401 - a fixture

SMALL = (
    "task.pieces=360",
    "task.swap_names=0.5",
    "model.kind=transformer",
    "model.width=48",
    "model.hidden=96",
    "model.heads=4",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.dropout=0.0",
    "model.tie=all",
    "train.batch_tokens=1024",
    "train.steps=500",
    "train.average=0.98",
    "train.schedule.warmup=100",
    "train.schedule.kind=cosine",
    "train.optimizer.rate=5e-3",
    "train.evaluate_every=250",
    "train.save_every=250",
    "train.threads=1",
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """numbers.fr, numbers.en"""
    directory = tmp_path_factory.mktemp("numbers")
    for name, side in (("numbers.fr", 0), ("numbers.en", 1)):
        (directory / name).write_text("".join(f"{pair[side]}\n" for pair in corpus()), encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def trained(files: Path) -> Path:
    where = [f'task.source="{files}/numbers.fr"', f'task.target="{files}/numbers.en"']
    api.train("translate", out=files / "run", settings=[*where, *SMALL])
    return files / "run"


@pytest.fixture(scope="module")
def model(trained: Path) -> api.Predictor:
    return api.load(trained)


def test_two_text_files_become_a_model_that_translates_what_it_never_saw(model: api.Predictor) -> None:
    scores = model.score()
    assert scores.main == "bleu"
    assert scores.values["bleu"] > 80
    assert scores.values["cut"] < 0.02


def test_the_run_says_what_was_decided_from_the_data(files: Path, tmp_path: Path) -> None:
    where = [f'task.source="{files}/numbers.fr"', f'task.target="{files}/numbers.en"', "train.steps=1"]
    training = api.begin("translate", out=tmp_path / "run", settings=where)
    assert any("900 pieces" in reason or "pieces: as many" in reason for reason in training.reasons)
    assert any("2+2 layers, 96 wide" in reason for reason in training.reasons)
    assert training.recipe.model.kind == "transformer"
    assert training.recipe.task.pieces is not None


def test_a_resumed_translation_is_bit_for_bit_the_unbroken_one(files: Path, tmp_path: Path) -> None:
    """With swapped names, averaged weights and bfloat16 products."""
    import torch

    from saccade.train.run import Run

    where = [f'task.source="{files}/numbers.fr"', f'task.target="{files}/numbers.en"']
    more = ["train.steps=20", "train.save_every=5", "train.evaluate_every=10", "train.precision=bfloat16"]
    settings = [*where, *SMALL, "model.dropout=0.2", "task.valid_examples=3", *more]
    api.train("translate", out=tmp_path / "whole", settings=settings)
    events = api.begin("translate", out=tmp_path / "broken", settings=settings).events()
    for event in events:
        if getattr(event, "step", 0) >= 10:
            break
    events.close()
    api.resume(tmp_path / "broken")
    whole, broken = (Run.open(tmp_path / name) for name in ("whole", "broken"))
    for part in ("model", "optimizer", "random"):
        one, other = getattr(whole.load(20), part), getattr(broken.load(20), part)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert all(torch.equal(whole.weights()[0][name], tensor) for name, tensor in broken.weights()[0].items())
    assert not torch.equal(
        whole.weights()[0]["encoder.embedding.weight"], whole.load(20).model["encoder.embedding.weight"]
    )


def test_lines_keep_their_order_and_blank_lines_stay_blank(model: api.Predictor) -> None:
    lines = ["Il y en a trois.", "", "Tom en veut douze.", "   ", "Il y en a sept."]
    found = list(translate_lines(model, lines, batch_tokens=20))
    assert [each.text for each in found] == [
        "There are three of them.",
        "",
        "Tom wants twelve.",
        "",
        "There are seven of them.",
    ]


def test_a_batch_is_handed_out_before_the_next_is_read(model: api.Predictor) -> None:
    read = []

    def lines():  # type: ignore[no-untyped-def]
        for number in (1, 2, 3, 4):
            read.append(number)
            yield f"Il y en a {french(number)}."

    found = translate_lines(model, lines(), batch_tokens=12)
    next(found)
    assert read == [1, 2]


def test_a_long_line_is_split_into_sentences_and_a_long_sentence_is_refused(model: api.Predictor) -> None:
    long = " ".join(f"Il y en a {french(number)}." for number in range(20, 44))
    (found,) = translate_lines(model, [long])
    assert found.text.count("There are") == 24
    assert "translated as 24 sentences" in found.notes[-1]
    assert len(found.translations[0].parts) == 24
    fine, refused, after = translate_lines(model, ["Il y en a six.", long.replace(".", ","), "Il y en a sept."])
    assert (fine.text, refused.text, after.text) == ("There are six of them.", "", "There are seven of them.")
    assert re.search(r"line 2: refused, a sentence of \d+ pieces where .* 100 at most", refused.refusal or "")
    several = next(translate_lines(model, [long], Beam(3, best=3)))
    assert len(several.translations) == 3
    pairs = [tuple(map(int, pair.split("-"))) for pair in alignment(model, several.translations[0]).split()]
    assert [target for _, target in pairs] == list(range(len(several.text.split())))
    assert max(source for source, _ in pairs) < len(long.split())


def test_what_has_come_is_translated_when_no_more_is_waiting(model: api.Predictor) -> None:
    found = translate_lines(model, iter(["Il y en a six.", None, "Il y en a sept."]))
    assert next(found).text == "There are six of them."
    assert [each.text for each in found] == ["There are seven of them."]


def test_lines_from_a_pipe_are_handed_on_as_they_arrive() -> None:
    gate = Event()

    def slow():  # type: ignore[no-untyped-def]
        yield "one"
        assert gate.wait(10)
        yield "two"

    lines = arriving(slow())
    seen = []
    while "one" not in seen:
        seen.append(next(lines))
    assert next(lines) is None  # before the second line was written
    gate.set()
    assert "two" in list(lines)


def test_a_text_or_several_are_translated(model: api.Predictor) -> None:
    assert model.translate("Il y en a six.") == "There are six of them."
    assert model.translate(["Il y en a six.", ""]) == ["There are six of them.", ""]
    with pytest.raises(SaccadeError, match="refused, a sentence of"):
        model.translate(" ".join(["Il y en a six,"] * 40))


def test_translations_begin_contain_and_avoid_what_is_asked(trained: Path) -> None:
    (line,) = ["Tom en veut douze."]
    assert api.load(trained).translate(line) == "Tom wants twelve."
    assert api.load(trained, settings=["decode.prefix=There are"]).translate(line).startswith("There are")
    assert "Tom" not in api.load(trained, settings=["decode.must_not_include=Tom"]).translate(line)
    assert "twenty" in api.load(trained, settings=["decode.must_include=twenty"]).translate(line)
    both = api.load(trained, settings=['decode.must_include=["three", "six"]', "decode.must_not_include=twelve"])
    text = both.translate(line)
    assert "three" in text
    assert "six" in text
    assert "twelve" not in text
    with pytest.raises(SaccadeError, match="only be given other settings of decode"):
        api.load(trained, settings=["train.steps=5"])


def test_one_model_twice_is_an_ensemble_that_says_the_same(trained: Path, model: api.Predictor) -> None:
    lines = ["Tom en veut douze.", "Il y en a sept cent six."]
    together = api.ensemble([trained, trained])
    for one, both in zip(model.predict(lines, Beam(3)), together.predict(lines, Beam(3)), strict=True):
        assert one.text == both.text
        assert both.answers[0].score == pytest.approx(one.answers[0].score, abs=1e-4)
    with pytest.raises(SaccadeError, match="no one attention"):
        together.look(lines[0])


def test_models_with_other_vocabularies_cannot_answer_together(trained: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    api.train("reverse", out=other, settings=["train.steps=1", "model.width=8", "model.hidden=8"])
    with pytest.raises(SaccadeError, match="has another vocabulary"):
        api.ensemble([trained, other])


def test_alignment_is_over_the_users_own_words(model: api.Predictor) -> None:
    (found,) = translate_lines(model, ["Tom en veut deux cent six."])
    pairs = [tuple(map(int, pair.split("-"))) for pair in alignment(model, found.translations[0]).split()]
    assert [target for _, target in pairs] == list(range(len(found.text.split())))
    assert all(0 <= source < 6 for source, _ in pairs)


def test_words_and_pieces_can_both_be_looked_at(model: api.Predictor) -> None:
    words, pieces = (model.look("Tom en veut vingt-trois.", pieces=choice)[0] for choice in (False, True))
    assert words.columns.labels == ("Tom", "en", "veut", "vingt-trois.")
    assert len(pieces.columns) > 4
    assert words.weights.sum(-1).allclose(pieces.weights.sum(-1).new_ones(words.weights.shape[:2]))


def test_files_are_scored_with_signature_and_interval(model: api.Predictor, files: Path, trained: Path) -> None:
    source, target = files / "some.fr", files / "some.en"
    source.write_text("".join(f"Il y en a {french(n)}.\n" for n in range(100, 160)))
    target.write_text("".join(f"There are {english(n)} of them.\n" for n in range(100, 160)))
    found = evaluate_files(model, source, [target])
    assert len(found.answers.texts) == 60
    assert found.scores[0].value > 70
    assert found.scores[0].interval is not None
    assert "tok:13a" in found.scores[0].signature
    same = compare_files((model, model), source, [target])
    assert same.first == same.second
    assert same.p_value > 0.05
    table = files / "some.tsv"
    rows = [
        f"Il y en a {french(n)}.\t{start} {english(n)} of them." for n in (3, 7) for start in ("There are", "I see")
    ]
    table.write_text("".join(f"{row}\n" for row in rows))
    grouped = evaluate_files(model, table, [])
    assert len(grouped.answers.texts) == 2
    assert "nrefs:2" in grouped.scores[0].signature
    early = api.load(trained, step=250)
    assert evaluate_files(early, source, [target], Beam(1)).scores[2].name == "chrF"
    target.write_text("one line\n")
    with pytest.raises(SaccadeError, match=r"some.fr has 60 lines and .*some.en has 1"):
        evaluate_files(model, source, [target])


def test_the_commands_translate_check_and_evaluate(saccade, trained: Path, files: Path) -> None:  # noqa: F811
    code, out, err = saccade("translate", "Tom en veut neuf.", "--model", str(trained))
    assert (code, out) == (0, "Tom wants nine.\n")
    assert err.startswith("float32, 1 thread, by ") and err.count("\n") == 1
    code, out, _ = saccade(
        "translate", "--model", str(trained), "--input", "-", "--n-best", "2", "--scores", stdin="Il y en a dix.\n\n"
    )
    assert code == 0
    assert [len(line.split("\t")) for line in out.splitlines()] == [3, 3, 1]
    Path("in.txt").write_text("Il y en a sept.\n")
    assert (
        saccade("translate", "--model", str(trained), "--input", "in.txt", "--output", "out.txt", "--alignments")[0]
        == 0
    )
    assert Path("out.txt").read_text().startswith("There are seven of them.\t")
    twice = ("--model", str(trained), "--model", str(trained))
    assert saccade("translate", "Il y en a sept.", *twice)[1] == "There are seven of them.\n"
    assert saccade("translate", "Il y en a sept.", *twice, "--step", "500")[0] == 2
    wishes = ("--prefix", "Tom", "--must-include", "nine", "--must-not-include", "seven")
    text = saccade("translate", "Il y en a sept.", "--model", str(trained), *wishes)[1]
    assert text.startswith("Tom")
    assert "nine" in text
    assert "seven" not in text
    code, out, _ = saccade(
        "evaluate",
        str(trained),
        "--source",
        str(files / "numbers.fr"),
        "--target",
        str(files / "numbers.en"),
        "--beam",
        "1",
    )
    assert code == 0
    assert out.startswith("BLEU ")
    assert "2,000 sentences" in out
    code, out, _ = saccade("check", str(files / "numbers.fr"), str(files / "numbers.en"), "--json")
    assert code == 0
    assert json.loads(out)["pairs"] == 2000
    code, out, _ = saccade("check", str(files / "numbers.fr"), str(files / "numbers.en"))
    assert "2,000 pairs" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    Path("empty").write_text("")
    assert saccade("check", "empty", "empty")[0] == 2
    both = (str(files / "numbers.fr"), str(files / "numbers.en"))
    apart = [
        f"--{part}-{side}={file}"
        for part in ("valid", "test")
        for side, file in zip(("source", "target"), both, strict=True)
    ]
    found = json.loads(saccade("check", *both, *apart, "--json")[1])["findings"]
    assert [each["count"] for each in found if "that training sees" in each["what"]] == [2000, 2000]


def test_a_packed_run_is_small_knows_no_folders_and_translates_alike(
    trained: Path, model: api.Predictor, tmp_path: Path
) -> None:
    packed = api.pack(trained, tmp_path / "packed")
    assert str(trained.parent) not in packed.recipe_text
    assert (tmp_path / "packed/final/model.safetensors").stat().st_size < 0.6 * (
        trained / "final/model.safetensors"
    ).stat().st_size
    lines = [f"Tom en veut {french(number)}." for number in range(200, 220)]
    again = api.load(tmp_path / "packed")
    assert [each.text for each in translate_lines(again, lines)] == [
        each.text for each in translate_lines(model, lines)
    ]


def test_a_report_is_one_page_without_scripts(saccade, trained: Path) -> None:  # noqa: F811
    code, _, err = saccade("report", str(trained), "--out", "page.html")
    assert (code, err) == (0, "")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "http://" not in page and "https://" not in page
    assert page.count("<img ") == 5
    for text in ("BLEU", "after 250", "tok:13a", "kind: transformer"):
        assert text in page


def test_curves_of_runs_are_drawn_together(saccade, trained: Path, tmp_path: Path) -> None:  # noqa: F811
    other = tmp_path / "other"
    (other / "vocab").mkdir(parents=True)
    (other / "recipe.yaml").write_text((trained / "recipe.yaml").read_text())
    rows = ({"step": 10, "loss": 3.0}, {"step": 20, "loss": 2.0, "valid_bleu": 1.5}, {"step": 30, "loss": math.nan})
    (other / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = saccade("curves", str(trained), str(other), str(trained), "--out", "both.svg")
    assert (code, err) == (0, "")
    assert re.search(r"\nother +20 +1.5 +1.5 +1.5 *\n", out)
    assert Path("both.svg").read_text().startswith("<?xml")
    assert saccade("curves", str(trained), "--minutes", "--score", "chrf")[0] == 0
    assert Path("curves.png").stat().st_size > 5000
    code, _, err = saccade("curves", str(trained), "--score", "wer")
    assert (code, "no run logged a score 'wer'; there is: bleu, chrf, cut" in err) == (2, True)
    code, _, err = saccade("curves", str(other), "--minutes")
    assert (code, "without a checkpoint nobody knows how many minutes" in err) == (2, True)


def test_the_ladder_trains_five_models_for_the_same_minutes_once(saccade, files: Path) -> None:  # noqa: F811
    quick = ["task.pieces=360", "task.valid_examples=40", "train.batch_tokens=512", "train.threads=1"]
    quick += ["train.evaluate_every=100000", "train.save_every=100000"]
    source, target = str(files / "numbers.fr"), str(files / "numbers.en")
    command = ["ladder", "--source", source, "--target", target, "--minutes", "0.15", *sets(*quick)]
    code, out, err = saccade(*command)
    assert (code, err) == (0, "")
    table = out[out.index("parameters") :]
    for name in ("one vector, once", "one vector, each step", "recurrent, attention", "convolutional", "Transformer"):
        assert f"\n{name} " in table
    assert all(len(line) <= 80 for line in table.splitlines())
    assert Path("runs/ladder/ladder.png").stat().st_size > 5000
    assert len(list(Path("runs/ladder").glob("*/final"))) == 5
    code, again, _ = saccade(*command)
    assert (code, again[again.index("parameters") :]) == (0, table)  # nothing was trained again
    code, _, err = saccade(*command, "--minutes", "0.2")
    assert code == 2 and "runs/ladder has a ladder that cannot go on; choose another --out" in err


def test_a_run_in_progress_translates_with_the_weights_that_were_evaluated(trained: Path) -> None:
    """With averaging on, those are the averaged ones, for a step as for the end."""
    import torch

    from saccade.train.run import Run

    checkpoint = Run.open(trained).load(250)
    name = "encoder.embedding.weight"
    loaded = api.load(trained, step=250).model.encoder.embedding.weight
    assert torch.equal(loaded, checkpoint.optimizer[f"{name}/average"])
    assert not torch.equal(loaded, checkpoint.model[name])


def test_nothing_is_written_over_before_the_input_is_read(saccade, trained: Path) -> None:  # noqa: F811
    Path("x.txt").write_text("Il y en a dix.\n")
    code, _, err = saccade("translate", "--model", str(trained), "--input", "x.txt", "--output", "x.txt")
    assert code == 2
    assert "the input itself" in err
    code, _, err = saccade("translate", "--model", str(trained), "--input", "typo.txt", "--output", "x.txt")
    assert code == 2
    assert "typo.txt: cannot read" in err
    assert Path("x.txt").read_text() == "Il y en a dix.\n"
    code, _, err = saccade("translate", "Oui.", "--model", str(trained), "--output", "nowhere/x.txt")
    assert code == 2
    assert "nowhere/x.txt: No such file or directory" in err


def test_doubts_about_the_data_are_told_before_hours_are_spent(saccade, files: Path) -> None:  # noqa: F811
    lines = (files / "numbers.fr").read_text().splitlines(), (files / "numbers.en").read_text().splitlines()
    for name, side in zip(("few.fr", "few.en"), lines, strict=True):
        Path(name).write_text("\n".join(side[:100]) + "\n")
    small = sets("task.pieces=300", "train.steps=1", "train.batch_tokens=512", "train.threads=1")
    code, out, _ = saccade(
        "train", "translate", "--source", "few.fr", "--target", "few.en", "--out", "runs/few", *small
    )
    assert code == 0 and "fewer than 30 sentences to validate on" in out
    repeated = ["--source", "many.fr", "--target", "many.en"]
    Path("many.fr").write_text("".join(f"{line}\n" for line in lines[0]))
    Path("many.en").write_text("".join(f"{line}\n" for line in [*lines[1][:-30], *lines[1][:30]]))
    code, out, _ = saccade("train", "translate", *repeated, "--out", "runs/many", *small)
    assert code == 0 and "pairs in neither part, as their translation is one to validate on: " in out
    same = ["--valid-source", "few.fr", "--valid-target", "few.en"]
    begun = [
        "--source",
        "few.fr",
        "--target",
        "few.en",
        *same,
        *small,
        *sets("train.start=runs/few", "model.kind=luong", "task.pieces=400"),
    ]
    code, out, _ = saccade("train", "translate", "--out", "runs/more", *begun)
    assert code == 0 and "that are trained on, too, so that scores are too good: 100" in out
    assert "the model is that of train.start: other model settings do not count" in out
    assert "the vocabulary is that of train.start: task.pieces, 400, does not count" in out
    code, _, err = saccade("train", "translate", "--source", "few.fr", "--target", "few.fr", "--out", "runs/x", *small)
    assert code == 2 and "few.fr: every sentence is its own translation" in err


def test_a_start_that_fails_leaves_the_way_free(saccade, files: Path) -> None:  # noqa: F811
    source = ["--source", str(files / "numbers.fr"), "--target", str(files / "numbers.en"), "--out", "runs/a"]
    code, _, err = saccade("train", "translate", *source, *sets("task.longest=1", "task.pieces=360"))
    assert code == 2
    assert "longer than task.longest, 1 pieces" in err
    assert not Path("runs/a").exists()
    for wrong in ("task.pieces=2", "train.seed=-1", "task.valid_target=x"):
        code, _, err = saccade("train", "translate", *source, *sets(wrong))
        assert code == 2, wrong
        assert not Path("runs/a").exists()


def test_validation_sentences_are_not_the_shortest_ones(model: api.Predictor) -> None:
    """The held-out part is in the file's order; what is scored is chosen by hash."""
    pairs = model.task.pairs[1]
    scored = [source for source, _, _ in model.score().samples]
    assert sorted(scored) == sorted({pair.source for pair in pairs})
    assert scored != list(dict.fromkeys(pair.source for pair in pairs))


def test_a_run_that_does_not_translate_says_so(tmp_path: Path) -> None:
    api.train("reverse", out=tmp_path / "run", settings=["train.steps=1", "task.train_examples=50"])
    with pytest.raises(SaccadeError, match="this one was trained for reverse"):
        list(translate_lines(api.load(tmp_path / "run"), ["a"]))


def test_train_translate_without_files_says_what_is_missing(saccade) -> None:  # noqa: F811
    code, _, err = saccade("train", "translate", *sets())
    assert code == 2
    assert "task.source: missing" in err


def test_a_trained_model_goes_on_with_other_pairs_and_new_words(trained: Path, tmp_path: Path) -> None:
    """Words that had to be spelled become one piece, which begins as the mean of what spelled it."""
    (tmp_path / "a.fr").write_text("un ornithorynque\ndeux ornithorynques\n" * 60)
    (tmp_path / "a.en").write_text("one platypus\ntwo platypus\n" * 60)
    files = [f"task.source={tmp_path / 'a.fr'}", f"task.target={tmp_path / 'a.en'}"]
    files += [f"task.valid_source={tmp_path / 'a.fr'}", f"task.valid_target={tmp_path / 'a.en'}"]
    settings = [*files, f"train.start={trained}", "task.extend=1"]
    training = api.begin("translate", out=tmp_path / "more", settings=settings)
    old, new = api.load(trained), training.trainer
    word = new.task.pieces.encode("platypus")
    assert len(word) == 1 and new.task.pieces.decode(word) == "platypus"
    assert len(new.task.pieces) == len(old.task.pieces) + 1
    before = dict(old.model.named_parameters())
    for name, tensor in new.model.named_parameters():
        if tensor.shape == before[name].shape:
            assert torch.equal(tensor, before[name]), name
        else:
            assert torch.equal(tensor[:-1], before[name]), name
            torch.testing.assert_close(tensor[-1], before[name][old.task.pieces.encode("platypus")].mean(0))
    count = sum(tensor.numel() for tensor in before.values())
    assert any(f"{count:,} parameters come from" in reason for reason in training.reasons)


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_a_file_without_text_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.fr").write_text(content)
    (tmp_path / "a.en").write_text(content)
    settings = [f"task.source={tmp_path / 'a.fr'}", f"task.target={tmp_path / 'a.en'}"]
    with pytest.raises(SaccadeError, match=r"no text found in .*a\.fr"):
        api.begin("translate", out=tmp_path / "run", settings=settings)


def test_one_pair_is_trained_on_and_none_to_validate_on_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.fr").write_text("deux\n")
    (tmp_path / "a.en").write_text("two\n")
    files = [f"task.source={tmp_path / 'a.fr'}", f"task.target={tmp_path / 'a.en'}"]
    with pytest.raises(SaccadeError, match=r"a\.fr: 1 pairs are left for training and 0 for validation"):
        api.begin("translate", out=tmp_path / "alone", settings=files)
    valid = [f"task.valid_source={tmp_path / 'a.fr'}", f"task.valid_target={tmp_path / 'a.en'}"]
    tiny = ["train.steps=2", "train.evaluate_every=2", "task.pieces=300"]
    assert api.train("translate", out=tmp_path / "both", settings=[*files, *valid, *tiny]).predict(["deux"])
