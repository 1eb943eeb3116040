"""The commands around translation, with the model that ships: what is split, where lines go, which columns are read."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import signal
import subprocess
import sys
from copy import copy
from pathlib import Path

import pytest

from saccade import api, translation
from saccade.decode import Beam
from saccade.errors import SaccadeError
from saccade.translation import columns_of, evaluate_files, split_sentences, translate_lines
from tests.test_cli import saccade  # noqa: F401 - a fixture

LINES = ["Il pleut.", "Je suis fatigué.", "Où est la gare ?"]
ANSWERS = ["It's raining.", "I'm tired.", "Where's the station?"]
HOW = r"float32, \d+ threads?, by (torch|code compiled for this processor)\n"


@pytest.fixture(scope="module")
def model() -> api.Predictor:
    return api.load(api.SHIPPED)


def test_every_sentence_of_a_line_is_translated_unless_it_is_wanted_whole(saccade) -> None:  # noqa: F811
    line = " ".join(LINES)
    code, out, err = saccade("translate", line, "", LINES[0])
    assert (code, out) == (0, f"{' '.join(ANSWERS)}\n\n{ANSWERS[0]}\n")
    assert re.fullmatch(HOW, err)  # nothing to warn of
    assert saccade("translate", line, "--whole")[1] != f"{' '.join(ANSWERS)}\n"
    (found,) = json.loads(f"[{saccade('translate', line, '--json', '--n-best', '2', '--alignments')[1]}]")
    best, second = found["translations"]
    assert best["text"] == " ".join(ANSWERS) != second["text"]
    pairs = [tuple(map(int, pair.split("-"))) for pair in best["alignment"].split()]
    assert [target for _, target in pairs] == list(range(len(best["text"].split())))
    assert pairs[-1][0] >= 5  # of the last sentence


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_without_a_beam_translations_are_the_same_whether_their_scores_are_asked_for_or_not(
    saccade,  # noqa: F811
    precision: str,
) -> None:
    greedy = ("translate", *LINES, " ".join(LINES), "--beam", "1", "--precision", precision)
    code, out, _ = saccade(*greedy)
    scored = [line.split("\t") for line in saccade(*greedy, "--scores")[1].splitlines()]
    told = [json.loads(line)["translations"][0] for line in saccade(*greedy, "--json")[1].splitlines()]
    assert code == 0 and len(scored) == len(told) == 4
    assert out.splitlines() == [text for _, _, text in scored] == [each["text"] for each in told]
    assert all(float(score) < 0 for score, _, _ in scored)
    assert [float(score) for score, _, _ in scored] == pytest.approx([each["score"] for each in told], abs=1e-4)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Il pleut. Oui.", ["Il pleut.", "Oui."]),
        ("M. Dupont et Mme. X dorment. J. K. Rowling lit.", ["M. Dupont et Mme. X dorment.", "J. K. Rowling lit."]),
        ("« Viens ! » dit-il. « Non. »", ["« Viens ! » dit-il.", "« Non. »"]),
        ('"Oui." Il part. "Non."', ['"Oui."', "Il part.", '"Non."']),
        ("Euh… oui. Alors... ? Ah !", ["Euh… oui.", "Alors... ?", "Ah !"]),
        ("il pleut. oui", ["il pleut.", "oui"]),
        ("Tom and I. We know.", ["Tom and I.", "We know."]),
        ("J'en ai 3. Il en a 4.", ["J'en ai 3.", "Il en a 4."]),
        ("今天很好。我们走吧！好吗？", ["今天很好。", "我们走吧！", "好吗？"]),
        ("「行こう！」と言った。 はい。", ["「行こう！」と言った。", "はい。"]),
        ("  ", []),
    ],
)
def test_sentences_are_not_cut_at_titles_initials_and_what_goes_on_in_lower_case(
    text: str, sentences: list[str]
) -> None:
    assert split_sentences(text) == sentences


def test_a_sentence_that_is_too_long_is_cut_wherever_a_mark_allows_it(model: api.Predictor) -> None:
    (found,) = translate_lines(model, ["Il pleut… " + "il pleut… " * 30])
    assert found.refusal is None
    assert len(found.translations[0].parts) == 31


def test_a_prefix_is_that_of_the_line_and_not_of_its_other_sentences(saccade) -> None:  # noqa: F811
    code, out, _ = saccade("translate", " ".join(LINES), "", LINES[1], "--prefix", "Look,")
    first, blank, second, _ = out.split("\n")
    assert (code, blank) == (0, "")
    assert first.startswith("Look,")
    assert first.count("Look,") == 1
    assert first.endswith(" ".join(ANSWERS[1:]))
    assert second.startswith("Look,")


def test_a_line_that_must_include_a_text_is_translated_whole_or_refused(saccade) -> None:  # noqa: F811
    long = " ".join(LINES * 10)
    code, out, err = saccade("translate", f"{LINES[0]} {LINES[1]}", long, "--must-include", "rain")
    first, refused, _ = out.split("\n")
    assert (code, refused, first.count("rain")) == (2, "", 1)
    assert "line 2: refused" in err
    assert "a line that must include a text is not split" in err


@pytest.mark.parametrize("wanted", [("--must-include", "rainy"), ("--prefix", "The rain")])
def test_what_contradicts_itself_is_refused(saccade, wanted: tuple[str, str]) -> None:  # noqa: F811
    code, out, err = saccade("translate", LINES[0], *wanted, "--must-not-include", "rain")
    assert (code, out) == (2, "")
    assert f"no translation can have {wanted[1]!r} in it and be without 'rain'" in err


@pytest.mark.parametrize("option", ["--beam", "--n-best"])
def test_a_beam_beyond_all_memory_is_refused(saccade, option: str) -> None:  # noqa: F811
    assert saccade("translate", LINES[0], option, "100000")[0] == 2


def test_of_a_wide_beam_fewer_lines_are_translated_together(
    model: api.Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation, "BATCH_TOKENS", 20)
    read: list[str] = []

    def lines():  # type: ignore[no-untyped-def]
        for line in LINES:
            read.append(line)
            yield line

    for width, together in ((1, 3), (8, 3), (60, 1)):
        read.clear()
        next(translate_lines(model, lines(), Beam(width)))
        assert len(read) == together, width


def test_json_has_an_object_for_each_line(saccade) -> None:  # noqa: F811
    long = "Il pleut, " * 80
    code, out, _ = saccade("translate", "--json", "--n-best", "2", stdin=f"{LINES[0]}\n\n{long}\n")
    first, blank, refused = map(json.loads, out.splitlines())
    assert code == 2
    assert [each["line"] for each in (first, blank, refused)] == [1, 2, 3]
    assert (first["source"], first["refusal"]) == (LINES[0], None)
    assert first["translations"][0].keys() == {"text", "score", "stopped"}
    assert first["translations"][0]["text"] == ANSWERS[0]
    assert first["translations"][0]["score"] >= first["translations"][1]["score"]
    assert blank == {"line": 2, "source": "", "translations": [], "refusal": None}
    assert refused["translations"] == []
    assert refused["refusal"].startswith("line 3: refused")


def test_an_argument_that_is_no_text_is_an_escape_in_json(saccade) -> None:  # noqa: F811
    out = saccade("translate", "b\udce9", "--json")[1]
    assert json.loads(out.encode())["source"] == "b\udce9"


def test_standard_input_is_read_without_texts_and_a_length_penalty_is_obeyed(saccade) -> None:  # noqa: F811
    command = ("translate", "--beam", "4", "--scores", "--threads", "1")
    plain, kept = (saccade(*command, *more, stdin=LINES[0])[1].split("\t") for more in ((), ("--length-penalty", "0")))
    assert plain[2] == kept[2] == f"{ANSWERS[0]}\n"
    assert float(kept[0]) < float(plain[0])  # a plain sum of log probabilities, not divided by anything
    assert saccade("translate", LINES[0], "--length-penalty", "-1")[0] == 2
    code, _, err = saccade("translate", LINES[0], "--must-include", "")
    assert code == 2 and "--must-include (decode.must_include): string should have at least 1 character" in err


def test_an_error_leaves_the_old_output_and_says_what_the_new_one_has(saccade) -> None:  # noqa: F811
    Path("part.fr").write_bytes("\n".join(LINES).encode() + b"\nb\xe9\n")
    Path("part.en").write_text("old\n" * 10)
    Path("part.en").chmod(0o640)
    command = ("translate", "--input", "part.fr", "--output", "part.en", "--batch-tokens", "1")
    code, _, err = saccade(*command)
    assert code == 2
    assert "part.fr:4: byte 2" in err
    assert "part.en.partial has 3 lines, and part.en is as it was" in err
    assert Path("part.en").read_text() == "old\n" * 10
    assert Path("part.en.partial").read_text().splitlines() == ANSWERS
    Path("link.en").symlink_to("part.en")
    code, _, err = saccade("translate", LINES[0], "--output", "link.en")
    assert code == 0
    assert Path("link.en").is_symlink()
    assert Path("part.en").read_text() == f"{ANSWERS[0]}\n"
    assert Path("part.en").stat().st_mode & 0o777 == 0o640
    assert not Path("part.en.partial").exists()
    assert "nothing was written" in saccade("translate", "--input", "part.fr", "--output", "part.fr")[2]


@pytest.mark.parametrize(
    "text",
    ["." * 200_000 + "x", "A. " * 60_000, "。" * 200_000 + "\n", "." + '"' * 200_000, "! " + " " * 200_000 + ")"],
)
def test_however_many_marks_there_are_a_line_is_split_at_once(text: str) -> None:
    """In a time that would take hours if it grew with the square."""
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_a_file_is_packed_as_its_name_says(saccade) -> None:  # noqa: F811
    for name, unpack in (("a.en.gz", gzip.decompress), ("a.en.xz", lzma.decompress)):
        assert saccade("translate", *LINES, "--output", name)[0] == 0
        assert unpack(Path(name).read_bytes()).decode().splitlines() == ANSWERS
    Path("a.fr").write_text("".join(f"{line}\n" for line in LINES))
    scored = ("--source", "a.fr", "--target", "a.fr", "--output", "b.gz")
    assert saccade("evaluate", str(api.SHIPPED), *scored)[0] == 0
    assert gzip.decompress(Path("b.gz").read_bytes()).decode().splitlines() == ANSWERS


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_what_cannot_be_written_is_named(saccade) -> None:  # noqa: F811
    code, _, err = saccade("translate", LINES[0], "--output", "/dev/full")
    assert code == 2
    assert "saccade: /dev/full: No space left on device" in err


def test_a_reader_who_leaves_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("Il pleut.\n" * 30)
    command = [sys.executable, "-m", "saccade", "translate", "--input", str(tmp_path / "lines"), "--batch-tokens", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"It's raining.\n"
        process.stdout.close()  # as `| head -1` does
        errors = process.stderr.read().decode()
    assert process.returncode == 141
    assert re.fullmatch(HOW, errors) and errors.startswith("float32, 1 thread, by ")


@pytest.mark.parametrize(("how", "code"), [("reader leaves", 141), ("ctrl-c", 130)])
def test_whoever_leaves_a_pipe_that_is_open_ends_the_command(how: str, code: int) -> None:
    """A thread waits for the next line at that moment."""
    heard = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # in a shell's background it is not
    )
    command = [sys.executable, "-c", f"{heard}; from saccade.cli import main; main()", "translate"]
    environment, pipe = {**os.environ, "OMP_NUM_THREADS": "1"}, subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        process.stdin.write(b"Il pleut.\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"It's raining.\n"
        if how == "ctrl-c":
            process.send_signal(signal.SIGINT)
        else:
            process.stdout.close()
            process.stdin.write(b"Il pleut.\n")
            process.stdin.flush()
        assert process.wait(60) == code
        assert b"Fatal" not in process.stderr.read()


def test_a_space_at_the_end_of_a_prefix_is_that_of_the_next_word(model: api.Predictor) -> None:
    def begun(prefix: str) -> str:
        decode = model.recipe.decode.model_copy(update={"prefix": prefix})
        task = copy(model.task)
        task.recipe = model.recipe.model_copy(update={"decode": decode})
        return task.predict(model.writer, ["Il pleut."])[0].text

    assert begun("Well, ") == begun("Well,") != begun("")
    assert begun("  ") == begun("")


def test_columns_of_a_table_are_told_and_can_be_chosen(saccade, model: api.Predictor) -> None:  # noqa: F811
    rows = [f"{number}\t{one}\t{other}\n" for number, (one, other) in enumerate(zip(LINES, ANSWERS, strict=True))]
    Path("a.tsv").write_text("".join(rows))
    run = str(api.SHIPPED)
    assert columns_of(model) == (2, 1)
    code, out, err = saccade("evaluate", run, "--source", "a.tsv")
    assert (code, out.startswith("BLEU 0.0")) == (0, True)
    assert "a.tsv: column 2 is translated, column 1 the reference, as the recipe has it" in err
    code, out, err = saccade("evaluate", run, "--source", "a.tsv", "--columns", "2,3")
    assert (code, out.startswith("BLEU 100.0 [")) == (0, True)
    assert "column 2 is translated, column 3 the reference\n" in err
    both = ("compare", run, run, "--source", "a.tsv", "--columns", "2,3", "--beam", "2", "--precision", "int8")
    code, out, err = saccade(*both, "--threads", "1", width=300)
    assert code == 0
    assert len(re.findall(r"BLEU 100\.0 \[\d+\.\d, 100\.0\]", out)) == 2
    assert "p = 1.000: they may differ by chance only" in out
    assert "column 2 is translated, column 3 the reference\n" in err
    for wrong in ("2", "2,x", "0,1", "2,2", "1,2,3"):
        code, _, err = saccade("evaluate", run, "--source", "a.tsv", "--columns", wrong)
        assert (code, "two different numbers from 1 on" in err) == (2, True), wrong
    code, _, err = saccade("evaluate", run, "--source", "a.tsv", "--target", "a.tsv", "--columns", "2,3")
    assert (code, "--columns are of a .tsv with both sides" in err) == (2, True)
    with pytest.raises(SaccadeError, match="column 4 is asked for"):
        evaluate_files(model, "a.tsv", [], columns=(2, 4))


def test_check_reads_the_columns_that_are_asked_for(saccade) -> None:  # noqa: F811
    rows = [f"{number}\tphrase numéro {number}\tsentence number {number}\n" for number in range(200)]
    Path("id.tsv").write_text("".join(rows))
    code, out, _ = saccade("check", "id.tsv", "--columns", "2,3", "--longest", "18", "--json")
    assert code == 0
    assert {each["what"]: each["count"] for each in json.loads(out)["findings"]}["longer than 18 characters"] == 100
    assert "no pairs at all" not in saccade("check", "id.tsv")[1]
    assert saccade("check", "id.tsv", "id.tsv", "--columns", "2,3")[0] == 2


def test_lines_that_are_split_or_refused_are_told_by_whatever_scores_them(saccade) -> None:  # noqa: F811
    Path("a.fr").write_text("\n".join([LINES[0], " ".join(LINES * 12), "chat " * 300, "", ""]))
    Path("a.en").write_text("\n".join([ANSWERS[0], " ".join(ANSWERS * 12), "cat", "blank", ""]))
    run, files = str(api.SHIPPED), ("--source", "a.fr", "--target", "a.en")
    told = "4 sentences, 0 translations hit the length limit; long lines, translated sentence by sentence: 1\n"
    for asked, whose in ((("evaluate", run), ""), (("compare", run, run), f"{run}: ")):
        code, out, err = saccade(*asked, *files, width=300)
        assert (code, whose + told in out + err) == (0, True)
        assert f"saccade: {whose}line 3: refused, a sentence of " in err


def test_a_packed_model_is_not_scored_on_data_that_it_does_not_have(saccade) -> None:  # noqa: F811
    for command in ("evaluate", "heads", "report"):
        code, _, err = saccade(command, str(api.SHIPPED), width=300)
        told = "the data is not where the recipe of this run has it: train.tsv.xz: cannot read: No such file"
        assert (code, told in err) == (2, True), command
