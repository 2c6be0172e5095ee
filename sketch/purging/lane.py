"""The way to one purger: what is wrong with it holds up nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
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

__all__ = ["Lane", "PurgingLimits", "Timing"]


@dataclass(frozen=True, slots=True)
class PurgingLimits:
    """How purges are sent.

    Attributes:
        batch: Keys taken from the queue at a time.
        look_every_s: How often the queue is looked at while it is empty (seconds).
        at_once: Batches that are under way to one purger at most.
        attempts: How often a request is sent, until its keys are left to be given out again.
        first_wait_s: Pause after the first failure of a purger; doubles with each further one.
    """

    batch: int = 500
    look_every_s: float = 0.2
    at_once: int = 4
    attempts: int = 3
    deadline_s: float = 2.0
    first_wait_s: float = 0.1
    longest_wait_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Time and chance; tests set them."""

    clock: Callable[[], float] = monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = Random().random  # noqa: S311  # spreads retries, keeps no secret


class Lane:
    """Sends to one purger, with retries, and leaves it alone for a while when it fails."""

    def __init__(
        self, purger: Purger, limits: PurgingLimits, on_event: PurgeEvents, timing: Timing
    ) -> None:
        self._purger = purger
        self._limits = limits
        self._on_event = on_event
        self._timing = timing
        self._busy = 0
        self._failures = 0
        self._until = 0.0

    @property
    def name(self) -> str:
        """What the purger is called."""
        return self._purger.name

    @property
    def trusted(self) -> bool:
        """Whether it did not fail last."""
        return self._failures == 0

    @property
    def paused(self) -> bool:
        """Whether it is left alone because it failed."""
        return self._timing.clock() < self._until

    @property
    def has_room(self) -> bool:
        """Whether it takes another batch; after a failure one, to see whether it works again."""
        return not self.paused and self._busy < (self._limits.at_once if self.trusted else 1)

    def deliver(self, keys: Sequence[CachedKey]) -> Coroutine[None, None, frozenset[CachedKey]]:
        """Take a batch, if there is room; what is returned sends it, and returns what is confirmed.

        The room is taken at once, not when sending begins.
        """
        if not self.has_room:
            return _nothing()
        self._busy += 1
        return self._deliver(keys)

    async def send(self, keys: Sequence[CachedKey]) -> bool:
        """Send keys once, without waiting for anything; return whether they were confirmed."""
        for some in _split(keys, self._purger.most):
            if self.paused or not await self._attempt(some):
                return False
        return True

    async def close(self) -> None:
        """Release every connection."""
        await self._purger.close()

    async def _deliver(self, keys: Sequence[CachedKey]) -> frozenset[CachedKey]:
        confirmed: set[CachedKey] = set()
        try:
            for some in _split(keys, self._purger.most):
                if not await self._insist(some):
                    break
                confirmed.update(some)
        finally:
            self._busy -= 1
        return frozenset(confirmed)

    async def _insist(self, keys: Sequence[CachedKey]) -> bool:
        for attempt in range(1, self._limits.attempts + 1):
            if await self._attempt(keys):
                return True
            if attempt < self._limits.attempts:
                await self._timing.sleep(max(0.0, self._until - self._timing.clock()))
        return False

    async def _attempt(self, keys: Sequence[CachedKey]) -> bool:
        begun = self._timing.clock()
        try:
            async with asyncio.timeout(self._limits.deadline_s):
                await self._purger.purge(keys)
        except PurgeFailed as failure:
            self._failed(keys, failure)
            return False
        except TimeoutError:
            self._failed(keys, PurgeFailed(self._purger.name, "timeout"))
            return False
        self._works()
        self._on_event(PurgesSent(self._purger.name, len(keys), self._timing.clock() - begun))
        return True

    def _failed(self, keys: Sequence[CachedKey], failure: PurgeFailed) -> None:
        name = self._purger.name
        self._on_event(PurgesFailed(name, len(keys), failure.reason, failure.status))
        if self.trusted:
            self._on_event(PurgerChanged(name, down=True))
        # From half the pause to all of it, so that replicas do not come back at the same moment.
        doubled = self._limits.first_wait_s * 2.0 ** min(self._failures, 30)
        pause = min(doubled, self._limits.longest_wait_s) * (1 + self._timing.chance()) / 2
        self._failures += 1
        self._until = self._timing.clock() + pause

    def _works(self) -> None:
        if not self.trusted:
            self._on_event(PurgerChanged(self._purger.name, down=False))
        self._failures = 0
        self._until = 0.0


async def _nothing() -> frozenset[CachedKey]:
    return frozenset()


def _split(keys: Sequence[CachedKey], most: int) -> Iterator[Sequence[CachedKey]]:
    for start in range(0, len(keys), most):
        yield keys[start : start + most]
