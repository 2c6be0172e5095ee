"""The builds of one partition: started for incomplete copies, and restarted after failures.

Writes during a build are in the feed after the position where the build started, and refreshes copy
them. Existing copies only become newer, so their readers never see older values than before. A
build repairs what no refresh would: copies of deleted objects, and copies that are ahead of their
originals or differ from them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.concurrency import end
from mediator.changes.feed import PARTITIONS, partition_of
from mediator.materialisation.audit import compare
from mediator.materialisation.copier import Copier, CopyResult
from mediator.materialisation.state import CopyState
from mediator.routing.model import ClassRoute

__all__ = ["Build", "Builds"]

MIN_PAUSE_S: Final = 1.0
MAX_PAUSE_S: Final = 30.0


class Build:
    """A running build: `done` of about `total` objects are processed."""

    def __init__(self, copier: Copier, route: ClassRoute, partition: int) -> None:
        self.token = uuid4().hex
        self.class_name = route.schema.name
        self.done = 0
        self.total: int | None = None
        self.result = CopyResult()
        self._copier = copier
        self._route = route
        self._partition = partition
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start, once the feed's position at the start is recorded."""
        self._task = asyncio.create_task(self._run())

    @property
    def is_done(self) -> bool:
        """Whether all objects that existed at its start have been copied."""
        return self._task is not None and self._task.done() and self.error is None

    @property
    def error(self) -> BaseException | None:
        if self._task is None or not self._task.done():
            return None
        return asyncio.CancelledError() if self._task.cancelled() else self._task.exception()

    async def cancel(self) -> None:
        if self._task is not None:
            await end([self._task])

    async def _run(self) -> None:
        self.total = -(-await self._copier.count(self._route) // PARTITIONS)
        async for ids in self._copier.id_pages(self._route):
            partition_ids = [
                id_ for id_ in ids if partition_of(self.class_name, id_) == self._partition
            ]
            if partition_ids:
                self.result += await self._copier.work_isolated(
                    self._route, partition_ids, self._rebuild
                )
                self.done += len(partition_ids)

    async def _rebuild(self, ids: Sequence[str]) -> int:
        await self._repair(ids)
        return await self._copier.copy(self._route, ids)

    async def _repair(self, ids: Sequence[str]) -> None:
        copies = [c for c in await self._copier.read_copies(self._route, ids) if c is not None]
        originals = await self._copier.read(self._route, [copy.id for copy in copies])
        left_over, ahead = {}, []
        for original, copy in zip(originals, copies, strict=True):
            # Nothing is overdue here (0): missing and older copies are copied next anyway.
            finding = compare(self._route, original, copy, 0)
            if finding and finding.wrong == "left over":
                left_over[copy.id] = copy.creation_version
            elif finding and finding.wrong == "ahead":
                ahead.append(copy)
        await self._copier.forget(self._route, left_over)
        await self._copier.replace(self._route, ahead)


class Builds:
    """The builds of one partition, by the key of the copy."""

    def __init__(self, copier: Copier, partition: int, clock: Clock) -> None:
        self._copier = copier
        self._partition = partition
        self._clock = clock
        self._builds: dict[str, Build] = {}
        self._pauses: dict[str, tuple[float, float]] = {}
        self._failed: dict[str, Build] = {}

    def done(self) -> Mapping[str, Build]:
        return {copy: build for copy, build in self._builds.items() if build.is_done}

    def is_needed(self, copy: str, state: CopyState | None) -> bool:
        """Whether a copy needs a build, and any pause after a failure is over."""
        if state is None:
            return True
        if not state.build:
            return False
        build = self._builds.get(copy)
        if build is None or build.token != state.build:
            return True
        return build.error is not None and self._has_paused(copy)

    def create(self, route: ClassRoute) -> Build:
        return Build(self._copier, route, self._partition)

    async def start(self, builds: Mapping[str, Build]) -> None:
        """Start builds, replacing former ones."""
        await self.cancel(builds)
        for copy, build in builds.items():
            self._builds[copy] = build
            build.start()

    def drop(self, copies: Iterable[str]) -> None:
        for copy in copies:
            self._builds.pop(copy, None)
            self._pauses.pop(copy, None)

    async def cancel(self, copies: Iterable[str] | None = None) -> None:
        """Cancel builds of copies; None: all of them."""
        names = tuple(self._builds) if copies is None else copies
        former = [self._builds.pop(copy) for copy in names if copy in self._builds]
        await asyncio.gather(*(build.cancel() for build in former))

    def progress(self) -> dict[str, tuple[int, int | None]]:
        """Return for each copy how many objects are done, and of about how many."""
        return {copy: (build.done, build.total) for copy, build in self._builds.items()}

    def error(self) -> str:
        """Return the error of a failed build that will be retried; empty: none."""
        return next((str(b.error) or "failed" for b in self._builds.values() if b.error), "")

    def _has_paused(self, copy: str) -> bool:
        """Whether the pause after a failure is over; each is twice as long as the last."""
        now = self._clock.monotonic()
        until, pause_s = self._pauses.get(copy, (now, MIN_PAUSE_S))
        if self._failed.get(copy) is not self._builds[copy]:
            self._failed[copy] = self._builds[copy]
            until = now + pause_s
            self._pauses[copy] = (until, min(2 * pause_s, MAX_PAUSE_S))
        return now >= until
