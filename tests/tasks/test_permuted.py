"""Permutation language modelling: orders, resumption, filled-in texts and maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade import api
from saccade.config import Recipe, parse_recipe
from saccade.data.cloze import CONTEXT
from saccade.decode import Beam
from saccade.errors import SaccadeError
from saccade.predictor import Predictor
from saccade.tasks.filling import asked
from saccade.tasks.permuted import Permuted
from tests.triples import assert_goes_on_with_other_text, assert_resumed_equals_whole, write_triples

RECIPE = """
task: {kind: permuted, data: DATA, unit: words, window: 26, valid_tokens: 400}
model: {kind: xlnet, width: 16, heads: 2, layers: 2, hidden: 16}
train: {steps: 6, batch_tokens: 104, evaluate_every: 6, save_every: 6, log_every: 6}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_triples(tmp_path_factory.mktemp("triples") / "text.txt", 601)


@pytest.fixture(scope="module")
def predictor(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return api.train(recipe(data), out=tmp_path_factory.mktemp("permuted") / "run")


def recipe(data: Path, *settings: str) -> Recipe:
    return parse_recipe(RECIPE.replace("DATA", str(data)), "recipe", settings)


def test_the_last_sixth_of_an_order_is_predicted_and_all_else_is_context(data: Path, tmp_path: Path) -> None:
    task = Permuted(recipe(data))
    task.prepare(tmp_path)
    windows = task.examples("train")
    batch = task.collate([windows[number] for number in range(300)], range(300))
    assert batch.rank is not None
    assert (batch.chosen.sum(1) == 4).all()  # of 24
    assert torch.equal(batch.chosen, batch.rank > CONTEXT)
    assert torch.equal(batch.rank[batch.chosen].view(300, 4).sort(1).values, torch.arange(4).expand(300, 4))
    assert torch.equal(batch.tokens, batch.target)  # nothing is masked: what may not be seen is not looked at
    assert not batch.chosen[:, 0].any() and not batch.chosen[:, -1].any()
    often = batch.chosen[:, 1:-1].float().mean(0)
    assert (often - 1 / 6).abs().max() < 0.09  # every place alike
    again = task.collate([windows[number] for number in range(300)], range(300))
    assert again.rank is not None and not torch.equal(batch.rank, again.rank)


def test_a_resumed_run_is_the_run_that_never_stopped(data: Path, tmp_path: Path) -> None:
    assert_resumed_equals_whole(recipe(data), tmp_path)


def test_what_is_hidden_is_ranked_whatever_stands_in_its_place(predictor: Predictor) -> None:
    (found,) = predictor.predict(["ash [MASK] fir"], Beam(width=5, best=5))
    scores = [answer.score for answer in found.answers]
    assert scores == sorted(scores, reverse=True)
    assert len({answer.text for answer in found.answers}) == 5
    task, model = predictor.task, predictor.model
    ids = torch.tensor([[1, *task.lexicon.encode("ash elm fir"), 2]])
    log_p = model.output(model(ids, None, torch.tensor([[-1, -1, 0, -1, -1]]))).log_softmax(-1)[0, 2].detach()
    best = log_p[4:].topk(5).values  # without the marks
    torch.testing.assert_close(torch.tensor(scores), best, rtol=0, atol=1e-5)


def test_one_of_two_gaps_does_not_help_to_find_the_other(predictor: Predictor) -> None:
    def log_p(first: str, second: str) -> Tensor:
        batch = asked(torch.tensor([[1, *lexicon.encode(f"ash {first} {second} fir"), 2]]), [2, 3])
        assert batch.rank is not None
        return model.output(model(batch.tokens, None, batch.rank))[batch.chosen]

    lexicon, model = predictor.task.lexicon, predictor.model
    torch.testing.assert_close(log_p("elm", "elm"), log_p("birch", "cedar"), rtol=0, atol=1e-6)
    filled, refused = predictor.predict(["ash [MASK] [MASK]", "ash fir"])
    assert filled.text.startswith("ash")
    assert refused.refusal is not None and "write [MASK]" in refused.refusal


def test_scores_are_the_same_each_time_and_beside_a_baseline_and_a_control(predictor: Predictor) -> None:
    once = predictor.score()
    assert once.values == predictor.score().values
    assert "[MASK]" in once.samples[0][0]
    scores = predictor.evaluate()
    assert [score.name for score in scores][::4] == [
        "loss per hidden token",
        "loss per hidden token, by frequency alone (baseline)",
        "loss per hidden token, context shuffled (control)",
    ]
    assert all(score.interval[0] <= score.value <= score.interval[1] for score in scores)
    assert np.isclose(np.exp(scores[0].value), scores[1].value)


def test_in_a_look_nobody_sees_what_is_hidden_and_it_is_asked_for_from_its_place(predictor: Predictor) -> None:
    maps = predictor.look("ash [MASK] fir")
    assert maps[0].name == "average of all layers and heads"
    assert maps[1].rows.labels == ("<start>", "ash", "<mask>", "fir", "<end>")
    for each in maps:
        torch.testing.assert_close(each.weights.sum(-1), torch.ones(each.heads, 5))
        assert (each.weights[:, :, 2] == 0).all()
    plain = predictor.look("ash elm fir")
    assert (plain[1].weights > 0).all()
    with pytest.raises(SaccadeError, match="writes no answer"):
        predictor.look("ash [MASK]", "fir")


def test_other_models_are_refused(data: Path) -> None:
    with pytest.raises(SaccadeError, match="'bert' predicts in no order but its own; there is xlnet"):
        Permuted(recipe(data, "model={kind: bert}"))


def test_a_model_goes_on_with_other_text(data: Path, tmp_path: Path) -> None:
    assert_goes_on_with_other_text(recipe(data, "task.window=20"), tmp_path)
