"""The builds of one partition: begun where a copy is not complete, again if they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from mediator.base.clock import Clock
from mediator.materialisation.build import Build
from mediator.materialisation.copier import Copier
from mediator.materialisation.isolation import Bringer
from mediator.materialisation.state import CopyState
from mediator.routing.model import ClassRoute
from mediator.stores.systems import Systems

__all__ = ["Builds"]

FIRST_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0


class Builds:
    """The builds of one partition, by the name of the copy.

    Args:
        systems: The opened systems.
        copier: Copies objects.
        bringer: Copies objects, some of which may not be fit for it.
        partition: The partition.
        clock: The time.
    """

    def __init__(
        self, systems: Systems, copier: Copier, bringer: Bringer, partition: int, clock: Clock
    ) -> None:
        self._systems = systems
        self._copier = copier
        self._bringer = bringer
        self._partition = partition
        self._clock = clock
        self._builds: dict[str, Build] = {}
        self._pauses: dict[str, tuple[float, float]] = {}
        self._failed: dict[str, Build] = {}

    def done(self) -> Mapping[str, Build]:
        """Return the builds that have come to their end."""
        return {copy: build for copy, build in self._builds.items() if build.is_done}

    def is_needed(self, copy: str, state: CopyState | None) -> bool:
        """Whether a copy needs a build, and now is the time to begin it."""
        if state is None:
            return True
        if not state.build:
            return False
        build = self._builds.get(copy)
        if build is None or build.token != state.build:
            return True
        return build.error is not None and self._has_paused(copy)

    def make(self, route: ClassRoute) -> Build:
        """Return a build that is still to be begun."""
        return Build(self._systems, self._copier, self._bringer, route, self._partition)

    async def begin(self, builds: Mapping[str, Build]) -> None:
        """Begin builds, in the place of former ones."""
        await self._end(builds)
        for copy, build in builds.items():
            self._builds[copy] = build
            build.begin()

    def drop(self, copies: Iterable[str]) -> None:
        """Forget builds that are done."""
        for copy in copies:
            self._builds.pop(copy, None)
            self._pauses.pop(copy, None)

    async def end(self) -> None:
        """End all of them where they stand."""
        await self._end(tuple(self._builds))

    def progress(self) -> dict[str, tuple[int, int | None]]:
        """Tell how many objects were dealt with, and how many there are about."""
        return {copy: (build.seen, build.of) for copy, build in self._builds.items()}

    def error(self) -> str:
        """Say why a build failed that is to be tried again."""
        return next((str(b.error) or "failed" for b in self._builds.values() if b.error), "")

    async def _end(self, copies: Iterable[str]) -> None:
        ended = [self._builds.pop(copy) for copy in copies if copy in self._builds]
        await asyncio.gather(*(build.end() for build in ended))

    def _has_paused(self, copy: str) -> bool:
        """Whether the pause after a failure is over; each is twice as long as the last."""
        now = self._clock.monotonic()
        until, pause_s = self._pauses.get(copy, (now, FIRST_PAUSE_S))
        if self._failed.get(copy) is not self._builds[copy]:
            self._failed[copy] = self._builds[copy]
            until = now + pause_s
            self._pauses[copy] = (until, min(2 * pause_s, MAX_PAUSE_S))
        return now >= until
