"""The builds of one partition: started where a copy is incomplete, and again if they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from mediator.base.clock import Clock
from mediator.materialisation.build import Build
from mediator.materialisation.copier import Copier
from mediator.materialisation.state import CopyState
from mediator.routing.model import ClassRoute
from mediator.stores.systems import Systems

__all__ = ["Builds"]

MIN_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0


class Builds:
    """The builds of one partition, by the key of the copy.

    Args:
        systems: The opened systems.
        copier: Copies objects.
        partition: The partition.
        clock: The time.
    """

    def __init__(self, systems: Systems, copier: Copier, partition: int, clock: Clock) -> None:
        self._systems = systems
        self._copier = copier
        self._partition = partition
        self._clock = clock
        self._builds: dict[str, Build] = {}
        self._pauses: dict[str, tuple[float, float]] = {}
        self._failed: dict[str, Build] = {}

    def done(self) -> Mapping[str, Build]:
        """Return the builds that are done."""
        return {copy: build for copy, build in self._builds.items() if build.is_done}

    def is_needed(self, copy: str, state: CopyState | None) -> bool:
        """Whether a copy needs a build, and no pause after a failure is left."""
        if state is None:
            return True
        if not state.build:
            return False
        build = self._builds.get(copy)
        if build is None or build.token != state.build:
            return True
        return build.error is not None and self._has_paused(copy)

    def create(self, route: ClassRoute) -> Build:
        """Return a build that is not started yet."""
        return Build(self._systems, self._copier, route, self._partition)

    async def start(self, builds: Mapping[str, Build]) -> None:
        """Start builds, in place of former ones."""
        await self._cancel(builds)
        for copy, build in builds.items():
            self._builds[copy] = build
            build.start()

    def drop(self, copies: Iterable[str]) -> None:
        """Forget builds that are done."""
        for copy in copies:
            self._builds.pop(copy, None)
            self._pauses.pop(copy, None)

    async def cancel(self) -> None:
        """Cancel all of them."""
        await self._cancel(tuple(self._builds))

    def progress(self) -> dict[str, tuple[int, int | None]]:
        """Return for each how many objects are done, and of about how many."""
        return {copy: (build.done, build.total) for copy, build in self._builds.items()}

    def error(self) -> str:
        """Return the error of a build that failed and is to be tried again; empty: none."""
        return next((str(b.error) or "failed" for b in self._builds.values() if b.error), "")

    async def _cancel(self, copies: Iterable[str]) -> None:
        former = [self._builds.pop(copy) for copy in copies if copy in self._builds]
        await asyncio.gather(*(build.cancel() for build in former))

    def _has_paused(self, copy: str) -> bool:
        """Whether the pause after a failure is over; each is twice as long as the last."""
        now = self._clock.monotonic()
        until, pause_s = self._pauses.get(copy, (now, MIN_PAUSE_S))
        if self._failed.get(copy) is not self._builds[copy]:
            self._failed[copy] = self._builds[copy]
            until = now + pause_s
            self._pauses[copy] = (until, min(2 * pause_s, MAX_PAUSE_S))
        return now >= until
