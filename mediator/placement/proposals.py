"""Proposals: placements that the scores would now make otherwise.

See docs/papers/ppm.md, traps: flapping.

Nothing moves by a proposal. It is recorded once another system has led by a margin for a dwell
time, and withdrawn once the current one has led, or come near, for as long; so two systems with
nearly equal scores never take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mediator.placement.moves import Move
from mediator.placement.utility import advantage

__all__ = ["DWELL_S", "MARGIN", "NOTHING_PROPOSED", "Proposal", "Proposals", "differ", "propose"]

MARGIN: Final = 0.2
"""By what share another system's score must exceed the current one's."""

DWELL_S: Final = 60.0
"""For how many seconds it must, and for how many it must not for a proposal to be withdrawn."""

_NOTABLE: Final = 0.05
"""A change of a margin that is worth noting."""


@dataclass(frozen=True)
class Proposal:
    """One node that scores would place elsewhere.

    Attributes:
        node: The field, or the class for its main group.
        current: The system it is on.
        proposed: The system it would be placed on.
        margin: By what ratio the proposed one's score is higher now.
        since: When the proposed one took the lead, in seconds by the clock of `propose`.
        recorded: Whether it has led for the dwell time.
        lost_at: Since when the lead has been gone, of a recorded one.
        why: Why it would be placed there, in a sentence with the figures of the margin.
    """

    node: str
    current: str
    proposed: str
    margin: float
    since: float
    recorded: bool = False
    lost_at: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Proposals:
    """All proposals of one database by node, those not yet recorded included."""

    by_node: Mapping[str, Proposal] = field(default_factory=dict)

    @property
    def recorded(self) -> tuple[Proposal, ...]:
        """Those that have led for the dwell time."""
        return tuple(proposal for proposal in self.by_node.values() if proposal.recorded)


NOTHING_PROPOSED = Proposals()


def propose(
    state: Proposals,
    moves: Iterable[Move],
    now: float,
    *,
    margin: float = MARGIN,
    dwell_s: float = DWELL_S,
) -> tuple[Proposals, list[Proposal]]:
    """Feed the moves that a fresh decision with everything pinned names.

    Args:
        state: What the last call returned, or `NOTHING_PROPOSED`.
        moves: `Decision.moves`.
        now: Seconds on a clock that all who propose share.
        margin: The share by which a proposed score must be higher.
        dwell_s: How long it must be.

    Returns:
        The next state, and the proposals recorded just now.
    """
    leads = {move.node: lead for move in moves if (lead := _lead(move, now)).margin >= margin}
    nodes = dict.fromkeys((*state.by_node, *leads))
    steps = (_step(state.by_node.get(node), leads.get(node), now, dwell_s) for node in nodes)
    kept = {proposal.node: proposal for proposal in steps if proposal}
    known = {proposal.node: proposal for proposal in state.recorded}
    fresh = [p for p in kept.values() if p.recorded and _other(p, known.get(p.node))]
    return Proposals(kept), fresh


def differ(one: Proposals, other: Proposals) -> bool:
    """Whether two states say something else.

    By how much a system leads changes all the time, and with it the figures in the sentence.
    """
    if one.by_node.keys() != other.by_node.keys():
        return True
    pairs = ((proposal, other.by_node[node]) for node, proposal in one.by_node.items())
    return any(
        replace(a, margin=b.margin, why=b.why) != b or abs(a.margin - b.margin) > _NOTABLE
        for a, b in pairs
    )


def _lead(move: Move, now: float) -> Proposal:
    lead = advantage(move.proposed_score or 0.0, move.current_score)
    return Proposal(move.node, move.current, move.proposed, lead, now, why=move.why)


def _step(
    before: Proposal | None, lead: Proposal | None, now: float, dwell_s: float
) -> Proposal | None:
    if lead is None or (before and before.recorded and _other(before, lead)):
        lapsed = _lapsing(before, now, dwell_s)
        return lapsed if lapsed or lead is None else lead
    since = now if before is None or _other(before, lead) else before.since
    return replace(lead, since=since, recorded=now - since >= dwell_s)


def _lapsing(before: Proposal | None, now: float, dwell_s: float) -> Proposal | None:
    """Keep a recorded proposal that has lost its lead until it has lost it for the dwell time."""
    if before is None or not before.recorded:
        return None
    lost_at = now if before.lost_at is None else before.lost_at
    return replace(before, lost_at=lost_at) if now - lost_at < dwell_s else None


def _other(one: Proposal, other: Proposal | None) -> bool:
    return other is None or (one.current, one.proposed) != (other.current, other.proposed)
