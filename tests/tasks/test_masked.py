"""Masked language modelling: what is hidden and how, pairs, resumption, filled-in texts, scores and maps."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade import api
from saccade.config import Recipe, parse_recipe
from saccade.data.cloze import framed
from saccade.data.lexicon import Lexicon
from saccade.decode import Beam, Sample
from saccade.errors import SaccadeError
from saccade.predictor import Predictor
from saccade.tasks.filling import SPACES, filled_in, read_gaps, spelled
from saccade.tasks.gaps import GapBatch
from saccade.tasks.masked import Masked
from tests.triples import assert_goes_on_with_other_text, assert_resumed_equals_whole, write_triples

RECIPE = """
task: {kind: masked, data: DATA, unit: words, window: 18, valid_tokens: 400}
model: {kind: bert, width: 16, heads: 2, layers: 2, hidden: 16}
train: {steps: 6, batch_tokens: 144, evaluate_every: 6, save_every: 6, log_every: 6}
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_triples(tmp_path_factory.mktemp("triples") / "text.txt", 601)


@pytest.fixture(scope="module")
def predictor(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return api.train(recipe(data), out=tmp_path_factory.mktemp("masked") / "run")


def recipe(data: Path, *settings: str) -> Recipe:
    return parse_recipe(RECIPE.replace("DATA", str(data)), "recipe", settings)


def made(data: Path, tmp_path: Path, *settings: str) -> Masked:
    task = Masked(recipe(data, *settings))
    task.prepare(tmp_path)
    return task


def batch_of(task: Masked, count: int) -> GapBatch:
    windows = task.examples("train")
    return task.collate([windows[number] for number in range(count)], range(count))


def test_a_window_stands_between_start_and_end_and_fills_what_the_model_reads(data: Path, tmp_path: Path) -> None:
    task = made(data, tmp_path)
    windows = task.examples("valid")
    batch = task.collate([windows[0], windows[len(windows) - 1]], [0, 1])
    marks = task.lexicon.marks
    assert batch.target[0, 0] == marks.start
    assert batch.target[0, -1] == marks.end
    assert batch.target.shape[1] == 18 == task.length(windows[0])
    assert int(batch.mask[1].sum()) == task.length(windows[len(windows) - 1]) < 18
    read = np.concatenate([windows[number] for number in range(len(windows))])
    assert np.array_equal(read, task.text.part("valid"))  # every token once


def test_of_the_chosen_tokens_eight_in_ten_are_masked_one_exchanged_and_one_stays(data: Path, tmp_path: Path) -> None:
    task = made(data, tmp_path, "task.window=102")
    batch = batch_of(task, 400)
    marks = task.lexicon.marks
    assert (batch.chosen.sum(1) == 15).all()  # of 100
    shown, target = batch.tokens[batch.chosen], batch.target[batch.chosen]
    assert abs(float((shown == marks.mask).float().mean()) - 0.8) < 0.02
    others = shown != marks.mask
    changed = float((shown[others] != target[others]).float().mean())
    assert abs(changed - 0.5) < 0.08  # one in some thirty is exchanged for itself
    assert torch.equal(batch.tokens[~batch.chosen], batch.target[~batch.chosen])
    assert not set(batch.target[batch.chosen].tolist()) & set(marks.names)
    assert not set(shown[others].tolist()) & set(marks.names)


def test_static_masking_is_drawn_once_and_fresh_masking_each_time(data: Path, tmp_path: Path) -> None:
    static, fresh = made(data, tmp_path, "task.masking=static"), made(data, tmp_path)
    assert torch.equal(batch_of(static, 20).tokens, batch_of(static, 20).tokens)
    assert not torch.equal(batch_of(fresh, 20).tokens, batch_of(fresh, 20).tokens)
    windows = static.examples("train")
    assert torch.equal(static.collate([windows[7]], [7]).tokens[0], batch_of(static, 20).tokens[7])
    torch.manual_seed(3)
    whole = batch_of(fresh, 8)
    torch.manual_seed(3)
    parts = [fresh.collate([windows[n] for n in some], some) for some in (range(3), range(3, 8))]
    assert torch.equal(whole.tokens, torch.cat([part.tokens for part in parts]))


@pytest.mark.parametrize("masking", ["fresh", "static"])
def test_a_resumed_run_is_the_run_that_never_stopped(masking: str, data: Path, tmp_path: Path) -> None:
    settings = [f"task.masking={masking}", "task.next_sentence=true"]
    assert_resumed_equals_whole(recipe(data, *settings), tmp_path)


def test_whole_words_are_hidden_with_all_their_pieces(tmp_path: Path) -> None:
    text = tmp_path / "words.txt"
    names = ["extraordinary", "unquestionable", "a", "is", "of"]
    drawn = np.random.default_rng(0).choice(names, size=3000)
    text.write_text("".join(f"{word} " for word in drawn) + "".join(f"q{number:x} " for number in range(900)))
    task = made(text, tmp_path, "task.unit=pieces", "task.pieces=300", "task.whole_words=true", "task.window=64")
    batch = batch_of(task, 30)
    several = 0
    for row in range(30):
        for _, word in task.lexicon.words(batch.target[row].tolist()):
            hidden = batch.chosen[row, word].tolist()
            assert all(hidden) or not any(hidden)
            several += all(hidden) and len(word) > 1
        assert 1 <= int(batch.chosen[row].sum()) <= max(round(0.15 * 62), 10)
    assert several > 10


def test_half_of_the_pairs_are_strangers_and_the_loss_has_a_term_of_its_own(data: Path, tmp_path: Path) -> None:
    task = made(data, tmp_path, "task.next_sentence=true", "train.seed=2")
    windows, batch = task.examples("train"), batch_of(task, 200)
    assert batch.segments is not None and batch.strange is not None
    assert 70 < int(batch.strange.sum()) < 130
    ends = (batch.target == task.lexicon.marks.end).nonzero()[:, 1].view(200, 2)
    assert (ends == torch.tensor([8, 17])).all()
    assert torch.equal(batch.segments[0], torch.tensor([0] * 9 + [1] * 9))
    for row in range(200):
        follows = torch.equal(batch.target[row, 9:17], torch.tensor(windows[row][7:].astype(np.int64)))
        assert follows == (batch.strange[row] == 0)
    assert batch.counts["next_sentence"] == 200 != batch.counts["loss"]
    model = task.model()
    assert model.next_sentence is not None
    loss = task.loss(model, batch)
    assert loss.keys() == batch.counts.keys()
    assert abs(float(loss["next_sentence"].sum.detach()) / 200 - np.log(2)) < 0.1


def test_without_pairs_there_is_no_head_for_them(data: Path, tmp_path: Path) -> None:
    task = made(data, tmp_path, "model.next_sentence=true")
    assert task.model().next_sentence is None
    assert not task.fitted()[0].model.next_sentence
    with pytest.raises(SaccadeError, match=r"needs 2 model\.segments; there is 1"):
        Masked(recipe(data, "task.next_sentence=true", "model.segments=1"))


def test_other_models_and_vocabularies_without_a_mask_are_refused(data: Path) -> None:
    with pytest.raises(SaccadeError, match="'gpt' finds no masked tokens; there is bert"):
        Masked(recipe(data, "model={kind: gpt}"))
    with pytest.raises(SaccadeError, match="gpt2 has no mask"):
        recipe(data, "task.unit=gpt2", "task.vocabulary=somewhere")


def test_what_is_hidden_is_ranked(predictor: Predictor) -> None:
    found = predictor.predict(["ash [MASK] fir", "ash <mask> fir"], Beam(width=5, best=5))
    assert [answer.text for answer in found[0].answers] == [answer.text for answer in found[1].answers]
    texts, scores = zip(*((answer.text, answer.score) for answer in found[0].answers), strict=True)
    assert len(set(texts)) == 5
    assert list(scores) == sorted(scores, reverse=True)
    assert all(text.startswith("ash") and text.endswith("fir") for text in texts)
    task, model = predictor.task, predictor.model
    log_p = model.output(model(read_gaps("ash [MASK] fir", task.lexicon, 18).tokens)).log_softmax(-1)[0, 2]
    filled = task.lexicon.encode(texts[0])[1]
    assert abs(float(log_p[filled].detach()) - scores[0]) < 1e-5


def test_no_more_is_found_than_may_stand_there(predictor: Predictor) -> None:
    lexicon = predictor.task.lexicon
    (found,) = predictor.predict(["ash [MASK] fir"], Beam(width=999, best=999))
    assert len(found.answers) == len(lexicon) - len(lexicon.marks.names)
    assert len({answer.text for answer in found.answers}) == len(found.answers)
    assert all(answer.score > -math.inf for answer in found.answers)
    letters = Lexicon.learn(["ab"], "pieces", size=300)  # no piece of which begins like a word
    begins = [each.startswith(SPACES) for each in letters.spellings()]

    def ask(batch: GapBatch) -> Tensor:
        return torch.zeros(int(batch.chosen.sum()), len(letters)).masked_fill(torch.tensor(begins), -torch.inf)

    (refused,) = filled_in(["ab [MASK]"], letters, 18, Beam(2, best=2), ask)
    assert refused.refusal == "the vocabulary has nothing that could stand in gap 1"


def test_several_gaps_are_filled_from_left_to_right(predictor: Predictor) -> None:
    found = predictor.predict(["ash [MASK] [MASK]"], Beam(width=20, best=20))[0].answers
    assert [answer.score for answer in found] == sorted((answer.score for answer in found), reverse=True)
    words = [answer for answer in found if len(answer.text.split()) == 3]  # not the ends of lines
    assert len(words) > 10
    for answer in words:
        first = answer.text.split()[1]
        (then,) = predictor.predict([f"ash {first} [MASK]"])
        assert then.text == answer.text
        assert answer.score < then.answers[0].score  # the sum of both


def test_a_text_without_a_gap_a_long_one_and_sampling_are_refused(predictor: Predictor) -> None:
    plain, long, good = predictor.predict(["ash fir", "[MASK] " * 30, "[MASK]"])
    assert plain.refusal == "nothing is hidden in 'ash fir': write [MASK] where a word is to be found"
    assert long.refusal is not None and "32 tokens" in long.refusal and "reads 18 at most" in long.refusal
    assert long.refusal.startswith("'[MASK] [MASK]") and len(long.refusal) < 160
    assert good.refusal is None and good.text
    with pytest.raises(SaccadeError, match="none is drawn"):
        predictor.predict(["[MASK]"], Sample())


def test_scores_are_the_same_each_time_and_beside_a_baseline_and_a_control(predictor: Predictor) -> None:
    once, again = predictor.score(), predictor.score()
    assert once.values == again.values
    assert once.values["loss"] == -once.decisive
    shown, filled, truth = once.samples[0]
    assert "[MASK]" in shown and "[MASK]" not in filled
    assert predictor.task.lexicon.encode(truth)
    scores = predictor.evaluate()
    names = [score.name for score in scores]
    assert names[0] == "loss per hidden token"
    assert names[4] == "loss per hidden token, by frequency alone (baseline)"
    assert names[8] == "loss per hidden token, context shuffled (control)"
    assert all(score.interval[0] <= score.value <= score.interval[1] for score in scores)
    assert np.isclose(np.exp(scores[0].value), scores[1].value)


def test_pairs_are_scored_where_there_are_any(data: Path, tmp_path: Path) -> None:
    predictor = api.train(recipe(data, "task.next_sentence=true"), out=tmp_path / "run")
    assert 0 <= predictor.score().values["next_sentence_accuracy"] <= 1
    scores = {score.name: score.value for score in predictor.evaluate()}
    assert scores["next text recognised, by a coin (baseline)"] == 50
    assert "next text recognised" in scores
    assert predictor.predict(["ash [MASK]"])[0].text


def test_a_look_shows_all_layers_and_heads_behind_their_average(predictor: Predictor) -> None:
    maps = predictor.look("ash [MASK] fir")
    assert [each.name for each in maps] == [
        "average of all layers and heads",
        "encoder block 1, self-attention",
        "encoder block 2, self-attention",
    ]
    assert maps[1].rows.labels == maps[1].columns.labels == ("<start>", "ash", "<mask>", "fir", "<end>")
    assert maps[1].weights.shape == (2, 5, 5)
    torch.testing.assert_close(maps[1].weights.sum(-1), torch.ones(2, 5))
    torch.testing.assert_close(maps[0].weights[0], (maps[1].weights.mean(0) + maps[2].weights.mean(0)) / 2)
    with pytest.raises(SaccadeError, match=r"writes no answer that could be 'fir': put the words .* of \[MASK\]"):
        predictor.look("ash [MASK]", "fir")
    with pytest.raises(SaccadeError, match="the text is empty"):
        predictor.look("")


@pytest.mark.parametrize("unit", ["pieces", "words", "characters"])
def test_a_text_with_gaps_is_read_as_it_was_spelled(unit: str) -> None:
    text = "an old tree and a young tree\nstand side by side"
    lexicon = Lexicon.learn([text], unit, size=300)
    ids = framed([np.asarray(lexicon.encode(text))], lexicon.marks)[0].tolist()
    for gaps in ([1], [3, 4], [len(ids) - 2], [2, 5]):
        again = read_gaps(spelled(ids, gaps, lexicon), lexicon, 100)
        assert again.gaps == tuple(gaps)
        assert again.tokens.shape == (1, len(ids))
        assert all(each == ids[place] for place, each in enumerate(again.tokens[0].tolist()) if place not in gaps)


def test_behind_a_space_a_word_is_found_and_behind_a_letter_the_rest_of_one() -> None:
    lexicon = Lexicon.learn(["an old tree and a young tree, older trees"] * 20, "pieces", size=300)
    order = torch.arange(len(lexicon)).float().log_softmax(0)

    def ask(batch: GapBatch) -> Tensor:
        return order.repeat(int(batch.chosen.sum()), 1)

    texts = ["an [MASK] tree", "an old[MASK] tree", "[MASK] tree"]
    word, rest, any_ = filled_in(texts, lexicon, 50, Beam(width=9, best=9), ask)
    assert all(answer.text.startswith("an ") and answer.text.endswith(" tree") for answer in word.answers)
    assert not any(answer.text.startswith("an old ") for answer in rest.answers)
    assert {answer.text[0] == " " for answer in any_.answers} == {True, False}


def test_a_model_goes_on_with_other_text(data: Path, tmp_path: Path) -> None:
    assert_goes_on_with_other_text(recipe(data, "task.window=20"), tmp_path)


def test_new_pieces_begin_as_the_mean_of_what_spelled_them(data: Path, tmp_path: Path) -> None:
    before = api.train(recipe(data, "task.unit=pieces", "task.pieces=300"), out=tmp_path / "first")
    other = tmp_path / "other.txt"
    other.write_text("a purple zebra and a purple zebra\n" * 100)
    settings = [f"train.start={tmp_path / 'first'}", "task.extend=2"]
    after = api.begin(recipe(other, *settings), out=tmp_path / "second").trainer
    old, new = before.task.lexicon, after.task.lexicon
    spelled = old.encode(" zebra")
    (piece,) = new.encode(" zebra")
    for tensors in ("weight", "bias"):
        theirs, mine = getattr(before.model.output, tensors), getattr(after.model.output, tensors)
        assert len(mine) == len(theirs) + 2
        torch.testing.assert_close(mine[piece], theirs[spelled].mean(0))


def test_a_head_for_pairs_is_left_where_nobody_asks_and_missed_where_it_is_not(data: Path, tmp_path: Path) -> None:
    api.train(recipe(data, "task.next_sentence=true"), out=tmp_path / "pairs")
    alone = api.begin(recipe(data, f"train.start={tmp_path / 'pairs'}"), out=tmp_path / "alone")
    assert alone.trainer.model.next_sentence is None
    assert any(reason.endswith("left were encoder.pooler, next_sentence") for reason in alone.reasons)
    list(alone.events())
    both = recipe(data, "task.next_sentence=true", f"train.start={tmp_path / 'alone'}")
    with pytest.raises(SaccadeError, match=r"alone has no encoder\.pooler\.weight, which this model needs"):
        api.begin(both, out=tmp_path / "both")


def test_a_model_for_another_task_cannot_go_on(data: Path, tmp_path: Path) -> None:
    language = "task={kind: language, data: DATA, unit: words, window: 18}".replace("DATA", str(data))
    api.train(recipe(data, language, "model={kind: gpt, width: 16, heads: 2, layers: 1}"), out=tmp_path / "gpt")
    with pytest.raises(SaccadeError, match="a model for language cannot go on with masked: take one for it"):
        api.begin(recipe(data, f"train.start={tmp_path / 'gpt'}"), out=tmp_path / "run")
