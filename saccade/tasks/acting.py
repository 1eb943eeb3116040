"""Acting in many worlds at once, with a policy that is shown them: what happened, from the first image to the end; and
in one world in several ways, found by the search that also finds texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from saccade.data.gridworld import ACTIONS, World
from saccade.data.gridworld import step as moved
from saccade.decode import Method, search
from saccade.nn.cache import Past

Policy = Callable[[Sequence[World]], list[str]]  # an action for each world


@dataclass(frozen=True)
class Episode:
    """What happened in a world: `worlds` has one more than `actions`."""

    worlds: tuple[World, ...]
    actions: tuple[str, ...] = ()

    @property
    def last(self) -> World:
        return self.worlds[-1]

    @property
    def wrong(self) -> bool:
        """Another thing than the one that was wanted has been fetched."""
        return self.last.fetched is not None and not self.last.succeeded

    def then(self, action: str) -> Episode:
        return Episode((*self.worlds, moved(self.last, action)), (*self.actions, action))

    def __str__(self) -> str:
        found, wanted = self.last.fetched or "nothing", self.last.room.wanted
        return f"{' '.join(self.actions)}: {found}, {'as' if found == wanted else f'but {wanted} was'} wanted"


def act(
    worlds: Sequence[World], policy: Policy, limit: int, shown: Callable[[list[World]], list[World]] | None = None
) -> list[Episode]:
    """All worlds together, until a thing is fetched or the limit is reached; `shown` may show others than those that
    are acted in."""
    episodes = [Episode((world,)) for world in worlds]
    for _ in range(limit):
        now = [episode.last for episode in episodes]
        seen = now if shown is None else shown(now)
        going = [number for number, world in enumerate(now) if world.fetched is None]
        if not going:
            break
        for number, action in zip(going, policy([seen[number] for number in going]), strict=True):
            episodes[number] = episodes[number].then(action)
    return episodes


def ways(
    world: World, chances: Callable[[Sequence[World]], Tensor], limit: int, method: Method
) -> list[tuple[Episode, float]]:
    """The best ways to act, or drawn ones, each with its score: a token is an action, and what a hypothesis has behind
    it are its actions, which say what its world is. `chances` are log-probabilities (worlds, actions)."""
    met: dict[tuple[int, ...], Episode] = {(): Episode((world,))}

    def after(actions: tuple[int, ...]) -> Episode:
        if actions not in met:
            met[actions] = after(actions[:-1]).then(ACTIONS[actions[-1]])
        return met[actions]

    def step(tokens: Tensor, past: Past) -> tuple[Tensor, Past]:
        done = past.state if past.used == 0 else torch.cat([past.state, tokens], dim=1)  # the first token is no action
        return chances([after(tuple(row)).last for row in done.tolist()]), past.advanced(done, 1)

    nothing = Past(torch.zeros(1, 0, dtype=torch.long), None, torch.zeros(1, dtype=torch.long))
    (found,) = search(
        step,
        nothing,
        start=0,
        end=-1,  # no token: an episode ends in its world
        limits=[limit],
        method=method,
        stop=lambda actions: after(tuple(actions)).last.fetched is not None,
    )
    return [(after(each.tokens), each.score) for each in found]


def misled(worlds: list[World]) -> list[World]:
    """The same worlds with a lamp in the colour of another thing."""
    others = [next(colour for colour in each.room.things.values() if colour != each.room.wanted) for each in worlds]
    return [each._replace(room=replace(each.room, wanted=other)) for each, other in zip(worlds, others, strict=True)]
