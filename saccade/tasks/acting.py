"""Acting in many worlds at once, with a policy that is shown them: what happened, from the first image to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from saccade.data.gridworld import World, step

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
        return Episode((*self.worlds, step(self.last, action)), (*self.actions, action))

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


def misled(worlds: list[World]) -> list[World]:
    """The same worlds with a lamp in the colour of another thing."""
    others = [next(colour for colour in each.room.things.values() if colour != each.room.wanted) for each in worlds]
    return [each._replace(room=replace(each.room, wanted=other)) for each, other in zip(worlds, others, strict=True)]
