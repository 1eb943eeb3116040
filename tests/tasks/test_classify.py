"""Labels of texts: read from tables, learned from scratch or on a pre-trained body, refused where unsure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from saccade import api
from saccade.cli import app
from saccade.config import Recipe, load_recipe
from saccade.config.language import BERTSettings, GPTSettings, RecurrentLanguageSettings, XLNetSettings
from saccade.data.labelled import read_labelled_texts
from saccade.decode import Beam
from saccade.errors import RunWarning, SaccadeError
from saccade.nn.attention import Attention
from saccade.nn.low_rank import LowRank, adapt
from saccade.plan import plan
from saccade.tasks.base import Answer
from saccade.tasks.classify import Classify
from saccade.train.optim import make_optimizer, set_rate
from saccade.train.run import Run
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


def test_a_first_line_that_looks_like_an_example_is_told_of(tmp_path: Path) -> None:
    path = table(tmp_path / "a.tsv", [("hello", "good"), ("no", "bad")], header="yes\tgood")
    with pytest.warns(RunWarning, match=r"a\.tsv:1: taken for a title line, and 'good' .* --set task\.header=false"):
        assert len(read_labelled_texts([str(path)])) == 2
    assert len(read_labelled_texts([str(path)], header=False)) == 3


def test_a_label_that_is_not_trained_on_is_counted_as_wrong_and_told(run: Path, tmp_path: Path) -> None:
    path = table(tmp_path / "test.tsv", [*rows(20, seed=3), ("cat is here", "fish")])
    model = api.load(run, settings=[f"task.test={path}"])
    with pytest.warns(RunWarning, match=r"label is not trained on, counted as wrong: 1 \(fish\)"):
        scores = {score.name: score for score in model.evaluate("test")}
    assert scores["fish"].value == 0 and scores["accuracy"].signature == "of 21 texts"
    with pytest.warns(RunWarning, match="fish"):
        assert model.confusion("test").counts[2].sum() == 1
    train, valid = table(tmp_path / "a.tsv", rows(60)), table(tmp_path / "b.tsv", [*rows(9), ("a", "fish")])
    begun = api.begin(
        "classify-quick", out=tmp_path / "run", settings=[f"task.data={train}", f"task.valid={valid}", *SMALL]
    )
    assert "texts whose label is not trained on, counted as wrong: 1 (fish)" in begun.reasons


def test_a_label_for_outside_leaves_two_others_and_some_to_validate_on(tmp_path: Path) -> None:
    one = table(tmp_path / "one.tsv", [(f"text {number}", "none") for number in range(60)])
    many = table(tmp_path / "many.tsv", rows(60))
    for data, valid, said in ((one, many, "two labels at least; there is none"), (many, one, "none could be right")):
        settings = [f"task.data={data}", f"task.valid={valid}", "task.outside=none", *SMALL]
        with pytest.raises(SaccadeError, match=said):
            api.begin("classify-quick", out=tmp_path / "run", settings=settings)


def test_it_learns_what_tells_the_labels_apart(run: Path) -> None:
    scores = {score.name: score.value for score in api.load(run).evaluate("valid")}
    assert scores["accuracy"] > 95
    assert scores["baseline accuracy"] < 65 and scores["control accuracy"] < 75


def test_a_text_is_labelled_with_probabilities_that_fall(run: Path) -> None:
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


READERS = {
    "gpt": GPTSettings(width=16, heads=2, layers=2),
    "recurrent": RecurrentLanguageSettings(width=16, hidden=16),
    "bert": BERTSettings(width=16, heads=2, layers=2, next_sentence=True),
    "xlnet": XLNetSettings(width=16, heads=2, layers=2),
}
POOLS = [(kind, pool) for kind in READERS for pool in ("first", "last", "mean", "attention")]
POOLS = [each for each in POOLS if each not in (("gpt", "first"), ("recurrent", "first"))] + [("bert", "summary")]


def recipe_with(kind: str, data: Path, *settings: str) -> Recipe:
    recipe = load_recipe("classify-quick", [f"task.data={data}", *SMALL[:-2], "train.steps=2", *settings])
    return recipe.model_copy(update={"model": READERS[kind]})


@pytest.mark.parametrize(("kind", "pool"), POOLS)
def test_texts_that_differ_anywhere_have_different_logits(data: Path, tmp_path: Path, kind: str, pool: str) -> None:
    task = Classify(recipe_with(kind, data, f"task.pool={pool}"))
    task.fitted()
    task.prepare(tmp_path)
    model = task.model().eval()
    texts = ["cat is here now", "dog is here now", "cat is here old"]
    batch = task.collate([(ids, 0) for ids in task._framed(texts)], range(3))
    one, first, last = model(batch.tokens, batch.mask)
    assert not torch.allclose(one, first, atol=1e-4) and not torch.allclose(one, last, atol=1e-4)


@pytest.mark.parametrize("kind", ["gpt", "recurrent"])
def test_a_state_that_sees_only_the_start_mark_is_no_pool(data: Path, tmp_path: Path, kind: str) -> None:
    with pytest.raises(SaccadeError, match="sees only the start mark; use last, mean or attention"):
        api.begin(recipe_with(kind, data, "task.pool=first"), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["gpt", "recurrent"])
@pytest.mark.parametrize("pool", ["last", "mean"])
def test_any_reader_takes_any_other_pool(data: Path, tmp_path: Path, kind: str, pool: str) -> None:
    predictor = api.train(recipe_with(kind, data, f"task.pool={pool}"), out=tmp_path / "run")
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
    assert "model and vocabulary are those of train.start: other settings of them do not count" in training.reasons
    assert plan(load_recipe("classify-quick", settings), probe=False).parameters == training.parameters


def test_a_start_that_is_causal_takes_no_first_state_either(data: Path, tmp_path: Path, pretrained: Path) -> None:
    settings = [f"task.data={data}", *SMALL[:-3], f"train.start={pretrained}", "task.pool=first"]
    with pytest.raises(SaccadeError, match="gpt sees only the start mark"):
        api.begin("classify-quick", out=tmp_path / "run", settings=settings)


def test_a_classifier_goes_on_from_another_with_its_head_where_the_labels_are_the_same(
    data: Path, tmp_path: Path, run: Path
) -> None:
    before = api.load(run).model.state_dict()
    settings = [*SMALL[:-3], f"train.start={run}"]
    same = api.begin("classify-quick", out=tmp_path / "same", settings=[f"task.data={data}", *settings])
    after = same.trainer.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    renamed = table(tmp_path / "renamed.tsv", [(text, f"a {label}") for text, label in rows(100)])
    other = api.begin("classify-quick", out=tmp_path / "other", settings=[f"task.data={renamed}", *settings])
    after = other.trainer.model.state_dict()
    kept = {name for name, tensor in before.items() if torch.equal(after[name], tensor)}
    assert before.keys() - kept == {"head.weight", "head.bias"}
    assert any(reason.endswith("left were head") for reason in other.reasons)


def test_what_a_low_rank_learned_goes_on_in_the_plain_weights(data: Path, tmp_path: Path, pretrained: Path) -> None:
    small = [f"task.data={data}", *SMALL[:-3], "train.steps=3", "train.evaluate_every=3"]
    first = api.train(
        "classify-quick", out=tmp_path / "a", settings=[*small, f"train.start={pretrained}", "task.low_rank=2"]
    )
    query = first.model.body.decoder.stack.blocks[0].attention.query
    assert query.up.abs().max() > 0
    then = api.begin("classify-quick", out=tmp_path / "b", settings=[*small, f"train.start={tmp_path / 'a'}"])
    source, mask = torch.tensor([[1, 20, 30, 2]]), torch.ones(1, 4, dtype=torch.bool)
    with torch.no_grad():
        torch.testing.assert_close(then.trainer.model.eval()(source, mask), first.model.eval()(source, mask))
    assert not any("left" in reason for reason in then.reasons)


@pytest.mark.parametrize("frozen", ["task.freeze=[body]", "task.freeze_blocks=2"])
def test_a_low_rank_that_could_learn_nothing_is_refused(data: Path, tmp_path: Path, frozen: str) -> None:
    with pytest.raises(SaccadeError, match="queries and values of attentions, and this model has none"):
        api.begin(recipe_with("recurrent", data, "task.low_rank=4"), out=tmp_path / "run")
    with pytest.raises(SaccadeError, match="low_rank 4 learns nothing where all of the body is frozen"):
        api.begin(recipe_with("gpt", data, "task.low_rank=4", frozen), out=tmp_path / "run")


def test_the_lowest_blocks_stay_and_no_more_than_there_are(data: Path, tmp_path: Path) -> None:
    training = api.begin(
        recipe_with("bert", data, "task.freeze_blocks=1", "task.freeze=[embedding]"), out=tmp_path / "run"
    )
    learned = {name for name, parameter in training.trainer.model.named_parameters() if parameter.requires_grad}
    assert not any("blocks.0." in name or ".embedding." in name for name in learned)
    assert any("blocks.1." in name for name in learned) and "body.pooler.weight" in learned
    with pytest.raises(SaccadeError, match="freeze_blocks 3: this body has 2 blocks"):
        api.begin(recipe_with("bert", data, "task.freeze_blocks=3"), out=tmp_path / "more")
    with pytest.raises(SaccadeError, match="freeze_blocks 1: this body has 0 blocks"):
        api.begin(recipe_with("recurrent", data, "task.freeze_blocks=1"), out=tmp_path / "none")


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
    found = {score.name: score for score in again.evaluate("valid")}
    assert found["recall outside"].value > 30 and found["accuracy inside"].value > 80  # 45 to 94 with five seeds
    assert found["baseline accuracy"].signature in ("always animal", "always machine")
    assert found["baseline accuracy outside"].signature == "always none"
    assert found["baseline accuracy outside"].value == pytest.approx(100 * 55 / 115)
    counts = again.confusion("valid")
    assert counts.labels == ("animal", "machine", "none")
    assert counts.counts[2].sum() == 55
    assert counts.counts[2, 2] == round(55 * found["recall outside"].value / 100)


def test_behind_the_label_for_outside_stand_the_real_ones_and_the_threshold_is_its_score(
    run: Path, data: Path, tmp_path: Path
) -> None:
    recipe = Run.open(run).recipe_text
    sure = api.load(run).predict(["cat is here"], Beam(5, best=5))[0].answers
    (tmp_path / "recipe.yaml").write_text(recipe)
    settings = ["task.outside=none", "task.threshold=1.0"]
    task = Classify(load_recipe(tmp_path / "recipe.yaml", settings))
    task.load(Run.open(run).vocab)
    task.recall({"threshold": 0.5})
    model = api.load(run).model
    unsure = task.predict(model, ["cat is here"], Beam(5, best=5))[0].answers
    assert unsure == (Answer("none", 1.0), *sure)
    assert task.predict(model, ["cat is here"], Beam(2, best=2))[0].answers == unsure[:2]
    assert task.predict(model, ["cat is here"])[0].answers == unsure[:1]


def test_a_threshold_by_hand_is_not_learned_and_needs_a_label(data: Path, tmp_path: Path) -> None:
    strange = [("b c d", "none"), ("d e b", "none")]
    valid = table(tmp_path / "valid.tsv", rows(20, seed=4) + strange)
    common = [f"task.data={data}", f"task.valid={valid}", *SMALL, "train.steps=1", "train.evaluate_every=1"]
    by_hand = [*common, "task.outside=none", "task.threshold=0.99"]
    predictor = api.train("classify-quick", out=tmp_path / "run", settings=by_hand)
    assert predictor.task.threshold == api.load(tmp_path / "run").task.threshold == 0.99
    assert predictor.task.conclude(predictor.model) == {}
    assert predictor.predict(["cat is here"])[0].text == "none"
    for wrong, said in (("task.threshold=0.5", "say it in outside"), ("task.threshold=1.5", "threshold")):
        with pytest.raises(SaccadeError, match=said):
            load_recipe("classify-quick", [*common, wrong])


@pytest.mark.parametrize(("threshold", "told"), [([], True), (["task.threshold=0.3"], False)])
def test_a_label_for_outside_that_can_never_be_given_is_told(
    data: Path, tmp_path: Path, threshold: list[str], told: bool
) -> None:
    settings = [f"task.data={data}", *SMALL, "task.outside=none", *threshold]
    reasons = api.begin("classify-quick", out=tmp_path / "run", settings=settings).reasons
    assert any("no validation text is 'none'" in reason and "never given" in reason for reason in reasons) == told


def test_the_table_of_confusions_is_written_and_drawn(run: Path, tmp_path: Path) -> None:
    command = ["evaluate", str(run), "--confusion"]
    done = CliRunner().invoke(app, [*command, str(tmp_path / "new" / "table.tsv")])
    assert done.exit_code == 0, done.output
    header, *lines = (tmp_path / "new" / "table.tsv").read_text().splitlines()
    assert header.split("\t") == ["right", "animal", "machine"]
    counts = api.load(run).confusion("valid").counts
    assert [line.split("\t") for line in lines] == [
        [label, *map(str, row)] for label, row in zip(("animal", "machine"), counts.tolist(), strict=True)
    ]
    assert counts.sum() == len(api.load(run).task.texts("valid"))
    assert CliRunner().invoke(app, [*command, str(tmp_path / "table.png")]).exit_code == 0
    assert (tmp_path / "table.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_of_confusions_that_cannot_be_is_refused(run: Path, pretrained: Path, tmp_path: Path) -> None:
    for arguments, said in (
        ([str(run), "--confusion", str(tmp_path / "table.txt")], r"written as \.tsv, or drawn as \.png"),
        ([str(pretrained), "--confusion", str(tmp_path / "a.tsv")], "language gives no labels"),
        ([str(run), "--source", "a", "--confusion", str(tmp_path / "a.tsv")], "translations have none"),
    ):
        with pytest.raises(SaccadeError, match=said):
            CliRunner().invoke(app, ["evaluate", *arguments], catch_exceptions=False)


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
