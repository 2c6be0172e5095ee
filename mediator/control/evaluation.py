"""Evaluation of the placements in force: proposals, violations, explanations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from mediator.base.clock import Clock
from mediator.base.errors import NotFound, Unplaceable
from mediator.base.observation import Observer, ProposalRecorded
from mediator.base.offload import offload
from mediator.catalogue.evaluations import CatalogueEvents, CatalogueProposals
from mediator.control.registry import Registry
from mediator.data_plane.executor import Executor
from mediator.placement.candidates import Candidate
from mediator.placement.decide import NO_PINS, Decision, decide, pins_of, view_system
from mediator.placement.explain import explain, summarise
from mediator.placement.proposals import NOTHING_PROPOSED, Proposal, Proposals, differ, propose
from mediator.placement.rank import ROOT
from mediator.placement.violations import ViolationState, detect_violations
from mediator.placement.what_if import what_if
from mediator.routing.model import DatabaseRoute, RoutingModel
from mediator.schema.overrides import in_force
from mediator.schema.tree import Mode

__all__ = ["PlacementEvaluation"]

MAX_MOVES: Final = 1_000
"""Maximum number of listed moves off a system."""

_VIEW_REQUIRED: Final = "the schema names this system for the materialised view"
_VIEW_REBUILT: Final = "the next change of the schema builds the materialised view there"
_NO_VIEW: Final = "no other system is proven for the materialised view"

_MAX_INLINE_FIELDS: Final = 20
"""Maximum number of fields of a database whose placement is decided in the event loop (1-2 ms)."""


@dataclass(eq=False)
class PlacementEvaluation:
    """Compares the placements in force with those that current metrics would give.

    A better score becomes a proposal once it leads by a ratio (`margin`) for `dwell_s` seconds.
    """

    _registry: Registry
    _executor: Executor
    events: CatalogueEvents
    _proposals: CatalogueProposals
    _margin: float
    _dwell_s: float
    _observe: Observer
    _clock: Clock
    _violations: dict[str, ViolationState] = field(default_factory=dict, init=False)

    async def evaluate(self, busy_share: float = 1.0) -> None:
        """Evaluate every database once: record proposals and violations.

        It uses at most `busy_share` of the event loop's time.
        """
        model = self._executor.model
        for dropped in self._violations.keys() - model.databases.keys():
            del self._violations[dropped]
        now, proposed = await self._proposals.load()
        started_at = time.perf_counter()
        async for database, route, decision in self._decisions(model):
            elapsed_s = time.perf_counter() - started_at
            await self._propose(route, decision, proposed.get(route.id, NOTHING_PROPOSED), now)
            await self._detect_violations(database, route, decision)
            # With a share of 1, this only yields to the event loop.
            await asyncio.sleep(elapsed_s * (1 / busy_share - 1))
            started_at = time.perf_counter()

    async def proposals(self, database: str | None) -> list[dict[str, Any]]:
        """List current proposals, of all databases or one, including those not yet recorded."""
        _, proposed = await self._proposals.load()
        return [
            _document(name, proposal)
            for name, route in sorted(self._executor.model.databases.items())
            if database in (None, name) and route.id in proposed
            for proposal in proposed[route.id].by_node.values()
        ]

    def explain(self, database: str, node: str) -> dict[str, Any]:
        return {**explain(self._decision(database), node), "epoch": self._executor.model.epoch}

    def summary(self, database: str) -> dict[str, Any]:
        return {**summarise(self._decision(database)), "epoch": self._executor.model.epoch}

    def what_if(self, database: str, document: Any) -> dict[str, Any]:
        """Compare the current choice of scores with that under a supposition."""
        route = self._route(database)
        overrides = in_force(route.overrides, self._clock.now())
        return what_if(route.schema, self._registry.candidates(), document, overrides)

    async def moves_off(self, system: str, unfit: Collection[str] = ()) -> list[dict[str, Any]]:
        """List nodes with data on a system, and where they would be placed without it.

        At most `MAX_MOVES`; `proposed` is None where there is no other system, and `why` says so.
        The node of a database stands for its materialised view, which no `unfit` system can hold.
        """
        candidates = [_drained(c, system) for c in self._registry.candidates()]
        all_moves: list[dict[str, Any]] = []
        for name, route in sorted(self._executor.model.databases.items()):
            if not any(system in class_.systems for class_ in route.classes.values()):
                continue
            now = self._clock.now()
            moves = await offload(True, _moves_off, system, route, candidates, unfit, now)
            all_moves += [{"database": name, **move} for move in moves]
            if len(all_moves) >= MAX_MOVES:
                break
        return all_moves[:MAX_MOVES]

    def _route(self, database: str) -> DatabaseRoute:
        route = self._executor.model.databases.get(database)
        if route is None:
            raise NotFound(f"There is no database {database}.")
        return route

    def _decision(self, database: str) -> Decision:
        return _decision(self._route(database), self._registry.candidates(), self._clock.now())

    async def _propose(
        self, route: DatabaseRoute, decision: Decision, before: Proposals, now: float
    ) -> None:
        change = partial(_propose, decision, self._margin, self._dwell_s)
        after, _ = change(before, now)
        if not differ(before, after):
            return
        # Another replica, or run, may have changed them since they were loaded.
        recorded = await self._proposals.update(route.id, change)
        name = route.schema.database
        for p in recorded:
            self._observe(ProposalRecorded(name, p.node, p.current, p.proposed, p.margin))

    async def _detect_violations(
        self, database: str, route: DatabaseRoute, decision: Decision
    ) -> None:
        self._violations[database], events = detect_violations(
            self._violations.get(database, {}),
            route.schema,
            {node: placement.system for node, placement in decision.placements.items()},
            {candidate.name: candidate for candidate in decision.candidates},
            self._clock.monotonic(),
        )
        for phase, detected in events:
            if phase == "began":
                self._observe(detected)
            await self.events.record(phase, detected)

    async def _decisions(
        self, model: RoutingModel
    ) -> AsyncIterator[tuple[str, DatabaseRoute, Decision]]:
        # All databases share the systems' metrics, which cost more than a decision.
        candidates = self._registry.candidates()
        for name, route in model.databases.items():
            fields = sum(len(class_.fields) for class_ in route.schema.classes.values())
            try:
                is_large = fields > _MAX_INLINE_FIELDS
                decision = await offload(is_large, _decision, route, candidates, self._clock.now())
                yield name, route, decision
            except Unplaceable:
                continue  # a system is down: its nodes are not evaluated meanwhile


def _decision(route: DatabaseRoute, candidates: Sequence[Candidate], now: float) -> Decision:
    advisory = route.schema.mode is Mode.ADVISORY
    pins = NO_PINS if advisory else pins_of(route, list(route.classes))
    return decide(route.schema, candidates, pins, in_force(route.overrides, now))


def _drained(candidate: Candidate, system: str) -> Candidate:
    if candidate.name != system or candidate.suspended:
        return candidate
    return replace(candidate, suspended="it is supposed to be drained")


def _moves_off(
    system: str,
    route: DatabaseRoute,
    candidates: Sequence[Candidate],
    unfit: Collection[str],
    now: float,
) -> list[dict[str, Any]]:
    try:
        decision = _decision(route, candidates, now)
    except Unplaceable as error:
        nodes = error.extra["nodes"] or [{"node": ROOT}]
        return [{"node": node["node"], "proposed": None, "why": error.detail} for node in nodes]
    moves = [
        {"node": move.node, "proposed": move.proposed, "why": move.why}
        for move in decision.moves
        if move.current == system
    ]
    copies = (class_.copy for class_ in route.classes.values())
    if any(copy is not None and copy.system == system for copy in copies):
        moves.append(_view_off(system, view_system(route.schema, decision, None, unfit)))
    return moves


def _view_off(system: str, proposed: str | None) -> dict[str, Any]:
    """Describe where a view would be; a schema can require its present system."""
    if proposed == system:
        return {"node": ROOT, "proposed": None, "why": _VIEW_REQUIRED}
    return {"node": ROOT, "proposed": proposed, "why": _VIEW_REBUILT if proposed else _NO_VIEW}


def _propose(
    decision: Decision, margin: float, dwell_s: float, before: Proposals, now: float
) -> tuple[Proposals, list[Proposal]]:
    return propose(before, decision.moves, now, margin=margin, dwell_s=dwell_s)


def _document(database: str, proposal: Proposal) -> dict[str, Any]:
    lost_at = None if proposal.lost_at is None else _time(proposal.lost_at)
    document = {"database": database, **asdict(proposal)}
    return {**document, "since": _time(proposal.since), "lost_at": lost_at}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
