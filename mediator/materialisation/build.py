"""Building what a copy has of one partition, from what is there, while traffic goes on.

Whatever is written meanwhile is in the feed beyond the place where the build began, and is copied
by the rounds. Copies that are there already are only made newer, so that whoever still reads them
reads nothing older than before; but what no round would ever mend is mended: copies of objects that
are gone, copies that are ahead of their originals, or differ from them.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import uuid4

from mediator.base.cancellation import end
from mediator.base.errors import Unavailable
from mediator.changes.partitions import PARTITIONS, partition_of
from mediator.materialisation.audit import Wrong, compare
from mediator.materialisation.copier import Copier
from mediator.materialisation.isolation import Bringer, Brought
from mediator.materialisation.walk import pages
from mediator.routing.model import ClassRoute
from mediator.stores.port import StoreError
from mediator.stores.systems import Systems, unavailable

__all__ = ["Build"]


class Build:
    """A build under way.

    Attributes:
        token: Its name.
        class_name: The class.
        seen: Objects dealt with so far.
        of: How many there were about at the beginning.
        brought: What came of it so far.
    """

    def __init__(
        self, systems: Systems, copier: Copier, bringer: Bringer, route: ClassRoute, partition: int
    ) -> None:
        self.token = uuid4().hex
        self.class_name = route.schema.name
        self.seen = 0
        self.of: int | None = None
        self.brought = Brought()
        self._systems = systems
        self._copier = copier
        self._bringer = bringer
        self._route = route
        self._partition = partition
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin; nothing may be dealt with by rounds before that counts for it."""
        self._task = asyncio.create_task(self._run())

    @property
    def is_done(self) -> bool:
        """Whether all that was there when it began has been copied."""
        return self._ended and self.error is None

    @property
    def error(self) -> BaseException | None:
        """Why it failed; None if it has not."""
        if self._task is None or not self._task.done():
            return None
        return asyncio.CancelledError() if self._task.cancelled() else self._task.exception()

    @property
    def _ended(self) -> bool:
        return self._task is not None and self._task.done()

    async def end(self) -> None:
        """End it where it stands."""
        if self._task is not None:
            await end([self._task])

    async def _run(self) -> None:
        self.of = -(-await self._count() // PARTITIONS)
        async for ids in pages(self._systems, self._route):
            own = [id_ for id_ in ids if partition_of(self.class_name, id_) == self._partition]
            if own:
                with suppress(Unavailable):  # bringing them tells what is the matter
                    await self._mend(own)
                self.brought += await self._bringer.bring(self._route, own)
                self.seen += len(own)

    async def _mend(self, ids: list[str]) -> None:
        held = [copy for copy in await self._copier.held(self._route, ids) if copy is not None]
        originals = await self._copier.read(self._route, [copy.id for copy in held])
        found = [
            (copy, compare(self._route, original, copy, 0))
            for original, copy in zip(originals, held, strict=True)
        ]
        gone = {
            c.id: c.creation_version
            for c, finding in found
            if finding and finding.wrong is Wrong.LEFT_OVER
        }
        ahead = [c.id for c, finding in found if finding and finding.wrong is Wrong.AHEAD]
        await self._copier.forget(self._route, gone)
        await self._copier.copy(self._route, ahead, force=True)

    async def _count(self) -> int:
        anchor = self._route.anchor
        guarded = self._systems.get(anchor.system)
        try:
            return await guarded.guarded(lambda: guarded.store.count(anchor))
        except StoreError as error:
            raise unavailable(guarded, error, "read") from error
