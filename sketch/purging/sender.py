"""Sends purges to one purger; its failures delay no other purger."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from time import monotonic

from sketch.purging.port import (
    CachedKey,
    PurgeEvents,
    PurgeFailed,
    Purger,
    PurgerChanged,
    PurgesFailed,
    PurgesSent,
)

__all__ = ["PurgeSender", "PurgingLimits", "Timing"]


@dataclass(frozen=True, slots=True)
class PurgingLimits:
    """How purges are sent.

    Attributes:
        batch: Keys taken from the queue at a time.
        look_every_s: Polling interval of an empty queue (seconds).
        at_once: The maximum of batches under way to one purger.
        attempts: Attempts for a request; then the queue hands its keys out again.
        first_wait_s: Pause after the first failure of a purger; doubles with each failure.
    """

    batch: int = 500
    look_every_s: float = 0.2
    at_once: int = 4
    attempts: int = 3
    deadline_s: float = 2.0
    first_wait_s: float = 0.1
    max_wait_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Clock, sleep and randomness; tests replace them."""

    clock: Callable[[], float] = monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = Random().random  # noqa: S311  # spreads retries, keeps no secret


@dataclass(eq=False)
class PurgeSender:
    """Sends to one purger, with retries, and pauses when it fails."""

    purger: Purger
    _limits: PurgingLimits
    _on_event: PurgeEvents
    _timing: Timing
    _in_flight: int = field(default=0, init=False)
    _failures: int = field(default=0, init=False)
    _paused_until: float = field(default=0.0, init=False)

    @property
    def trusted(self) -> bool:
        """Whether its last request did not fail."""
        return self._failures == 0

    @property
    def paused(self) -> bool:
        return self._timing.clock() < self._paused_until

    @property
    def has_room(self) -> bool:
        """Whether it can take another batch; after a failure only one, as a probe."""
        return not self.paused and self._in_flight < (self._limits.at_once if self.trusted else 1)

    def deliver(self, keys: Sequence[CachedKey]) -> Coroutine[None, None, frozenset[CachedKey]]:
        """Reserve room for a batch; the coroutine sends it, and returns the confirmed keys.

        The room is reserved now, not when sending begins.
        """
        if not self.has_room:
            return _no_keys()
        self._in_flight += 1
        return self._deliver(keys)

    async def send(self, keys: Sequence[CachedKey]) -> bool:
        """Send keys once, without retries; return whether they were confirmed."""
        for batch in _split(keys, self.purger.max_keys):
            if self.paused or not await self._attempt(batch):
                return False
        return True

    async def _deliver(self, keys: Sequence[CachedKey]) -> frozenset[CachedKey]:
        confirmed: set[CachedKey] = set()
        try:
            for batch in _split(keys, self.purger.max_keys):
                if not await self._send_with_retries(batch):
                    break
                confirmed.update(batch)
        finally:
            self._in_flight -= 1
        return frozenset(confirmed)

    async def _send_with_retries(self, keys: Sequence[CachedKey]) -> bool:
        for attempt in range(1, self._limits.attempts + 1):
            if await self._attempt(keys):
                return True
            if attempt < self._limits.attempts:
                await self._timing.sleep(max(0.0, self._paused_until - self._timing.clock()))
        return False

    async def _attempt(self, keys: Sequence[CachedKey]) -> bool:
        started = self._timing.clock()
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                await self.purger.purge(keys)
        except PurgeFailed as failure:
            self._on_failure(keys, failure)
            return False
        except TimeoutError:
            self._on_failure(keys, PurgeFailed(self.purger.name, "timeout"))
            return False
        self._on_success()
        self._on_event(PurgesSent(self.purger.name, len(keys), self._timing.clock() - started))
        return True

    def _on_failure(self, keys: Sequence[CachedKey], failure: PurgeFailed) -> None:
        name = self.purger.name
        self._on_event(PurgesFailed(name, len(keys), failure.reason, failure.status))
        if self.trusted:
            self._on_event(PurgerChanged(name, down=True))
        # From half the pause to all of it, so that replicas do not retry at the same moment.
        doubled = self._limits.first_wait_s * 2.0 ** min(self._failures, 30)
        pause = min(doubled, self._limits.max_wait_s) * (1 + self._timing.chance()) / 2
        self._failures += 1
        self._paused_until = self._timing.clock() + pause

    def _on_success(self) -> None:
        if not self.trusted:
            self._on_event(PurgerChanged(self.purger.name, down=False))
        self._failures = 0
        self._paused_until = 0.0


async def _no_keys() -> frozenset[CachedKey]:
    return frozenset()


def _split(keys: Sequence[CachedKey], size: int) -> Iterator[Sequence[CachedKey]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
