"""The holder of a database's standing queries: the one replica that executes them.

It keeps the tuples that windows reach in memory, takes batches of all streams, and publishes each
batch with its results. docs/standing-queries.md describes the possible failures. After any of them,
it reads everything again from the log of batches, without results, and continues from there.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from mediator.base.holding import Holder
from mediator.base.lease import Lease
from mediator.standing.context import HolderContext, OutOfDate
from mediator.standing.session import Session

__all__ = ["StandingHolder"]

_PAUSE_S: Final = 0.25


@dataclass(eq=False)
class StandingHolder:
    """Holds the standing queries of one database, given by its id, while it has the lease."""

    _context: HolderContext
    _database: str

    async def run(self) -> None:
        """Hold until the process is about to end, despite errors."""
        context, id_ = self._context, self._database
        name, description = f"standing:{id_}", f"the standing queries of {id_}"
        holder = Holder(
            context.leases, context.replica, name, description, lambda: context.has_ended
        )
        await holder.run(self._work)

    async def _work(self, lease: Lease) -> None:
        materialise = True
        while not self._context.has_ended:
            route = self._context.plane.model.by_id.get(self._database)
            if route is None:
                return
            try:
                await Session(self._context, route, lease, materialise).run()
            except OutOfDate as error:
                materialise = materialise and error.materialise
            await asyncio.sleep(_PAUSE_S)
