"""Leases: the port that grants them, and the lease that a holder presents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mediator.base.concurrency import end

__all__ = ["Lease", "LeaseLost", "Leasing", "while_held"]

_PREFIX: Final = "portolan:lease:"


@dataclass(frozen=True, slots=True)
class Lease:
    name: str
    token: str

    @property
    def key(self) -> str:
        return _PREFIX + self.name


class Leasing(Protocol):
    """Grants leases; see `mediator.coordination.leases.Leases`."""

    async def acquire(self, name: str, token: str, ttl_s: float) -> bool:
        """Take or renew a lease; false if another token holds it."""

    async def release(self, name: str, token: str) -> None:
        """Release a lease, if it has this token."""


class LeaseLost(Exception):
    """A required lease is not held."""


async def while_held(
    renew: Callable[[], Awaitable[bool]], every_s: float, work: Coroutine[Any, Any, None]
) -> None:
    """Work while a lease can be renewed, every `every_s` seconds.

    The work has ended when this returns or raises, so it does not overlap with the next holder's.

    Raises:
        LeaseLost: `renew` returned false, and the work was cancelled.
    """
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=every_s))[0]:
            if not await renew():
                raise LeaseLost
        task.result()
    finally:
        await end([task])
