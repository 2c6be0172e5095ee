"""Judging the placements that are in force: proposals, violations, explanations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mediator.catalogue.events import CatalogueEvents
from mediator.clock import Clock
from mediator.control.registry import Registry
from mediator.errors import NotFound, Unplaceable
from mediator.observation import Observer
from mediator.operations.executor import Executor
from mediator.placement.decide import Decision, decide, pins_of
from mediator.placement.explain import explain
from mediator.placement.proposals import ProposalBook
from mediator.placement.routing import DatabaseRoute
from mediator.placement.violations import ViolationWatch
from mediator.schema.tree import Mode

__all__ = ["Judgement"]


class Judgement:
    """Holds what is in force against what is measured and against what is asked for."""

    def __init__(
        self,
        registry: Registry,
        executor: Executor,
        events: CatalogueEvents,
        proposals: ProposalBook,
        observe: Observer,
        clock: Clock,
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._events = events
        self._observe = observe
        self._clock = clock
        self._proposals = proposals
        self._violations = ViolationWatch()

    async def judge(self) -> None:
        """Look at every database once: record proposals and violations."""
        for database, decision in self._decisions():
            for proposal in self._proposals.consider(database, decision.moves):
                self._observe(proposal)
            await self._look_for_violations(database, decision)

    def proposals(self, database: str | None) -> list[dict[str, Any]]:
        """List what is proposed now, for all databases or one."""
        return [p for p in self._proposals.listing() if database in (None, p["database"])]

    async def violations(self, database: str | None) -> list[dict[str, Any]]:
        """List violation events, newest first."""
        return await self._events.newest(database)

    def explain(self, database: str, node: str) -> dict[str, Any]:
        """Explain the placement of a node that is in force, by today's metrics."""
        route = self._executor.model.databases.get(database)
        if route is None:
            raise NotFound(f"There is no database {database}.")
        decision = self._decision(route)
        return {**explain(decision, node), "epoch": self._executor.model.epoch}

    async def _look_for_violations(self, database: str, decision: Decision) -> None:
        schema = self._executor.model.databases[database].schema
        placed = {node: p.system for node, p in decision.placements.items()}
        now = self._clock.monotonic()
        for event in self._violations.look(schema, placed, decision.candidates, now):
            self._observe(event)
            await self._events.record(event)

    def _decisions(self) -> Iterator[tuple[str, Decision]]:
        for name, route in self._executor.model.databases.items():
            try:
                yield name, self._decision(route)
            except Unplaceable:
                continue  # a system is away: what it serves is not judged meanwhile

    def _decision(self, route: DatabaseRoute) -> Decision:
        candidates = self._registry.candidates()
        if route.schema.mode is Mode.ADVISORY:
            return decide(route.schema, candidates)
        return decide(route.schema, candidates, pins_of(route, list(route.classes)))
