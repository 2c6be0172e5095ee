"""The build of one partition of a copy, from the objects that are there, while they are written.

What is written meanwhile is in the feed after the position where the build began, and is copied by
the refreshes. Copies that exist already only become newer, so their readers never see anything
older than before. What no refresh would ever repair is repaired here: copies of objects that are
deleted, copies that are ahead of their originals, or differ from them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import uuid4

from mediator.base.cancellation import end
from mediator.base.errors import Unavailable
from mediator.changes.partitions import PARTITIONS, partition_of
from mediator.materialisation.audit import Discrepancy, compare
from mediator.materialisation.copier import Copier, CopyResult
from mediator.materialisation.paging import id_pages
from mediator.routing.model import ClassRoute
from mediator.stores.port import StoreError
from mediator.stores.systems import Systems, unavailable

__all__ = ["Build"]


class Build:
    """A build under way.

    Attributes:
        token: Its id.
        class_name: The class.
        done: Objects processed so far.
        total: About how many there were when it began.
        result: Of copying, so far.
    """

    def __init__(self, systems: Systems, copier: Copier, route: ClassRoute, partition: int) -> None:
        self.token = uuid4().hex
        self.class_name = route.schema.name
        self.done = 0
        self.total: int | None = None
        self.result = CopyResult()
        self._systems = systems
        self._copier = copier
        self._route = route
        self._partition = partition
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start, once the feed's position at its beginning is recorded."""
        self._task = asyncio.create_task(self._run())

    @property
    def is_done(self) -> bool:
        """Whether all that was there when it began has been copied."""
        return self._has_ended and self.error is None

    @property
    def error(self) -> BaseException | None:
        """Why it failed; None if it has not."""
        if self._task is None or not self._task.done():
            return None
        return asyncio.CancelledError() if self._task.cancelled() else self._task.exception()

    @property
    def _has_ended(self) -> bool:
        return self._task is not None and self._task.done()

    async def cancel(self) -> None:
        """Cancel it."""
        if self._task is not None:
            await end([self._task])

    async def _run(self) -> None:
        self.total = -(-await self._count() // PARTITIONS)
        async for ids in id_pages(self._systems, self._route):
            own = [id_ for id_ in ids if partition_of(self.class_name, id_) == self._partition]
            if own:
                with suppress(Unavailable):  # copying them reports the error
                    await self._repair(own)
                self.result += await self._copier.copy_isolated(self._route, own)
                self.done += len(own)

    async def _repair(self, ids: list[str]) -> None:
        copies = [c for c in await self._copier.read_copies(self._route, ids) if c is not None]
        originals = await self._copier.read(self._route, [copy.id for copy in copies])
        compared = [
            (copy, compare(self._route, original, copy, 0))
            for original, copy in zip(originals, copies, strict=True)
        ]
        left_over = {
            c.id: c.creation_version
            for c, finding in compared
            if finding and finding.wrong is Discrepancy.LEFT_OVER
        }
        ahead = [c.id for c, finding in compared if finding and finding.wrong is Discrepancy.AHEAD]
        await self._copier.forget(self._route, left_over)
        await self._copier.copy(self._route, ahead, force=True)

    async def _count(self) -> int:
        anchor = self._route.anchor
        guarded = self._systems.get(anchor.system)
        try:
            return await guarded.guarded(lambda: guarded.store.count(anchor))
        except StoreError as error:
            raise unavailable(guarded, error, "read") from error
