"""Programming by prompt: how a prompt is written, what is scored, and rules that are held out whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from saccade import api
from saccade.cli import app
from saccade.data.transformations import Rule, pairs, rules, write_transformations
from saccade.errors import SaccadeError
from saccade.prompting import Template, read_groups, shots


def test_a_prompt_is_all_pairs_and_then_the_input() -> None:
    prompt = Template("{input}>{output}\n").prompt([("ab", "ba"), ("cd", "dc")], "ef")
    assert prompt == "ab>ba\ncd>dc\nef>"
    assert Template("{input}>{output}\n").stop == "\n"


@pytest.mark.parametrize("wrong", ["{input} only", "{output} {input}", "{input} {input} {output}"])
def test_a_template_without_its_places_is_refused(wrong: str) -> None:
    with pytest.raises(SaccadeError, match="template"):
        Template(wrong)


def test_braces_in_a_text_are_text_and_an_output_ends_where_the_template_goes_on() -> None:
    template = Template("Q {input} A {output} ;\n")
    assert template.prompt([("what is {output}?", "{input}")], "x") == "Q what is {output}? A {input} ;\nQ x A "
    assert template.stop == " ;"
    assert Template("{input}>{output}").stop == Template("{input}>{output}\n\n").stop == "\n"


def test_pairs_are_read_with_and_without_groups(tmp_path: Path) -> None:
    (tmp_path / "two.tsv").write_text("a\tb\nc\td\n")
    (tmp_path / "three.tsv").write_text("x\ta\tb\ny\tc\td\nx\te\tf\n")
    assert read_groups(str(tmp_path / "two.tsv")) == {"": [("a", "b"), ("c", "d")]}
    assert read_groups(str(tmp_path / "three.tsv")) == {"x": [("a", "b"), ("e", "f")], "y": [("c", "d")]}
    (tmp_path / "bad.tsv").write_text("a\tb\nalone\n")
    with pytest.raises(SaccadeError, match=r"bad\.tsv:2: 1 columns"):
        read_groups(str(tmp_path / "bad.tsv"))


def test_rules_are_held_out_whole(tmp_path: Path) -> None:
    known, held = rules()
    assert len(known) + len(held) == 8 * 27 * 27 and not set(known) & set(held)
    train, seen, asked = write_transformations(tmp_path, texts=300, seed=1)
    for text in train.read_text().strip().split("\n\n"):
        shown = [line.split(">") for line in text.split("\n")]
        assert any(all(rule(left) == right for left, right in shown) for rule in known)
        assert not any(all(rule(left) == right for left, right in shown) for rule in held)
    assert set(read_groups(str(asked))) <= {str(rule) for rule in held}
    assert set(read_groups(str(seen))) <= {str(rule) for rule in known}


def test_files_that_are_there_are_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "held_out.tsv").write_text("mine")
    with pytest.raises(SaccadeError, match=r"held_out\.tsv: is there already"):
        write_transformations(tmp_path, texts=1)
    assert [path.name for path in tmp_path.iterdir()] == ["held_out.tsv"]


def test_a_rule_rearranges_letters_and_puts_others_around_them() -> None:
    for left, right in pairs(Rule("reversed", "X", ""), 20, np.random.default_rng(0)):
        assert right == "X" + left[::-1]


class Oracle:
    """In the place of a model: it reverses if the last example does, and otherwise repeats."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def generate(self, asked: list[str], **_: object) -> list[object]:
        self.heard.extend(asked)
        answers = []
        for text in asked:
            *lines, last = text.split("\n")
            reverses = bool(lines) and lines[-1].split(">")[0][::-1] == lines[-1].split(">")[1]
            word = last.removesuffix(">")
            answers.append(word[::-1] if reverses else word)
        return [type("Prediction", (), {"text": answer})() for answer in answers]


def test_accuracy_is_counted_by_number_of_examples_and_with_answers_shuffled() -> None:
    oracle = Oracle()
    words = ["abc", "def", "ghi", "jkl", "mno", "pqr"]
    groups = {"reverse": [(word, word[::-1]) for word in words]}
    found = shots(oracle, groups, [0, 1, 2], Template("{input}>{output}\n"))  # type: ignore[arg-type]
    assert [(each.examples, each.right.value) for each in found] == [(0, 0.0), (1, 100.0), (2, 100.0)]
    assert found[1].shuffled is None
    assert found[2].shuffled is not None and found[2].shuffled.value == 0.0
    assert "ghi>" in oracle.heard and "abc>" not in oracle.heard  # what is shown is never asked


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(SaccadeError, match="2 pairs: 2 examples leave none"):
        shots(Oracle(), {"x": [("a", "b"), ("c", "d")]}, [2], Template())  # type: ignore[arg-type]


def test_without_counts_there_are_as_many_examples_as_the_pairs_allow() -> None:
    groups = {"x": [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]}
    found = shots(Oracle(), groups, None, Template("{input}>{output}\n"))  # type: ignore[arg-type]
    assert [each.examples for each in found] == [0, 1, 2]
    given = shots(Oracle(), groups, None, Template("{input}>{output}\n"), examples=[("i", "i")])  # type: ignore[arg-type]
    assert [each.examples for each in given] == [0, 1]


def test_the_command_shows_its_prompt_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_transformations(tmp_path, texts=60)
    settings = [f"task.data={tmp_path / 'train.txt'}", "train.steps=2", "train.evaluate_every=2", "model.width=16"]
    api.train("prompt", out=tmp_path / "run", settings=settings)
    (tmp_path / "pairs.tsv").write_text("abcd\tdcba\nefgh\thgfe\n")
    common = ["prompt", str(tmp_path / "run"), "--template", "{input}>{output}\\n", "--tokens", "4"]
    asked = CliRunner().invoke(app, [*common, "--examples", str(tmp_path / "pairs.tsv"), "--input", "wxyz"])
    assert asked.exit_code == 0
    assert asked.stdout.startswith("abcd>dcba\nefgh>hgfe\nwxyz>")
    scored = CliRunner().invoke(app, [*common, "--test", str(tmp_path / "held_out.tsv"), "--shots", "0,2"])
    assert [line.split()[0] for line in scored.stdout.splitlines()] == ["0", "2"]
    assert ">" in scored.stderr  # a prompt as it was asked, beside the figures
    nothing = CliRunner().invoke(app, common)
    assert isinstance(nothing.exception, SaccadeError)
