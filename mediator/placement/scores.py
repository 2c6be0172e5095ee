"""Ballots: the scores a choice between systems is made from, and how ties end."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum
from statistics import fmean
from typing import Literal, TypeAlias

from mediator.base.offload import throttled
from mediator.placement.candidates import Candidate
from mediator.placement.rank import NodeRank
from mediator.schema.annotations import ContinuousRequirement
from mediator.schema.tree import Schema

__all__ = [
    "Ballot",
    "Choice",
    "Kind",
    "Order",
    "Requirements",
    "node_ballot",
    "shared_ballot",
    "terms",
]

Kind: TypeAlias = Literal["bound", "own", "group", "follows", "default", "pinned"]
"""Why a node is where it is.

bound: it, or a node above it, has a binary requirement (or the mode binds classes). own: its own
scores. group: the mean over the fields of its cache group. follows: nothing is asked of it, so it
goes with its declared cache group. default: nothing is asked of it, so it is on the default system.
pinned: it holds data there, and data moves only by migration.
"""

Requirements: TypeAlias = Mapping[str, Sequence[ContinuousRequirement]]
"""The continuous requirements of each field, by node."""


@dataclass(frozen=True)
class Ballot:
    """Scores to choose by.

    Attributes:
        node: The node (``articles``) or cache group (``articles#hits``) they belong to.
        scores: Score of each system that may be chosen.
        voters: Share of each voting field in the score; the shares add up to 1.
    """

    node: str
    scores: Mapping[str, float]
    voters: Mapping[str, float]

    def among(self, systems: Collection[str]) -> Ballot:
        """Restrict the ballot to some systems."""
        kept = {name: value for name, value in self.scores.items() if name in systems}
        return Ballot(self.node, kept, self.voters)

    def ranked(self, order: Sequence[str]) -> list[str]:
        """Return the systems, the best first; of equal ones the first in an order."""
        return sorted((s for s in order if s in self.scores), key=lambda s: -self.scores[s])


@dataclass(frozen=True)
class Choice:
    """A system chosen.

    Attributes:
        system: The system.
        kind: Why.
        by: The node or cache group that decided.
        ballot: The scores it was chosen by; None where nothing votes.
        eligible: The systems it was chosen from; of equal scores the first one wins.
    """

    system: str
    kind: Kind
    by: str
    ballot: Ballot | None
    eligible: tuple[str, ...]


@dataclass(frozen=True)
class Order:
    """The order in which ties end and defaults are taken.

    First comes the default system that the schema names, if it names one. Others follow by what a
    crash costs them, least first; of equal ones the view, then the one that was registered
    first. Systems that nothing is known of yet come last.
    """

    names: tuple[str, ...]
    named: str | None = None
    view: str | None = None

    @classmethod
    def of(cls, candidates: Sequence[Candidate], schema: Schema) -> Order:
        """Order candidates, given as they were registered."""
        named, view = schema.default.system, schema.materialised_view.system

        def place(candidate: Candidate) -> tuple[bool, bool, float, bool]:
            name, unknown = candidate.name, not candidate.metrics
            return name != named, unknown, candidate.loses_s, name != view

        ordered = tuple(candidate.name for candidate in sorted(candidates, key=place))
        return cls(ordered, named, view)

    def leading(self, system: str) -> Order:
        """Return the same order with one system before all others."""
        names = (system, *(name for name in self.names if name != system))
        return replace(self, names=names)

    def first(self, eligible: Collection[str]) -> str:
        """Return the first of some systems."""
        return min(eligible, key=self._places.__getitem__)

    def default(self, rank: NodeRank) -> str:
        """Return the default system of a node: one that can do all that is asked below, if any."""
        if self.named in rank.qualified:
            return self.named
        return self.first(rank.eligible or rank.qualified)

    def choose(self, node: str, eligible: Collection[str], ballot: Ballot | None) -> Choice:
        """Choose by the scores of a ballot; if it has none, the first of the systems."""
        allowed = tuple(sorted(eligible, key=self._places.__getitem__))
        scored = ballot.among(frozenset(eligible)) if ballot else None
        if scored is None or not scored.scores:
            return Choice(allowed[0], "default", node, None, allowed)
        return Choice(scored.ranked(allowed)[0], "own", scored.node, scored, allowed)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.names)}


def node_ballot(rank: NodeRank) -> Ballot:
    """Return the ballot of a node: its scores, and each field's share in them."""
    return Ballot(rank.node, rank.scores, _voters(rank))


def shared_ballot(node: str, ranks: Sequence[NodeRank], eligible: Collection[str]) -> Ballot:
    """Return the ballot of several fields: the means of those that vote, over `eligible`."""
    voting = [rank for rank in ranks if rank.votes]
    if not voting:
        return Ballot(node, {}, {})
    means = {s: fmean(rank.scores[s] for rank in voting) for s in eligible}
    return Ballot(node, means, {rank.node: 1 / len(voting) for rank in voting})


def terms(
    ballot: Ballot, requirements: Requirements
) -> Iterator[tuple[float, ContinuousRequirement | None]]:
    """Yield every requirement with its share in the scores (Eq. 1, then the means).

    None stands for a field that asks for capabilities only, which all systems of the ballot have.
    """
    for node, share in ballot.voters.items():
        own = requirements[node]
        if not own:
            yield share, None
            continue
        largest = max(requirement.weight for requirement in own)
        total = fsum(requirement.weight / largest for requirement in own)
        for requirement in own:
            yield share * (requirement.weight / largest / total), requirement


def _voters(rank: NodeRank) -> dict[str, float]:
    if not rank.children:
        return {rank.node: 1.0} if rank.votes else {}
    voting = [_voters(child) for child in throttled(rank.children) if child.votes]
    return {node: share / len(voting) for voters in voting for node, share in voters.items()}
