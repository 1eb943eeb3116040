"""Recipes: YAML 1.2, settings on top, and errors that point at the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade.config import dump_recipe, list_recipes, load_recipe, parse_recipe
from saccade.errors import ConfigError

GOOD = """task:
  kind: reverse
model:
  kind: transformer
  width: 32
  heads: 4
"""


def problem(text: str, *settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_recipe(text, "my.yaml", settings)
    return str(caught.value)


@pytest.mark.parametrize("value", ["2020-02-30", "!!int foo", "!!bool foo"])
def test_a_date_that_there_is_not_and_a_tag_that_does_not_fit_are_named(value: str) -> None:
    assert f"--set decode.prefix={value}: " in problem(GOOD, f"decode.prefix={value}")


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_that_ships_reads_and_comes_back_equal(name: str) -> None:
    needed = {"reverse": [], "regress": [], "interact": [], "translate": ["task.source=a.tsv"]}
    recipe = load_recipe(name, needed.get(name.split("-")[0], ["task.data=a.zip"]))
    assert parse_recipe(dump_recipe(recipe), "again") == recipe
    assert list_recipes()[name].endswith(".")


def test_a_saved_recipe_is_complete_and_says_its_format() -> None:
    text = dump_recipe(parse_recipe(GOOD, "my.yaml"))
    assert text.startswith("format: 1\n")
    for key in ("dropout:", "batch_tokens:", "weight_decay:", "limit_factor:"):
        assert key in text


@pytest.mark.parametrize("written", ["1e-3", "0.001", '"1e-3"', "1.0e-03"])
def test_a_rate_may_be_written_in_any_way(written: str) -> None:
    recipe = parse_recipe(GOOD, "my.yaml", [f"train.optimizer.rate={written}"])
    assert recipe.train.optimizer.rate == 0.001


def test_yes_and_no_are_words_and_never_numbers() -> None:
    assert "my.yaml:6: model.heads: input should be a valid integer, got 'yes'" in problem(
        GOOD.replace("heads: 4", "heads: yes")
    )
    assert "got True" in problem(GOOD.replace("heads: 4", "heads: true"))
    assert "12:30:00" in problem(GOOD.replace("heads: 4", "heads: 12:30:00"))


def test_a_key_given_twice_is_refused_with_its_line() -> None:
    assert problem(GOOD + "  width: 64\n").startswith("my.yaml:7: found duplicate key")


def test_a_file_cannot_make_python_objects() -> None:
    assert "my.yaml:7" in problem(GOOD + "train: !!python/object/apply:os.system ['true']\n")


def test_broken_yaml_names_the_line() -> None:
    assert problem("task: [\n").startswith("my.yaml:")
    assert "is a mapping" in problem("just text")
    assert "task: missing" in problem("model: {kind: luong}")


def test_unknown_keys_name_file_line_and_the_nearest_key() -> None:
    assert problem(GOOD + "  hiden: 5\n") == "my.yaml:7: model.hiden: unknown key (did you mean 'hidden'?) in model"
    assert "my.yaml:7: trian: unknown key (did you mean 'train'?)" in problem(GOOD + "trian: {}\n")


def test_every_problem_is_listed_at_once() -> None:
    message = problem(GOOD.replace("heads: 4", "heads: none") + "train: {steps: 0, clip: -1}\n")
    assert len(message.splitlines()) == 3


def test_an_unknown_kind_lists_the_kinds() -> None:
    message = problem(GOOD.replace("transformer", "transformr"))
    assert "'transformr' is not one of fitted, sutskever, bahdanau, luong, convolutional, transformer" in message


def test_another_kind_begins_from_its_own_defaults_whatever_the_order() -> None:
    for settings in (["model.kind=luong", "model.hidden=7"], ["model.hidden=7", "model.kind=luong"]):
        model = parse_recipe(GOOD, "my.yaml", settings).model
        assert (model.kind, model.hidden, model.width) == ("luong", 7, 64)
    task = parse_recipe(GOOD, "my.yaml", ["task.symbols=5", "task.kind=sort"]).task
    assert (task.kind, task.symbols) == ("sort", 5)


def test_another_encoder_of_images_begins_from_its_own_defaults_too() -> None:
    named = load_recipe("read", ["task.data=photos", "model.image.kind=vit", "model.image.patch=8"])
    assert (named.model.image.kind, named.model.image.patch) == ("vit", 8)
    both = load_recipe("read", ["task.data=photos", "model.image.kind=vit", "model.kind=show_attend_tell"])
    assert (both.model.kind, both.model.image.kind) == ("show_attend_tell", "vit")
    with pytest.raises(ConfigError, match=r"--set model\.image\.stages: unknown key.* in model\.image"):
        load_recipe("read", ["task.data=photos", "model.image.kind=vit", "model.image.stages=3"])


def test_infinite_and_impossible_numbers_are_refused() -> None:
    assert "finite" in problem(GOOD, "train.optimizer.rate=.inf")
    assert "shortest 9 is above longest 4" in problem(GOOD, "task.shortest=9", "task.longest=4")
    assert "cannot be tied" in problem(GOOD, "model.combine=concatenate")
    assert "must be odd" in problem(GOOD, "model.kind=convolutional", "model.kernel=4")


def test_settings_are_frozen() -> None:
    recipe = parse_recipe(GOOD, "my.yaml")
    with pytest.raises(ValueError, match="frozen"):
        recipe.model.heads = 2  # type: ignore[misc]


def test_a_recipe_file_is_read_from_its_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(GOOD)
    assert load_recipe(file).model.width == 32
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_recipe(file)


def test_a_vocabulary_grows_only_from_another_run() -> None:
    with pytest.raises(ConfigError, match=r"task\.extend makes the vocabulary of another run larger.*train\.start"):
        load_recipe("language-quick", ["task.data=a.txt", "task.extend=5"])


def test_of_several_settings_the_one_at_fault_is_named() -> None:
    assert problem(GOOD, "model.heads=3", "model.dropout=0.1").startswith("--set model.heads: heads 3 does not divide")
    both = problem(GOOD, "task.shortest=9", "task.longest=4", "task.symbols=5")
    assert both.startswith("--set task.longest and --set task.shortest: ")
    assert problem(GOOD, "model.width=30", "model.tie=all").startswith("--set model.width: heads 4 does not divide")


def test_an_option_is_named_as_it_was_typed_with_what_the_task_takes() -> None:
    with pytest.raises(
        ConfigError, match=r"^--data \(task\.data\): not for the task translate, which takes --source FILE,"
    ):
        load_recipe("translate", ["task.data=a.tsv", "task.source=a.fr"])
    with pytest.raises(ConfigError, match=r"^--data \(task\.data\): not for the task reverse, which takes none$"):
        load_recipe("reverse", ["task.data=a.tsv"])
    with pytest.raises(ConfigError, match=r"^--minutes \(train\.minutes\): .* greater than .*, got -1$"):
        load_recipe("reverse", ["train.minutes=-1"])
