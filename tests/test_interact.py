"""Acting in a world that is only seen: its rules, its images, its solutions, and how acting in it is scored."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from saccade import api
from saccade.config import parse_recipe
from saccade.data.gridworld import (
    ACTIONS,
    COLOURS,
    GOLD,
    PIXELS,
    WOOD,
    Room,
    World,
    demonstrate,
    distances,
    make_world,
    render,
    solve,
    step,
)
from saccade.decode import Beam, Sample
from saccade.errors import SaccadeError
from saccade.maps.render import Grid, figure_of, save_maps
from saccade.predictor import Predictor
from saccade.tasks import TASKS
from saccade.tasks.acting import Episode, act, misled
from saccade.tasks.interact import Interact

RECIPE = """
task: {kind: interact, side: 6, things: 2, train_worlds: 40, valid_worlds: 30, test_worlds: 20, limit: 25}
model: {kind: show_attend_interact, width: 16, heads: 2, hidden: 16, image: {kind: cnn, width: 4, dropout: 0.0}}
train: {steps: 4, batch_tokens: 32, evaluate_every: 4, save_every: 4, threads: 1}
"""


def drawn(*lines: str, wanted: str = "red") -> World:
    """A world from a plan: # wall, @ agent, r and g things, k key, d door, L the lamp in the wall."""
    spots = {(row, column): letter for row, line in enumerate(lines) for column, letter in enumerate(line)}
    where = {letter: spot for spot, letter in spots.items()}
    colours = {"r": "red", "g": "green"}
    room = Room(
        side=len(lines),
        walls=frozenset(spot for spot, letter in spots.items() if letter in "#L"),
        things={spot: colours[letter] for spot, letter in spots.items() if letter in colours},
        lamp=where["L"],
        wanted=wanted,
        key=where.get("k"),
        door=where.get("d"),
    )
    return World(room, where["@"])


LOCKED = drawn(
    "######",
    "#@k#r#",
    "#..d.#",
    "#..#.L",
    "#..#g#",
    "######",
)
OPEN = drawn(
    "#L####",
    "#@...#",
    "#..g.#",
    "#..#.#",
    "#...r#",
    "######",
)


def played(world: World, actions: str) -> World:
    for action in actions.split():
        world = step(world, action)
    return world


def oracle(worlds: Sequence[World]) -> list[str]:
    """The first of the right actions; up, where there is none."""
    return [solve(world)[0] if distances(world).get(world) else "up" for world in worlds]


@pytest.fixture(scope="module")
def actor(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    return api.train(parse_recipe(RECIPE, "recipe"), out=tmp_path_factory.mktemp("interact") / "run")


# The world.


def test_walls_stop_and_floors_do_not() -> None:
    assert played(OPEN, "up").agent == played(OPEN, "left").agent == (1, 1)
    assert played(OPEN, "right").agent == (1, 2)
    assert played(OPEN, "down down right right").agent == (3, 2)  # the rock


def test_a_door_opens_for_the_key_and_only_then() -> None:
    assert played(LOCKED, "down right right").agent == (2, 2)
    with_key = played(LOCKED, "right")
    assert with_key.holding and not LOCKED.holding
    through = played(with_key, "down right")
    assert through.agent == (2, 3) and through.opened and not through.holding
    back = played(through, "left up")
    assert back.agent == LOCKED.room.key and not back.holding  # the key is used up


def test_who_enters_a_thing_has_fetched_it_and_all_is_over() -> None:
    right, wrong = played(OPEN, "down down down right right right"), played(OPEN, "down right right")
    assert right.fetched == "red" and right.succeeded
    assert wrong.fetched == "green" and not wrong.succeeded
    assert played(wrong, "right") == wrong


@pytest.mark.parametrize(("world", "actions"), [(OPEN, 6), (LOCKED, 5)])
def test_a_solution_is_as_long_as_counted_by_hand(world: World, actions: int) -> None:
    found = solve(world)
    assert len(found) == distances(world)[world] == actions
    assert played(world, " ".join(found)).succeeded


def test_no_shorter_way_than_the_solution_exists() -> None:
    for number in range(12):
        world = make_world(number, "train", side=6, things=2, locked=0.5)
        reached = {world}
        for _ in range(len(solve(world)) - 1):
            reached |= {step(each, action) for each in reached for action in ACTIONS}
            assert not any(each.succeeded for each in reached)
        assert any(step(each, action).succeeded for each in reached for action in ACTIONS)


def test_a_demonstration_names_all_actions_that_are_right_and_takes_one() -> None:
    first = demonstrate(OPEN)[0]
    assert set(first.right) == {"down", "right"} and first.action == "down"
    assert demonstrate(LOCKED)[0].right == ("right",)  # first the key
    taken = {demonstrate(OPEN, np.random.default_rng(seed))[0].action for seed in range(9)}
    assert taken == {"down", "right"}


def test_what_cannot_be_reached_has_no_solution() -> None:
    with pytest.raises(SaccadeError, match="green cannot be reached"):
        solve(drawn("#####", "#@.L#", "###g#", "#r..#", "#####", wanted="green"))


def test_worlds_come_from_their_numbers_and_parts_share_none() -> None:
    def images(part: str) -> list[bytes]:
        of = [make_world(number, part, side=8, things=3, locked=0.5) for number in range(40)]
        return [render(world).tobytes() for world in of]

    assert images("valid") == images("valid")
    every = [image for part in ("train", "valid", "test") for image in images(part)]
    assert len(set(every)) == len(every)


def test_a_locked_world_cannot_be_solved_without_the_key() -> None:
    for number in range(20):
        world = make_world(number, "test", side=7, things=2, locked=1.0)
        spot = world.room.key
        assert spot is not None
        keyless = world._replace(room=replace(world.room, key=None))
        assert world in distances(world) and keyless not in distances(keyless)


def test_a_world_that_is_too_small_is_refused() -> None:
    with pytest.raises(SaccadeError, match=r"4 things .* no room in 5 x 5 cells"):
        make_world(1, "train", side=5, things=4, locked=1.0)
    with pytest.raises(SaccadeError, match="1 to 4 things; got 8 and 5"):
        make_world(1, "train", side=8, things=5, locked=0.0)


# The image.


def cell(image: np.ndarray, spot: tuple[int, int]) -> set[tuple[int, ...]]:
    row, column = (place * PIXELS for place in spot)
    return set(map(tuple, image[row : row + PIXELS, column : column + PIXELS].reshape(-1, 3).tolist()))


def test_everything_is_in_the_image_where_it_is() -> None:
    image = render(LOCKED)
    assert image.shape == (6 * PIXELS, 6 * PIXELS, 3) and image.dtype == np.uint8
    assert COLOURS["red"] in cell(image, (3, 5))  # the lamp
    assert COLOURS["red"] in cell(image, (1, 4)) and COLOURS["green"] in cell(image, (4, 4))
    assert WOOD in cell(image, (2, 3))
    assert len({frozenset(cell(image, spot)) for spot in ((1, 1), (1, 2), (2, 1), (0, 0))}) == 4


def test_what_is_done_is_seen() -> None:
    held = render(played(LOCKED, "right"))
    assert GOLD in cell(held, (1, 2))
    assert WOOD not in cell(render(played(LOCKED, "right down right")), (2, 3))
    moved = render(played(LOCKED, "right down"))
    assert cell(moved, (1, 2)) == cell(moved, (3, 1))  # the key has gone, and floor is left


def test_another_lamp_changes_its_cell_alone() -> None:
    (other,) = misled([LOCKED])
    changed = np.argwhere((render(LOCKED) != render(other)).any(-1)) // PIXELS
    assert {tuple(spot) for spot in changed.tolist()} == {LOCKED.room.lamp}
    assert other.room.wanted == "green"


# Acting.


def test_one_who_knows_the_way_always_succeeds_and_by_the_shortest() -> None:
    worlds = [make_world(number, "valid", side=7, things=3, locked=0.5) for number in range(15)]
    episodes = act(worlds, oracle, 40)
    assert all(each.last.succeeded for each in episodes)
    assert [len(each.actions) for each in episodes] == [len(solve(world)) for world in worlds]


def test_the_limit_ends_what_does_not_succeed() -> None:
    far, near = act([OPEN, played(OPEN, "down down down")], oracle, 3)
    assert not far.last.succeeded and len(far.actions) == 3
    assert near.last.succeeded and str(near) == "right right right: red, as wanted"
    (stuck,) = act([OPEN], lambda seen: ["up"] * len(seen), 3)
    assert stuck.last == OPEN and str(stuck) == "up up up: nothing, but red was wanted"


def test_one_who_is_shown_another_lamp_fetches_the_other_thing() -> None:
    (episode,) = act([OPEN], oracle, 40, misled)
    assert episode.wrong and episode.last.fetched == "green"


def test_an_oracle_in_place_of_the_model_scores_all_and_controls_do_not(
    actor: Predictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(actor.task, Interact)
    monkeypatch.setattr(actor.task, "_policy", lambda _: oracle)
    scores = {score.name: score for score in actor.evaluate("test")}
    assert next(iter(scores)) == "success"
    assert scores["success"].value == scores["length of the way"].value == 100
    assert scores["success when the lamp has another colour (control)"].value < 60
    assert scores["success when shown another world (control)"].value < 60
    assert max(score.value for name, score in scores.items() if "(baseline)" in name) < 60
    assert all(score.interval is not None for score in scores.values())
    assert actor.score().decisive == 1


def test_every_right_action_lowers_the_loss(actor: Predictor) -> None:
    batch = actor.task.collate([demonstrate(OPEN)[0]], [0])
    for chosen, loss in (("down", 0.0), ("right", 0.0), ("up", 20.0)):
        logits = torch.tensor([[20.0 * (action == chosen) for action in ACTIONS]])
        goals = torch.tensor([[20.0 * (colour == "red") for colour in COLOURS]])
        decided = SimpleNamespace(decide=lambda _, logits=logits, goals=goals: (logits, goals))
        terms = actor.task.loss(decided, batch)
        assert float(terms["loss"].sum) == pytest.approx(loss, abs=1)
        assert int(terms["accuracy"].sum) == (loss == 0)
        assert float(terms["goal"].sum) == pytest.approx(0, abs=1e-3)
        assert terms.keys() == batch.counts.keys()


def test_neither_the_batch_nor_looking_changes_an_answer(actor: Predictor) -> None:
    from saccade.maps.record import record

    batch = actor.task.collate(list(actor.task.examples("valid"))[:5], range(5))
    with torch.no_grad():
        together = actor.model(batch.images)
        alone = torch.cat([actor.model(image[None]) for image in batch.images])
        with record(actor.model) as recording:
            looked = actor.model(batch.images)
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-5)
    torch.testing.assert_close(looked, together, rtol=0, atol=1e-5)
    assert [seen.weights.shape for seen in recording] == [(5, 2, 1, 36)] * 2


def test_without_attention_there_is_nothing_to_look_at() -> None:
    recipe = parse_recipe(RECIPE.replace("hidden: 16", "hidden: 16, attend: false"), "recipe")
    task = TASKS["interact"](recipe)
    assert task.look(task.model(), "world 1") == []


# What people give and get.


def test_a_world_is_called_by_its_number_and_an_image_gives_the_next_action(actor: Predictor, tmp_path: Path) -> None:
    task = actor.task
    assert isinstance(task, Interact)
    path = tmp_path / "world.png"
    Image.fromarray(render(task.world(3, "test"))).save(path)
    whole, named, other, image = actor.predict(["3", "world 3", "valid world 3", str(path)])
    assert whole.text == named.text and re.fullmatch(r"((up|down|left|right) ?)+: \w+, .*wanted", whole.text)
    assert other.refusal is None
    assert image.text == whole.text.split()[0].rstrip(":")
    (ranked,) = actor.predict([str(path)], Beam(9, best=9))
    assert sum(answer.score for answer in ranked.answers) == pytest.approx(1)
    assert {answer.text for answer in ranked.answers} == set(ACTIONS)


def test_an_image_may_lie_in_any_folder(actor: Predictor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".hidden" / "below").mkdir(parents=True)
    Image.fromarray(render(actor.task.world(1, "test"))).save(tmp_path / ".hidden" / "world.png")
    monkeypatch.chdir(tmp_path / ".hidden" / "below")
    for name in ("../world.png", str(tmp_path / ".hidden" / "world.png")):
        (found,) = actor.predict([name])
        assert found.refusal is None and found.text in ACTIONS
        assert actor.look(name)


def test_of_an_animated_image_the_first_frame_is_seen(actor: Predictor, tmp_path: Path) -> None:
    task = actor.task
    assert isinstance(task, Interact)
    first, *others = (Image.fromarray(render(task.world(number, "test"))) for number in range(3))
    first.save(tmp_path / "still.png")
    first.save(tmp_path / "moving.png", save_all=True, append_images=others)
    still, moving = actor.predict([str(tmp_path / "still.png"), str(tmp_path / "moving.png")])
    assert moving.refusal is None
    assert moving.answers == still.answers


def test_what_is_no_world_is_refused_and_the_others_answered(actor: Predictor, tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    Image.new("RGB", (70, 48)).save(large)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    refusals = {
        "the red one": "'the red one' is not understood: a world of the test part by its number",
        "-3": "'-3' is not understood",
        str(large): r"large.png: 70 x 48 pixels; the worlds of this model have 48 x 48",
        str(broken): "broken.png",
        str(tmp_path / "none.png"): "none.png",
    }
    *bad, good = actor.predict([*refusals, "1"])
    assert good.refusal is None
    for prediction, message in zip(bad, refusals.values(), strict=True):
        assert prediction.refusal is not None and re.search(message, prediction.refusal)
        with pytest.raises(SaccadeError, match=message):
            actor.look(prediction.input)


def test_a_target_is_done_instead_and_a_strange_one_refused(actor: Predictor) -> None:
    seen = actor.look("world 1", "up up")[0]
    assert seen.rows.labels == ("1 up", "2 up")
    for target, message in (("up dwon", "'dwon' is no action.*did you mean 'down'"), (" ", "the target is empty")):
        with pytest.raises(SaccadeError, match=message):
            actor.look("world 1", target)


def test_a_look_has_the_image_of_each_step(actor: Predictor, tmp_path: Path) -> None:
    task = actor.task
    assert isinstance(task, Interact)
    actions = solve(task.world(2, "test"))
    maps = actor.look("2", " ".join(actions))
    assert [each.heads for each in maps] == [1, 2, 2]  # all looks together, then each of two with its heads
    assert maps[0].name.endswith("as wanted")
    grid = maps[0].columns
    assert isinstance(grid, Grid) and len(grid.images) == len(actions)
    assert not np.array_equal(grid.images[0], grid.images[1])
    torch.testing.assert_close(maps[0].weights.sum(-1), torch.ones(1, len(actions)))
    shown = [axes.get_images()[0].get_array() for axes in figure_of(maps[:1]).axes]
    assert len(shown) == 1 + len(actions)
    assert not np.array_equal(shown[1], shown[2])
    for ending in ("png", "html", "json"):
        save_maps(maps, tmp_path / f"look.{ending}")
    data = re.search(r'"columns":(\{"kind":"grid"[^}]*\})', (tmp_path / "look.html").read_text())
    assert data is not None
    assert json.loads(data[1])["each"] == list(range(len(actions)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("kind: show_attend_interact, width: 16, heads: 2, hidden: 16", "kind: vit, width: 16"), "cannot interact"),
        (("steps: 4,", "steps: 4, smoothing: 0.1,"), "train.smoothing"),
        (("width: 16, heads: 2", "width: 16, heads: 3"), "heads 3 does not divide width 16"),
        (("side: 6", "side: 4"), "side"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(change: tuple[str, str], message: str) -> None:
    text = RECIPE.replace(*change).replace(", image: {kind: cnn, width: 4, dropout: 0.0}}", "}")
    with pytest.raises(SaccadeError, match=message):
        TASKS["interact"](parse_recipe(text, "recipe"))


def test_ways_are_drawn_each_from_its_own_stream(actor: Predictor) -> None:
    drawn = Sample(answers=3, seed=7)
    (alone,) = actor.predict(["1"], drawn)
    beside, _ = actor.predict(["1", "2"], drawn)
    assert alone == beside
    assert len({answer.text for answer in alone.answers}) > 1
    (best,) = actor.predict(["1"])
    (cold,) = actor.predict(["1"], Sample(temperature=1e-6))
    assert cold.text == best.text


def test_several_best_ways_are_found_by_a_beam(actor: Predictor) -> None:
    (greedy,) = actor.predict(["1"])
    (narrow,) = actor.predict(["1"], Beam(1, length_penalty=0.0))
    assert narrow.text == greedy.text
    assert narrow.answers[0].score == pytest.approx(greedy.answers[0].score)
    (found,) = actor.predict(["1"], Beam(5, best=5, length_penalty=0.0))
    assert len({answer.text for answer in found.answers}) == 5
    scores = [answer.score for answer in found.answers]
    ended = [not answer.text.split(": ")[1].startswith("nothing") for answer in found.answers]
    assert ended == sorted(ended, reverse=True)  # those that fetched something come first, each kind best first
    for kind in (True, False):
        of_kind = [score for score, fetched in zip(scores, ended, strict=True) if fetched == kind]
        assert of_kind == sorted(of_kind, reverse=True)
    for answer in found.answers:
        actions = answer.text.split(":")[0].split()
        world = actor.task.world(1, "test")  # type: ignore[attr-defined]
        episode = Episode((world,))
        for action in actions:
            assert episode.last.fetched is None
            episode = episode.then(action)
        assert str(episode) == answer.text
