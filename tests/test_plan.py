"""Counts of a recipe against counts by hand and against the built model."""

from __future__ import annotations

from pathlib import Path

import pytest

from saccade import api
from saccade.api import make_task
from saccade.config import load_recipe
from saccade.models.shapes import parameter_count
from saccade.plan import LENGTH, Plan, named, plan
from tests.test_cli import saccade  # noqa: F401 - a fixture


@pytest.mark.parametrize("recipe", ["reverse", "reverse-rnn", "reverse-attention"])
def test_parameters_are_those_of_the_model_that_is_built(recipe: str) -> None:
    loaded = load_recipe(recipe)
    counted = plan(loaded, probe=False)
    assert counted.parameters == parameter_count(make_task(loaded).model()) == sum(counted.parts.values())
    assert counted.tokens_per_second is None
    assert counted.minutes(100) is None


def test_operations_are_twice_the_weights_each_token_meets_and_the_attention_on_top() -> None:
    settings = ["model.width=64", "model.hidden=128", "model.encoder_layers=1", "model.decoder_layers=1"]
    counted = plan(load_recipe("reverse", settings), probe=False)
    width, hidden, vocabulary = 64, 128, 23
    matrices = (4 + 8) * width * width + 2 * 2 * width * hidden + vocabulary * width
    attention = 3 * 2 * LENGTH * width  # three attentions, scores and sums, over all positions
    assert counted.forward_flops == pytest.approx(2 * (matrices + attention), rel=0.02)
    assert counted.training_flops == 3 * counted.forward_flops


def test_memory_grows_with_the_batch_and_the_average_costs_a_copy() -> None:
    small, large = (plan(load_recipe("reverse", [f"train.batch_tokens={n}"]), probe=False) for n in (1024, 4096))
    assert large.activation_bytes == pytest.approx(4 * small.activation_bytes, rel=0.1)
    averaged = plan(load_recipe("reverse", ["train.average=0.9"]), probe=False)
    assert averaged.optimizer_bytes - small.optimizer_bytes == small.weight_bytes


def test_the_command_shows_it_all_within_eighty_columns(saccade, tmp_path: Path) -> None:  # noqa: F811
    code, out, err = saccade("plan", "reverse", "--set", "train.batch_tokens=256")
    assert (code, err) == (0, "")
    assert "tokens/s" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    Path("a.fr").write_text("".join(f"phrase {n}\n" for n in range(300)))
    Path("a.en").write_text("".join(f"sentence {n}\n" for n in range(300)))
    code, out, _ = saccade("plan", "translate", "--source", "a.fr", "--target", "a.en", "--no-probe")
    assert code == 0
    assert "encoder embedding" in out


def test_any_task_is_counted_by_a_batch_of_its_own() -> None:
    """Regression compares each of n points with n others: the products are those of the kernel, and nothing else."""
    counted = plan(load_recipe("regress", ["task.examples=50"]), probe=False)
    assert counted.parameters == 1
    assert counted.tokens_per_update > 30 and counted.activation_bytes > 0
    assert counted.minutes(10) is None
    probed = plan(load_recipe("regress", ["task.examples=50"]))
    assert probed.tokens_per_second is not None and probed.tokens_per_second > 0
    assert plan(load_recipe("regress", ["task.examples=50", "train.steps=1"])).tokens_per_second is None


def test_a_model_that_asks_with_a_learned_vector_is_counted_and_stays_to_be_trained(tmp_path: Path) -> None:
    """The counter of operations does not like a parameter that is seen in another shape without a gradient."""
    (tmp_path / "texts.tsv").write_text("text\tlabel\n" + "".join(f"word {n}\t{n % 2}\n" for n in range(60)))
    counted = plan(load_recipe("classify", [f"task.data={tmp_path}/texts.tsv", "task.pieces=300"]), probe=False)
    assert counted.forward_flops > 2 * counted.parameters / 10
    assert counted.activation_bytes > 0


def test_a_run_without_its_data_is_counted_with_batches_of_its_own_size(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("red fox, blue sky\n" * 60)
    small = [f"task.data={tmp_path}/t.txt", "task.window=16", "model.width=8", "model.layers=1", "train.steps=1"]
    api.train("masked-quick", out=tmp_path / "run", settings=[*small, "train.batch_tokens=512"])
    (tmp_path / "t.txt").unlink()
    source, vocabulary = named(str(tmp_path / "run"))

    def counted(tokens: int) -> Plan:
        return plan(load_recipe(source, [f"train.batch_tokens={tokens}"]), vocabulary=vocabulary, probe=False)

    few, many = counted(512), counted(4096)
    assert 7 < many.tokens_per_update / few.tokens_per_update < 9
    assert 7 < many.activation_bytes / few.activation_bytes < 9
