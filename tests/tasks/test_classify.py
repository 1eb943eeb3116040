"""Labels of texts: read from tables, learned from scratch or on a pre-trained body, refused where unsure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade import api
from saccade.data.labelled import read_labelled_texts
from saccade.errors import SaccadeError
from saccade.nn.attention import Attention
from saccade.nn.low_rank import LowRank, adapt
from saccade.train.optim import make_optimizer, set_rate
from saccade.verify import verify

SMALL = [
    "train.steps=90",
    "train.evaluate_every=90",
    "train.save_every=90",
    "train.batch_tokens=256",
    "train.schedule.warmup=10",
    "task.pieces=300",
    "model.width=16",
    "model.heads=2",
]


def rows(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Animals eat, machines run: the first word tells, the others do not."""
    draw = np.random.default_rng(seed)
    first = {"animal": ["cat", "dog", "cow"], "machine": ["car", "train", "ship"]}
    found = []
    for _ in range(count):
        label = ["animal", "machine"][int(draw.integers(2))]
        rest = " ".join(draw.choice(["is", "here", "now", "very", "old"], size=int(draw.integers(2, 6))))
        found.append((f"{first[label][int(draw.integers(3))]} {rest}", label))
    return found


def table(path: Path, pairs: list[tuple[str, str]], header: str = "text\tlabel") -> Path:
    path.write_text("\n".join([header, *("\t".join(pair) for pair in pairs)]) + "\n")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("data") / "train.tsv", rows(400))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    api.train("classify-quick", out=out, settings=[f"task.data={data}", *SMALL])
    return out


def test_a_packed_run_names_its_tables_and_no_folder(run: Path, data: Path, tmp_path: Path) -> None:
    packed = api.pack(run, tmp_path / "packed")
    assert str(data.parent) not in packed.recipe_text and data.name in packed.recipe_text
    assert api.load(tmp_path / "packed").recipe.task.data == (data.name,)


def test_columns_go_by_name_or_number(tmp_path: Path) -> None:
    path = table(tmp_path / "a.tsv", [("1", "hello"), ("2", "world")], header="id\tsaid")
    found = read_labelled_texts([str(path)], text_column="said", label_column="1")
    assert [(each.text, each.label) for each in found] == [("hello", "1"), ("world", "2")]
    assert found[1].place.endswith("a.tsv:3")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("text\tlabel\nalone\n", r"a\.tsv:2: 1 columns"),
        ("text\tlabel\na\t\n", r"a\.tsv:2: the label is empty"),
        ("text\tlabel\n\tb\n", r"a\.tsv:2: the text is empty"),
    ],
)
def test_a_row_that_is_no_example_is_named(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "a.tsv").write_text(lines)
    with pytest.raises(SaccadeError, match=said):
        read_labelled_texts([str(tmp_path / "a.tsv")])


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = table(tmp_path / "a.tsv", [("a", "b")])
    with pytest.raises(SaccadeError, match=r"'lable' \(did you mean 'label'"):
        read_labelled_texts([str(path)], label_column="lable")


def test_it_learns_what_tells_the_labels_apart(run: Path) -> None:
    scores = {score.name: score.value for score in api.load(run).evaluate("valid")}
    assert scores["accuracy"] > 95
    assert scores["baseline accuracy"] < 65 and scores["control accuracy"] < 75


def test_a_text_is_labelled_with_probabilities_that_fall(run: Path) -> None:
    from saccade.decode import Beam

    found = api.load(run).predict(["cat is here now", "", "ship is old now"], Beam(2, best=2))
    assert [each.text for each in found] == ["animal", "", "machine"]
    assert found[0].answers[0].score > found[0].answers[1].score
    assert found[1].refusal is not None and "input 2 is empty" in found[1].refusal


def test_what_else_is_labelled_changes_nothing(run: Path) -> None:
    predictor = api.load(run)
    alone = predictor.predict(["cow is here"])[0].answers[0].score
    among = predictor.predict(["cow is here", "train is very very very old old old now"])[0].answers[0].score
    assert alone == pytest.approx(among, abs=1e-5)


def test_the_laws_hold_on_a_model_that_writes_nothing(run: Path) -> None:
    laws = verify(api.load(run))
    assert [law.name for law in laws if not law.holds] == [] and len(laws) == 4


def test_padding_that_leaks_is_found(run: Path) -> None:
    """A body that forgets the mask."""
    predictor = api.load(run)
    make = predictor.task.model

    class Leaking(torch.nn.Module):
        def __init__(self, body: torch.nn.Module):
            super().__init__()
            self.body = body

        def forward(self, source: torch.Tensor, mask: torch.Tensor) -> object:
            return self.body(source, torch.ones_like(mask))

    def broken() -> torch.nn.Module:
        model = make()
        model.forward = lambda source, mask: model.head(model._pooled(Leaking(model.body)(source, mask)))
        return model

    predictor.task.model = broken
    assert "batch size and padding change nothing" in {law.name for law in verify(predictor) if not law.holds}


def test_the_word_that_decided_is_seen(run: Path) -> None:
    decided = api.load(run).look("dog is here now")[0]
    assert decided.name == "what decided" and decided.rows.labels == ("animal",)
    assert decided.columns.labels[1:-1] == ("dog", "is", "here", "now")
    torch.testing.assert_close(decided.weights.sum(-1), torch.ones_like(decided.weights.sum(-1)))


def test_a_look_at_nothing_and_an_answer_to_be_forced_are_refused(run: Path) -> None:
    with pytest.raises(SaccadeError, match="the text is empty"):
        api.load(run).look(" ")
    with pytest.raises(SaccadeError, match="writes no answer that could be 'machine'"):
        api.load(run).look("dog is here now", "machine")


@pytest.mark.parametrize("kind", ["gpt", "recurrent"])
@pytest.mark.parametrize("pool", ["first", "last", "mean"])
def test_any_reader_takes_any_pool(data: Path, tmp_path: Path, kind: str, pool: str) -> None:
    settings = [f"task.data={data}", *SMALL[:-2], "train.steps=2", f"task.pool={pool}"]
    from saccade.config import load_recipe
    from saccade.config.language import GPTSettings, RecurrentLanguageSettings

    model = (
        GPTSettings(width=16, heads=2, layers=1) if kind == "gpt" else RecurrentLanguageSettings(width=16, hidden=16)
    )
    recipe = load_recipe("classify-quick", settings).model_copy(update={"model": model})
    predictor = api.train(recipe, out=tmp_path / "run")
    one = predictor.predict(["cat is here"])[0].answers[0]
    assert one.score == pytest.approx(predictor.predict(["cat is here", "a " * 30])[0].answers[0].score, abs=1e-5)


@pytest.fixture(scope="module")
def pretrained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pretrained")
    text = folder / "text.txt"
    text.write_text("\n".join(text for text, _ in rows(600, seed=1)))
    small = ["train.steps=5", "train.evaluate_every=5", "train.batch_tokens=256", "task.window=24", "model.layers=2"]
    settings = [f"task.data={text}", *small, "task.unit=pieces", "task.pieces=300", "model.width=16", "model.heads=2"]
    api.train("language-quick", out=folder / "gpt", settings=settings)
    return folder / "gpt"


def test_a_pretrained_body_brings_vocabulary_model_and_weights(data: Path, tmp_path: Path, pretrained: Path) -> None:
    settings = [f"task.data={data}", *SMALL[:-3], f"train.start={pretrained}", "task.pool=last"]
    training = api.begin("classify-quick", out=tmp_path / "run", settings=settings)
    before = api.load(pretrained).model.state_dict()
    after = training.trainer.model.state_dict()
    assert training.recipe.model.kind == "gpt" and training.recipe.task.longest == 24
    for name, tensor in before.items():
        if name.startswith("decoder."):
            assert torch.equal(after[f"body.{name}"], tensor), name
    assert any("parameters come from" in reason for reason in training.reasons)


@pytest.mark.parametrize("setting", ["task.low_rank=2", "task.freeze=[body]"])
def test_what_is_frozen_stays_and_the_rest_learns(data: Path, tmp_path: Path, pretrained: Path, setting: str) -> None:
    settings = [f"task.data={data}", *SMALL[:-3], f"train.start={pretrained}", "train.steps=3", setting]
    before = api.load(pretrained).model.state_dict()
    predictor = api.train("classify-quick", out=tmp_path / "run", settings=settings)
    after = {name.replace(".base.", "."): tensor for name, tensor in predictor.model.state_dict().items()}
    for name, tensor in before.items():
        if name.startswith("decoder."):
            assert torch.equal(after[f"body.{name}"], tensor), name
    learned = [name for name, parameter in predictor.model.named_parameters() if parameter.requires_grad]
    assert any("head" in name for name in learned)
    assert any(".up" in name for name in learned) == ("low_rank" in setting)


def test_a_run_that_fits_nothing_is_refused(data: Path, tmp_path: Path) -> None:
    api.train("reverse", out=tmp_path / "reverse", settings=["train.steps=1", "task.train_examples=50"])
    with pytest.raises(SaccadeError, match=r"task reverse gives no text body .* language, masked, permuted"):
        api.begin(
            "classify-quick",
            out=tmp_path / "run",
            settings=[f"task.data={data}", f"train.start={tmp_path / 'reverse'}"],
        )
    with pytest.raises(SaccadeError, match="reverse cannot begin"):
        api.begin("reverse", out=tmp_path / "other", settings=[f"train.start={tmp_path / 'reverse'}"])


def test_texts_outside_all_classes_are_found_by_doubt(tmp_path: Path) -> None:
    draw = np.random.default_rng(3)
    strange = [(" ".join(draw.choice(list("bcdfgh"), size=3)), "none") for _ in range(60)]
    data = table(tmp_path / "train.tsv", rows(300) + strange[:5])
    valid = table(tmp_path / "valid.tsv", rows(60, seed=4) + strange[5:])
    settings = [f"task.data={data}", f"task.valid={valid}", "task.outside=none", *SMALL, "train.smoothing=0.1"]
    predictor = api.train("classify-quick", out=tmp_path / "run", settings=settings)
    assert predictor.task.labels == ("animal", "machine")
    again = api.load(tmp_path / "run")
    assert 0 < again.task.threshold == predictor.task.threshold
    scores = {score.name: score.value for score in again.evaluate("valid")}
    assert scores["recall outside"] > 50 and scores["accuracy inside"] > 80


def test_low_rank_maps_begin_where_the_frozen_ones_are() -> None:
    attention = Attention(8, heads=2)
    x = torch.randn(2, 3, 8)
    before = attention(x, attention.remember(x))
    adapt(attention, 2)
    assert isinstance(attention.query, LowRank) and isinstance(attention.value, LowRank)
    torch.testing.assert_close(attention(x, attention.remember(x)), before)
    assert {name for name, p in attention.named_parameters() if p.requires_grad} == {
        "query.down",
        "query.up",
        "value.down",
        "value.up",
    }


def test_lower_blocks_learn_more_slowly_where_the_rate_decays() -> None:
    from saccade.config.language import GPTSettings
    from saccade.config.training import OptimizerSettings
    from saccade.models.gpt import gpt

    model = gpt(GPTSettings(width=8, heads=2, layers=2), 11, 8)
    optimizer = make_optimizer(model, OptimizerSettings(layer_decay=0.5))
    set_rate(optimizer, 0.8)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    named = {name: rates[id(parameter)] for name, parameter in model.named_parameters()}
    assert named["decoder.stack.norm.weight"] == pytest.approx(0.8)
    assert named["decoder.stack.blocks.1.attention.query.weight"] == pytest.approx(0.4)
    assert named["decoder.stack.blocks.0.attention.query.weight"] == pytest.approx(0.2)
    assert named["decoder.embedding.weight"] == pytest.approx(0.1)
