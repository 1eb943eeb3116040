"""Acting in a world that is only seen: an image in, attention, an action out; then the world has changed, and again.

    loss of a step = -log sum of p(action) over all actions that come nearer to success - weight log p(what is fetched)

Learned from demonstrations, step by step, where every shortest way counts as right; scored by acting: the right thing
is fetched in a new world, by the model's own actions, one after the other. What a demonstration fetches in the end is
known from it, and asked for after the first look: else for long nobody looks at the lamp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.config import Recipe
from saccade.config.interaction import InteractSettings, ShowAttendInteractSettings
from saccade.data.gridworld import ACTIONS, COLOURS, PARTS, PIXELS, Move, World, demonstrate, make_world, render, solve
from saccade.data.images import Pixels, read_image
from saccade.decode import Greedy, Method, Sample
from saccade.errors import SaccadeError, did_you_mean
from saccade.maps.record import record
from saccade.maps.render import AttentionMap, Grid, Tokens
from saccade.metrics import Score, bootstrap_interval, share_score
from saccade.metrics.score import exchanged
from saccade.models import ACTORS
from saccade.models.show_attend_interact import ShowAttendInteract
from saccade.tasks.acting import Episode, Policy, act, misled, ways
from saccade.tasks.answers import at_rest, wanted_answers
from saccade.tasks.base import Answer, Loss, Prediction, Scores, Term
from saccade.tasks.sights import look_at_image
from saccade.tasks.space import as_batch, in_parts, names_image
from saccade.tasks.written import load_most_frequent, save_most_frequent

INPUT = re.compile(rf"\s*(?:(?P<part>{'|'.join(PARTS)})\s+)?(?:world\s+)?(?P<number>\d{{1,9}})\s*")
GOAL = "goal"  # name of the second term of the loss
BLIND = 12345  # seed of the actions of one who does not look


@dataclass(frozen=True)
class ActionBatch:
    """Images, and which actions are right."""

    images: Tensor  # (B, 3, size, size)
    right: Tensor  # (B, actions), True = one of the right ones
    goals: Tensor  # (B,), which colour is wanted
    numbers: tuple[int, ...]
    counts: dict[str, int]


class Interact:
    """See saccade.tasks.base.Task for what each method is for."""

    FILE = "actions.json"

    def __init__(self, recipe: Recipe):
        assert isinstance(recipe.task, InteractSettings)
        if not isinstance(recipe.model, ShowAttendInteractSettings):
            raise SaccadeError(f"model.kind {recipe.model.kind!r} cannot interact; there is {', '.join(ACTORS)}")
        if recipe.train.smoothing:
            raise SaccadeError("train.smoothing has no meaning where several actions may be right: set it to 0")
        self.recipe, self.settings = recipe, recipe.task
        self.size = self.settings.side * PIXELS
        self._frequent = ""
        self._examples: dict[str, list[Move]] = {}

    def fitted(self) -> tuple[Recipe, Sequence[str]]:
        train, valid = (len(self.examples(part)) for part in ("train", "valid"))
        counted = f"{train:,} steps of demonstrations in {self.settings.train_worlds:,} worlds to train on"
        return self.recipe, [f"{counted}, {valid:,} in {self.settings.valid_worlds:,} to validate on"]

    def prepare(self, directory: Path) -> None:
        self._frequent = save_most_frequent(directory / self.FILE, [move.action for move in self.examples("train")])

    def load(self, directory: Path) -> None:
        self._frequent = load_most_frequent(directory / self.FILE)

    def world(self, number: int, part: str) -> World:
        of = self.settings
        return make_world(number, part, side=of.side, things=of.things, locked=of.locked, seed=of.seed)

    def worlds(self, part: str) -> list[World]:
        counts = (self.settings.train_worlds, self.settings.valid_worlds, self.settings.test_worlds)
        return [self.world(number, part) for number in range(dict(zip(PARTS, counts, strict=True))[part])]

    def examples(self, split: str) -> Sequence[Move]:
        if split not in self._examples:
            draw = np.random.default_rng(self.settings.seed)
            self._examples[split] = [move for world in self.worlds(split) for move in demonstrate(world, draw)]
        return self._examples[split]

    def length(self, example: Move) -> int:  # noqa: ARG002 - all images cost the same
        return 1

    def collate(self, examples: Sequence[Move], numbers: Sequence[int]) -> ActionBatch:
        right = torch.tensor([[action in move.right for action in ACTIONS] for move in examples])
        goals = torch.tensor([tuple(COLOURS).index(move.world.room.wanted) for move in examples])
        images = as_batch([render(move.world) for move in examples])
        counts = dict.fromkeys(("loss", "accuracy", *([GOAL] if self.settings.goal else [])), len(examples))
        return ActionBatch(images, right, goals, tuple(numbers), counts)

    def model(self) -> ShowAttendInteract:
        return ACTORS[self.recipe.model.kind](self.recipe.model, len(ACTIONS), len(COLOURS), self.size)

    def loss(self, model: ShowAttendInteract, batch: ActionBatch) -> Loss:
        actions, goals = model.decide(batch.images)
        log_p = actions.log_softmax(-1)  # (B, actions)
        right = log_p.masked_fill(~batch.right, -torch.inf).logsumexp(-1)
        chosen = batch.right.gather(1, log_p.argmax(-1, keepdim=True))
        terms = {"loss": Term(-right.sum()), "accuracy": Term(chosen.sum(), weight=0.0)}
        if self.settings.goal:
            terms[GOAL] = Term(F.cross_entropy(goals, batch.goals, reduction="sum"), self.settings.goal)
        return terms

    def predict(
        self, model: ShowAttendInteract, inputs: Sequence[str], method: Method | None = None
    ) -> list[Prediction]:
        """All that is done in a world of the generator, called by its number, as in "17" (of the test part) or "valid
        17"; of an image file, which does not change when one acts, the next action alone. Ways are searched or drawn as
        texts are."""
        return [self._predicted(model, text, number, method) for number, text in enumerate(inputs)]

    def score(self, model: ShowAttendInteract) -> Scores:
        worlds = self.worlds("valid")
        episodes = act(worlds, self._policy(model), self.settings.limit)
        values = {
            "success": sum(each.last.succeeded for each in episodes) / len(episodes),
            "wrong": sum(each.wrong for each in episodes) / len(episodes),
        }
        samples = [
            (f"valid {number}", str(episode), " ".join(solve(world)))
            for number, (world, episode) in enumerate(zip(worlds, episodes, strict=True))
        ]
        return Scores("success", values, samples)

    def evaluate(self, model: ShowAttendInteract, split: str) -> Sequence[Score]:
        """Success, and how long it takes; what is fetched without looking, with another world before the eyes, and with
        a lamp in another colour."""
        worlds, limit, policy = self.worlds(split), self.settings.limit, self._policy(model)
        draw = np.random.default_rng(BLIND)

        def share(name: str, hits: Sequence[bool], signature: str) -> Score:
            return replace(share_score(name, np.array(hits)), signature=signature)

        def success(name: str, episodes: Sequence[Episode], signature: str) -> Score:
            return share(name, [each.last.succeeded for each in episodes], signature)

        def other(name: str, policy: Policy, shown: Callable[[list[World]], list[World]] | None = None) -> Score:
            return success(f"success {name}", act(worlds, policy, limit, shown), "")

        episodes = act(worlds, policy, limit)
        scores = [success("success", episodes, f"of {len(worlds):,} worlds, within {limit} actions")]
        free = [each for each in episodes if each.last.room.door is None]
        shut = [each for each in episodes if each.last.room.door is not None]
        if free and shut:
            scores.append(success("success where there is no door", free, f"of {len(free):,}"))
            scores.append(success("success behind a locked door", shut, f"of {len(shut):,}"))
        scores.append(share("wrong thing fetched", [each.wrong for each in episodes], ""))
        if arrived := [each for each in episodes if each.last.succeeded]:
            ratio = 100 * np.array([len(each.actions) / len(solve(each.worlds[0])) for each in arrived])
            scores.append(
                Score(
                    "length of the way", float(ratio.mean()), bootstrap_interval(ratio), "100: shortest; of successes"
                )
            )
        return [
            *scores,
            other("of random actions (baseline)", lambda seen: [ACTIONS[n] for n in draw.integers(4, size=len(seen))]),
            other(f"of always {self._frequent} (baseline)", lambda seen: [self._frequent] * len(seen)),
            other("when shown another world (control)", policy, exchanged),
            *(
                [other("when the lamp has another colour (control)", policy, misled)]
                if self.settings.things > 1
                else []
            ),
        ]

    def look(
        self,
        model: ShowAttendInteract,
        text: str,
        target: str | None = None,
        *,
        pieces: bool = False,  # noqa: ARG002
    ) -> list[AttentionMap]:
        """The world before each action, with what was looked at: all looks together, then each with its heads; `target`
        is what is done, as in "up left"."""
        read = self._understood(text)
        if isinstance(read, str):
            raise SaccadeError(read)
        if isinstance(read, World):
            episode = self._played(model, read, target)
            images = [render(world) for world in episode.worlds[: len(episode.actions)]]
            labels = tuple(f"{number} {action}" for number, action in enumerate(episode.actions, start=1))
            title = f"what was looked at before each action, and then: {str(episode).split(': ')[1]}"
        elif target is not None:
            raise SaccadeError(
                f"{text}: an image stays as it is; what is done is looked at in a world, as in 'world 17'"
            )
        else:
            images, labels = [read], (f"next: {self._ranked(model, read, 1)[0].text}",)
            title = "what was looked at before the next action"
        with at_rest(model), record(model) as recording:
            model(as_batch(images))
        grid = Grid(*model.sight.cells, images[0], tuple(images))
        looks = [seen.weights[:, :, 0].transpose(0, 1) for seen in recording if seen.name.startswith("hops.")]
        maps = [AttentionMap(f"look {n}", each, Tokens(labels), grid) for n, each in enumerate(looks, start=1)]
        together = [AttentionMap(title, torch.cat(looks).mean(0, keepdim=True), Tokens(labels), grid)] if maps else []
        return together + maps + look_at_image(model.sight.image, images[0], "how the first image was seen")

    def _predicted(self, model: ShowAttendInteract, text: str, number: int, method: Method | None) -> Prediction:
        read = self._understood(text)
        if isinstance(read, str):
            return Prediction(text, refusal=read)
        if not isinstance(read, World):
            return Prediction(text, self._ranked(model, read, wanted_answers(method)))
        if isinstance(method, Sample):  # a stream for each input, whatever the others are
            method = replace(method, numbers=[number if method.numbers is None else method.numbers[number]])
        found = ways(
            read,
            lambda worlds: self._chances(model, [render(world) for world in worlds]).log(),
            self.settings.limit,
            method or Greedy(),  # as it is scored and looked at
        )
        return Prediction(text, tuple(Answer(str(episode), score) for episode, score in found))

    def _understood(self, text: str) -> World | Pixels | str:
        """A world, or the pixels of an image, or what is wrong with the input."""
        if found := INPUT.fullmatch(text):
            return self.world(int(found["number"]), found["part"] or "test")
        if not names_image(text):
            return (
                f"{text!r} is not understood: a world of the test part by its number is expected, as in 'world 17', "
                f"one of another part, as in 'valid 17', or an image file of {self.size} x {self.size} pixels"
            )
        try:
            pixels = read_image(Path(text), first_frame=True)
        except SaccadeError as error:
            return str(error)
        if pixels.shape[:2] != (self.size, self.size):
            high, wide = pixels.shape[:2]
            return f"{text}: {wide} x {high} pixels; the worlds of this model have {self.size} x {self.size}"
        return pixels

    def _played(self, model: ShowAttendInteract, world: World, target: str | None = None) -> Episode:
        if target is None:
            return act([world], self._policy(model), self.settings.limit)[0]
        episode = Episode((world,))
        for action in target.split():
            if action not in ACTIONS:
                near = did_you_mean(action, list(ACTIONS)) or f"; there are {', '.join(ACTIONS)}"
                raise SaccadeError(f"{action!r} is no action{near}")
            episode = episode.then(action)
        if not episode.actions:
            raise SaccadeError("the target is empty: there is no action to look at")
        return episode

    def _policy(self, model: ShowAttendInteract) -> Policy:
        def policy(worlds: Sequence[World]) -> list[str]:
            best = self._chances(model, [render(world) for world in worlds]).argmax(-1)
            return [ACTIONS[number] for number in best.tolist()]

        return policy

    def _ranked(self, model: ShowAttendInteract, pixels: Pixels, best: int) -> tuple[Answer, ...]:
        chances = self._chances(model, [pixels])[0].topk(min(best, len(ACTIONS)))
        pairs = zip(chances.indices.tolist(), chances.values.tolist(), strict=True)
        return tuple(Answer(ACTIONS[number], chance) for number, chance in pairs)

    def _chances(self, model: ShowAttendInteract, images: Sequence[Pixels]) -> Tensor:
        """Of each action: (images, actions)."""
        with at_rest(model):
            return torch.cat([model(as_batch(part)).softmax(-1) for part in in_parts(images)])
