"""Walking by instructions: words and a place on a map in, actions out; right if the walk ends where it should.

    success of a sentence:   the last position and heading are those of the route that was described
    success of a paragraph:  the last position is

The protocol of Chen and Mooney (2011) and of Mei, Bansal and Walter (2016): trained on all maps but one, tested there.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from saccade.config import Recipe
from saccade.config.walks import WalkSettings
from saccade.data.readers import hash_of
from saccade.data.routes import Paragraph, Route, read_plans, read_routes, routes_of
from saccade.data.vocab import SPECIALS, Symbols
from saccade.data.world import ACTIONS, FloorPlan, Pose, World
from saccade.decode import Hypothesis, Method
from saccade.errors import SaccadeError, did_you_mean
from saccade.maps.render import AttentionMap, Steps, Tokens
from saccade.metrics import Score, accuracy, bootstrap_interval
from saccade.metrics.score import exchanged
from saccade.models import WALKERS
from saccade.models.shapes import EncoderDecoder
from saccade.tasks.answers import validation_method
from saccade.tasks.base import Answer, Loss, Prediction, Scores
from saccade.tasks.pairs import Pair, answer_pairs, collate_pairs
from saccade.tasks.written import WrittenBatch, look_while_writing, written_loss

INPUT = re.compile(r"\s*(?P<map>\S+)\s+(?P<x>-?\d+)\s+(?P<y>-?\d+)\s+(?P<heading>-?\d+)\s*:(?P<text>.*)", re.DOTALL)
UNKNOWN = "<unknown>"  # what all rare words are to the model
STOP = "stop"  # the end of an answer, as people call it


class FollowRoutes:
    """See saccade.tasks.base.Task for what each method is for."""

    MAPS = "maps.json"

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, WalkSettings)
        if recipe.model.kind not in WALKERS:
            raise SaccadeError(f"model.kind {recipe.model.kind!r} cannot walk; there is {', '.join(WALKERS)}")
        self.recipe, self.settings = recipe, recipe.task
        self.actions = Symbols(ACTIONS)
        self._words: Symbols | None = None
        self._world: World | None = None

    @property
    def words(self) -> Symbols:
        if self._words is None:
            raise SaccadeError("the words have not been collected yet")
        return self._words

    @property
    def world(self) -> World:
        if self._world is None:
            raise SaccadeError("the maps have not been read yet")
        return self._world

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        what = "sentences" if self.settings.sentences == "single" else "paragraphs"
        test_map = self.settings.test_map
        held = "no map is held out" if test_map is None else f"map {test_map!r} is held out"
        train, valid = (self.routes(split) for split in ("train", "valid"))
        return self.recipe, [f"{len(train):,} {what} to train on, {len(valid):,} to validate on; {held}"]

    def prepare(self, directory: Path) -> Sequence[str]:
        seen = Counter(word for route in self.routes("train") for word in spoken(route.text))
        self._words = Symbols([UNKNOWN, *sorted(word for word, times in seen.items() if times >= self.settings.rarest)])
        self._words.save(directory)
        plans = self._read[0]
        self._world = World(plans)
        content = {name: {"nodes": plan.nodes, "edges": plan.edges} for name, plan in plans.items()}
        (directory / self.MAPS).write_text(f"{json.dumps(content)}\n", encoding="utf-8")
        jumping = [route.where for route in self.routes("train") if self.world.actions(route.way) is None]
        return [f"routes that jump are left out of training, {len(jumping)}: {jumping[0]} ..."] if jumping else []

    def load(self, directory: Path) -> None:
        self._words = Symbols.load(directory)
        path = directory / self.MAPS
        try:
            self._world = World(read_plans(json.loads(path.read_text(encoding="utf-8")), str(path)))
        except (OSError, ValueError) as error:
            raise SaccadeError(f"{path}: cannot read the maps: {error}") from error

    @cached_property
    def _read(self) -> tuple[dict[str, FloorPlan], list[Paragraph]]:
        plans, paragraphs = read_routes(self.settings.data)
        test_map = self.settings.test_map
        if test_map is not None and test_map not in plans:
            near = did_you_mean(test_map, list(plans)) or f"; the maps are {', '.join(plans)}"
            raise SaccadeError(
                f"task.test_map {test_map!r} is no map of {self.settings.data}{near}; task.test_map=null holds out none"
            )
        return plans, paragraphs

    def routes(self, split: str) -> list[Route]:
        """Of the other maps, or of the one that is held out; never both."""
        paragraphs, test_map = self._read[1], self.settings.test_map
        if split == "test" and test_map is None:
            raise SaccadeError("there is no test part: task.test_map is null; train with a map that is held out")
        tested = [each.ways[0][0].map == test_map for each in paragraphs]
        if split == "test":
            chosen = [each for each, test in zip(paragraphs, tested, strict=True) if test]
        else:
            known = [each for each, test in zip(paragraphs, tested, strict=True) if not test]
            held = [hash_of(" ".join(each.sentences)) < self.settings.valid * (1 << 64) for each in known]
            chosen = [each for each, held_out in zip(known, held, strict=True) if held_out == (split == "valid")]
        if not chosen:
            holds = f"task.test_map {test_map!r} holds out {sum(tested)}"
            reason = holds if split == "test" or all(tested) else f"task.valid is {self.settings.valid}"
            raise SaccadeError(
                f"{self.settings.data}: {len(paragraphs)} paragraphs leave none for the part {split!r}; {reason}"
            )
        return routes_of(chosen, self.settings.sentences)

    def examples(self, split: str) -> Sequence[Pair]:
        return [pair for pair, _ in self._placed(split)]

    def _placed(self, split: str) -> list[tuple[Pair, str]]:
        """Pairs to learn from, and where they come from."""
        found = []
        for route in self.routes(split):
            for way in self._starts(route):
                actions = self.world.actions(way.way)
                if actions is not None:
                    found.append(
                        ((self._source(way.start, way.text), self.actions.encode(" ".join(actions))), way.where)
                    )
        return found

    def place(self, number: int) -> str:
        return self._placed("train")[number][1]

    def length(self, example: Pair) -> int:
        return max(len(example[0]), len(example[1]) + 1)

    def collate(self, examples: Sequence[Pair], numbers: Sequence[int]) -> WrittenBatch:
        return collate_pairs(examples, numbers)

    def model(self) -> EncoderDecoder:
        observations = torch.from_numpy(self.world.observations())
        return WALKERS[self.recipe.model.kind](self.recipe.model, len(self.words), observations, self._moves())

    def _moves(self) -> Tensor:
        """Where each token of an answer leads; padding, start and end lead nowhere: (poses, vocabulary)."""
        stay = torch.arange(len(self.world.poses))[:, None].expand(-1, len(SPECIALS))
        return torch.cat([stay, torch.from_numpy(self.world.moves())], dim=1)

    def loss(self, model: EncoderDecoder, batch: WrittenBatch) -> Loss:
        return written_loss(model, batch, smoothing=self.recipe.train.smoothing)

    def predict(self, model: EncoderDecoder, inputs: Sequence[str], method: Method | None = None) -> list[Prediction]:
        """Of inputs like "l 23 18 90: turn left and go to the chair"."""
        read = [self._understood(text) for text in inputs]
        sources = [self._source(*each) for each in read if not isinstance(each, str)]
        found = iter(answer_pairs(model, sources, self.recipe.decode, self.actions, method) if sources else [])
        return [
            Prediction(text, refusal=each) if isinstance(each, str) else Prediction(text, self._answers(next(found)))
            for text, each in zip(inputs, read, strict=True)
        ]

    def score(self, model: EncoderDecoder) -> Scores:
        routes = [way for route in self.routes("valid") for way in self._starts(route)]
        walks = self._walks(model, routes, [route.text for route in routes], validation_method(self.recipe.decode))
        right = [self._arrived(walk, route) for walk, route in zip(walks, routes, strict=True)]
        samples = [
            (_asked(route), " ".join([*walk, STOP]), " ".join([*(self.world.actions(route.way) or ["?"]), STOP]))
            for walk, route in zip(walks, routes, strict=True)
        ]
        return Scores("success", {"success": sum(right) / len(right)}, samples)

    def evaluate(self, model: EncoderDecoder, split: str) -> Sequence[Score]:
        """Success; that of walkers who do not listen; and that with the instructions of others.

        Where the data leaves the first heading open, it is counted from the usual one and from all four.
        """
        routes = self.routes(split)
        every = [way for route in routes for way in route.starts()]
        walks = iter(self._walks(model, every, [way.text for way in every]))
        by_start = [[(next(walks), way) for way in route.starts()] for route in routes]
        usual = [each[0][0] for each in by_start]
        known = (self.world.actions(route.way) for route in self.routes("train"))
        frequent = Counter(tuple(actions) for actions in known if actions is not None).most_common(1)[0][0]
        turned = self._walks(model, routes, exchanged([route.text for route in routes]))

        def score(name: str, walks: Sequence[Sequence[str]]) -> Score:
            hits = [self._arrived(walk, route) for walk, route in zip(walks, routes, strict=True)]
            found = accuracy([int(hit) for hit in hits], [1] * len(hits))
            return Score(name, found.value, found.interval, f"of {len(hits):,} routes")

        each = np.array([np.mean([self._arrived(walk, way) for walk, way in starts]) for starts in by_start])
        low, high = bootstrap_interval(each)
        scores = [
            score("success", usual),
            Score("success from all headings", 100 * float(each.mean()), (100 * low, 100 * high), "mean of four walks"),
        ]
        return [
            *(scores if self.settings.headings == "usual" else scores[::-1]),
            score("success of stopping at once (baseline)", [()] * len(routes)),
            score(f"success of always {' '.join(frequent) or STOP!r} (baseline)", [frequent] * len(routes)),
            score("success with instructions shuffled (control)", turned),
        ]

    def look(
        self,
        model: EncoderDecoder,
        text: str,
        target: str | None = None,
        *,
        pieces: bool = False,  # noqa: ARG002
    ) -> list[AttentionMap]:
        """Steps against words, with the walk on the map; `target` is what is done, as in "left forward"."""
        read = self._understood(text)
        if isinstance(read, str):
            raise SaccadeError(read)
        pose, instruction = read
        if target is None:
            walk = self._walks(model, [Route(instruction, (pose,), text)], [instruction])[0]
        else:
            walk = target.removesuffix(STOP).split()
        batch = collate_pairs([(self._source(pose, instruction), self.actions.encode(" ".join(walk)))], [0])
        plan = self.world.plans[pose.map]
        rows = Steps(
            tuple(f"{number} {action}" for number, action in enumerate([*walk, STOP], start=1)),
            tuple((at.x, at.y, at.heading) for at in self.world.walked(pose, walk)),
            tuple((one, other, floor) for one, other, _, floor in plan.edges),
            plan.nodes,
        )
        words = Tokens(tuple(spoken(instruction)))
        maps = look_while_writing(model, batch, words, self.actions)
        return [AttentionMap("what was read at each step", each.weights, rows, words) for each in maps]

    def _starts(self, route: Route) -> list[Route]:
        return route.starts()[: None if self.settings.headings == "all" else 1]

    def _source(self, pose: Pose, text: str) -> list[int]:
        known = set(self.words.symbols)
        words = " ".join(word if word in known else UNKNOWN for word in spoken(text))
        return [self.world.numbers[pose], *self.words.encode(words)]

    def _walks(
        self, model: EncoderDecoder, routes: Sequence[Route], texts: Sequence[str], method: Method | None = None
    ) -> list[list[str]]:
        """What the model does at the start of each route when it is told each text."""
        sources = [self._source(route.start, text) for route, text in zip(routes, texts, strict=True)]
        found = answer_pairs(model, sources, self.recipe.decode, self.actions, method)
        return [self.actions.pieces(hypotheses[0].tokens) for hypotheses in found]

    def _arrived(self, walk: Sequence[str], route: Route) -> bool:
        last = self.world.walked(route.start, walk)[-1]
        return last == route.goal if self.settings.sentences == "single" else last.spot == route.goal.spot

    def _answers(self, hypotheses: Sequence[Hypothesis]) -> tuple[Answer, ...]:
        return tuple(
            Answer(
                " ".join([*self.actions.pieces(each.tokens), *([STOP] if each.stopped == "eos" else [])]),
                each.score,
                each,
            )
            for each in hypotheses
        )

    def _understood(self, text: str) -> tuple[Pose, str] | str:
        """A pose and an instruction, or what is wrong with the input."""
        found = INPUT.fullmatch(text)
        if found is None or not spoken(found["text"]):
            return (
                f"{text!r} is not understood: MAP X Y HEADING: INSTRUCTION is expected, as in 'l 23 18 90: turn left'"
            )
        name, pose = found["map"], Pose(found["map"], *(int(found[part]) for part in ("x", "y", "heading")))
        if name not in self.world.plans:
            near = did_you_mean(name, list(self.world.plans)) or f"; the maps are {', '.join(self.world.plans)}"
            return f"{text!r}: there is no map {name!r}{near}"
        if pose not in self.world.numbers:
            spots = self.world.plans[name].items
            if pose.spot in spots:
                return f"{text!r}: the heading is {pose.heading}; there are 0, 90, 180, 270"
            near_spot = min(spots, key=lambda spot: abs(spot[0] - pose.x) + abs(spot[1] - pose.y))
            return (
                f"{text!r}: {pose.x} {pose.y} is no place of map {name!r}; the nearest is {near_spot[0]} {near_spot[1]}"
            )
        return pose, found["text"].strip()


def spoken(text: str) -> list[str]:
    """The words of an instruction, as the model hears them: in lower case, without the marks around them."""
    return [word for each in text.lower().split() if (word := each.strip(".,;:!?'\"()"))]


def _asked(route: Route) -> str:
    return f"{route.start.map} {route.start.x} {route.start.y} {route.start.heading}: {route.text}"
