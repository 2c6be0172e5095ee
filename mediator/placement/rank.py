"""RANK: the scores of all systems at every node of a schema (docs/papers/ppm.md, Algorithm 1).

Binary requirements filter before descending, so that a child never picks what a parent excludes.
Continuous ones are pushed down and evaluated at fields only. An inner node's score is the mean of
its children's, over the systems common to every child that votes. A field that only binary
requirements reach, its own or inherited, votes with these: every system that meets them scores 1.
A field that nothing reaches does not vote, nor does a class whose fields do not. Nodes that no
system can serve are refused, with what each system lacks.
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
        bound: Whether it, and everything below it, is tied to one system.
        requires: Its own binary requirements.
        qualified: Systems with every capability required here and above, as registered.
        eligible: Those of them that could serve everything below as well.
        scores: Score (fields) or mean score (inner nodes) of the systems that have one.
        dropped: Why the others have none.
        requirements: Continuous requirements, own and pushed down (fields only).
        terms: How each score came about (fields only).
        votes: Whether any requirement reaches the field, or a field below.
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
        """Yield the node and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def obstacle(self, system: str) -> str:
        """Say what keeps a system from serving the node and everything below it."""
        return next((node.dropped[system] for node in self.walk() if system in node.dropped), "")


@dataclass(frozen=True, slots=True)
class _Scope:
    """What a node inherits: the systems left, why others are not, requirements pushed down."""

    systems: tuple[Candidate, ...]
    dropped: Mapping[str, str]
    requirements: tuple[ContinuousRequirement, ...] = ()
    required: bool = False

    def narrow(self, node: str, annotations: Sequence[Annotation]) -> _Scope:
        """Filter by the node's binary requirements and take up its continuous ones."""
        required = _binary(annotations)
        lacking = {c.name: _lack(c.lacking(required), node) for c in self.systems}
        fit = self.without(lacking)
        continuous = (*self.requirements, *_continuous(annotations))
        return replace(fit, requirements=continuous, required=self.required or bool(required))

    def without(self, reasons: Mapping[str, str]) -> _Scope:
        given = {name: reason for name, reason in reasons.items() if reason}
        kept = tuple(candidate for candidate in self.systems if candidate.name not in given)
        return replace(self, systems=kept, dropped={**self.dropped, **given})

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(candidate.name for candidate in self.systems)


def rank(schema: Schema, candidates: Sequence[Candidate]) -> NodeRank:
    """Rank all systems at every node of a schema; in mode ``entity`` every class is a bound node.

    `candidates` are in the order of their registration.

    Raises:
        Unplaceable: No system is left at a bound node or at a field; `extra["nodes"]` has all
            such nodes, with their requirement and what each system lacks.
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
    unfit = {c.name: _unfit(c, field_, scope.requirements, node) for c in scope.systems}
    scope = scope.without(unfit)
    if is_unique:
        scope = scope.without({c.name: _UNCLAIMED for c in scope.systems if not c.claims})
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
    left = set(names)
    for group in throttled(groups):
        left.intersection_update(group)
    return tuple(name for name in names if name in left)


def _binary(annotations: Iterable[Annotation]) -> tuple[Capability, ...]:
    found = (a.capability for a in annotations if isinstance(a, BinaryRequirement))
    return tuple(dict.fromkeys(found))


def _continuous(annotations: Iterable[Annotation]) -> tuple[ContinuousRequirement, ...]:
    # A requirement without weight says nothing: it neither votes nor needs its metric.
    return tuple(a for a in annotations if isinstance(a, ContinuousRequirement) and a.weight > 0)


_UNCLAIMED: Final = "keeps no values unique, as the schema has them"


def _lack(missing: Sequence[Capability], node: str) -> str:
    return f"lacks {', '.join(missing)}, required by {title_of(node)}" if missing else ""


def _unfit(
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
    """Say which field keeps a system from being common to all children."""
    fields = [leaf for child in (*voting, *children) for leaf in child.walk() if not leaf.children]
    return next(
        (leaf.dropped[system] for leaf in fields if system in leaf.dropped), "serves no field here"
    )


def _refusals(rank_: NodeRank) -> list[Refusal]:
    """Find the nodes that no system can serve, the innermost that explain it."""
    if rank_.qualified:
        below = [refusal for child in throttled(rank_.children) for refusal in _refusals(child)]
        if below or rank_.eligible or not rank_.bound:
            return below
    return [Refusal(rank_.node, _requirement(rank_), rank_.dropped)]


def _requirement(rank_: NodeRank) -> str:
    metrics = (requirement.metric for requirement in rank_.requirements)
    named = ", ".join(dict.fromkeys((*rank_.requires, *metrics)))
    if rank_.children and rank_.qualified:
        return f"{named} on one system for all below it" if named else "one system for all below it"
    return named or "a system that can hold it"


def title_of(node: str) -> str:
    """Name a node or cache group in a sentence."""
    if node == ROOT:
        return "the database"
    return f"cache group {node}" if "#" in node else node


@dataclass(frozen=True, slots=True)
class Refusal:
    """One node that cannot be served: its requirement, and why each system is out.

    `locations` are there if the requirement is a system, which is named somewhere in the schema.
    """

    node: str
    requirement: str
    systems: Mapping[str, str]
    locations: Sequence[Location] = ()

    def __str__(self) -> str:
        lacks = "; ".join(f"{name} {reason}" for name, reason in self.systems.items())
        return f"{self.node} requires {self.requirement} ({lacks or 'there is no system'})"


def refuse(refusals: Sequence[Refusal]) -> None:
    """Raise `Unplaceable` for the refusals, if there are any."""
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
