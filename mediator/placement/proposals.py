"""Moves and proposals: different placements that the scores would choose if no data were held.

A proposal is recorded once another system has led by a margin for a dwell time, and withdrawn once
it has not for as long: near-equal systems never alternate (docs/papers/ppm.md, traps: flapping).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mediator.placement.groups import Pins
from mediator.placement.scores import SystemChoice
from mediator.placement.utility import advantage
from mediator.schema.tree import MAIN_GROUP, Schema

__all__ = [
    "NOTHING_PROPOSED",
    "Move",
    "Proposal",
    "Proposals",
    "differ",
    "moves_between",
    "propose",
]


@dataclass(frozen=True)
class Move:
    """A node that is placed on one system and would be placed on another.

    Attributes:
        node: A field; or a class, for its main group.
        reason: Why it moves, for people; `why` explains the proposed system.
        required: Whether the schema rules the current placement out, not only its score.
        current_score: Score of the current system where the choice was made; None if it has none.
        proposed_score: Score of the proposed one; None where no requirement votes.
    """

    node: str
    current: str
    proposed: str
    reason: str
    required: bool
    current_score: float | None
    proposed_score: float | None
    why: str = ""


def moves_between(
    schema: Schema,
    free: Mapping[str, SystemChoice],
    held: Mapping[str, str],
    pins: Pins,
    why: Callable[[SystemChoice], str],
) -> tuple[Move, ...]:
    """List the moves from the held placements to a free decision, classes before their fields.

    A new default system causes no moves: nodes without requirements can stay in place.
    """
    scattered = _scattered_nodes(free, held)
    moves = []
    for node, declared in _pinned_nodes(schema, pins):
        choice, current = free[node], held[node]
        if declared is not None:
            reason = f"the schema puts it into cache group {declared}"
            moves.append(_move(node, choice, current, reason, why(choice), required=True))
        elif choice.system != current:
            ruled_out = current not in choice.eligible or choice.by in scattered
            if choice.scores is None and not ruled_out:
                continue
            reason = _reason(choice, current)
            moves.append(_move(node, choice, current, reason, why(choice), required=ruled_out))
    return tuple(moves)


def _pinned_nodes(schema: Schema, pins: Pins) -> Iterator[tuple[str, str | None]]:
    """Yield the nodes that hold data, with the group that a field newly declares."""
    for class_ in schema.classes.values():
        if (class_.name, MAIN_GROUP) in pins.systems:
            yield class_.name, None
        for field_ in class_.fields.values():
            group = pins.groups.get((class_.name, field_.name))
            if group is not None:
                declared = None if field_.group == group else field_.group
                yield f"{class_.name}.{field_.name}", declared


def _scattered_nodes(free: Mapping[str, SystemChoice], held: Mapping[str, str]) -> set[str]:
    """Return bound nodes whose data is on several systems."""
    systems: dict[str, set[str]] = {}
    for node, choice in free.items():
        if choice.kind == "bound":
            systems.setdefault(choice.by, set()).add(held[node])
    return {node for node, node_systems in systems.items() if len(node_systems) > 1}


def _reason(choice: SystemChoice, current: str) -> str:
    if choice.required:
        return str(choice.required)
    if current not in choice.eligible:
        return f"{current} does not meet the requirements of {choice.by}"
    return f"{choice.system} scores higher than {current} for {choice.by}"


def _move(
    node: str, choice: SystemChoice, current: str, reason: str, why: str, *, required: bool
) -> Move:
    scores = choice.scores.by_system if choice.scores else {}
    current_score = scores.get(current) if current in choice.eligible else None
    proposed_score = scores.get(choice.system)
    return Move(node, current, choice.system, reason, required, current_score, proposed_score, why)


_MARGIN_TOLERANCE: Final = 0.05
"""Changes of a margin up to this do not make states differ."""


@dataclass(frozen=True)
class Proposal:
    """One node that scores would place elsewhere.

    Attributes:
        node: The field, or the class for its main group.
        margin: The present ratio by which the proposed system's score is higher.
        since: When the proposed system took the lead, in seconds by the clock of `propose`.
        recorded: Whether it has led for the dwell time.
        lost_at: When a recorded proposal lost its lead.
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
    """All proposals of one database by node, including those not yet recorded."""

    by_node: Mapping[str, Proposal] = field(default_factory=dict)

    @property
    def recorded(self) -> tuple[Proposal, ...]:
        """The proposals that have led for the dwell time."""
        return tuple(proposal for proposal in self.by_node.values() if proposal.recorded)


NOTHING_PROPOSED = Proposals()


def propose(
    state: Proposals,
    moves: Iterable[Move],
    now: float,
    *,
    margin: float,
    dwell_s: float,
) -> tuple[Proposals, list[Proposal]]:
    """Return the next state, and the newly recorded proposals.

    `state` is the result of the last call, or `NOTHING_PROPOSED`; `moves` are those of a fresh
    decision with everything pinned. `now` is in seconds of a clock that all callers share. A
    proposed score must be higher by the share `margin` for `dwell_s` seconds, and must not be for
    as long before a proposal is withdrawn.
    """
    leads = {move.node: lead for move in moves if (lead := _lead(move, now)).margin >= margin}
    nodes = dict.fromkeys((*state.by_node, *leads))
    steps = (_step(state.by_node.get(node), leads.get(node), now, dwell_s) for node in nodes)
    proposals = {proposal.node: proposal for proposal in steps if proposal}
    recorded = {proposal.node: proposal for proposal in state.recorded}
    newly_recorded = [
        p for p in proposals.values() if p.recorded and _is_other(p, recorded.get(p.node))
    ]
    return Proposals(proposals), newly_recorded


def differ(one: Proposals, other: Proposals) -> bool:
    """Whether two states differ materially.

    Margins change all the time, and with them the figures in the sentence.
    """
    if one.by_node.keys() != other.by_node.keys():
        return True
    pairs = ((proposal, other.by_node[node]) for node, proposal in one.by_node.items())
    return any(
        replace(a, margin=b.margin, why=b.why) != b or abs(a.margin - b.margin) > _MARGIN_TOLERANCE
        for a, b in pairs
    )


def _lead(move: Move, now: float) -> Proposal:
    lead = advantage(move.proposed_score or 0.0, move.current_score)
    return Proposal(move.node, move.current, move.proposed, lead, now, why=move.why)


def _step(
    before: Proposal | None, lead: Proposal | None, now: float, dwell_s: float
) -> Proposal | None:
    # Another leader replaces a recorded proposal only after that has lapsed.
    if lead is None or (before and before.recorded and _is_other(before, lead)):
        lapsed = _lapse(before, now, dwell_s)
        return lapsed if lapsed or lead is None else lead
    since = now if before is None or _is_other(before, lead) else before.since
    return replace(lead, since=since, recorded=now - since >= dwell_s)


def _lapse(before: Proposal | None, now: float, dwell_s: float) -> Proposal | None:
    """Keep a recorded proposal until it has been without its lead for the dwell time."""
    if before is None or not before.recorded:
        return None
    lost_at = now if before.lost_at is None else before.lost_at
    return replace(before, lost_at=lost_at) if now - lost_at < dwell_s else None


def _is_other(one: Proposal, other: Proposal | None) -> bool:
    return other is None or (one.current, one.proposed) != (other.current, other.proposed)
