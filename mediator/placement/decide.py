"""Decides placements from a ranking: the system of each node and each cache group, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from mediator.base.errors import Location
from mediator.base.offload import throttled
from mediator.placement.candidates import Candidate
from mediator.placement.groups import GroupPlan, Pins, plan_groups
from mediator.placement.proposals import Move, moves_between
from mediator.placement.rank import ROOT, NodeRank, rank
from mediator.placement.required import RequiredSystems, unknown_systems
from mediator.placement.scores import SystemChoice, SystemOrder, node_scores
from mediator.placement.sentence import Sentences
from mediator.routing.model import ClassRoute, DatabaseRoute
from mediator.schema.annotations import Capability
from mediator.schema.foreign_keys import ForeignKey, foreign_keys_of
from mediator.schema.overrides import Overrides
from mediator.schema.tree import ClassSchema, Mode, Schema
from mediator.stores.port import Fragment

__all__ = [
    "NO_OVERRIDES",
    "NO_PINS",
    "Decision",
    "GroupPlacement",
    "Move",
    "Pins",
    "Placement",
    "build_routes",
    "decide",
    "named_mistakes",
    "pins_of",
    "view_system",
]

NO_PINS = Pins()
NO_OVERRIDES: Overrides = MappingProxyType({})

_VIEW_CAPABILITIES = frozenset({Capability.SCANS, Capability.SORTING, Capability.RANGE_QUERIES})


@dataclass(frozen=True)
class Placement:
    """The system of a node, and the choice behind it.

    Attributes:
        score: The system's score there; None where no requirement votes.
        bound: Whether a binary requirement of the node or an ancestor binds it to the system.
    """

    node: str
    system: str
    score: float | None
    bound: bool
    choice: SystemChoice


class GroupPlacement(NamedTuple):
    system: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """All placements of a schema.

    Attributes:
        ranking: The scores that decided them.
        candidates: The systems, as registered.
        order: The order that breaks ties and gives defaults.
        placements: By node; of an inner node that is not bound, that of its main group.
        groups: The cache groups of each class, the main group first.
        moves: Nodes that a decision without pins would place elsewhere.
    """

    ranking: NodeRank
    candidates: tuple[Candidate, ...]
    order: SystemOrder
    placements: Mapping[str, Placement]
    groups: Mapping[str, Mapping[str, GroupPlacement]]
    moves: tuple[Move, ...] = ()

    @cached_property
    def sentences(self) -> Sentences:
        return Sentences(self.ranking, self.candidates, self.order)

    def why(self, node: str) -> str:
        return self.sentences.of(self.placements[node].choice)


def decide(
    schema: Schema,
    candidates: Sequence[Candidate],
    pins: Pins = NO_PINS,
    overrides: Overrides = NO_OVERRIDES,
) -> Decision:
    """Decide the placements of a schema; `candidates` are in the order of their registration.

    The groups in `pins` already hold data: they stay, and `moves` has those that otherwise would
    not. `overrides` are those in force.

    Raises:
        Unplaceable: No system remains for a node or a declared group.
    """
    ranking = rank(schema, candidates)
    required = RequiredSystems(schema, overrides)
    free = _decide(required, tuple(candidates), ranking, NO_PINS)
    if not pins.systems:
        return free
    pinned = _decide(required, tuple(candidates), ranking, pins)
    placements = {node: _explain_pinned(placed, free) for node, placed in pinned.placements.items()}
    systems = {node: placed.system for node, placed in placements.items()}
    choices = {node: placed.choice for node, placed in free.placements.items()}
    moves = moves_between(schema, choices, systems, pins, free.sentences.of)
    return replace(pinned, placements=placements, moves=moves)


def _explain_pinned(placed: Placement, free: Decision) -> Placement:
    """Explain a placement by the choice that would be made if no data were held."""
    choice = free.placements[placed.node].choice
    if choice.system != placed.system:
        choice = replace(choice, system=placed.system, kind="pinned")
    return replace(placed, choice=choice)


def _decide(
    required: RequiredSystems, candidates: tuple[Candidate, ...], ranking: NodeRank, pins: Pins
) -> Decision:
    schema = required.schema
    order = SystemOrder.of(candidates, schema)
    allowed = ranking.eligible if ranking.bound else ranking.qualified
    requirement = required.of_everything() if ranking.bound else required.of_database()
    choice = order.choose(ROOT, allowed, node_scores(ranking))
    choice = choice.restricted(requirement, ranking.obstacle)
    bound = _bind(choice, ranking, pins, schema.classes) if ranking.bound else None
    placements = {ROOT: _placement(ranking, bound or choice, ranking.bound)}
    groups = {}
    for class_, node in zip(schema.classes.values(), ranking.children, strict=True):
        class_bound = bound or _class_bound(class_, node, order, pins, required)
        plans = plan_groups(class_, node, order, pins=pins, bound=class_bound, required=required)
        placements[node.node] = _placement(node, plans[0].choice, class_bound is not None)
        placements |= _field_placements(node, plans, class_bound is not None)
        groups[class_.name] = _groups(class_, plans)
    return Decision(ranking, candidates, order, placements, groups)


def _class_bound(
    class_: ClassSchema,
    node: NodeRank,
    order: SystemOrder,
    pins: Pins,
    required: RequiredSystems,
) -> SystemChoice | None:
    if not node.bound:
        return None
    choice = order.choose(node.node, node.eligible, node_scores(node))
    choice = choice.restricted(required.of_whole(class_), node.obstacle)
    return _bind(choice, node, pins, {class_.name})


def _bind(
    choice: SystemChoice, node: NodeRank, pins: Pins, classes: Collection[str]
) -> SystemChoice:
    """Bind a subtree to one system: the one that already holds all its data, if eligible."""
    if choice.required:
        return choice
    systems = {system for (class_name, _), system in pins.systems.items() if class_name in classes}
    stays = len(systems) == 1 and systems <= set(choice.eligible)
    system = min(systems) if stays else choice.system
    return replace(choice, system=system, kind="bound", by=node.node)


def _placement(node: NodeRank, choice: SystemChoice, bound: bool) -> Placement:
    return Placement(node.node, choice.system, node.scores.get(choice.system), bound, choice)


def _field_placements(
    node: NodeRank, plans: Sequence[GroupPlan], bound: bool
) -> dict[str, Placement]:
    choices = {name: choice for plan in plans for name, choice in plan.field_choices.items()}
    return {
        f.node: _placement(f, choices[f.node], bound or f.bound) for f in throttled(node.children)
    }


def _groups(class_: ClassSchema, plans: Sequence[GroupPlan]) -> dict[str, GroupPlacement]:
    """Return the groups of a class by name, their fields in the order of the class."""
    group_of = {node: plan.name for plan in throttled(plans) for node in plan.field_choices}
    fields: dict[str, list[str]] = {plan.name: [] for plan in plans}
    for name in class_.fields:
        fields[group_of[f"{class_.name}.{name}"]].append(name)
    return {
        plan.name: GroupPlacement(plan.choice.system, tuple(fields[plan.name])) for plan in plans
    }


def view_system(
    schema: Schema, decision: Decision, present: str | None = None, unfit: Collection[str] = ()
) -> str | None:
    """Return the view's system: that of the schema, else the best-ranked one proven for it.

    Proven means scans, sorting and range queries (docs/schema.md, "The database"), and indexes of
    paths, if the schema has some. Without scores the first registered system counts as the best.
    None if no system is proven for it except `unfit` ones, which take no copies. The present view
    stays while it qualifies: another would have to be built from the fragments.
    """
    if schema.materialised_view.system is not None:
        return schema.materialised_view.system
    usable = [
        c.name
        for c in decision.candidates
        if c.suspended is None and not _lacking_for_view(schema, c) and c.name not in unfit
    ]
    if present in usable:
        return present
    scores = decision.ranking.scores
    return max(usable, key=lambda name: scores.get(name, -1.0), default=None)


def _lacking_for_view(schema: Schema, candidate: Candidate) -> tuple[str, ...]:
    """Return the capabilities for reading whole objects that a system is not proven for."""
    lacking: tuple[str, ...] = candidate.lacking(_VIEW_CAPABILITIES)
    if candidate.path_indexes:
        return lacking
    fields = (field for class_ in schema.classes.values() for field in class_.fields.values())
    return (*lacking, "indexes of paths") if any(f.indexed_paths for f in fields) else lacking


def named_mistakes(schema: Schema, candidates: Sequence[Candidate]) -> list[Location]:
    """Return why named systems cannot be the view, the default, or required systems."""
    systems = {candidate.name: candidate for candidate in candidates}
    named_systems = {
        "/materialised_view/system": schema.materialised_view.system,
        "/default/system": schema.default.system,
    }
    mistakes = [
        Location(pointer, f"there is no system {name}")
        for pointer, name in named_systems.items()
        if name is not None and name not in systems
    ]
    mistakes += unknown_systems(schema, systems)
    view = systems.get(schema.materialised_view.system or "")
    lacking = _lacking_for_view(schema, view) if view else ()
    if schema.mode is Mode.MICROBATCHED and lacking:
        mistake = f"is not proven for {', '.join(lacking)}, which whole objects are read by"
        mistakes.append(
            Location("/materialised_view/system", f"{schema.materialised_view.system} {mistake}")
        )
    return mistakes


def pins_of(route: DatabaseRoute, class_names: Sequence[str]) -> Pins:
    routes = [(name, route.classes[name]) for name in class_names if name in route.classes]
    systems = {
        (name, group): fragment.system
        for name, class_route in routes
        for fragment in class_route.fragments
        for group in fragment.groups
    }
    members = {
        (name, field): group
        for name, class_route in routes
        for field, group in class_route.group_of.items()
    }
    return Pins(systems, members)


def build_routes(
    schema: Schema,
    groups: Mapping[str, Mapping[str, GroupPlacement]],
    versions: Mapping[str, int],
    view: str | None = None,
) -> DatabaseRoute:
    """Build the routes of a database; in advisory mode it has none."""
    if schema.mode is Mode.ADVISORY:
        return DatabaseRoute(schema, {})
    keys = {name: foreign_keys_of(class_) for name, class_ in schema.classes.items()}
    referenced_by: dict[str, list[ForeignKey]] = {}
    for key in chain.from_iterable(keys.values()):
        referenced_by.setdefault(key.to, []).append(key)
    routes = {
        name: replace(
            _class_route(schema.database, class_, groups[name], versions[name], view),
            foreign_keys=keys[name],
            referenced_by=tuple(referenced_by.get(name, ())),
        )
        for name, class_ in schema.classes.items()
    }
    return DatabaseRoute(schema, routes)


def _class_route(
    database: str,
    class_: ClassSchema,
    groups: Mapping[str, GroupPlacement],
    version: int,
    view: str | None,
) -> ClassRoute:
    # The main group comes first in `groups`, so its system, the anchor, is the first here.
    systems = list(dict.fromkeys(placed.system for placed in groups.values()))
    joint, anchor, ttl_s = len(systems) > 1, systems[0], class_.ttl_s
    fragments = []
    for system in systems:
        group_fields = {
            name: placed.fields for name, placed in groups.items() if placed.system == system
        }
        field_names = {name for names in group_fields.values() for name in names}
        fields = {name: field for name, field in class_.fields.items() if name in field_names}
        unique = tuple(
            names for names in class_.unique_constraints if field_names.issuperset(names)
        )
        indexes = tuple(i.fields for i in class_.indexes if field_names.issuperset(i.fields))
        fragment = Fragment(
            system,
            database,
            class_.name,
            fields,
            group_fields,
            version,
            ttl_s,
            joint,
            anchor,
            unique=unique,
            indexes=indexes,
        )
        fragments.append(fragment)
    copy = None
    if view:
        # Each version of the class has its own copy, built from the fragments: forms never mix.
        name = f"{class_.name}@view.{version}"
        all_groups = {group: placed.fields for group, placed in groups.items()}
        copy = Fragment(
            view,
            database,
            name,
            class_.fields,
            all_groups,
            version,
            ttl_s,
            anchor_system=anchor,
            indexes=tuple(index.fields for index in class_.indexes),
        )
    return ClassRoute(class_, version, tuple(fragments), copy)
