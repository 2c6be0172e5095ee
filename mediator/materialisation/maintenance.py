"""Maintenance runs over whole views: comparing them with their systems, and rebuilding them.

A run goes on in the background of the replica that got the request, one at a time for each database
among all replicas. Its report is seen on each of them, and stays until the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, Literal
from uuid import uuid4

from mediator.base.cancellation import end
from mediator.base.clock import Clock
from mediator.base.errors import Conflict, MediatorError
from mediator.base.lease import Leasing
from mediator.changes.feed import PARTITIONS
from mediator.materialisation.audit import Audit, AuditReport
from mediator.materialisation.materialisers import copied_classes
from mediator.materialisation.state import ViewState, copy_key
from mediator.routing.model import ClassRoute, RoutingModel

__all__ = ["Kind", "MaintenanceRun", "MaintenanceRuns", "with_interruption"]

log = logging.getLogger(__name__)

Kind = Literal["verify", "rebuild"]

LEASE_S: Final = 5.0
SILENT_S: Final = 15.0
REPORT_S: Final = 0.5
_US: Final = 1_000_000


@dataclass(slots=True)
class MaintenanceRun:
    """A run, as it is reported.

    Attributes:
        id: Its id.
        kind: What it does.
        repair: Whether it repairs what it finds.
        state: ``running``, ``done``, ``failed`` or, if its replica is gone, ``interrupted``.
        at_us: When this was reported, in microseconds since 1970.
        phase: What it is doing.
        classes: The findings of each class so far, and about how many objects there are.
        wrong: Copies that were wrong.
        repaired: Those of them that were repaired.
        detail: Why it failed.
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
        """Add the findings of a class so far."""
        findings = {
            "of": total,
            "objects": report.objects,
            "wrong": {wrong.value: count for wrong, count in sorted(report.counts.items())},
            "repaired": report.repaired,
            "examples": [asdict(finding) for finding in report.examples],
        }
        self.classes = {**(self.classes or {}), report.class_name: findings}
        self.wrong = sum(sum(each["wrong"].values()) for each in self.classes.values())
        self.repaired = sum(each["repaired"] for each in self.classes.values())


def with_interruption(run: dict[str, Any], silent_s: float) -> dict[str, Any]:
    """Return the report of a run, as interrupted if it is not renewed any more.

    Args:
        run: Its last report.
        silent_s: For how many seconds it was the same here.
    """
    if run["state"] == "running" and silent_s > SILENT_S:
        return {**run, "state": "interrupted", "detail": "its replica is gone"}
    return run


class MaintenanceRuns:
    """Starts runs, and holds their leases.

    Args:
        audit: Compares.
        state: The states of the copies; stores the reports.
        leases: Leases.
        model: Returns the routing model in force.
        count: Counts the objects of a class.
        clock: The time.
    """

    def __init__(
        self,
        audit: Audit,
        state: ViewState,
        leases: Leasing,
        model: Callable[[], RoutingModel],
        count: Callable[[ClassRoute], Awaitable[int]],
        clock: Clock,
    ) -> None:
        self._audit = audit
        self._state = state
        self._leases = leases
        self._model = model
        self._count = count
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, database: str, kind: Kind, *, repair: bool) -> MaintenanceRun:
        """Start a run over the database of an id.

        Raises:
            Conflict: Another one is going on.
            Unavailable: The coordination Redis does not answer.
        """
        run = MaintenanceRun(uuid4().hex, kind, repair, phase="starting")
        if not await self._leases.acquire(_lease(database), run.id, LEASE_S):
            raise Conflict("The view is being verified or rebuilt already.")
        await self._report(database, run)
        task = asyncio.create_task(self._hold(database, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    async def close(self) -> None:
        """Cancel all of them."""
        await end(tuple(self._tasks))

    async def _hold(self, database: str, run: MaintenanceRun) -> None:
        """MaintenanceRun while the lease can be held, and report the progress."""
        work = asyncio.create_task(self._work(database, run))
        try:
            while not (await asyncio.wait({work}, timeout=REPORT_S))[0]:
                if not await self._leases.acquire(_lease(database), run.id, LEASE_S):
                    return
                await self._report(database, run)
            work.result()
            run.state, run.phase = "done", ""
        except MediatorError as error:
            run.state, run.detail = "failed", str(error)
        except Exception:
            log.exception("the run over the view of %s failed", database)
            run.state, run.detail = "failed", "a defect; the log has more"
        finally:
            await end([work])
        await self._end(database, run)

    async def _end(self, database: str, run: MaintenanceRun) -> None:
        try:
            await self._report(database, run)
            await self._leases.release(_lease(database), run.id)
        except MediatorError as error:
            log.warning("the run over the view of %s: %s", database, error)

    async def _work(self, database: str, run: MaintenanceRun) -> None:
        if run.kind == "rebuild":
            await self._rebuild(database, run)
        run.phase = "comparing"
        bound_s = self._model().by_id[database].schema.materialised_view.staleness_s
        for route in copied_classes(self._model(), database).values():
            on_progress = partial(run.add, await self._count(route))
            on_progress(AuditReport(route.schema.name))
            await self._audit.run(route, bound_s, on_progress, repair=run.repair)

    async def _rebuild(self, database: str, run: MaintenanceRun) -> None:
        """Retract the copies, and wait until they have been built anew."""
        routes = copied_classes(self._model(), database).values()
        names = {copy_key(route.copy)[1] for route in routes if route.copy is not None}
        await self._state.retract(database, names)
        while incomplete := await self._incomplete(database, names):
            total = len(names) * PARTITIONS
            run.phase = f"building: {total - incomplete} of {total} partitions are complete"
            await asyncio.sleep(REPORT_S)

    async def _incomplete(self, database: str, names: set[str]) -> int:
        until = (await self._state.watermarks(database)).until_tick
        ticks = [tick for name in names for tick in until.get((database, name), ())]
        return len(names) * PARTITIONS - sum(tick is not None for tick in ticks)

    async def _report(self, database: str, run: MaintenanceRun) -> None:
        run.at_us = int(self._clock.now() * _US)
        await self._state.publish(database, "run", asdict(run))


def _lease(database: str) -> str:
    return f"view-maintenance:{database}"
