"""Attention as kernel regression."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade import api
from saccade.config import load_recipe
from saccade.data.readers import hash_of
from saccade.data.tables import curve, noisy_curve, read_table
from saccade.errors import SaccadeError
from saccade.formulas.scores import gaussian_kernel, gaussian_process_mean, kernel_regression
from saccade.metrics.score import exchanged
from saccade.tasks import regress
from saccade.tasks.regress import HELD_OUT, Regress


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("regress") / "run"
    api.train("regress", out=out, settings=["train.threads=1"])
    return out


def prepared(directory: Path, *settings: str) -> Regress:
    task = Regress(load_recipe("regress", settings))
    task.prepare(directory)
    return task


def test_the_model_is_the_formula(tmp_path: Path) -> None:
    model = prepared(tmp_path, "model.width=0.4").model()
    x = torch.linspace(-2, 2, 9)[:, None]
    expected = kernel_regression(x, model.examples, model.targets[:, None], lambda a, b: gaussian_kernel(a, b, 0.4))
    torch.testing.assert_close(model(x).detach(), expected[:, 0], rtol=1e-4, atol=1e-5)


def test_leaving_one_out_hides_it(tmp_path: Path) -> None:
    model = prepared(tmp_path, "model.width=0.01").model()
    rows = torch.arange(5)
    assert torch.allclose(model(model.examples[rows]), model.targets[rows], atol=0.2)
    before = model(model.examples[rows], without=rows).detach()
    model.targets[rows] += 100.0
    hidden = model(model.examples[:1], without=rows[:1]).detach()
    assert float(hidden) != pytest.approx(float(model.targets[0]))
    assert before.shape == (5,)


def test_a_trained_model_needs_no_data_and_names_the_examples_it_used(run: Path) -> None:
    model = api.load(run)
    (good, bad) = model.predict(["2.5", "two"])
    assert float(good.text) == pytest.approx(float(curve(np.array(2.5))), abs=0.5)
    assert bad.refusal == "'two' is not 1 numbers"
    (map_,) = model.look("0.5; 2.5")
    assert map_.rows.labels == ("0.5", "2.5")
    nearest = [float(map_.columns.labels[place]) for place in map_.mean.argmax(-1).tolist()]
    assert nearest == pytest.approx([0.5, 2.5], abs=0.3)
    with pytest.raises(SaccadeError, match="writes no answer that could be '3'"):
        model.look("0.5", "3")


def test_the_gaussian_process_beside_it_is_the_formula(run: Path) -> None:
    predictor = api.load(run)
    task, model = predictor.task, predictor.model
    assert isinstance(task, Regress)
    x = task.tables[1][:3, :-1]
    rows = torch.arange(len(model.targets))  # type: ignore[arg-type]
    noise = float(((model(model.examples, without=rows) - model.targets) ** 2).mean().detach())
    expected = gaussian_process_mean(
        task._scaled_inputs(x).double(),
        model.examples.double(),  # type: ignore[union-attr,operator]
        model.targets.double()[:, None],  # type: ignore[union-attr,operator]
        lambda a, b: gaussian_kernel(a, b, model.width),  # type: ignore[arg-type]
        noise=noise,
    )
    scaled = (task.process(model, x) - task._center[-1]) / task._spread[-1]  # type: ignore[arg-type]
    np.testing.assert_allclose(scaled, expected[:, 0].detach().numpy(), rtol=1e-6)


def test_a_large_table_is_answered_part_by_part_and_has_no_process_beside_it(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor = api.load(run)
    whole = predictor.evaluate()
    examples = len(predictor.model.examples)
    monkeypatch.setattr(regress, "AT_ONCE", 3 * examples)
    monkeypatch.setattr(regress, "LARGEST_PROCESS", examples - 1)
    parts = predictor.evaluate()
    assert [each.name for each in parts] == [each.name for each in whole if "process" not in each.name]
    assert parts[0].value == pytest.approx(whole[0].value, rel=1e-5)


def test_the_control_gives_everybody_anothers_answer(run: Path) -> None:
    predictor = api.load(run)
    task = predictor.task
    assert isinstance(task, Regress)
    valid = task.tables[1]
    answers = task._answers(predictor.model, valid[:, :-1])  # type: ignore[arg-type]
    *_, baseline, control = predictor.evaluate()
    squares = (np.array(exchanged(answers.tolist())) - valid[:, -1]) ** 2
    assert control.value == pytest.approx(100 * (squares.mean() / valid[:, -1].var()) ** 0.5)
    assert control.value > baseline.value


def test_a_table_of_ones_own_is_read_and_what_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,3\n4,5,6\n")
    assert read_table(tmp_path / "t.csv").tolist() == [[1, 2, 3], [4, 5, 6]]
    for content, problem in (
        ("1\t2\n3\tx\n", ":2: 'x' is no number"),
        ("1,2\n1,2,3\n", ":2: 3 columns, and 2 in line 1"),
        ("x,y\n1\n2,3\n", ":2: 1 columns, and 2 in line 1"),
        ("1,nan\n", ":1: a number that is not finite"),
        ("\n", "two columns"),
    ):
        (tmp_path / "t.csv").write_text(content)
        with pytest.raises(SaccadeError, match=problem):
            read_table(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text("a title\n1,2\n")
    with pytest.raises(SaccadeError, match=r"t\.csv: 1 examples are too few"):
        api.begin("regress", out=tmp_path / "run", settings=[f"task.data={tmp_path / 't.csv'}"])
    with pytest.raises(SaccadeError, match="cannot regress; kernel can"):
        api.begin("regress", out=tmp_path / "run", settings=["model={kind: luong}"])


def test_a_target_that_does_not_vary_is_refused_when_it_is_read(tmp_path: Path) -> None:
    def parted(target: float | None) -> tuple[list[str], list[str]]:
        rows = [(float(x), float(x) if target is None else target) for x in range(40)]
        held = [hash_of(" ".join(map(repr, row))) < HELD_OUT * (1 << 64) for row in rows]
        train, valid = (
            [f"{x},{y}\n" for (x, y), each in zip(rows, held, strict=True) if each is part] for part in (False, True)
        )
        return train, valid

    (constant, constant_held), (varied, varied_held) = parted(0.1), parted(None)
    always = r"the last column, which is to be predicted, is 0\.1 in all of the"
    for rows, problem in (
        (constant + constant_held, f"{always} {len(constant)} examples to train on"),
        (constant + varied_held, f"{always} {len(constant)} examples to train on"),
        (varied + constant_held, f"{always} {len(constant_held)} examples to validate on"),
        (varied + varied_held[:1], f"{len(varied) + 1} examples are too few to train and to validate on"),
    ):
        (tmp_path / "t.csv").write_text("".join(rows))
        with pytest.raises(SaccadeError, match=rf"t\.csv: {problem}"):
            api.begin("regress", out=tmp_path / "run", settings=[f"task.data={tmp_path / 't.csv'}"])


def test_the_noisy_curve_is_the_same_every_time() -> None:
    one, other = (noisy_curve(50, noise=0.1, seed=3) for _ in range(2))
    assert (one == other).all()
    assert np.abs(one[:, 1] - curve(one[:, 0])).max() < 0.5
