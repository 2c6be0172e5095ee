"""Cache groups: the fields of a class that share one, and the system of each group.

A declared group is never split. Fields without a declared group are in the main group; one that
belongs on another system gets its own group. The main group is on the default system if it has a
field without goals, which cannot decide by score; else the class's mean decides.
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
    """Existing data of classes; the caller decides which classes are pinned.

    Attributes:
        systems: The system of each (class, group).
        groups: The group of each (class, field).
    """

    systems: Mapping[tuple[str, str], str] = field(default_factory=dict)
    groups: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupPlan:
    """One cache group: its choice, and the choice for each of its fields.

    A field that joined the group by its own scores has its own choice.
    """

    name: str
    choice: SystemChoice
    field_choices: Mapping[str, SystemChoice]


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
    leading_order = order.leading(order.default(rank))
    planner = _Planner(class_, rank, leading_order, pins, bound, required)
    groups, ungrouped = planner.members()
    members = groups.pop(MAIN_GROUP, [])
    main = planner.choose_main(members, ungrouped)
    choices = {MAIN_GROUP: main}
    field_choices = {MAIN_GROUP: {member.node: main for member in members}}
    for name, fields in groups.items():
        choices[name] = planner.choose_shared(name, fields)
        field_choices[name] = _field_choices(choices[name], fields)
    used_names = {*choices, *planner.used_names}
    for single in ungrouped:
        throttle()
        choice = planner.choose_alone(single)
        alone = choice.system != main.system
        name = _free_name(single.node, used_names) if alone else MAIN_GROUP
        used_names.add(name)
        choices.setdefault(name, choice)
        field_choices.setdefault(name, {})[single.node] = choice
    return tuple(GroupPlan(name, choice, field_choices[name]) for name, choice in choices.items())


def _field_choices(choice: SystemChoice, fields: Sequence[NodeRank]) -> dict[str, SystemChoice]:
    if choice.kind != "own":
        return dict.fromkeys((field_.node for field_ in fields), choice)
    winners = {node_scores(field_).ranked(choice.eligible)[0] for field_ in fields if field_.votes}
    voter_choice = choice if len(winners) == 1 else replace(choice, kind="group")
    follower_choice = replace(choice, kind="follows")
    return {field_.node: voter_choice if field_.votes else follower_choice for field_ in fields}


@dataclass(frozen=True)
class _Planner:
    class_: ClassSchema
    rank: NodeRank
    order: SystemOrder
    pins: Pins
    bound: SystemChoice | None
    required: RequiredSystems

    @property
    def used_names(self) -> set[str]:
        """Names of groups that hold data, or that the schema declares."""
        pinned = {
            group for class_name, group in self.pins.systems if class_name == self.class_.name
        }
        return pinned | {f.group for f in self.class_.fields.values() if f.group}

    def members(self) -> tuple[dict[str, list[NodeRank]], list[NodeRank]]:
        """Split the fields into those of known groups, and those without a group."""
        groups: dict[str, list[NodeRank]] = {}
        ungrouped = []
        # One system must check uniqueness and maintain an index: these fields stay together.
        together = {name for names in self.class_.unique if len(names) > 1 for name in names}
        together |= {name for index in self.class_.indexes for name in index.fields}
        for child, field_ in zip(self.rank.children, self.class_.fields.values(), strict=True):
            declared = field_.group or (MAIN_GROUP if field_.name in together else None)
            group = self.pins.groups.get((self.class_.name, field_.name), declared)
            if group:
                groups.setdefault(group, []).append(child)
            else:
                ungrouped.append(child)
        return groups, ungrouped

    def choose_main(
        self, members: Sequence[NodeRank], ungrouped: Sequence[NodeRank]
    ) -> SystemChoice:
        fixed_choice = self._fixed_choice(MAIN_GROUP)
        if fixed_choice:
            return fixed_choice
        eligible = self._common_systems(MAIN_GROUP, members)
        all_have_goals = all(member.requirements for member in (*members, *ungrouped))
        scores = node_scores(self.rank) if all_have_goals else None
        choice = self.order.choose(self.rank.node, eligible, scores)
        return choice.restricted(self.required.of_class(self.class_), self.rank.obstacle)

    def choose_shared(self, name: str, fields: Sequence[NodeRank]) -> SystemChoice:
        """Choose for a named group: by the mean over its voting fields."""
        fixed_choice = self._fixed_choice(name)
        if fixed_choice:
            return fixed_choice
        node = f"{self.class_.name}#{name}"
        eligible = self._common_systems(name, fields)
        choice = self.order.choose(node, eligible, mean_scores(node, fields, eligible))
        return choice.restricted(self._required_of(node, fields), self.rank.obstacle)

    def choose_alone(self, field_: NodeRank) -> SystemChoice:
        """Choose for a field without a group: by its own requirements only."""
        if self.bound:
            return self.bound
        scores = node_scores(field_) if field_.votes else None
        choice = self.order.choose(field_.node, field_.eligible, scores)
        return choice.restricted(self._required_of(field_.node, [field_]), field_.obstacle)

    def _required_of(self, node: str, fields: Sequence[NodeRank]) -> RequiredSystem | None:
        """Return the system that fields of one group require, or else inherit."""
        names = (field_.node.partition(".")[2] for field_ in fields)
        return self.required.of_group(node, self.class_, names)

    def _fixed_choice(self, group: str) -> SystemChoice | None:
        """Return the choice for a group that holds data, or whose class is bound."""
        pinned = self.pins.systems.get((self.class_.name, group))
        if pinned is None:
            return self.bound
        return SystemChoice(pinned, "pinned", f"{self.class_.name}#{group}", None, ())

    def _common_systems(self, name: str, fields: Sequence[NodeRank]) -> list[str]:
        systems = self.rank.qualified
        common = [s for s in throttled(systems) if all(s in field_.eligible for field_ in fields)]
        if not common:
            names = ", ".join(field_.node for field_ in fields)
            lacks = {s: r for field_ in fields for s, r in field_.dropped.items()}
            node = f"{self.class_.name}#{name}"
            refuse([Refusal(node, f"one system for all its fields: {names}", lacks)])
        return common


def _free_name(node: str, used_names: Collection[str]) -> str:
    """Return an unused group name after a field, within the pattern of group names."""
    lowered = node.partition(".")[2].lower()
    stem = _NOT_IN_NAMES.sub("_", lowered).lstrip("_0123456789") or "field"
    numbered_names = (f"{stem[: _NAME_LENGTH - 4]}_{n}" for n in range(2, 1000))
    return next(
        name for name in chain((stem[:_NAME_LENGTH],), numbered_names) if name not in used_names
    )
