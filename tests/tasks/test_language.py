"""Language models: perplexity by hand, continuations of any length, and what a person types."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from saccade import api
from saccade.cli import app
from saccade.config import load_recipe
from saccade.decode import Beam, Greedy, Method, Sample
from saccade.errors import RunWarning, SaccadeError
from saccade.metrics.perplexity import perplexities
from saccade.plan import plan
from saccade.tasks.continuing import Continuation, continue_texts, prefilled
from saccade.verify import verify

WORDS = ["red fox\n", "blue sky\n", "green grass, é\n"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "colours.txt"
    draw = np.random.default_rng(0)
    path.write_text("".join(WORDS[number] for number in draw.integers(3, size=800)))
    return path


SMALL = ["train.steps=60", "train.evaluate_every=60", "train.save_every=60", "train.batch_tokens=512", "task.window=24"]


@pytest.fixture(scope="module")
def run(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    settings = [f"task.data={text}", *SMALL, "model.width=32", "model.layers=2"]
    api.train("language-quick", out=out, settings=settings)
    return out


def test_perplexity_is_what_it_is_by_hand() -> None:
    loss, token, word, bits = perplexities([2.0, 4.0], [3, 3], words=2, text_bytes=12)
    assert loss.value == pytest.approx(1.0)
    assert token.value == pytest.approx(math.e)
    assert word.value == pytest.approx(math.exp(3.0))
    assert bits.value == pytest.approx(6 / 12 / math.log(2))
    assert loss.interval is not None and loss.interval[0] < 1 < loss.interval[1]


@torch.no_grad()
@pytest.mark.parametrize(("setting", "stride"), [(0, 12), (4, 4), (24, 24)])
def test_the_score_is_the_probability_that_the_model_gives(run: Path, setting: int, stride: int) -> None:
    predictor = api.load(run, settings=[f"task.stride={setting}"])
    loss = predictor.evaluate("valid")[0]
    tokens = torch.tensor(predictor.task.text.part("valid").astype(np.int64))
    window = predictor.task.settings.window
    total = 0.0
    for place in range(1, len(tokens)):  # every token alone, with what the sliding window shows of its past
        begin = 0 if place <= window else -(-(place - window) // stride) * stride
        log_p = predictor.model.output(predictor.model(tokens[None, begin:place])).log_softmax(-1)
        total -= float(log_p[0, -1, tokens[place]])
    assert loss.value == pytest.approx(total / (len(tokens) - 1), abs=1e-4)


def test_a_context_in_disorder_is_worth_less_than_one_in_order(run: Path) -> None:
    scores = {score.name: score.value for score in api.load(run).evaluate("valid")}
    assert scores["loss per token"] < scores["loss per token of single frequencies (baseline)"]
    assert (
        scores["loss of the last token of a window"] < scores["loss of the last token, its context shuffled (control)"]
    )


@pytest.mark.parametrize("method", [Greedy(), Sample(answers=2, seed=3), Beam(3, best=2)])
def test_a_prompt_is_continued_alike_alone_and_among_others(run: Path, method: object) -> None:
    predictor = api.load(run)
    lexicon, model = predictor.task.lexicon, predictor.model
    prompts = [lexicon.encode(each) for each in ("red", "blue sk", "g", "red fox\nblue")]
    how = Continuation(9, 24, method=method)
    together = continue_texts(model, lexicon, prompts, how)
    assert [[len(each.tokens) for each in best] for best in together] == [[9] * method.best] * 4
    others = [lexicon.encode("x")] * 3  # as many before it, of another length: draws go by the place in the list
    for place, best in enumerate(together):
        before = others[:place] if isinstance(method, Sample) else []
        alone = continue_texts(model, lexicon, [*before, prompts[place]], how)[-1]
        assert [each.tokens for each in alone] == [each.tokens for each in best]


def test_the_same_seed_draws_the_same_text_whatever_follows(run: Path) -> None:
    predictor = api.load(run)
    one = predictor.generate(["red"], tokens=40, method=Sample(seed=5))
    two = predictor.generate(["red", "blue"], tokens=40, method=Sample(seed=5))
    other = predictor.generate(["red"], tokens=40, method=Sample(seed=6))
    assert one[0].text == two[0].text != other[0].text


@torch.no_grad()
def test_prompts_of_different_lengths_are_read_without_padding(run: Path) -> None:
    predictor = api.load(run)
    rows = [[5, 6, 7, 8], [9], [], [7, 8]]
    past = prefilled(predictor.model, rows, 4)
    assert past.position.tolist() == [4, 1, 0, 2]
    log_p, _ = predictor.model.step(torch.tensor([[6]] * 4), past)
    for row, prompt in enumerate(rows):
        whole = predictor.model.output(predictor.model(torch.tensor([[*prompt, 6]])))[0, -1]
        torch.testing.assert_close(log_p[row], whole.log_softmax(-1), rtol=0, atol=1e-4)


def test_beyond_its_window_a_text_slides_or_stops(run: Path) -> None:
    predictor = api.load(run)
    slid = predictor.generate(["red fox\n"], tokens=100, method=Greedy())[0]
    stopped = predictor.generate(["red fox\n"], tokens=100, method=Greedy(), beyond="stop")[0]
    assert len(slid.answers[0].hypothesis.tokens) == 100
    assert len(stopped.answers[0].hypothesis.tokens) == 24 - 8 + 1
    assert slid.text.startswith(stopped.text)
    with pytest.raises(SaccadeError, match="40 tokens and the window 24"):
        predictor.generate(["r" * 40], tokens=5, beyond="stop")


@pytest.mark.parametrize("method", [Beam(3, best=3), Sample(answers=4, seed=1, temperature=3.0)])
def test_a_continuation_over_several_windows_is_ranked_as_a_whole(run: Path, method: Method) -> None:
    predictor = api.load(run)
    lexicon = predictor.task.lexicon
    (found,) = continue_texts(predictor.model, lexicon, [lexicon.encode("red")], Continuation(60, 24, method=method))
    scores = [each.score for each in found]
    assert [len(each.tokens) for each in found] == [60] * method.best
    assert scores == pytest.approx([method.rank(each.log_probability, 60) for each in found])
    assert scores == sorted(scores, reverse=True)


def test_no_run_is_written_twice_not_even_in_two_windows(run: Path) -> None:
    predictor = api.load(run)

    def runs(**how: object) -> list[tuple[int, ...]]:
        tokens = predictor.generate(["red fox\n"], tokens=60, method=Greedy(), **how)[0].answers[0].hypothesis.tokens
        return list(zip(tokens, tokens[1:], tokens[2:], strict=False))

    assert len(set(runs())) < 58
    assert len(set(runs(no_repeat=3))) == 58
    asked = api.load(run, settings=["decode.no_repeat=3", "decode.limit_extra=40"]).predict(["red fox\n"])[0].answers
    assert predictor.generate(["red fox\n"], tokens=56, method=Greedy(), no_repeat=3)[0].text == asked[0].text


@pytest.mark.parametrize("setting", ["prefix=red", "must_include=[red]", "must_not_include=[red]", "minimum_length=5"])
def test_what_a_text_without_an_end_cannot_follow_is_refused(run: Path, setting: str) -> None:
    with pytest.raises(SaccadeError, match=f"decode.{setting.split('=')[0]} is for tasks whose answers end"):
        api.load(run, settings=[f"decode.{setting}"]).predict(["red"])


def test_a_text_to_stop_at_is_seen_across_two_windows(run: Path) -> None:
    predictor = api.load(run)
    method = Sample(seed=2, temperature=4.0)  # hardly anything is written twice
    free = predictor.generate(["red"], tokens=40, method=method)[0].text
    edge = 24 - 3 + 1  # letters that the first window has room for
    stop = free[edge - 3 : edge + 2]
    assert free.index(stop) == edge - 3
    stopped = predictor.generate(["red"], tokens=40, method=method, stop=[stop])[0]
    assert stopped.text == free[: edge - 3]
    assert stopped.answers[0].stopped == "stop"
    assert len(stopped.answers[0].hypothesis.tokens) == edge + 2


def test_a_text_ends_before_what_it_is_to_stop_at(run: Path) -> None:
    predictor = api.load(run)
    free = predictor.generate(["red"], tokens=12, method=Greedy())[0]
    assert "\n" in free.text
    stopped = predictor.generate(["red"], tokens=12, method=Greedy(), stop=["\n"])[0]
    assert stopped.text == free.text.split("\n")[0]
    assert stopped.answers[0].stopped == "stop"


def test_a_word_keeps_its_space_before_what_a_text_is_to_stop_at(text: Path, tmp_path: Path) -> None:
    settings = [f"task.data={text}", *SMALL, "task.unit=words", "model.width=16", "train.steps=1"]
    predictor = api.train("language-quick", out=tmp_path / "words", settings=settings)
    free = predictor.generate(["red"], tokens=8, method=Sample(seed=1))[0].text
    assert free.startswith(" ")
    stopped = predictor.generate(["red"], tokens=8, method=Sample(seed=1), stop=[free[-3:]])[0].text
    assert stopped == free[: free.index(free[-3:])]


def test_what_of_a_long_prompt_is_read_is_told(run: Path) -> None:
    with pytest.warns(RunWarning, match="the prompt has 40 tokens and the model reads 24: only the last 12 are read"):
        api.load(run).generate(["r" * 40], tokens=2)


def test_a_growing_text_never_shows_half_a_character(text: Path, tmp_path: Path) -> None:
    settings = [f"task.data={text}", *SMALL, "task.unit=pieces", "task.pieces=300", "model.width=16", "train.steps=1"]
    predictor = api.train("language-quick", out=tmp_path / "bytes", settings=settings)
    told: list[str] = []
    method = Sample(seed=1, temperature=5.0)  # nearly any byte after any other
    found = predictor.generate(["é"], tokens=30, method=method, tell=told.append)[0]
    assert "\ufffd" in found.text  # bytes that are no characters are there, and are shown once it is clear
    assert len(told) > 20
    assert not any(each.endswith("\ufffd") for each in told)


def test_a_new_word_is_seen_to_look_at_earlier_ones_only(run: Path) -> None:
    maps = api.load(run).look("red f", "ox")
    assert maps[0].rows.labels == tuple("ed▁fox") and maps[0].columns.labels == tuple("red▁fo")
    for each in maps:
        assert torch.equal(each.weights, each.weights.tril())


def test_a_map_of_more_than_a_window_says_what_it_leaves_out(run: Path) -> None:
    predictor = api.load(run)
    window = predictor.recipe.task.window
    with pytest.warns(RunWarning, match=f"sees {window} tokens at once: the map leaves out the first 4"):
        maps = predictor.look("red " + "a" * window, "x", pieces=True)
    assert len(maps[0].columns.labels) == window


def test_how_far_a_text_goes_on_does_not_depend_on_the_others(run: Path) -> None:
    predictor = api.load(run)
    assert predictor.predict(["red", "red fox and blue"])[0].text == predictor.predict(["red"])[0].text


def test_what_is_drawn_for_a_text_does_not_depend_on_the_others(run: Path) -> None:
    predictor, method = api.load(run), Sample(seed=3)
    drawn = [predictor.predict([first, "red fox"], method)[1].text for first in ("red", "blue sky", "green grass")]
    assert len(set(drawn)) == 1
    alike = predictor.predict(["red fox", "red fox", "red fox and blue"], method)
    assert len({each.text[:5] for each in alike}) > 1  # each place has draws of its own


def test_a_line_of_output_stays_a_line(run: Path) -> None:
    answered = CliRunner().invoke(
        app, ["predict", str(run), "red", "blue", "--sample", "--temperature", "9", "--seed", "3"]
    )
    assert answered.exit_code == 0
    assert len(answered.stdout.splitlines()) == 2 and "\\n" in answered.stdout


def test_a_model_for_sentences_is_refused_with_those_that_can(text: Path) -> None:
    recipe = load_recipe("language-quick", [f"task.data={text}"])
    with pytest.raises(SaccadeError, match="gpt, recurrent"):
        api.make_task(recipe.model_copy(update={"model": load_recipe("reverse").model}))


def test_a_text_shorter_than_a_window_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("a few words\n")
    with pytest.raises(SaccadeError, match=r"short\.txt.*too few for windows of 64"):
        api.train("language-quick", out=tmp_path / "run", settings=[f"task.data={tmp_path / 'short.txt'}"])


@pytest.mark.parametrize("stop", [[], ["--stop", "y\nre"], ["--stop", "x\n!"], ["--stop", "bl", "--stop", "\ngr"]])
def test_generate_streams_what_it_prints_at_once(run: Path, stop: list[str]) -> None:
    common = ["generate", str(run), "--prompt", "red", "--tokens", "30", "--seed", "2", *stop]
    whole = CliRunner().invoke(app, common)
    grown = CliRunner().invoke(app, [*common, "--stream"])
    assert whole.exit_code == grown.exit_code == 0
    assert whole.stdout == grown.stdout
    assert whole.stdout.startswith("red")


@pytest.mark.parametrize("stream", [[], ["--stream"]])
def test_a_reader_of_generated_text_who_leaves_is_no_error(run: Path, stream: list[str]) -> None:
    command = [sys.executable, "-m", "saccade", "generate", str(run), "--prompt", "red", "--tokens", "400", *stream]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert (process.returncode, errors) == (141, "")


def test_generate_refuses_what_contradicts_itself(run: Path) -> None:
    for options, said in (
        (["--n", "2", "--stream"], "one text"),
        (["--n", "2", "--temperature", "0"], "one most probable"),
        (["--beyond", "jump"], "slide or stop"),
        (["--stop", ""], "--stop is empty"),
    ):
        result = CliRunner().invoke(app, ["generate", str(run), *options])
        assert isinstance(result.exception, SaccadeError) and said in str(result.exception)


def test_training_goes_on_bit_for_bit(text: Path, tmp_path: Path) -> None:
    settings = [f"task.data={text}", *SMALL, "train.steps=8", "train.save_every=4", "model.dropout=0.2", "train.keep=3"]
    whole = api.train("language-quick", out=tmp_path / "whole", settings=settings)
    training = api.begin("language-quick", out=tmp_path / "cut", settings=settings)
    with training.run.lock():
        for event in training.trainer.fit(training.run):
            if type(event).__name__ == "Saved":
                break
    again = api.resume(tmp_path / "cut")
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name]), name


def test_a_model_goes_on_learning_from_another_text(text: Path, tmp_path: Path) -> None:
    """With a vocabulary that grows: a frequent new word becomes one piece, seeded from what spelled it."""
    settings = [f"task.data={text}", *SMALL, "task.unit=pieces", "task.pieces=300", "model.width=16", "train.steps=3"]
    api.train("language-quick", out=tmp_path / "first", settings=settings)
    other = tmp_path / "other.txt"
    other.write_text("a purple zebra and a purple zebra\n" * 100)
    more = [f"task.data={other}", *SMALL, f"train.start={tmp_path / 'first'}", "task.extend=2"]
    training = api.begin("language-quick", out=tmp_path / "second", settings=more)
    before, after = api.load(tmp_path / "first"), training.trainer
    old, new = before.task.lexicon, after.task.lexicon
    assert len(new) == len(old) + 2
    assert [new.pieces([token])[0] for token in new.encode(" zebra purple")] == ["▁zebra", "▁purple"]
    assert new.decode(new.encode("a purple zebra")) == "a purple zebra"
    table = after.model.output.weight
    assert torch.equal(table[: len(old)], before.model.output.weight)
    spelled = before.model.output.weight[old.encode(" zebra")].mean(0)
    torch.testing.assert_close(table[new.encode(" zebra")[0]], spelled)


def test_the_laws_hold_on_a_trained_language_model(run: Path) -> None:
    laws = verify(api.load(run))
    assert len(laws) == 5
    assert [law.name for law in laws if not law.holds] == []


def test_a_language_model_is_counted_before_it_is_trained(text: Path) -> None:
    """Two operations per weight of a product and token, and those of the attention on top."""
    small = ["task.window=8", "train.batch_tokens=64", "model.width=32", "model.layers=1"]
    recipe = load_recipe("language-quick", [f"task.data={text}", *small])
    counted = plan(recipe, probe=False)
    products = 12 * 32 * 32 + 32 * (counted.parts["decoder embedding"] // 32)
    assert counted.forward_flops == 2 * products + 2 * 2 * 8 * 32


def test_a_text_that_was_not_named_while_training_is_scored_as_a_test(run: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("red fox\n" * 20)
    with pytest.raises(SaccadeError, match="there is no test part"):
        api.load(run).evaluate("test")
    scores = api.load(run, settings=[f"task.test={tmp_path / 'other.txt'}"]).evaluate("test")
    assert scores[0].name == "loss per token"
    asked = ["evaluate", str(run), "--split", "test", "--set", f"task.test={tmp_path / 'other.txt'}"]
    assert CliRunner().invoke(app, asked).stdout.startswith(str(scores[0]))
    with pytest.raises(SaccadeError, match=r"only be given other settings of decode, and task.test, task.zero_shot"):
        api.load(run, settings=["task.window=8"])


def test_the_stride_is_named_and_leaves_nothing_out(run: Path) -> None:
    half, short = (api.load(run, settings=each).evaluate()[0] for each in ([], ["task.stride=4"]))
    assert half.signature.endswith("; window 24, stride 12")
    assert short.signature.endswith("; window 24, stride 4")
    assert half.signature.split(";")[0] == short.signature.split(";")[0]  # the same tokens are counted
    with pytest.raises(SaccadeError, match="a stride of 25 leaves out text between windows of 24"):
        api.load(run, settings=["task.stride=25"])
