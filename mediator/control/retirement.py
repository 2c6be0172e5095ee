"""Closing stores that others have taken the place of, once nobody can be using them.

Who has found a store uses it for one call, whose time is bounded by the store's deadline; a write
tells the guard before, which is bounded as well. So a store that nobody can find any more is left
open for both together, and no call is cut off.
"""

from __future__ import annotations

import asyncio
from typing import Final

from mediator.base.cancellation import end
from mediator.stores.port import Store

__all__ = ["Retirement"]

BEFORE_S: Final = 10.0
"""What passes at most between finding a store and calling it."""


class Retirement:
    """Stores that are about to be closed."""

    def __init__(self) -> None:
        self._leaving: dict[asyncio.Task[None], Store] = {}

    def retire(self, store: Store) -> None:
        """Close a store that nobody can find any more, after a while."""
        task = asyncio.create_task(_close(store))
        self._leaving[task] = store
        task.add_done_callback(lambda done: self._leaving.pop(done, None))

    async def close(self) -> None:
        """Close all of them now."""
        leaving = dict(self._leaving)
        await end(leaving)
        await asyncio.gather(*(store.close() for store in leaving.values()))


async def _close(store: Store) -> None:
    await asyncio.sleep(BEFORE_S + store.config.deadline_s)
    await store.close()
