"""Tables of rules between the tensors of another library and ours; one table serves both directions.

    theirs "h.{n}.attn.c_attn.weight"  <->  ours "blocks.{n}.attention.query.weight", "...key.weight", "...value.weight"

`{n}` is a layer's number. What a rule does to a tensor it can undo bit for bit: copies, transposes, cuts and joins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from saccade.errors import SaccadeError
from saccade.train.tensors import require_match

OLD_SPELLINGS = {".gamma": ".weight", ".beta": ".bias"}  # of norms, in files of long ago


@dataclass(frozen=True)
class Rule:
    """One tensor of theirs and what it is with us: one tensor, or several. Either side may have none."""

    theirs: str = ""
    ours: tuple[str, ...] = ()
    into: Callable[[Tensor], Sequence[Tensor]] = lambda tensor: (tensor,)
    back: Callable[[Sequence[Tensor]], Tensor] = lambda tensors: tensors[0]
    twin: str = ""  # of a tensor that they may write twice: the other one, which is the same
    kept: bool = False  # has no place with us, and goes back as it came ...
    like: str = ""  # ... or, where nothing came, as zeros like that one of ours
    right: Callable[[Tensor], bool] = lambda _: True  # of a constant on one side only: whether it is what it must be


def same(theirs: str, ours: str) -> list[Rule]:
    return [Rule(theirs, (ours,))]


def linear(theirs: str, ours: str) -> list[Rule]:
    """Weight and bias, as linear maps and norms have them."""
    return [*same(f"{theirs}.weight", f"{ours}.weight"), *same(f"{theirs}.bias", f"{ours}.bias")]


def turned(theirs: str, ours: str) -> list[Rule]:
    """A linear map whose matrix is written (inputs, outputs)."""
    weight = Rule(f"{theirs}.weight", (f"{ours}.weight",), lambda t: (t.T,), lambda ts: ts[0].T)
    return [weight, *same(f"{theirs}.bias", f"{ours}.bias")]


def fused(theirs: str, ours: Sequence[str]) -> list[Rule]:
    """Several linear maps written as one, (inputs, all outputs)."""
    parts = len(ours)
    weight = Rule(
        f"{theirs}.weight",
        tuple(f"{each}.weight" for each in ours),
        lambda t: [part.T for part in t.chunk(parts, 1)],
        lambda ts: torch.cat([t.T for t in ts], 1),
    )
    bias = Rule(
        f"{theirs}.bias",
        tuple(f"{each}.bias" for each in ours),
        lambda t: t.chunk(parts),
        lambda ts: torch.cat(list(ts)),
    )
    return [weight, bias]


def shaped(
    theirs: str, ours: str, *, there: Callable[[Tensor], Tensor], here: Callable[[Tensor], Tensor]
) -> list[Rule]:
    """The same numbers in another shape."""
    return [Rule(theirs, (ours,), lambda t: (here(t),), lambda ts: there(ts[0]))]


def tied(theirs: str, twin: str) -> list[Rule]:
    """What is read only to see that it equals its twin, and is never written."""
    return [Rule(theirs, twin=twin)]


def ignored(*theirs: str) -> list[Rule]:
    """Constants that some files hold: masks, numbers of positions."""
    return [Rule(each) for each in theirs]


def computed(theirs: str, formula: Callable[[Tensor], Tensor]) -> list[Rule]:
    """A constant that some files hold and we compute, like the tensor that is given."""
    return [Rule(theirs, right=lambda tensor: torch.allclose(tensor.float(), formula(tensor).float(), atol=1e-3))]


def kept(*theirs: str) -> list[Rule]:
    """What we have no place for, and give back as it came."""
    return [Rule(each, kept=True) for each in theirs]


def unused(theirs: str, like: str, *sizes: int) -> list[Rule]:
    """What we have no place for and they cannot do without: given back as it came or, of a model from here, as zeros
    like `like`, so many of them."""
    return [Rule(theirs, kept=True, like=like, back=lambda ts: ts[0].new_zeros(*sizes, *ts[0].shape))]


def drawn(*ours: str) -> list[Rule]:
    """What they do not have: it begins as a new model's does, and is never written."""
    return [Rule(ours=(each,)) for each in ours]


def zero(ours: str) -> list[Rule]:
    """What they do not have, and what is zero with us then."""
    return [Rule("", (ours,), lambda t: (torch.zeros_like(t),), right=lambda t: t.is_meta or not t.any())]


@dataclass(frozen=True)
class Table:
    """All rules of an architecture. Names of theirs are with `prefix`, which files of a bare body lack."""

    rules: tuple[Rule, ...]
    prefix: str = ""

    @staticmethod
    def of(*rules: Sequence[Rule], prefix: str = "") -> Table:
        return Table(tuple(chain(*rules)), prefix)

    def into(self, theirs: Mapping[str, Tensor], fresh: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
        """Our tensors from theirs, for a model that begins with the tensors `fresh`; all that does not fit is said at
        once, with the nearest names."""
        named = {self._full(name): tensor for name, tensor in theirs.items()}
        expected = self.back({name: tensor.to("meta") for name, tensor in fresh.items()})
        spare = {name for name in named.keys() - expected.keys() if self._spare(name, named, what)}
        shapes = {name: tensor.shape for name, tensor in expected.items()}
        require_match({name: tensor for name, tensor in named.items() if name not in spare}, shapes, what)
        found: dict[str, Tensor] = {}
        for rule, name, ours in self._matches(fresh):
            parts = rule.into(named[name] if name else fresh[ours[0]])
            found |= {each: part.contiguous() for each, part in zip(ours, parts, strict=True)}
        return found

    def aside(self, theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those of their tensors that are kept for them."""
        named = {self._full(name): tensor for name, tensor in theirs.items()}
        patterns = [_pattern(rule.theirs) for rule in self.rules if rule.kept]
        return {name: each for name, each in named.items() if any(p.fullmatch(name) for p in patterns)}

    def back(self, ours: Mapping[str, Tensor], *, bare: bool = False) -> dict[str, Tensor]:
        """Their tensors from ours and from those that were kept for them, under the names of a bare body if asked."""
        matches = list(self._matches(ours))
        aside = self.aside(ours)
        if left := sorted(ours.keys() - aside.keys() - {each for _, _, names in matches for each in names}):
            raise SaccadeError(f"there is no place for {', '.join(left)} in the other format")
        if wrong := [names[0] for rule, name, names in matches if not name and not rule.right(ours[names[0]])]:
            raise SaccadeError(f"there is no place for {', '.join(wrong)} in the other format, unless it is zero")
        written = self._blank(ours) | aside
        written |= {name: rule.back([ours[each] for each in names]) for rule, name, names in matches if name}
        return {name.removeprefix(self.prefix) if bare else name: t.contiguous() for name, t in written.items()}

    def _matches(self, ours: Mapping[str, Tensor]) -> Iterator[tuple[Rule, str, tuple[str, ...]]]:
        """Every rule with the names it is for, layer by layer."""
        for rule in self.rules:
            for name in ours:
                if rule.ours and (match := _pattern(rule.ours[0]).fullmatch(name)):
                    numbers = match.groupdict()
                    names = tuple(_filled(each, numbers) for each in rule.ours)
                    if all(each in ours for each in names):
                        yield rule, _filled(rule.theirs, numbers), names

    def _blank(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Zeros for all that they need and we do not have."""
        return {
            _filled(rule.theirs, match.groupdict()): rule.back([tensor])
            for rule in self.rules
            if rule.like
            for name, tensor in ours.items()
            if (match := _pattern(rule.like).fullmatch(name))
        }

    def _full(self, name: str) -> str:
        for old, new in OLD_SPELLINGS.items():
            name = f"{name.removesuffix(old)}{new}" if name.endswith(old) else name
        known = any(_pattern(rule.theirs).fullmatch(name) for rule in self.rules)
        longer = f"{self.prefix}{name}"
        if not known and any(_pattern(rule.theirs).fullmatch(longer) for rule in self.rules):
            return longer
        return name

    def _spare(self, name: str, named: Mapping[str, Tensor], what: str) -> bool:
        """Whether a tensor that we have no place for may be left."""
        for rule in self.rules:
            if not rule.ours and _pattern(rule.theirs).fullmatch(name):
                if rule.twin and rule.twin in named and not torch.equal(named[name], named[rule.twin]):
                    raise SaccadeError(f"{what} {name} should be the same as {rule.twin}, and is not")
                if not rule.right(named[name]):
                    raise SaccadeError(f"{what} {name} is not the table that its formula gives")
                return True
        return False


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\{n\}", r"(?P<n>\d+)"))


def _filled(name: str, numbers: Mapping[str, str]) -> str:
    return name.replace("{n}", numbers.get("n", ""))
