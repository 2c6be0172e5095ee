"""Work that one replica does at a time: it holds a lease, for which the others wait.

Every process has a *holder*. The holder with the lease works; if it dies or loses the lease,
another one takes the lease when it has expired.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeAlias, TypeVar
from uuid import uuid4

from mediator.base.concurrency import end
from mediator.base.errors import PortolanError
from mediator.base.lease import Lease, LeaseLost, Leasing, while_held

__all__ = ["Holder", "Holders"]

log = logging.getLogger(__name__)

LEASE_S: Final = 2.0
RENEW_S: Final = 0.5
PAUSE_S: Final = 0.5

_GRACE_S: Final = 2.0
_OUTAGE_S: Final = 30.0
"""An error after this time of work counts as a new outage."""

_Id = TypeVar("_Id", bound=Hashable)
_Work: TypeAlias = Callable[[Lease], Coroutine[Any, Any, None]]


@dataclass(eq=False)
class Holder:
    """Works whenever it gets the lease.

    Attributes:
        name: The name of the lease.
        subject: The work under the lease, for the log.
        has_ended: Whether the process is about to end.
        max_pause_s: Limit of the pause after an error, which doubles each time.
        on_error: Called with each error before it retries.
    """

    leases: Leasing
    replica: str
    name: str
    subject: str
    has_ended: Callable[[], bool]
    max_pause_s: float = PAUSE_S
    on_error: Callable[[PortolanError], Awaitable[object]] | None = None
    _failing: bool = field(default=False, init=False)
    _pause_s: float = field(default=PAUSE_S, init=False)

    async def run(self, work: _Work) -> None:
        """Hold until the process is about to end, whatever happens."""
        while not self.has_ended():
            started = asyncio.get_running_loop().time()
            try:
                await self._hold(work)
                self._reset_pause()
            except LeaseLost:
                log.info("another replica holds %s now", self.subject)
            except PortolanError as error:
                if asyncio.get_running_loop().time() - started > _OUTAGE_S:
                    self._reset_pause()  # it worked for a while, so this is a new outage
                await self._failed(error)
            except Exception:
                log.exception("holding %s failed", self.subject)
            await asyncio.sleep(self._pause_s)

    def _reset_pause(self) -> None:
        self._failing, self._pause_s = False, PAUSE_S

    async def _failed(self, error: PortolanError) -> None:
        if not self._failing:  # once per outage
            log.warning("%s: %s", self.subject, error)
        self._failing = True
        self._pause_s = min(2 * self._pause_s, self.max_pause_s)
        if self.on_error is not None:
            with suppress(PortolanError):
                await self.on_error(error)

    async def _hold(self, work: _Work) -> None:
        # A new token each time: a late call under an earlier one must not count under this one.
        lease = Lease(self.name, f"{self.replica}:{uuid4().hex}")
        acquire = partial(self.leases.acquire, lease.name, lease.token, LEASE_S)
        if not await acquire():
            return
        try:
            await while_held(acquire, RENEW_S, work(lease))
        finally:
            with suppress(PortolanError):  # it expires soon
                await self.leases.release(lease.name, lease.token)


@dataclass(eq=False)
class Holders(Generic[_Id]):
    """The holders in this process, by an id such as that of their database."""

    _tasks: dict[_Id, asyncio.Task[None]] = field(default_factory=dict, init=False)

    async def reconcile(
        self, required: set[_Id], start: Callable[[_Id], Coroutine[Any, Any, None]]
    ) -> None:
        """Start the required holders, and cancel all others."""
        for id_ in required - self._tasks.keys():
            self._tasks[id_] = asyncio.create_task(start(id_))
        await self._end(self._tasks.keys() - required)

    async def close(self) -> None:
        """Wait a moment for holders to end, then cancel the rest.

        A cancelled driver may leave a connection open.
        """
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=_GRACE_S)
        await self.cancel()

    async def cancel(self) -> None:
        """Cancel all holders."""
        await self._end(list(self._tasks))

    async def _end(self, ids: Iterable[_Id]) -> None:
        await end([self._tasks.pop(id_) for id_ in ids])
