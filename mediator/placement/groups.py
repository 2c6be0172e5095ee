"""Cache groups: which fields of a class share one, and the system each group is on.

A declared group is never split. Fields that name none are in the main group; one that belongs on
another system becomes a group of its own. The main group is on the default system if it has a
field without goals, for nothing else would say where; else where the class's mean says.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from mediator.base.offload import throttle, throttled
from mediator.placement.rank import NodeRank, Refusal, refuse
from mediator.placement.required import RequiredSystem, RequiredSystems
from mediator.placement.scores import SystemChoice, SystemOrder, mean_scores, node_scores
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
    choice: SystemChoice
    seen: Mapping[str, SystemChoice]


def plan_groups(
    class_: ClassSchema,
    rank: NodeRank,
    order: SystemOrder,
    *,
    pins: Pins,
    bound: SystemChoice | None,
    required: RequiredSystems,
) -> tuple[GroupPlan, ...]:
    """Plan the groups, the main one first; `Unplaceable` if no system can serve all of one."""
    leading = order.leading(order.default(rank))
    planner = _Planner(class_, rank, leading, pins, bound, required)
    known, loose = planner.members()
    members = known.pop(MAIN_GROUP, [])
    main = planner.choose_main(members, loose)
    choices = {MAIN_GROUP: main}
    seen = {MAIN_GROUP: {each.node: main for each in members}}
    for name, fields in known.items():
        choices[name] = planner.choose_shared(name, fields)
        seen[name] = _seen(choices[name], fields)
    taken = {*choices, *planner.taken}
    for each in loose:
        throttle()
        choice = planner.choose_alone(each)
        alone = choice.system != main.system
        name = _free_name(each.node, taken) if alone else MAIN_GROUP
        taken.add(name)
        choices.setdefault(name, choice)
        seen.setdefault(name, {})[each.node] = choice
    return tuple(GroupPlan(name, choice, seen[name]) for name, choice in choices.items())


def _seen(choice: SystemChoice, fields: Sequence[NodeRank]) -> dict[str, SystemChoice]:
    if choice.kind != "own":
        return dict.fromkeys((each.node for each in fields), choice)
    alike = {node_scores(each).ranked(choice.eligible)[0] for each in fields if each.votes}
    voted = choice if len(alike) == 1 else replace(choice, kind="group")
    followed = replace(choice, kind="follows")
    return {each.node: voted if each.votes else followed for each in fields}


@dataclass(frozen=True)
class _Planner:
    class_: ClassSchema
    rank: NodeRank
    order: SystemOrder
    pins: Pins
    bound: SystemChoice | None
    required: RequiredSystems

    @property
    def taken(self) -> set[str]:
        """Names of groups that hold data, or that the schema declares."""
        held = {group for class_name, group in self.pins.systems if class_name == self.class_.name}
        return held | {f.group for f in self.class_.fields.values() if f.group}

    def members(self) -> tuple[dict[str, list[NodeRank]], list[NodeRank]]:
        """Split the fields into those of known groups, and those that name none."""
        known: dict[str, list[NodeRank]] = {}
        loose = []
        # One system decides what is unique, and keeps up an index: these fields stay together.
        together = {name for names in self.class_.unique if len(names) > 1 for name in names}
        together |= {name for index in self.class_.indexes for name in index.fields}
        for each, field_ in zip(self.rank.children, self.class_.fields.values(), strict=True):
            declared = field_.group or (MAIN_GROUP if field_.name in together else None)
            group = self.pins.groups.get((self.class_.name, field_.name), declared)
            if group:
                known.setdefault(group, []).append(each)
            else:
                loose.append(each)
        return known, loose

    def choose_main(self, members: Sequence[NodeRank], loose: Sequence[NodeRank]) -> SystemChoice:
        fixed = self._fixed(MAIN_GROUP)
        if fixed:
            return fixed
        eligible = self._common(MAIN_GROUP, members)
        goals = all(each.requirements for each in (*members, *loose))
        scores = node_scores(self.rank) if goals else None
        choice = self.order.choose(self.rank.node, eligible, scores)
        return choice.restricted(self.required.of_class(self.class_), self.rank.obstacle)

    def choose_shared(self, name: str, fields: Sequence[NodeRank]) -> SystemChoice:
        """Choose for a group that is known by name: by the mean over its voting fields."""
        fixed = self._fixed(name)
        if fixed:
            return fixed
        node = f"{self.class_.name}#{name}"
        eligible = self._common(name, fields)
        choice = self.order.choose(node, eligible, mean_scores(node, fields, eligible))
        return choice.restricted(self._required_of(node, fields), self.rank.obstacle)

    def choose_alone(self, each: NodeRank) -> SystemChoice:
        """Choose for a field that names no group: by its own requirements alone."""
        if self.bound:
            return self.bound
        scores = node_scores(each) if each.votes else None
        choice = self.order.choose(each.node, each.eligible, scores)
        return choice.restricted(self._required_of(each.node, [each]), each.obstacle)

    def _required_of(self, node: str, fields: Sequence[NodeRank]) -> RequiredSystem | None:
        """Return the system that fields of one group require, or else inherit."""
        names = (each.node.partition(".")[2] for each in fields)
        return self.required.of_group(node, self.class_, names)

    def _fixed(self, group: str) -> SystemChoice | None:
        """Return the system of a group that holds data, or that all of the class is tied to."""
        held = self.pins.systems.get((self.class_.name, group))
        if held is None:
            return self.bound
        return SystemChoice(held, "pinned", f"{self.class_.name}#{group}", None, ())

    def _common(self, name: str, fields: Sequence[NodeRank]) -> list[str]:
        systems = self.rank.qualified
        common = [s for s in throttled(systems) if all(s in each.eligible for each in fields)]
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
    numbered = (f"{stem[: _NAME_LENGTH - 4]}_{n}" for n in range(2, 1000))
    return next(name for name in chain((stem[:_NAME_LENGTH],), numbered) if name not in taken)
