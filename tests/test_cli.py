"""The commands as a person meets them: what is printed, and what a mistake says."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console

from saccade import api, cli
from saccade.cli import terminal
from saccade.errors import SaccadeError
from saccade.metrics import Score
from saccade.train.run import Run

TINY = (
    "model.width=16",
    "model.hidden=32",
    "model.encoder_layers=1",
    "task.symbols=6",
    "task.longest=5",
    "task.train_examples=200",
    "task.valid_examples=10",
    "train.steps=20",
    "train.log_every=10",
)


@pytest.fixture
def saccade(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Run the command in an empty directory; returns exit code, what was printed and what was said on the error
    side."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: str = "", width: int = 80) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        monkeypatch.setattr(terminal, "out", Console(file=out, highlight=False, width=width))
        monkeypatch.setattr(terminal, "err", Console(file=err, highlight=False, width=width))
        monkeypatch.setattr("sys.argv", ["saccade", *arguments])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        monkeypatch.setattr("warnings.showwarning", lambda *message: None)
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        return int(leaving.value.code or 0), out.getvalue(), err.getvalue()

    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "tiny"
    api.train("reverse", out=path, settings=TINY)
    return path


def sets(*settings: str) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def test_train_tells_what_it_does_and_where_the_weights_are(saccade) -> None:
    code, out, err = saccade("train", "reverse", "--out", "runs/a", *sets(*TINY))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("reverse with transformer, ")
    assert any(line.startswith("step 10/20  loss ") and "tok/s" in line and "left" in line for line in lines)
    assert any("validation: exact" in line for line in lines)
    assert lines[-1].startswith("done after step 20; best")
    assert Path("runs/a/final/model.safetensors").exists()


def test_an_existing_run_is_not_overwritten_and_the_way_on_is_named(saccade) -> None:
    saccade("train", "reverse", "--out", "runs/a", *sets(*TINY))
    before = Path("runs/a/final/manifest.json").read_text()
    code, _, err = saccade("train", "reverse", "--out", "runs/a", *sets(*TINY))
    assert code == 2
    assert "runs/a exists, at step 20" in err
    assert "--resume" in err
    assert Path("runs/a/final/manifest.json").read_text() == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["train", "revers"], "no recipe is called 'revers' (did you mean 'reverse'?)"),
        (["train", "transcribe-an4", "--quick"], "transcribe-an4 has no two-minute variant; these have one: answer"),
        (["train", "nowhere/at-all.yaml"], "nowhere/at-all.yaml: cannot read the recipe"),
        (["train", "reverse", "--set", "model.heds=2"], "--set model.heds: unknown key (did you mean 'heads'?)"),
        (
            ["train", "reverse", "--set", "model.heads=3"],
            "heads 3 does not divide width 64; the nearest that does is 2",
        ),
        (["train", "reverse", "--set", "model.kind=transfomer"], "(did you mean 'transformer'?)"),
        (
            ["train", "reverse", "--set", "train.steps=many"],
            "--set train.steps: input should be a valid integer, got 'many'",
        ),
        (["train", "reverse", "--set", "train.steps"], "write it as key=value"),
        (["train", "reverse", "--set", "model.dropout=1.5"], "less than 1, got 1.5"),
        (["train", "reverse", "--set", "model.kind=fitted"], "'fitted' is for translate"),
        (["train", "reverse", "--set", "train.seed=-1"], "greater than or equal to 0, got -1"),
        (["train", "reverse", "--set", "model.longest=8"], "beyond the table of 8 learned positions"),
        (["plan", "reverse", "--set", "model.longest=16"], "beyond the table of 16 learned positions"),
        (["train"], "say what to train"),
        (["train", "--resume", "runs/none"], "runs/none does not exist"),
        (["predict", "runs/none", "a b"], "runs/none does not exist"),
        (["recipes", "show", "nothing"], "no recipe is called 'nothing'"),
        (["plan", "gpt2"], "no recipe, run or published size is called 'gpt2' (did you mean 'gpt2-xl'?); sizes: tr"),
        (["plan", "--table", "--out", "sizes.txt"], "sizes.txt: cannot draw .txt; there are .png"),
    ],
)
def test_a_mistake_gets_one_clear_line_and_exit_code_two(saccade, arguments: list[str], expected: str) -> None:
    code, _, err = saccade(*arguments)
    assert code == 2
    assert expected in " ".join(err.split())
    assert "Traceback" not in err
    assert not Path("runs").exists() or not list(Path("runs").glob("*/step-*"))


def test_predict_answers_arguments_and_lines_in_order(saccade, trained: Path) -> None:
    code, out, err = saccade("predict", str(trained), "a b c", "c b")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 2
    _, from_lines, _ = saccade("predict", str(trained), stdin="a b c\nc b\n")
    assert from_lines == out


def test_predict_gives_several_answers_with_scores_and_reasons(saccade, trained: Path) -> None:
    code, out, _ = saccade("predict", str(trained), "a b c", "--n-best", "3", "--beam", "4", "--scores")
    rows = [line.split("\t") for line in out.splitlines()]
    assert code == 0
    assert len(rows) == 3
    assert all(reason in ("eos", "length") for _, reason, _ in rows)
    _, one, _ = saccade("predict", str(trained), "a b c", "--sample", "--n-best", "2", "--seed", "5")
    _, again, _ = saccade("predict", str(trained), "a b c", "--sample", "--n-best", "2", "--seed", "5")
    assert one == again


def test_an_unknown_symbol_or_an_empty_input_is_named(saccade, trained: Path) -> None:
    code, _, err = saccade("predict", str(trained), "a x c")
    assert code == 2
    assert "symbol 2 of 'a x c' is 'x'" in err
    code, _, err = saccade("predict", str(trained), "  ")
    assert code == 2
    assert "is empty" in err


def test_an_input_that_is_refused_leaves_a_blank_line_and_the_others_are_answered(saccade, trained: Path) -> None:
    _, alone, _ = saccade("predict", str(trained), "a b", "c")
    code, out, err = saccade("predict", str(trained), "a b", "a x", "c", "")
    first, *blank, third, last = out.split("\n")[:-1]
    assert (code, blank, last) == (2, [""], "")
    assert [first, third] == alone.splitlines()
    assert "2 of 4 inputs were refused" in err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["evaluate", "RUN", "--split", "tset"], "there is no part 'tset' to be scored; there are valid and test"),
        (["predict", "RUN", "a b", "--top-k", "3"], "--top-k, --top-p and --seed go with --sample"),
        (["heads", "RUN", "--out", "heads.txt"], "heads.txt: cannot draw .txt"),
        (["report", "RUN", "--out", "report.pdf"], "report.pdf: the report is a page, so --out must end in .html"),
        (["pack", "RUN", "RUN"], "exists, at step"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_done(
    saccade, trained: Path, arguments: list[str], expected: str
) -> None:
    code, _, err = saccade(*(str(trained) if each == "RUN" else each for each in arguments))
    assert code == 2
    assert expected in " ".join(err.split())


def test_a_packed_run_is_not_packed_over_and_no_checkpoint_is_promised(saccade, trained: Path, tmp_path: Path) -> None:
    assert saccade("pack", str(trained), str(tmp_path / "small"))[0] == 0
    code, _, err = saccade("pack", str(trained), str(tmp_path / "small"))
    assert (code, "--resume" in err) == (2, False)
    assert "is a packed run already: choose another place" in " ".join(err.split())


def test_an_input_beyond_the_positions_that_were_learned_is_refused(saccade, trained: Path) -> None:
    code, _, err = saccade("predict", str(trained), " ".join("a" * 600))
    assert code == 2
    assert "position 512 is beyond the table of 512 learned positions" in " ".join(err.split())


def test_look_draws_in_the_terminal_and_into_files(saccade, trained: Path) -> None:
    code, out, _ = saccade("look", str(trained), "a b c d", "--target", "d c b a", "--out", "map.png")
    assert code == 0
    assert out.splitlines()[0] == "alignment: average of all cross-attentions"
    assert [line.split()[0] for line in out.splitlines()[2:7]] == ["d", "c", "b", "a", "<end>"]
    assert all(len(line) <= 80 for line in out.splitlines())
    assert out.splitlines()[-2].startswith("█ is ")
    assert "the first of " in out.splitlines()[-1]
    with Image.open("map.png") as picture:
        assert picture.width > 300
        height = picture.height
    code, out, _ = saccade("look", str(trained), "a b c d", "--target", "d c b a", "--all", "--out", "map.png")
    assert code == 0
    assert "all of " in out.splitlines()[-1]
    with Image.open("map.png") as picture:
        assert picture.height > 2 * height
    saccade("look", str(trained), "a b c d", "--out", "map.json")
    maps = json.loads(Path("map.json").read_text())["maps"]
    assert {each["name"] for each in maps} >= {"encoder block 1, self-attention", "decoder block 1, cross-attention"}
    code, _, err = saccade("look", str(trained), "a b", "--out", "map.gif")
    assert code == 2
    assert "cannot draw .gif; there are .png" in err


def test_look_says_when_there_is_nothing_to_look_at(saccade, tmp_path: Path) -> None:
    settings = [each for each in TINY if not each.startswith("model.")]
    api.train("reverse-rnn", out=tmp_path / "rnn", settings=[*settings, "train.steps=2"])
    code, _, err = saccade("look", str(tmp_path / "rnn"), "a b")
    assert code == 2
    assert "no attention to look at" in err


def test_recipes_are_listed_and_shown_with_their_comments(saccade) -> None:
    code, out, _ = saccade("recipes")
    assert code == 0
    assert "reverse-attention" in out
    code, out, _ = saccade("recipes", "show", "reverse")
    assert code == 0
    assert out.startswith("# Reverse")
    assert "kind: transformer" in out


def test_other_settings_on_resume_are_shown_and_need_override(saccade) -> None:
    saccade("train", "reverse", "--out", "runs/a", *sets(*TINY))
    code, _, err = saccade("train", "--resume", "runs/a", "--set", "train.steps=25", "--set", "train.clip=0.5")
    assert code == 2
    assert "train.steps: 20 -> 25" in err
    assert "train.clip: 1.0 -> 0.5" in err
    assert "--override" in err
    code, out, _ = saccade("train", "--resume", "runs/a", "--set", "train.steps=25", "--override")
    assert code == 0
    assert "train.steps: 20 -> 25" in out
    assert out.splitlines()[-1].startswith("done after step 25")
    assert "steps: 25" in Path("runs/a/recipe.yaml").read_text()
    assert {"step": 20, "changed": ["train.steps: 20 -> 25"]} in Run.open("runs/a").metrics()
    code, out, _ = saccade("train", "--resume", "runs/a")
    assert code == 0
    assert "nothing was left to do: train.steps=25 was reached before; to go on: saccade train --resume" in out
    code, _, err = saccade("train", "--resume", "runs/a", "--set", "model.width=32", "--override")
    assert code == 2
    assert "model.width: 16 -> 32" in err
    code, _, err = saccade("train", "--resume", "runs/a", "--out", "runs/b")
    assert code == 2
    assert "neither --out nor files" in err


def test_an_edited_recipe_needs_override_too(saccade) -> None:
    saccade("train", "reverse", "--out", "runs/a", *sets(*TINY))
    recipe = Path("runs/a/recipe.yaml")
    recipe.write_text(recipe.read_text().replace("steps: 20", "steps: 25"))
    code, _, err = saccade("train", "--resume", "runs/a")
    assert code == 2
    assert "train.steps: 20 -> 25" in err and "--override" in err
    code, out, _ = saccade("train", "--resume", "runs/a", "--override")
    assert code == 0
    assert out.splitlines()[-1].startswith("done after step 25")


def test_lines_that_are_not_utf8_can_be_skipped_and_are_counted(saccade) -> None:
    lines = [b"phrase %d\n" % number for number in range(300)]
    Path("a.fr").write_bytes(b"".join([*lines, b"mal \xe9\n"]))
    Path("a.en").write_bytes(b"".join([*(line.replace(b"phrase", b"sentence") for line in lines), b"bad\n"]))
    files = ("--source", "a.fr", "--target", "a.en", "--out", "runs/a", *sets("train.steps=1", "task.pieces=300"))
    code, _, err = saccade("train", "translate", *files)
    assert code == 2
    assert "a.fr:301: byte 5" in err
    code, _, err = saccade("train", "translate", *files, "--encoding-errors", "ignore")
    assert code == 2
    assert "'ignore' is not one of refuse, replace, skip" in err
    code, out, _ = saccade("train", "translate", *files, "--encoding-errors", "skip", width=300)
    assert code == 0
    assert "a.fr: lines that are not UTF-8, left out on both sides: 1" in out


def test_weights_that_are_not_finite_are_refused_by_name_unless_they_are_asked_for(
    saccade, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "ill")
    run = Run.open(tmp_path / "ill")
    weights, state = run.weights()
    name = "encoder.embedding.weight"
    weights[name][-1] = float("nan")  # of the last symbol alone
    shutil.rmtree(tmp_path / "ill" / "step-000020")
    run.save_final(weights, state)
    for command in (["predict", "ill", "a b c"], ["look", "ill", "a b c"], ["verify", "ill"]):
        code, _, err = saccade(*command)
        assert code == 2, command
        assert f"NaN or infinity in '{name}'" in err and "--allow-nonfinite" in err
    assert saccade("predict", "ill", "a b c", "--allow-nonfinite") == saccade("predict", str(trained), "a b c")
    assert saccade("look", "ill", "a b c", "--allow-nonfinite")[0] == 0
    assert "the model produced NaN" in saccade("verify", "ill", "--allow-nonfinite")[2]  # with the last symbol


@pytest.mark.parametrize("joined", [False, True], ids=["head", "2>&1 head"])
def test_a_training_whose_reader_has_gone_saves_and_leaves_as_by_a_signal(joined: bool, tmp_path: Path) -> None:
    settings = sets(*TINY, "train.steps=100000", "train.log_every=2", "train.evaluate_every=100000")
    command = [sys.executable, "-m", "saccade", "train", "reverse", "--out", str(tmp_path / "run"), *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm-256color"}
    beside = subprocess.STDOUT if joined else subprocess.PIPE
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=beside, env=environment) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.stdout.close()  # as `| head -1` does
        errors = "" if process.stderr is None else process.stderr.read().decode()
    assert process.returncode == 141
    assert first.startswith(b"reverse with transformer") and b"\x1b" not in first
    assert "Traceback" not in errors and "BrokenPipe" not in errors
    assert joined or "go on with: saccade train --resume" in errors
    assert "\x1b" not in errors
    (last,) = Run.open(tmp_path / "run").steps()[-1:]
    assert 0 < last < 100_000
    assert api.resumed(tmp_path / "run").trainer.step == last


def test_version_is_printed(saccade) -> None:
    code, out, _ = saccade("--version")
    assert code == 0
    assert out.startswith("saccade 0.")


@pytest.mark.parametrize(("load", "threads", "told"), [(1.9, 2, True), (0.2, 2, False), (1.9, 1, False)])
def test_a_training_beside_other_work_is_told_to_take_fewer_threads(
    saccade, monkeypatch: pytest.MonkeyPatch, load: float, threads: int, told: bool
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    before = torch.get_num_threads()
    try:
        sets = [word for key in (*TINY, "train.steps=1", f"train.threads={threads}") for word in ("--set", key)]
        code, out, _ = saccade("train", "reverse", *sets, width=200)
    finally:
        torch.set_num_threads(before)
    assert code == 0
    advice = "the load is 1.9 on 2 processors: if other work goes on, fewer threads than 2 are faster"
    assert (advice in out) == told


def test_the_live_display_shows_the_same_numbers_in_a_terminal(trained: Path, tmp_path: Path) -> None:
    from saccade import display

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, highlight=False)
    training = api.begin("reverse", out=tmp_path / "live", settings=TINY)
    assert display.follow(training, console) == 0
    assert "20/20" in screen.getvalue()
    assert "validation: exact" in screen.getvalue()


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}])
def test_a_terminal_that_wants_it_plain_gets_plain_lines(environment: Mapping[str, str], tmp_path: Path) -> None:
    from saccade import display

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, highlight=False, _environ=environment)
    assert display.follow(api.begin("reverse", out=tmp_path / "plain", settings=TINY), console) == 0
    assert "\x1b" not in screen.getvalue() and "\r" not in screen.getvalue()
    assert "step 20/20  loss" in screen.getvalue()


def test_what_happens_now_and_then_is_told(tmp_path: Path) -> None:
    from saccade import display
    from saccade.train.progress import Event, Skipped, Split, Stopped

    class Eventful(api.Training):
        def events(self, stop=None):  # type: ignore[no-untyped-def]  # noqa: ARG002
            told: list[Event] = [
                Skipped(3, "the loss is not finite", (1, 2), 1),
                Split(4, 2),
                Stopped(4, "steps", 4, 0.5),
            ]
            yield from told

    screen = io.StringIO()
    begun = api.begin("reverse", out=tmp_path / "run", settings=TINY)
    training = Eventful(begun.run, begun.recipe, begun.trainer)
    display.follow(training, Console(file=screen, width=100, highlight=False))
    assert "step 3  skipped, 1 in a row: the loss is not finite" in screen.getvalue()
    assert "step 4  out of memory: from here on every batch is cut into 2 parts" in screen.getvalue()


def test_unwritable_places_are_refused_first(tmp_path: Path) -> None:
    terminal.require_writable(None, None)
    terminal.require_writable(tmp_path / "new" / "plot.png", tmp_path / "figures.json")
    with pytest.raises(SaccadeError, match=r"plot\.bmp: cannot draw \.bmp; there are \.png, \.svg, \.pdf"):
        terminal.require_writable(Path("plot.bmp"), None)
    (tmp_path / "file").touch()
    with pytest.raises(SaccadeError, match="file/figures"):
        terminal.require_writable(None, tmp_path / "file" / "figures.json")
    with pytest.raises(SaccadeError, match="cannot be written"):
        terminal.require_writable(None, tmp_path)


def test_scores_are_a_table_for_who_watches_and_whole_lines_for_who_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    same = "tok:ptb-like|case:lower"
    found = [Score("CIDEr-D", 67.9, (61.9, 73.4), same), Score("a name that is long " * 4, 3.7, (2.2, 5.4), same)]

    def shown(terminal_: bool) -> list[str]:
        file = io.StringIO()
        monkeypatch.setattr(terminal, "out", Console(file=file, force_terminal=terminal_, width=80, color_system=None))
        terminal.scores(found)
        return file.getvalue().splitlines()

    piped, watched = shown(False), shown(True)
    assert piped == [f"{score}  {same}" for score in found]
    assert max(map(len, watched)) <= 80
    assert watched[-1] == same
    assert sum(same in line for line in watched) == 1
    assert watched[0].rstrip().endswith("67.9  [61.9, 73.4]")


def test_evaluate_writes_its_scores_as_json(saccade, trained: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    code, out, _ = saccade("evaluate", str(trained), "--json", "scores/valid.json")
    written = json.loads((tmp_path / "scores" / "valid.json").read_text())
    assert code == 0
    assert [score["name"] for score in written] == [line.rsplit(" ", 3)[0] for line in out.splitlines()]
    assert written[0]["interval"][0] <= written[0]["value"] <= written[0]["interval"][1]
    code, _, err = saccade("evaluate", str(trained), "--json", ".")
    assert (code, "cannot be written" in err) == (2, True)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("plan", "gpt2-small", "--out", "p.png", "--set", "model.width=3"), "--set, --out: not for a published size"),
        (("plan", "reverse", "--out", "p.png"), "--out: not for a recipe or a run"),
        (("plan", "reverse", "--devices", "4"), "--devices: not for a recipe or a run"),
        (("plan", "--table", "--data", "x"), "--data: not for --table"),
        (("train", "reverse", "--override"), "--override is for a run that goes on"),
        (("train", "mine.yaml", "--quick"), "mine.yaml is a file"),
        (("evaluate", "RUN", "--source", "a", "--target", "b", "--split", "test"), "--split test is a part of the run"),
        (("prompt", "RUN", "--input", "a", "--shots", "3"), "--shots are numbers of examples to be scored with"),
        (("report", "RUN", "--out", "recipe.html/x.html"), "recipe.html"),
        (("look", "RUN", "a b", "--out", "map.xyz"), "map.xyz: cannot draw .xyz"),
        (("predict", "recipe.html", "x"), "recipe.html is a file, not a run"),
        (("train", "reverse", "--set", "train.seed=1" + "0" * 20), "--set train.seed"),
        (("train", "loop.yaml"), "loop.yaml:1: task.y is inside of itself"),
    ],
)
def test_what_would_be_ignored_or_fail_late_is_refused_at_once(saccade, command: tuple[str, ...], said: str) -> None:
    Path("recipe.html").write_text("a file")
    Path("loop.yaml").write_text("task: &x {kind: reverse, y: *x}\nmodel: {kind: transformer}\n")
    code, out, err = saccade(*command, width=200)
    assert (code, said in err) == (2, True), err
    assert not out


def test_devices_that_are_few_share_each_layer_among_themselves(saccade) -> None:
    code, out, _ = saccade("plan", "gpt-3", "--devices", "4", width=200)
    assert code == 0 and "on 4 x" in out


def test_a_recipe_with_any_character_goes_on(saccade) -> None:
    folder = Path("\N{GRINNING FACE}")
    folder.mkdir()
    (folder / "t.txt").write_text("red fox, blue sky\n" * 60)
    small = ("task.window=8", "model.width=8", "model.layers=1", "train.steps=2", "train.batch_tokens=64")
    settings = [word for each in small for word in ("--set", each)]
    where = ("--data", str(folder / "t.txt"), "--out", "run")
    assert saccade("train", "language-quick", *where, *settings)[0] == 0
    assert saccade("train", "--resume", "run")[0] == 0


def test_broken_weights_are_seen_where_they_are(saccade) -> None:
    api.train("reverse", out="run", settings=[*TINY, "train.steps=1"])
    run = Run.open("run")
    tensors, state = run.weights()
    name = next(each for each in tensors if "cross.query" in each)
    tensors[name].view(-1)[0] = float("nan")
    run.save_final(tensors, state)
    code, out, _ = saccade("look", "run", "a b", "--target", "b a", "--allow-nonfinite", "--out", "map.json")
    assert code == 0 and "??" in out
    maps = json.loads(Path("map.json").read_text(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert any(weight is None for map_ in maps["maps"] for head in map_["weights"] for row in head for weight in row)
