"""Cache groups: which fields of a class share one, and the system each group lives on.

A declared group is never split. Fields that name none are in the main group, which lives where the
class's mean says; one whose own scores favour another system becomes a group of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mediator.placement.ballot import Ballot, Choice, Order, node_ballot, shared_ballot
from mediator.placement.rank import NodeRank
from mediator.placement.refusal import Refusal, refuse
from mediator.schema.tree import MAIN_GROUP, ClassSchema

__all__ = ["GroupPlan", "Pins", "plan_groups"]

_NAME_LENGTH = 63
_NOT_IN_NAMES = re.compile(r"[^a-z0-9_]+")


@dataclass(frozen=True)
class Pins:
    """What classes that hold data hold already; the caller decides which classes are pinned.

    Attributes:
        systems: The system of each (class, group).
        groups: The group of each (class, field).
    """

    systems: Mapping[tuple[str, str], str] = field(default_factory=dict)
    groups: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupPlan:
    """One cache group: the choice made for it, and the same as each of its fields sees it.

    A field that came to the group by its own scores sees the choice it made itself.
    """

    name: str
    choice: Choice
    seen: Mapping[str, Choice]


def plan_groups(
    class_: ClassSchema,
    rank: NodeRank,
    above: Ballot,
    order: Order,
    *,
    pins: Pins,
    bound: Choice | None,
) -> tuple[GroupPlan, ...]:
    """Plan the groups of a class, the main group first.

    Args:
        class_: The class.
        rank: Its ranking.
        above: The database's ballot, for what the class itself does not decide.
        order: How ties and defaults end.
        pins: What must stay where it is.
        bound: The choice that the whole class is tied to, if it is.

    Raises:
        Unplaceable: No system can serve all fields of a declared group.
    """
    planner = _Planner(class_, rank, (node_ballot(rank), above), order, pins, bound)
    known, loose = planner.members()
    main = planner.choose_main(known.get(MAIN_GROUP, ()))
    seen = {MAIN_GROUP: {each.node: _shared(main) for each in known.pop(MAIN_GROUP, ())}}
    choices = {MAIN_GROUP: main}
    for name, fields in known.items():
        choices[name] = planner.choose_shared(name, fields, main)
        seen[name] = {each.node: choices[name] for each in fields}
    for each in loose:
        choice = planner.choose_alone(each, main)
        alone = choice.system != main.system
        name = _free_name(each.node, {*choices, *planner.taken}) if alone else MAIN_GROUP
        choices.setdefault(name, choice)
        seen.setdefault(name, {})[each.node] = choice
    return tuple(GroupPlan(name, choice, seen[name]) for name, choice in choices.items())


def _shared(choice: Choice) -> Choice:
    return replace(choice, kind="group") if choice.kind == "own" else choice


def _followed(choice: Choice) -> Choice:
    return replace(choice, kind="follows") if choice.kind == "own" else choice


@dataclass(frozen=True)
class _Planner:
    class_: ClassSchema
    rank: NodeRank
    ballots: tuple[Ballot, Ballot]
    order: Order
    pins: Pins
    bound: Choice | None

    @property
    def taken(self) -> set[str]:
        """Names of groups that hold data, or that the schema declares."""
        held = {group for class_name, group in self.pins.systems if class_name == self.class_.name}
        return held | {f.group for f in self.class_.fields.values() if f.group}

    def members(self) -> tuple[dict[str, list[NodeRank]], list[NodeRank]]:
        """Split the fields into those of known groups, and those that name none."""
        known: dict[str, list[NodeRank]] = {}
        loose = []
        for each, field_ in zip(self.rank.children, self.class_.fields.values(), strict=True):
            group = self.pins.groups.get((self.class_.name, field_.name), field_.group)
            if group:
                known.setdefault(group, []).append(each)
            else:
                loose.append(each)
        return known, loose

    def choose_main(self, fields: Sequence[NodeRank]) -> Choice:
        """Choose where the main group lives: by the class's mean."""
        fixed = self._fixed(MAIN_GROUP)
        if fixed:
            return fixed
        eligible = self._common(MAIN_GROUP, fields)
        return self.order.choose(self.rank.node, eligible, self.ballots)

    def choose_shared(self, name: str, fields: Sequence[NodeRank], main: Choice) -> Choice:
        """Choose for a group that is known by name: by the mean over its voting fields."""
        fixed = self._fixed(name)
        if fixed:
            return fixed
        node = f"{self.class_.name}#{name}"
        eligible = self._common(name, fields)
        ballot = shared_ballot(node, fields, eligible)
        if not ballot.scores and main.system in eligible:
            return _followed(main)
        choice = self.order.choose(node, eligible, (ballot, *self.ballots))
        agreed = all(self.order.best(f.scores) == choice.system for f in fields if f.votes)
        return choice if agreed else _shared(choice)

    def choose_alone(self, each: NodeRank, main: Choice) -> Choice:
        """Choose for a field that names no group: its own scores, else with the main group."""
        if self.bound:
            return self.bound
        if not each.votes and main.system in each.eligible:
            return _followed(main)
        ballots = (node_ballot(each), *self.ballots)
        return self.order.choose(each.node, each.eligible, ballots)

    def _fixed(self, group: str) -> Choice | None:
        """Return the system of a group that holds data, or that all of the class is tied to."""
        held = self.pins.systems.get((self.class_.name, group))
        if held is None:
            return self.bound
        return Choice(held, "pinned", f"{self.class_.name}#{group}", None, ())

    def _common(self, name: str, fields: Sequence[NodeRank]) -> list[str]:
        systems = self.rank.qualified
        common = [s for s in systems if all(s in each.eligible for each in fields)]
        if not common:
            names = ", ".join(each.node for each in fields)
            lacks = {s: r for each in fields for s, r in each.dropped.items()}
            node = f"{self.class_.name}#{name}"
            refuse([Refusal(node, f"one system for all its fields: {names}", lacks)])
        return common


def _free_name(node: str, taken: Collection[str]) -> str:
    """Name a group after its field, within the pattern of group names and unlike any other."""
    lowered = node.partition(".")[2].lower()
    stem = _NOT_IN_NAMES.sub("_", lowered).lstrip("_0123456789") or "field"
    names = (stem[:_NAME_LENGTH], *(f"{stem[: _NAME_LENGTH - 4]}_{n}" for n in range(2, 1000)))
    return next(name for name in names if name not in taken)
