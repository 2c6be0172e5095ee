"""Ballots: the scores a choice between systems is made from, and how ties end."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

from mediator.placement.candidates import Candidate
from mediator.placement.rank import NodeRank

__all__ = ["Ballot", "Choice", "Kind", "Order", "node_ballot", "shared_ballot"]

Kind: TypeAlias = Literal["bound", "own", "group", "follows", "default", "pinned"]
"""Why a node is where it is.

bound: it, or a node above it, has a binary requirement (or the mode binds classes). own: its own
scores. group: the mean over the fields of its cache group. follows: the scores of a node above.
default: nothing decides. pinned: it holds data there, and data moves only by migration.
"""


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


@dataclass(frozen=True)
class Choice:
    """A system chosen, why (`kind`, and the node that decided), from which ballot and systems."""

    system: str
    kind: Kind
    by: str
    ballot: Ballot | None
    eligible: tuple[str, ...]


@dataclass(frozen=True)
class Order:
    """The order in which ties end and defaults are taken: the primary, then by registration."""

    names: tuple[str, ...]
    measured: frozenset[str]

    @classmethod
    def of(cls, candidates: Sequence[Candidate], primary: str | None) -> Order:
        """Order candidates, given as they were registered."""
        names = sorted((candidate.name for candidate in candidates), key=lambda n: n != primary)
        return cls(tuple(names), frozenset(c.name for c in candidates if c.metrics))

    def best(self, scores: Mapping[str, float]) -> str:
        """Return the system with the highest score, the earliest of equal ones."""
        return max(sorted(scores, key=self.names.index), key=lambda name: scores[name])

    def default(self, eligible: Collection[str]) -> str:
        """Return the first system; one without any metric only if there is no other."""
        names = [name for name in self.names if name in eligible]
        return next((name for name in names if name in self.measured), names[0])

    def choose(self, node: str, eligible: Collection[str], ballots: Sequence[Ballot]) -> Choice:
        """Choose by the first ballot that has a score for an eligible system, else the default."""
        allowed = tuple(name for name in self.names if name in eligible)
        for ballot in (ballot.among(allowed) for ballot in ballots):
            if ballot.scores:
                kind: Kind = "own" if ballot.node == node else "follows"
                return Choice(self.best(ballot.scores), kind, ballot.node, ballot, allowed)
        return Choice(self.default(allowed), "default", node, None, allowed)


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


def _voters(rank: NodeRank) -> dict[str, float]:
    if not rank.children:
        return {rank.node: 1.0} if rank.votes else {}
    voting = [_voters(child) for child in rank.children if child.votes]
    return {node: share / len(voting) for voters in voting for node, share in voters.items()}
