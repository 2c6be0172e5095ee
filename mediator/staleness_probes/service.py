"""Staleness probes behind `/admin/v1/probes/staleness`: one at a time among all replicas.

Two would measure each other, so a probe runs under a lease:

========================================= ======================================================
event                                     result
========================================= ======================================================
two replicas begin at once                one gets the lease, the other is refused
the holder dies                           its lease ends within `LEASE_S`; then another may begin
the holder stalls for longer              another may have begun: the holder notices at the next
                                          renewal and ends; they overlap by `RENEW_S` at most
the coordination Redis does not answer    none begins; the holder continues for `LEASE_S` and ends
========================================= ======================================================

Overlapping probes do no damage, so the lease is not checked elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.concurrency import end
from mediator.base.errors import Conflict, Invalid, Location, Unavailable
from mediator.base.lease import Leasing
from mediator.data_plane.port import DataPlane
from mediator.routing.freshness import STRONG, ReadPreference
from mediator.routing.model import ClassRoute
from mediator.staleness_probes.model import ProbeRequest
from mediator.staleness_probes.path import PlanePath, Reader
from mediator.staleness_probes.probe import Probe, ProbeResults
from mediator.staleness_probes.report import summary

__all__ = ["LEASE_NAME", "LEASE_S", "RENEW_S", "CacheReaders", "StalenessProbes"]

LEASE_S: Final = 6.0
RENEW_S: Final = 1.5
LEASE_NAME: Final = "probe"


@dataclass(eq=False)
class _ProbeLease:
    """A probe's lease, from its acquisition until its release.

    Without shared leases of replicas, every process has its own.
    """

    _leases: Leasing | None
    _clock: Clock
    _token: str = field(default_factory=lambda: uuid4().hex)

    async def acquire(self) -> bool:
        """Acquire it; False while another replica holds it. Raises `Unavailable`."""
        return self._leases is None or await self._leases.acquire(LEASE_NAME, self._token, LEASE_S)

    async def lost(self) -> None:
        """Renew it, and return when it is lost."""
        acquired_at = self._clock.monotonic()
        while self._clock.monotonic() < acquired_at + LEASE_S:
            await asyncio.sleep(RENEW_S)
            with suppress(Unavailable):
                requested_at = self._clock.monotonic()
                if not await self.acquire():
                    return
                # Counted from before the request, so that it never ends here later than in Redis.
                acquired_at = requested_at

    async def release(self) -> None:
        if self._leases is not None:
            with suppress(Unavailable):  # it expires
                await self._leases.release(LEASE_NAME, self._token)


CacheReaders: TypeAlias = Callable[[ProbeRequest], AbstractAsyncContextManager[Reader] | None]
"""Opens a reader through the cache that a request names; None: no such cache."""

_log = logging.getLogger("portolan.probing")

_LOST = "The lease that keeps other replicas from probing was lost: the probe was ended."

_State: TypeAlias = Literal["running", "done", "stopped", "failed"]


@dataclass(eq=False)
class StalenessProbes:
    """Runs probes, one at a time among all replicas: two would measure each other.

    The writes of a probe are ordinary writes. `caches` opens readers only for caches of allowed
    URLs: a probe must not make this service send requests anywhere. Without shared leases of
    replicas, each process can run one probe.
    """

    _plane: DataPlane
    _clock: Clock
    _caches: CacheReaders | None = None
    _leases: Leasing | None = None
    _last: _Run | None = None

    async def start(self, request: ProbeRequest) -> dict[str, Any]:
        """Start a probe, and describe it.

        Raises:
            NotFound: There is no such database or class.
            AdvisoryOnly: The database holds no data.
            Invalid: There is no such path.
            Conflict: Another probe is running, here or in another replica.
            Unavailable: It is unknown whether one is running.
        """
        route = await self._plane.route(request.database, request.class_name)
        path, bound_s = self._path(request, route)
        if self._last is not None and self._last.state == "running":
            raise Conflict("Another probe is going on; two would measure each other.")
        lease = _ProbeLease(self._leases, self._clock)
        if not await lease.acquire():
            detail = "Another replica carries out a probe; two would measure each other."
            raise Conflict(f"{detail} That replica describes it and can end it.")
        bound = bound_s if request.bound_s is None else request.bound_s
        self._last = _Run(request, path, bound, lease, self._clock)
        return self._last.describe()

    def describe(self) -> dict[str, Any] | None:
        """Describe the current or last probe; None: there was none."""
        return self._last.describe() if self._last else None

    async def stop(self) -> dict[str, Any] | None:
        """End a running probe; returns once its scratch objects are removed."""
        if self._last is not None:
            await self._last.stop()
        return self.describe()

    def _path(
        self, request: ProbeRequest, route: ClassRoute
    ) -> tuple[AbstractAsyncContextManager[PlanePath], float | None]:
        """Return the path and its declared bound."""
        path_with = partial(PlanePath, self._plane, request.database, route)
        if request.path == "fresh":
            return nullcontext(path_with(STRONG)), 0.0
        if request.path == "view":
            if route.copy is None:
                raise _no_path("The database has no view.")
            schema = self._plane.model.databases[request.database].schema
            bound_s = schema.materialised_view.staleness_s
            return nullcontext(path_with(ReadPreference("bounded"))), bound_s
        reader = self._caches(request) if self._caches else None
        if reader is None:
            raise _no_path("must be fresh, view, or the URL of a cache that is set up")
        return _cached(reader, path_with), request.delta_s


class _Run:
    def __init__(
        self,
        request: ProbeRequest,
        path: AbstractAsyncContextManager[PlanePath],
        bound_s: float | None,
        lease: _ProbeLease,
        clock: Clock,
    ) -> None:
        self._lease = lease
        self._request = request
        self._bound_s = bound_s
        self._started_s = clock.now()
        self._results = ProbeResults()
        self.state: _State = "running"
        self._task = asyncio.create_task(self._run(path, clock))

    async def _run(self, path: AbstractAsyncContextManager[PlanePath], clock: Clock) -> None:
        try:
            async with path as opened:
                await self._probe(Probe(opened, clock))
            final_state: _State = "failed" if _LOST in self._results.reasons else "done"
        except asyncio.CancelledError:
            final_state = "stopped"
        except Exception:  # noqa: BLE001 - nothing awaits the task: its description has the state
            _log.exception("a staleness probe failed")
            final_state = "failed"
        await self._lease.release()  # before the state changes, which lets the next one start
        self.state = final_state

    async def _probe(self, probe: Probe) -> None:
        """Measure until complete, or until the lease is lost."""
        probing = asyncio.create_task(probe.run(self._request, self._results))
        lost = asyncio.create_task(self._lease.lost())
        try:
            await asyncio.wait({probing, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not probing.done():
                self._results.reasons.append(_LOST)
        finally:
            probing.cancel()  # once: a second cancellation would end the removal of scratch objects
            await asyncio.wait({probing})
            await end([lost])
        if not probing.cancelled():
            probing.result()

    async def stop(self) -> None:
        if (
            not self._task.cancelling()
        ):  # a second cancellation would end the removal of scratch objects
            self._task.cancel()
        await asyncio.wait([self._task])
        if self.state == "running":  # it had not started yet
            self.state = "stopped"
            await self._lease.release()

    def describe(self) -> dict[str, Any]:
        request, measured = self._request, len(self._results.measurements) + self._results.failures
        report = summary(request.path, self._results, self._bound_s)
        return {
            "state": self.state,
            "database": request.database,
            "class": request.class_name,
            "count": request.count,
            "rate": request.rate,
            "timeout_s": request.timeout_s,
            "delta_s": request.delta_s,
            "started_s": self._started_s,
            "progress": measured / request.count,
            "report": asdict(report),
        }


@asynccontextmanager
async def _cached(
    reader: AbstractAsyncContextManager[Reader], path_with: Callable[..., PlanePath]
) -> AsyncIterator[PlanePath]:
    async with reader as read:
        yield path_with(reader=read)


def _no_path(detail: str) -> Invalid:
    return Invalid("There is no such path to probe.", locations=[Location("/path", detail)])
