"""Runs over whole views: comparing them with their systems, and building them anew.

A run goes on in the background of the replica that was asked, one at a time for each database among
all replicas. What it tells of itself is seen on each of them, and stays until the next one.
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
from mediator.changes.log_relays import Leasing
from mediator.changes.partitions import PARTITIONS
from mediator.materialisation.audit import Audit, Report
from mediator.materialisation.state import ViewState
from mediator.materialisation.views import copied_classes
from mediator.materialisation.watermarks import place_of
from mediator.routing.model import ClassRoute, RoutingModel

__all__ = ["Kind", "Run", "Upkeep", "is_over"]

log = logging.getLogger(__name__)

Kind = Literal["verify", "rebuild"]

LEASE_S: Final = 5.0
SILENT_S: Final = 15.0
TELL_S: Final = 0.5
_US: Final = 1_000_000


@dataclass(slots=True)
class Run:
    """A run, as it is told.

    Attributes:
        id: Its name.
        kind: What it does.
        repair: Whether it makes good what it finds.
        state: ``running``, ``done``, ``failed`` or, if its replica is gone, ``interrupted``.
        at_us: When this was told, in microseconds since 1970.
        phase: What it is doing.
        classes: What was found so far of each class, with the objects there are about.
        wrong: Copies that were wrong.
        repaired: Those of them that were made good.
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

    def note(self, of: int, report: Report) -> None:
        """Note what was found of a class so far."""
        found = {
            "of": of,
            "objects": report.objects,
            "wrong": {wrong.value: count for wrong, count in sorted(report.counts.items())},
            "repaired": report.repaired,
            "examples": [asdict(finding) for finding in report.examples],
        }
        self.classes = {**(self.classes or {}), report.class_name: found}
        self.wrong = sum(sum(each["wrong"].values()) for each in self.classes.values())
        self.repaired = sum(each["repaired"] for each in self.classes.values())


def is_over(told: dict[str, Any], silent_s: float) -> dict[str, Any]:
    """Return what was told of a run; one that tells nothing any more has been interrupted.

    Args:
        told: What it told last.
        silent_s: For how many seconds nothing else was seen here.
    """
    if told["state"] == "running" and silent_s > SILENT_S:
        return {**told, "state": "interrupted", "detail": "its replica is gone"}
    return told


class Upkeep:
    """Starts runs, and keeps them going.

    Args:
        audit: Compares.
        state: What is known of the copies; keeps what runs tell.
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

    async def begin(self, database: str, kind: Kind, *, repair: bool) -> Run:
        """Begin a run over the database of an id.

        Raises:
            Conflict: Another one is going on.
            Unavailable: The coordination Redis does not answer.
        """
        run = Run(uuid4().hex, kind, repair, phase="beginning")
        if not await self._leases.acquire(f"upkeep:{database}", run.id, LEASE_S):
            raise Conflict("The view is being verified or rebuilt already.")
        await self._tell(database, run)
        task = asyncio.create_task(self._keep(database, run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return run

    async def close(self) -> None:
        """End all of them where they stand."""
        await end(tuple(self._tasks))

    async def _keep(self, database: str, run: Run) -> None:
        """Let a run go on while its lease can be held, and tell what it says."""
        work = asyncio.create_task(self._work(database, run))
        try:
            while not (await asyncio.wait({work}, timeout=TELL_S))[0]:
                if not await self._leases.acquire(f"upkeep:{database}", run.id, LEASE_S):
                    return
                await self._tell(database, run)
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

    async def _end(self, database: str, run: Run) -> None:
        try:
            await self._tell(database, run)
            await self._leases.release(f"upkeep:{database}", run.id)
        except MediatorError as error:
            log.warning("the run over the view of %s: %s", database, error)

    async def _work(self, database: str, run: Run) -> None:
        if run.kind == "rebuild":
            await self._rebuild(database, run)
        run.phase = "comparing"
        bound_s = self._model().by_id[database].schema.materialised_view.staleness_s
        for route in copied_classes(self._model(), database).values():
            of = await self._count(route)
            tell = partial(run.note, of)
            tell(Report(route.schema.name))
            tell(await self._audit.run(route, bound_s, repair=run.repair, tell=tell))

    async def _rebuild(self, database: str, run: Run) -> None:
        """Take the copies for incomplete, and wait until they have been built."""
        routes = copied_classes(self._model(), database).values()
        names = {place_of(route.copy)[1] for route in routes if route.copy is not None}
        await self._state.retract(database, names)
        while left := await self._incomplete(database, names):
            of = len(names) * PARTITIONS
            run.phase = f"building: {of - left} of {of} parts are complete"
            await asyncio.sleep(TELL_S)

    async def _incomplete(self, database: str, names: set[str]) -> int:
        marks = (await self._state.marks(database)).until_tick
        known = [mark for name in names for mark in marks.get((database, name), ())]
        return len(names) * PARTITIONS - sum(mark is not None for mark in known)

    async def _tell(self, database: str, run: Run) -> None:
        run.at_us = int(self._clock.now() * _US)
        await self._state.tell(database, "run", asdict(run))
