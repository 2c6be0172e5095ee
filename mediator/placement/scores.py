"""Scores by which a system is chosen, and the order that breaks ties."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum
from statistics import fmean
from typing import Literal, TypeAlias

from mediator.base.errors import Location
from mediator.base.offload import throttled
from mediator.placement.candidates import Candidate
from mediator.placement.rank import NodeRank, Refusal, refuse
from mediator.placement.required import RequiredSystem
from mediator.schema.annotations import ContinuousRequirement
from mediator.schema.tree import Schema

__all__ = [
    "Kind",
    "Requirements",
    "Scores",
    "SystemChoice",
    "SystemOrder",
    "mean_scores",
    "node_scores",
    "terms",
]

Kind: TypeAlias = Literal[
    "bound", "required", "overridden", "own", "group", "follows", "default", "pinned"
]
"""Why a node is placed on its system.

bound: it, or an ancestor, has a binary requirement (or the mode binds classes). required: the
schema requires a system by name. overridden: an operator requires it, for a time. own: its own
scores. group: the mean over the fields of its cache group. follows: without a requirement, it
follows its declared cache group. default: without a requirement, it is on the default system.
pinned: it holds data there, and data moves only by migration."""

Requirements: TypeAlias = Mapping[str, Sequence[ContinuousRequirement]]
"""The continuous requirements of each field, by node."""


@dataclass(frozen=True)
class Scores:
    """Scores by which a system is chosen.

    Attributes:
        node: The node (``articles``) or cache group (``articles#hits``) they belong to.
        by_system: Score of each system that can be chosen.
        shares: Share of each voting field in the score; the shares add up to 1.
    """

    node: str
    by_system: Mapping[str, float]
    shares: Mapping[str, float]

    def among(self, systems: Collection[str]) -> Scores:
        scores = {name: score for name, score in self.by_system.items() if name in systems}
        return Scores(self.node, scores, self.shares)

    def better_than(self, system: str) -> str | None:
        """Return the system with the best score if that of `system` is known, and lower."""
        best = max(self.by_system.items(), key=lambda item: item[1], default=None)
        score = self.by_system.get(system)
        return best[0] if best and score is not None and score < best[1] else None

    def ranked(self, order: Sequence[str]) -> list[str]:
        """Return the systems, best first; the first in `order` wins ties."""
        return sorted((s for s in order if s in self.by_system), key=lambda s: -self.by_system[s])


@dataclass(frozen=True)
class SystemChoice:
    """The choice of a system.

    Attributes:
        by: The node or cache group that decided.
        scores: The scores that decided; None where no requirement votes.
        eligible: The systems to choose from; of equal scores the first one wins.
        required: The requirement that leaves one system; `scores` has the others nevertheless.
    """

    system: str
    kind: Kind
    by: str
    scores: Scores | None
    eligible: tuple[str, ...]
    required: RequiredSystem | None = None

    def restricted(
        self, required: RequiredSystem | None, obstacle: Callable[[str], str]
    ) -> SystemChoice:
        """Return the choice under a requirement; `obstacle` returns why a system is out.

        Raises:
            Unplaceable: The required system cannot be chosen, with the location of the requirement.
        """
        if required is None:
            return self
        system = required.system
        if system not in self.eligible:
            reason = obstacle(system) or "does not exist"
            location = Location(required.pointer, f"{system} {reason}")
            refuse([Refusal(required.node, f"the system {system}", {system: reason}, [location])])
        return replace(
            self,
            system=system,
            kind="overridden" if required.override else "required",
            by=required.node,
            eligible=(system,),
            required=required,
        )


@dataclass(frozen=True)
class SystemOrder:
    """The order that breaks ties and gives defaults.

    The schema's default system, if any, comes first. The others follow by what they lose in a
    crash, least first; of equal ones the system of the view, then the one registered first. Systems
    without metrics come last.
    """

    names: tuple[str, ...]
    named: str | None = None
    view: str | None = None

    @classmethod
    def of(cls, candidates: Sequence[Candidate], schema: Schema) -> SystemOrder:
        named, view = schema.default.system, schema.materialised_view.system

        def rank_of(candidate: Candidate) -> tuple[bool, bool, float, bool]:
            name, lacks_metrics = candidate.name, not candidate.metrics
            return name != named, lacks_metrics, candidate.loses_s, name != view

        names = tuple(candidate.name for candidate in sorted(candidates, key=rank_of))
        return cls(names, named, view)

    def leading(self, system: str) -> SystemOrder:
        """Return the same order with one system before all others."""
        names = (system, *(name for name in self.names if name != system))
        return replace(self, names=names)

    def first(self, eligible: Collection[str]) -> str:
        return min(eligible, key=self._ranks.__getitem__)

    def default(self, rank: NodeRank) -> str:
        """Return the default system of a node: one that can serve all descendants, if any."""
        if self.named in rank.qualified:
            return self.named
        return self.first(rank.eligible or rank.qualified)

    def choose(self, node: str, eligible: Collection[str], scores: Scores | None) -> SystemChoice:
        """Choose by scores; without any, the first of the systems."""
        allowed = tuple(sorted(eligible, key=self._ranks.__getitem__))
        scored = scores.among(frozenset(eligible)) if scores else None
        if scored is None or not scored.by_system:
            return SystemChoice(allowed[0], "default", node, None, allowed)
        return SystemChoice(scored.ranked(allowed)[0], "own", scored.node, scored, allowed)

    @cached_property
    def _ranks(self) -> Mapping[str, int]:
        return {name: rank for rank, name in enumerate(self.names)}


def node_scores(rank: NodeRank) -> Scores:
    return Scores(rank.node, rank.scores, _shares(rank))


def mean_scores(node: str, ranks: Sequence[NodeRank], eligible: Collection[str]) -> Scores:
    """Return the mean scores of the voting fields, over `eligible`."""
    voting = [rank for rank in ranks if rank.votes]
    if not voting:
        return Scores(node, {}, {})
    means = {s: fmean(rank.scores[s] for rank in voting) for s in eligible}
    return Scores(node, means, {rank.node: 1 / len(voting) for rank in voting})


def terms(
    scores: Scores, requirements: Requirements
) -> Iterator[tuple[float, ContinuousRequirement | None]]:
    """Yield every requirement with its share in the scores (Eq. 1, then the means).

    None stands for a field that requires only capabilities, which all scored systems have.
    """
    for node, share in scores.shares.items():
        field_requirements = requirements[node]
        if not field_requirements:
            yield share, None
            continue
        max_weight = max(requirement.weight for requirement in field_requirements)
        # Scaled, so that the sum of huge weights does not overflow.
        total = fsum(requirement.weight / max_weight for requirement in field_requirements)
        for requirement in field_requirements:
            yield share * (requirement.weight / max_weight / total), requirement


def _shares(rank: NodeRank) -> dict[str, float]:
    if not rank.children:
        return {rank.node: 1.0} if rank.votes else {}
    voting = [_shares(child) for child in throttled(rank.children) if child.votes]
    return {node: share / len(voting) for shares in voting for node, share in shares.items()}
