"""A purger that tests script, and a clock that sleeping advances."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from sketch.purging.port import CachedKey, PurgeFailed
from sketch.purging.sender import Timing


@dataclass
class ScriptedPurger:
    """Records its requests; fails while `broken`, does not answer while `hanging`."""

    name: str
    max_keys: int = 200
    broken: bool = False
    hanging: bool = False
    sent: list[tuple[str, ...]] = field(default_factory=list)
    attempts: int = 0
    closed: bool = False

    async def purge(self, keys: Sequence[CachedKey]) -> None:
        self.attempts += 1
        if self.hanging:
            await asyncio.Event().wait()
        if self.broken:
            raise PurgeFailed(self.name, "refused", 503)
        self.sent.append(tuple(key.key for key in keys))

    async def close(self) -> None:
        self.closed = True


class PassingTime:
    """A clock that sleeping advances; it records the pauses."""

    def __init__(self, chance: float = 1.0) -> None:
        self.now = 1_000.0
        self.pauses: list[float] = []
        self.timing = Timing(lambda: self.now, self._sleep, lambda: chance)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)
