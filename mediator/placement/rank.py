"""RANK: the scores of all systems at every node of a schema (docs/papers/ppm.md, Algorithm 1).

Binary requirements filter before the descent, so that a child never picks a system that a parent
excludes. Continuous ones are pushed down and evaluated at fields only. An inner node's score is the
mean of its children's, over the systems common to every voting child. A field reached only by
binary requirements, its own or inherited, votes with these: every system that meets them scores 1.
A field without any requirement does not vote, nor does a class of such fields. Nodes that no system
can serve are refused, with the deficiencies of each system.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final

from mediator.base.errors import Location, Unplaceable
from mediator.base.offload import throttle, throttled
from mediator.placement.candidates import Candidate
from mediator.placement.utility import FieldScore, score
from mediator.schema.annotations import (
    Annotation,
    BinaryRequirement,
    Capability,
    ContinuousRequirement,
)
from mediator.schema.tree import ClassSchema, Field, Mode, Schema

__all__ = ["ROOT", "NodeRank", "Refusal", "rank", "refuse", "title_of"]

ROOT = "*"
"""The name of the database's own node; a class is ``articles``, a field ``articles.hits``."""


@dataclass(frozen=True)
class NodeRank:
    """The result of RANK for one node.

    Attributes:
        bound: Whether it, and all its descendants, are bound to one system.
        requires: Its own binary requirements.
        qualified: Systems with every capability required here and above, as registered.
        eligible: Those qualified systems that could also serve all descendants.
        scores: Score (fields) or mean score (inner nodes) of the systems that have one.
        dropped: Why the other systems have no score.
        requirements: Continuous requirements, own and pushed down (fields only).
        terms: The terms of each score (fields only).
        votes: Whether any requirement reaches the field, or a descendant field.
    """

    node: str
    bound: bool
    requires: tuple[Capability, ...]
    qualified: tuple[str, ...]
    eligible: tuple[str, ...]
    scores: Mapping[str, float]
    dropped: Mapping[str, str]
    children: tuple[NodeRank, ...] = ()
    requirements: tuple[ContinuousRequirement, ...] = ()
    terms: Mapping[str, FieldScore] = field(default_factory=dict)
    votes: bool = False

    def walk(self) -> Iterator[NodeRank]:
        """Yield the node and all its descendants, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def obstacle(self, system: str) -> str:
        """Return why a system cannot serve the node and all its descendants."""
        return next((node.dropped[system] for node in self.walk() if system in node.dropped), "")


@dataclass(frozen=True, slots=True)
class _Scope:
    """A node's inheritance: remaining systems, why others are out, requirements pushed down."""

    systems: tuple[Candidate, ...]
    dropped: Mapping[str, str]
    requirements: tuple[ContinuousRequirement, ...] = ()
    required: bool = False

    def narrow(self, node: str, annotations: Sequence[Annotation]) -> _Scope:
        """Filter by the node's binary requirements and add its continuous ones."""
        required = _binary(annotations)
        deficiencies = {c.name: _deficiency(c.lacking(required), node) for c in self.systems}
        scope = self.without(deficiencies)
        continuous = (*self.requirements, *_continuous(annotations))
        return replace(scope, requirements=continuous, required=self.required or bool(required))

    def without(self, reasons: Mapping[str, str]) -> _Scope:
        excluded = {name: reason for name, reason in reasons.items() if reason}
        systems = tuple(candidate for candidate in self.systems if candidate.name not in excluded)
        return replace(self, systems=systems, dropped={**self.dropped, **excluded})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(candidate.name for candidate in self.systems)


def rank(schema: Schema, candidates: Sequence[Candidate]) -> NodeRank:
    """Rank all systems at every node of a schema; in mode ``entity`` every class is a bound node.

    `candidates` are in the order of their registration.

    Raises:
        Unplaceable: No system remains at a bound node or at a field; `extra["nodes"]` has all such
            nodes, with their requirement and each system's deficiencies.
    """
    suspended = {c.name: f"suspended: {c.suspended}" for c in candidates if c.suspended}
    scope = _Scope(tuple(candidates), {}).without(suspended).narrow(ROOT, schema.annotations)
    entity = schema.mode is Mode.ENTITY
    classes = tuple(_rank_class(class_, scope, entity) for class_ in schema.classes.values())
    root = _rank_inner(ROOT, schema.annotations, scope, classes)
    refuse(_refusals(root))
    return root


def _rank_class(class_: ClassSchema, outer: _Scope, entity: bool) -> NodeRank:
    scope = outer.narrow(class_.name, class_.annotations)
    unique = {name for names in class_.unique_constraints for name in names}
    fields = tuple(
        _rank_field(class_.name, f, scope, is_unique=f.name in unique)
        for f in class_.fields.values()
    )
    return _rank_inner(class_.name, class_.annotations, scope, fields, bind=entity)


def _rank_field(class_name: str, field_: Field, outer: _Scope, *, is_unique: bool) -> NodeRank:
    throttle()
    node = f"{class_name}.{field_.name}"
    scope = outer.narrow(node, field_.annotations)
    obstacles = {
        c.name: _field_obstacle(c, field_, scope.requirements, node) for c in scope.systems
    }
    scope = scope.without(obstacles)
    if is_unique:
        scope = scope.without({c.name: _NO_UNIQUENESS for c in scope.systems if not c.claims})
    terms = {c.name: score(scope.requirements, c) for c in scope.systems}
    votes = bool(scope.requirements) or scope.required
    required = _binary(field_.annotations)
    return NodeRank(
        node=node,
        bound=bool(required),
        requires=required,
        qualified=scope.names,
        eligible=scope.names,
        scores={name: term.value for name, term in terms.items()} if votes else {},
        dropped=scope.dropped,
        requirements=scope.requirements,
        terms=terms if scope.requirements else {},
        votes=votes,
    )


def _rank_inner(
    node: str,
    annotations: Sequence[Annotation],
    scope: _Scope,
    children: tuple[NodeRank, ...],
    *,
    bind: bool = False,
) -> NodeRank:
    required = _binary(annotations)
    bound = bind or bool(required)
    voting = [child for child in children if child.votes]
    eligible = _common(scope.names, (child.eligible for child in children))
    common = _common(scope.names, (child.scores for child in voting))
    scored = [s for s in common if voting and (s in eligible or not bound)]
    usable = scored if voting else eligible
    obstacles = {s: _obstacle(s, children, voting) for s in scope.names if s not in usable}
    return NodeRank(
        node=node,
        bound=bound,
        requires=required,
        qualified=scope.names,
        eligible=eligible,
        scores={s: fmean(child.scores[s] for child in voting) for s in throttled(scored)},
        dropped={**scope.dropped, **obstacles},
        children=children,
        votes=bool(voting),
    )


def _common(names: Sequence[str], groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Return the names that are in all the groups, in their order."""
    common = set(names)
    for group in throttled(groups):
        common.intersection_update(group)
    return tuple(name for name in names if name in common)


def _binary(annotations: Iterable[Annotation]) -> tuple[Capability, ...]:
    capabilities = (a.capability for a in annotations if isinstance(a, BinaryRequirement))
    return tuple(dict.fromkeys(capabilities))


def _continuous(annotations: Iterable[Annotation]) -> tuple[ContinuousRequirement, ...]:
    # A requirement without weight has no effect: it neither votes nor needs its metric.
    return tuple(a for a in annotations if isinstance(a, ContinuousRequirement) and a.weight > 0)


_NO_UNIQUENESS: Final = "keeps no values unique, as the schema has them"


def _deficiency(missing: Sequence[Capability], node: str) -> str:
    return f"lacks {', '.join(missing)}, required by {title_of(node)}" if missing else ""


def _field_obstacle(
    candidate: Candidate,
    field_: Field,
    requirements: Sequence[ContinuousRequirement],
    node: str,
) -> str:
    if field_.type in candidate.inexact:
        return f"lacks an exact operator for type {field_.type}, the type of {node}"
    if field_.indexed_paths and not candidate.path_indexes:
        return f"indexes no paths within documents and maps, as {node} has"
    unknown = [r for r in requirements if candidate.measured(r) is None]
    names = dict.fromkeys(f"p99 {r.metric}" if r.statistic == "p99" else r.metric for r in unknown)
    return f"has no measured {', '.join(names)}, needed by {node}" if names else ""


def _obstacle(system: str, children: Sequence[NodeRank], voting: Sequence[NodeRank]) -> str:
    """Return which field keeps a system from being common to all children."""
    fields = [leaf for child in (*voting, *children) for leaf in child.walk() if not leaf.children]
    return next(
        (leaf.dropped[system] for leaf in fields if system in leaf.dropped), "serves no field here"
    )


def _refusals(rank_: NodeRank) -> list[Refusal]:
    """Return the refusals of nodes that no system can serve: the innermost that explain it."""
    if rank_.qualified:
        inner = [refusal for child in throttled(rank_.children) for refusal in _refusals(child)]
        if inner or rank_.eligible or not rank_.bound:
            return inner
    return [Refusal(rank_.node, _requirement(rank_), rank_.dropped)]


def _requirement(rank_: NodeRank) -> str:
    metrics = (requirement.metric for requirement in rank_.requirements)
    requirements = ", ".join(dict.fromkeys((*rank_.requires, *metrics)))
    if rank_.children and rank_.qualified:
        return (
            f"{requirements} on one system for all below it"
            if requirements
            else "one system for all below it"
        )
    return requirements or "a system that can hold it"


def title_of(node: str) -> str:
    """Return the name of a node or cache group in a sentence."""
    if node == ROOT:
        return "the database"
    return f"cache group {node}" if "#" in node else node


@dataclass(frozen=True, slots=True)
class Refusal:
    """One node that cannot be served: its requirement, and why each system is out.

    `locations` are set if the requirement is a system that the schema names.
    """

    node: str
    requirement: str
    systems: Mapping[str, str]
    locations: Sequence[Location] = ()

    def __str__(self) -> str:
        lacks = "; ".join(f"{name} {reason}" for name, reason in self.systems.items())
        return f"{self.node} requires {self.requirement} ({lacks or 'there is no system'})"


def refuse(refusals: Sequence[Refusal]) -> None:
    """Raise `Unplaceable` if there are refusals."""
    if not refusals:
        return
    reasons = "; ".join(str(refusal) for refusal in refusals)
    nodes = [
        {"node": r.node, "requirement": r.requirement, "systems": dict(r.systems)} for r in refusals
    ]
    locations = [location for refusal in refusals for location in refusal.locations]
    raise Unplaceable(
        f"No system can serve {reasons}.", locations=locations, extra={"nodes": nodes}
    )
