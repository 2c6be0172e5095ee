"""Maintenance runs over entire views: verification against their systems, and rebuilds.

A run executes in the background of the replica that got the request, one at a time per database
among all replicas. Its report is visible on every replica, until the next run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, Literal
from uuid import uuid4

from mediator.base.concurrency import end
from mediator.base.errors import Conflict, MediatorError, NotFound
from mediator.base.lease import LeaseLost, while_held
from mediator.changes.feed import PARTITIONS
from mediator.materialisation.audit import Audit, AuditReport
from mediator.materialisation.context import ViewContext, copied_classes
from mediator.materialisation.copier import Copier
from mediator.materialisation.state import copy_key
from mediator.routing.model import ClassRoute

__all__ = ["SILENT_S", "Kind", "MaintenanceRuns"]

log = logging.getLogger(__name__)

Kind = Literal["verify", "rebuild"]

LEASE_S: Final = 5.0
SILENT_S: Final = 15.0
REPORT_S: Final = 0.5
_US: Final = 1_000_000


@dataclass(slots=True)
class MaintenanceRun:
    """A run, as reported at `at_us` (microseconds since 1970).

    `classes` has the findings of each class so far, and its approximate number of objects; `detail`
    says why it failed. It is ``interrupted`` if its replica is gone.
    """

    id: str
    kind: Kind
    repair: bool
    state: Literal["running", "done", "failed", "interrupted"] = "running"
    at_us: int = 0
    phase: str = ""
    classes: dict[str, dict[str, Any]] | None = None
    wrong: int = 0
    repaired: int = 0
    detail: str = ""

    def add(self, total: int, report: AuditReport) -> None:
        """Replace the findings of a class by its findings so far."""
        findings = {
            "of": total,
            "objects": report.objects,
            "wrong": dict(sorted(report.counts.items())),
            "repaired": report.repaired,
            "examples": [
                {"id": finding.id, "wrong": finding.wrong, "groups": finding.groups}
                for finding in report.examples
            ],
        }
        self.classes = {**(self.classes or {}), report.class_name: findings}
        self.wrong = sum(sum(members["wrong"].values()) for members in self.classes.values())
        self.repaired = sum(members["repaired"] for members in self.classes.values())


class MaintenanceRuns:
    def __init__(self, context: ViewContext, copier: Copier, audit: Audit) -> None:
        self._context = context
        self._copier = copier
        self._audit = audit
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, database: str, kind: Kind, *, repair: bool) -> None:
        """Start a run over a database, given by its id.

        Raises:
            Conflict: Another run is in progress.
            Unavailable: The coordination Redis does not respond.
        """
        run = MaintenanceRun(uuid4().hex, kind, repair, phase="starting")
        if not await self._context.leases.acquire(_lease(database), run.id, LEASE_S):
            raise Conflict("The view is being verified or rebuilt already.")
        await self._report(database, run)
        task = asyncio.create_task(self._hold(database, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        await end(tuple(self._tasks))

    async def _hold(self, database: str, run: MaintenanceRun) -> None:
        """Work while the lease is held, and report the progress."""
        try:
            await while_held(
                partial(self._renew, database, run), REPORT_S, self._work(database, run)
            )
            run.state, run.phase = "done", ""
        except LeaseLost:
            return  # another run may hold it by now, and reports from now on
        except MediatorError as error:
            run.state, run.detail = "failed", str(error)
        except Exception:
            log.exception("the run over the view of %s failed", database)
            run.state, run.detail = "failed", "a defect; the log has more"
        try:
            await self._report(database, run)
            await self._context.leases.release(_lease(database), run.id)
        except MediatorError as error:
            log.warning("the run over the view of %s: %s", database, error)

    async def _renew(self, database: str, run: MaintenanceRun) -> bool:
        is_held = await self._context.leases.acquire(_lease(database), run.id, LEASE_S)
        if is_held:
            await self._report(database, run)
        return is_held

    async def _work(self, database: str, run: MaintenanceRun) -> None:
        if run.kind == "rebuild":
            await self._rebuild(database, run)
        run.phase = "comparing"
        routes = self._routes(database)
        bound_s = self._context.model().by_id[database].schema.materialised_view.staleness_s
        for route in routes:
            on_progress = partial(run.add, await self._copier.count(route))
            on_progress(AuditReport(route.schema.name))
            await self._audit.run(route, bound_s, on_progress, repair=run.repair)

    async def _rebuild(self, database: str, run: MaintenanceRun) -> None:
        await self._context.state.retract(database, self._copies(database))
        # Looked up each time: a schema change may replace or drop a copy.
        while copies := self._copies(database):
            built, total = await self._count_built(database, copies), len(copies) * PARTITIONS
            if built == total:
                return
            run.phase = f"building: {built} of {total} partitions are complete"
            await asyncio.sleep(REPORT_S)

    async def _count_built(self, database: str, copies: Collection[str]) -> int:
        """Count the built partitions of copies; objects may be stuck there."""
        partitions = [await self._context.state.load(database, n) for n in range(PARTITIONS)]
        states = [partition.copies.get(copy) for partition in partitions for copy in copies]
        return sum(state is not None and not state.build for state in states)

    def _copies(self, database: str) -> set[str]:
        return {
            copy_key(route.copy)[1] for route in self._routes(database) if route.copy is not None
        }

    def _routes(self, database: str) -> list[ClassRoute]:
        """Return the classes that have a copy now; raises `NotFound` if the database is gone."""
        model = self._context.model()
        if database not in model.by_id:
            raise NotFound("The database was dropped.")
        return list(copied_classes(model, database).values())

    async def _report(self, database: str, run: MaintenanceRun) -> None:
        if database not in self._context.model().by_id:
            return  # nobody would read it, or remove it
        run.at_us = int(self._context.clock.now() * _US)
        await self._context.state.publish(database, "run", asdict(run))


def _lease(database: str) -> str:
    return f"view-maintenance:{database}"
