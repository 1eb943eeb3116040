"""Walking by instructions: the file, the world, the protocol, and what a person sees of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from saccade import api
from saccade.config import parse_recipe
from saccade.data.routes import read_routes, routes_of
from saccade.data.world import FloorPlan, Pose, World
from saccade.decode import Beam, Sample
from saccade.errors import SaccadeError
from saccade.maps.paths import floor_colours, item_letters
from saccade.maps.render import Steps, figure_of, save_maps, to_text
from saccade.predictor import Predictor
from saccade.tasks import TASKS
from saccade.tasks.walk import FollowRoutes, spoken
from saccade.verify import verify
from tests.corridors import write_corridors

# a corner:  (0, 0) -blue- (1, 0) -blue- (2, 0) chair,  and down from (1, 0) to the lamp in (1, 1)
CORNER = FloorPlan(
    ((0, 0, ""), (1, 0, ""), (2, 0, "chair"), (1, 1, "lamp")),
    (((0, 0), (1, 0), "fish", "blue"), ((1, 0), (2, 0), "tower", "blue"), ((1, 0), (1, 1), "fish", "wood")),
)
WORLD = World({"corner": CORNER})
AS_JSON: dict[str, Any] = {"nodes": CORNER.nodes, "edges": CORNER.edges}
RECIPE = """
task: {{kind: walk, data: {data}, test_map: fir, sentences: {sentences}, headings: {headings}}}
model: {{kind: listen_attend_walk, width: 16, hidden: 24, dropout: 0.1}}
train: {{steps: 80, batch_tokens: 400, evaluate_every: 80, save_every: 80, optimizer: {{rate: 1e-2}}, threads: 1}}
"""


def at(x: int, y: int, heading: int) -> Pose:
    return Pose("corner", x, y, heading)


def written(path: Path, paragraph: dict[str, Any] | None = None, **maps: Any) -> Path:
    usual = {"map": "corner", "sentences": ["go"], "paths": [[[0, 0, 90], [1, 0, 90]]]}
    content = {"maps": {"corner": AS_JSON} | maps, "paragraphs": [usual | (paragraph or {})]}
    path.write_text(json.dumps(content))
    return path


def task_of(data: Path, sentences: str = "single", headings: str = "usual") -> FollowRoutes:
    recipe = parse_recipe(RECIPE.format(data=data, sentences=sentences, headings=headings), "recipe")
    task = TASKS["walk"](recipe)
    assert isinstance(task, FollowRoutes)
    return task


def holding_out(task: FollowRoutes, test_map: str | None) -> FollowRoutes:
    settings = task.settings.model_copy(update={"test_map": test_map})
    return FollowRoutes(task.recipe.model_copy(update={"task": settings}))


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("walk")
    data = write_corridors(folder / "corridors.json")
    return api.train(
        parse_recipe(RECIPE.format(data=data, sentences="single", headings="usual"), "recipe"), out=folder / "run"
    )


# The world.


@pytest.mark.parametrize(
    ("pose", "action", "then"),
    [
        (at(0, 0, 90), "forward", at(1, 0, 90)),
        (at(1, 0, 180), "forward", at(1, 1, 180)),
        (at(1, 1, 0), "forward", at(1, 0, 0)),
        (at(2, 0, 270), "forward", at(1, 0, 270)),
        (at(0, 0, 0), "forward", at(0, 0, 0)),  # a wall
        (at(0, 0, 0), "left", at(0, 0, 270)),
        (at(0, 0, 270), "right", at(0, 0, 0)),
    ],
)
def test_an_action_leads_where_it_should_and_a_wall_stops_it(pose: Pose, action: str, then: Pose) -> None:
    assert WORLD.moved(pose, action) == then
    table = WORLD.moves()[WORLD.numbers[pose], ("forward", "left", "right").index(action)]
    assert WORLD.poses[table] == then


def test_what_is_seen_is_named_from_where_one_looks() -> None:
    def named(pose: Pose) -> set[str]:
        assert len(WORLD.features) == len(WORLD.seen(pose)) == 2 + 4 * (2 + 2 + 2 + 1)
        return {name for name, there in zip(WORLD.features, WORLD.seen(pose), strict=True) if there}

    far = {"ahead: blue floor", "ahead: fish wall", "ahead: chair in view"}  # over the crossing, to the end of the line
    blocked = {"left: blocked", "right: blocked", "behind: blocked"}
    assert named(at(0, 0, 90)) == far | blocked
    turned = {"left: blue floor", "left: fish wall", "left: chair in view"}
    assert named(at(0, 0, 180)) == turned | {"ahead: blocked", "right: blocked", "behind: blocked"}
    assert named(at(1, 0, 0)) >= {
        "behind: lamp in view",
        "behind: wood floor",
        "right: chair in view",
        "ahead: blocked",
    }
    assert "lamp here" in named(at(1, 1, 0)) and "ahead: lamp in view" not in named(at(1, 1, 0))
    assert np.array_equal(WORLD.observations()[WORLD.numbers[at(0, 0, 90)]], WORLD.seen(at(0, 0, 90)))


def test_the_actions_of_a_way_lead_along_it_and_a_jump_has_none() -> None:
    way = [at(0, 0, 90), at(1, 0, 90), at(1, 0, 180), at(1, 1, 180), at(1, 1, 0)]
    actions = WORLD.actions(way)
    assert actions == ["forward", "right", "forward", "right", "right"]
    assert WORLD.walked(way[0], actions)[-1] == way[-1]
    assert WORLD.actions([at(0, 0, 90), at(2, 0, 90)]) is None
    assert WORLD.actions([at(1, 0, 90), at(1, 1, 90)]) is None  # sideways


# The file.


def test_a_heading_that_is_not_known_may_be_any(tmp_path: Path) -> None:
    paths = [[[0, 0, -1], [0, 0, 90], [1, 0, 90]], [[1, 0, -1], [1, 0, 180]]]
    paragraph = {"sentences": ["face the hall and go", "turn"], "paths": paths}
    _, read = read_routes(written(tmp_path / "a.json", paragraph))
    first, second = routes_of(read, "single")
    assert first.open and first.start == at(0, 0, 0)  # a turn to the right short of the first that is known
    assert [WORLD.actions(way.way) for way in first.starts()] == [
        ["right", "forward"],
        ["forward"],
        ["left", "forward"],
        ["right", "right", "forward"],
    ]
    assert second.start == at(1, 0, 90) and second.goal == at(1, 0, 180)
    (whole,) = routes_of(read, "paragraphs")
    assert whole.text == "face the hall and go turn"
    assert WORLD.actions(whole.way) == ["right", "forward", "right"]


@pytest.mark.parametrize(
    ("paragraph", "message"),
    [
        ({"map": "attic"}, r"paragraph 1: 'map' is \"attic\"; the maps are corner"),
        ({"sentences": [" "]}, "paragraph 1: 'sentences' is to be a list of texts"),
        ({"sentences": ["a", "b"]}, "paragraph 1: 'paths' is to have a path for each of 2 sentences"),
        ({"paths": [[]]}, "paragraph 1, path 1: a list of"),
        ({"paths": [[[0, 0, 45]]]}, r"path 1, pose 1: .* 0, 90, 180, 270 .*got \[0, 0, 45\]"),
        ({"paths": [[[0, 0, 0], [9, 9, 0]]]}, r"path 1, pose 2: .* a node of map 'corner'"),
    ],
)
def test_a_bad_paragraph_is_named(paragraph: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=message):
        read_routes(written(tmp_path / "bad.json", paragraph))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"nodes": [[0, 0]], "edges": []}, r"map 'bad', node 1: \[x, y, item\]"),
        ({"nodes": [[0, 0, ""], [0, 0, ""]], "edges": []}, "map 'bad', node 2: .* no spot twice"),
        ({"nodes": [[0, 0, ""], [2, 0, ""]], "edges": [[[0, 0], [2, 0], "a", "b"]]}, "map 'bad', edge 1: .*neighbour"),
        ({"nodes": [[0, 0, ""]], "edges": []}, "map 'bad': there is no edge"),
        ([], "map 'bad': lists 'nodes' and 'edges'"),
    ],
)
def test_a_bad_map_is_named(plan: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=message):
        read_routes(written(tmp_path / "bad.json", bad=plan))


def test_a_file_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{\n nodes")
    with pytest.raises(SaccadeError, match=r"bad.json:2: not JSON"):
        read_routes(tmp_path / "bad.json")
    for content in ("[" * 200_000, "1" * 5_000):
        (tmp_path / "bad.json").write_text(content)
        with pytest.raises(SaccadeError, match=r"bad.json: not JSON"):
            read_routes(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(SaccadeError, match="an object with 'maps' and 'paragraphs'"):
        read_routes(tmp_path / "bad.json")


# The task.


def test_the_parts_share_no_paragraph_and_the_test_map_is_in_none_but_its_own(tmp_path: Path) -> None:
    task = task_of(write_corridors(tmp_path / "corridors.json"))
    maps = {split: {route.start.map for route in task.routes(split)} for split in ("train", "valid", "test")}
    assert maps == {"train": {"oak", "elm"}, "valid": {"oak", "elm"}, "test": {"fir"}}
    places = [{route.where for route in task.routes(split)} for split in ("train", "valid", "test")]
    assert sum(map(len, places)) == len(set.union(*places)) == 600
    with pytest.raises(SaccadeError, match=r"test_map 'fri' is no map .*did you mean 'fir'.*task.test_map=null"):
        holding_out(task, "fri").fitted()


def test_no_map_need_be_held_out_and_a_map_that_takes_everything_is_named(tmp_path: Path) -> None:
    task = task_of(written(tmp_path / "one.json"))
    with pytest.raises(SaccadeError, match=r"1 paragraphs leave none for the part 'train'; task.test_map 'corner'"):
        holding_out(task, "corner").fitted()
    everywhere = holding_out(task_of(write_corridors(tmp_path / "corridors.json")), None)
    assert {route.start.map for route in everywhere.routes("train")} == {"oak", "elm", "fir"}
    assert "no map is held out" in everywhere.fitted()[1][0]
    with pytest.raises(SaccadeError, match=r"no test part: task.test_map is null"):
        everywhere.routes("test")


def test_a_sentence_wants_the_heading_and_a_paragraph_the_position_alone(tmp_path: Path) -> None:
    data = write_corridors(tmp_path / "corridors.json")
    for sentences, without_heading in (("single", False), ("paragraphs", True)):
        task = task_of(data, sentences)
        task.prepare(tmp_path)
        for route in task.routes("test")[:20]:
            actions = task.world.actions(route.way)
            assert actions is not None and task._arrived(actions, route)
            assert task._arrived([*actions, "left"], route) == without_heading


def test_routes_that_jump_are_told_and_left_out_of_training_only(tmp_path: Path) -> None:
    data = write_corridors(tmp_path / "corridors.json")
    content = json.loads(data.read_text())
    for paragraph in content["paragraphs"]:
        paragraph["paths"][0] = [[0, 0, 90], [3, 3, 90]]
    data.write_text(json.dumps(content))
    task = task_of(data)
    (note,) = task.prepare(tmp_path)
    jumping = sum(task.world.actions(route.way) is None for route in task.routes("train"))
    assert note.startswith(f"routes that jump are left out of training, {jumping}: {data}: paragraph ")
    assert len(task.examples("train")) == len(task.routes("train")) - jumping
    assert task.place(0).startswith(f"{data}: paragraph ")


def test_all_headings_are_trained_on_where_they_are_open(tmp_path: Path) -> None:
    data = write_corridors(tmp_path / "corridors.json")
    content = json.loads(data.read_text())
    for paragraph in content["paragraphs"]:
        x, y, _ = paragraph["paths"][0][0]
        paragraph["paths"][0].insert(0, [x, y, -1])
    data.write_text(json.dumps(content))
    counts = {}
    for headings in ("usual", "all"):
        task = task_of(data, headings=headings)
        task.prepare(tmp_path)
        counts[headings] = len(task.examples("train"))
    assert counts["all"] == counts["usual"] / 2 * (4 + 1)


def test_words_are_heard_without_their_marks() -> None:
    assert spoken("Turn left; then, GO (slowly) to the 't'.") == [
        "turn",
        "left",
        "then",
        "go",
        "slowly",
        "to",
        "the",
        "t",
    ]


def test_another_model_cannot_walk(tmp_path: Path) -> None:
    data = write_corridors(tmp_path / "corridors.json")
    recipe = parse_recipe(f"task: {{kind: walk, data: {data}}}\nmodel: {{kind: luong}}", "recipe")
    with pytest.raises(SaccadeError, match="'luong' cannot walk; there is listen_attend_walk"):
        TASKS["walk"](recipe)


def test_a_trained_walker_beats_those_who_do_not_listen(walker: Predictor) -> None:
    names = [score.name for score in walker.evaluate("valid")]
    values = {score.name: score.value for score in walker.evaluate("valid")}
    assert names[:2] == ["success", "success from all headings"]
    assert values["success"] == pytest.approx(100 * walker.score().decisive)
    assert values["success"] > 1.5 * max(value for name, value in values.items() if "(" in name)
    assert all(score.interval is not None for score in walker.evaluate("valid"))


def test_a_route_that_jumps_is_not_the_most_frequent_answer(walker: Predictor, tmp_path: Path) -> None:
    """It has no actions, which is not the same as standing still."""
    data = write_corridors(tmp_path / "corridors.json")
    content = json.loads(data.read_text())
    for paragraph in content["paragraphs"]:
        paragraph["paths"] = [[[0, 0, 90], [3, 3, 90]], [[1, 1, 90], [2, 1, 90]]]
    data.write_text(json.dumps(content))
    task = task_of(data)
    task.prepare(tmp_path)
    names = [score.name for score in task.evaluate(task.model(), "valid")]
    assert "success of always 'forward' (baseline)" in names


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        ("go to the lamp", "MAP X Y HEADING: INSTRUCTION is expected"),
        ("oak 0 0 90:  ", "MAP X Y HEADING: INSTRUCTION is expected"),
        ("elf 0 0 90: go", "there is no map 'elf' .*did you mean 'elm'"),
        ("oak 7 0 90: go", "7 0 is no place of map 'oak'; the nearest is 3 0"),
        ("oak 0 0 45: go", "the heading is 45; there are 0, 90, 180, 270"),
    ],
)
def test_an_input_that_is_not_understood_is_refused_and_the_others_answered(
    text: str, refusal: str, walker: Predictor
) -> None:
    bad, good = walker.predict([text, "oak 0 0 90: go to the zzyzx end"])
    assert bad.refusal is not None and re.search(refusal, bad.refusal)
    assert good.refusal is None and good.text.endswith("stop")
    with pytest.raises(SaccadeError, match=refusal):
        walker.look(text)


@pytest.mark.parametrize("method", [Beam(4, best=3, length_penalty=0.0), Sample(answers=5, seed=2, temperature=3.0)])
def test_every_hypothesis_of_a_search_walks_in_a_world_of_its_own(method: Any, walker: Predictor) -> None:
    """What a hypothesis was given is what a walker alone on the same way is given."""
    task: Any = walker.task
    asked = ["oak 1 1 90: turn left and go to the end", "elm 2 3 180: turn right and go to the lamp"]
    for text, prediction in zip(asked, walker.predict(asked, method), strict=True):
        assert len({answer.text for answer in prediction.answers}) > 1
        pose, instruction = task._understood(text)
        for answer in prediction.answers:
            assert answer.hypothesis is not None
            batch = task.collate([(task._source(pose, instruction), list(answer.hypothesis.tokens))], [0])
            with torch.no_grad():
                states = walker.model(batch.source, batch.source_mask, batch.target[:, :-1])
            log_p = walker.model.output(states).log_softmax(-1)[0]  # type: ignore[operator, union-attr]
            count = len(answer.hypothesis.token_scores)
            alone = log_p[torch.arange(count), batch.target[0, 1 : count + 1]]
            torch.testing.assert_close(torch.tensor(answer.hypothesis.token_scores), alone, rtol=0, atol=1e-4)


def test_the_laws_hold_for_a_trained_walker(walker: Predictor) -> None:
    assert [law.name for law in verify(walker) if not law.holds] == []


def test_a_run_walks_without_its_data(walker: Predictor, tmp_path: Path) -> None:
    data = write_corridors(tmp_path / "corridors.json")
    recipe = RECIPE.format(data=data, sentences="paragraphs", headings="all").replace("steps: 80", "steps: 2")
    model = api.train(parse_recipe(recipe, "recipe"), out=tmp_path / "run")
    before = model.predict(["oak 0 0 90: go to the end"])
    data.unlink()
    assert api.load(tmp_path / "run").predict(["oak 0 0 90: go to the end"]) == before
    assert walker.predict(["oak 0 0 90: go to the end"])[0].answers


# The picture.


def test_a_look_shows_steps_against_words_on_the_map(walker: Predictor, tmp_path: Path) -> None:
    (seen,) = walker.look("oak 1 1 90: Turn left, and go to the END.", "left forward stop")
    assert seen.columns.labels == ("turn", "left", "and", "go", "to", "the", "end")
    assert isinstance(seen.rows, Steps)
    assert seen.rows.labels == ("1 left", "2 forward", "3 stop")
    assert seen.rows.poses == ((1, 1, 90), (1, 1, 0), (1, 0, 0))
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones(1, 3))
    assert "1 left" in to_text(seen)
    for ending in ("png", "svg", "html", "json"):
        save_maps([seen], tmp_path / f"walk.{ending}")
    assert json.loads((tmp_path / "walk.json").read_text())["maps"][0]["axes"]["rows"]["poses"][1] == [1, 1, 0]
    texts = {text.get_text() for axes in figure_of([seen]).axes for text in axes.texts}
    assert {"1↰", "2", "3■"} <= texts


def test_the_legend_of_a_small_map_stays_on_the_page(walker: Predictor) -> None:
    (seen,) = walker.look("oak 1 1 90: Turn left, and go to the END.", "left forward stop")
    floors = [f"carpet {number}" for number in range(len(seen.rows.corridors))]
    corridors = tuple((*edge[:2], floor) for edge, floor in zip(seen.rows.corridors, floors, strict=True))
    figure = figure_of([replace(seen, rows=replace(seen.rows, corridors=corridors))])
    figure.draw_without_rendering()
    plan = figure.axes[0].get_legend().get_window_extent()
    assert len(floors) > 5
    assert plan.x0 >= 0 and plan.y0 >= 0


def test_a_step_that_leads_nowhere_and_the_same_way_twice_are_drawn(walker: Predictor) -> None:
    around = "left left forward " * 2 + "left forward forward forward forward forward"
    (seen,) = walker.look("oak 1 0 90: go to the end", around)
    texts = [text.get_text() for axes in figure_of([seen]).axes for text in axes.texts]
    assert any(text.endswith("✕") for text in texts)
    assert len([text for text in texts if text.rstrip("↰↱■✕").isdigit()]) == len(seen.rows)


def test_floors_and_items_of_ones_own_have_colours_and_letters() -> None:
    corridors = tuple(((0, 0), (0, 1), floor) for floor in ("grass", "marble", "cork"))
    items = tuple((0, place, item) for place, item in enumerate(("sofa", "stool", "shelf", "")))
    steps = Steps(("1 stop",), ((0, 0, 0),), corridors, items)
    assert len(set(floor_colours(steps).values())) == 3
    assert item_letters(steps) == {"shelf": "S", "sofa": "SO", "stool": "ST"}
    with pytest.raises(SaccadeError, match="every step has a pose; got 2 steps and 1 poses"):
        Steps(("1 left", "2 stop"), ((0, 0, 0),), corridors, items)
