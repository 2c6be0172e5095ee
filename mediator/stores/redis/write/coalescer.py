"""Coalescing: single writes that arrive in one tick of the event loop go in one call of a script.

Concurrent writes share the fixed cost of a call, in the server and here. Each caller has a future
of its own: one that is cancelled takes nothing from the others, and a write that cannot be encoded
fails before it joins them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from mediator.stores.port import StoreError, StoreUnavailable, Write, WriteResult
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.errors import refuse_unstorable
from mediator.stores.redis.layout import LayoutOf
from mediator.stores.redis.write.batches import MOST_WRITES, Batch
from mediator.stores.redis.write.prepared import prepare

__all__ = ["Coalescer"]

_MOST_ARGUMENTS: Final = 10_000
"""Arguments of one coalesced call at most; a write that has more goes alone."""


class _Shared:
    """A batch, and the callers that wait for its results in their order."""

    __slots__ = ("batch", "futures")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.futures: list[asyncio.Future[WriteResult]] = []

    def has_room(self, row: list[Any]) -> bool:
        arguments = len(self.batch.rows) + len(row)
        return len(self.futures) < MOST_WRITES and arguments <= _MOST_ARGUMENTS


class Coalescer:
    def __init__(self, layout_of: LayoutOf, client: CommandClient, name: str) -> None:
        self._layout_of = layout_of
        self._client = client
        self._name = name
        self._waiting: list[_Shared] = []
        self._latest: dict[tuple[int, int], _Shared] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, call: Write, token: str) -> asyncio.Future[WriteResult]:
        """Add a write to those of this tick; writes to one record stay in their order."""
        loop = asyncio.get_running_loop()
        layout = self._layout_of(call.fragment)
        row: list[Any] = []
        with refuse_unstorable:
            prepared = prepare(layout, call, has_token=bool(token))
            partition = layout.partition(call.id)
            prepared.add(row, call, token)
        if not self._waiting:
            loop.call_soon(self._send)
        shared = self._latest.get((id(layout), partition))
        if shared is None or shared.batch.prepared is not prepared or not shared.has_room(row):
            shared = _Shared(Batch(layout, partition, prepared))
            self._latest[id(layout), partition] = shared
            self._waiting.append(shared)
        shared.batch.rows += row
        future: asyncio.Future[WriteResult] = loop.create_future()
        shared.futures.append(future)
        return future

    def _send(self) -> None:
        waiting = self._waiting
        self._waiting, self._latest = [], {}
        for shared in waiting:
            task = asyncio.get_running_loop().create_task(self._execute(shared))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _execute(self, shared: _Shared) -> None:
        try:
            (reply,) = await self._client.execute([shared.batch.command()], writes=True)
            results = shared.batch.results(reply)
        except StoreError as error:
            _fail(shared, error)
        except BaseException:
            # Callers wait for their futures only: without a result they would wait for ever.
            _fail(shared, StoreUnavailable(f"{self._name}: the call was broken off"))
            raise
        else:
            for future, result in zip(shared.futures, results, strict=True):
                if not future.done():
                    future.set_result(result)


def _fail(shared: _Shared, error: StoreError) -> None:
    for future in shared.futures:
        if not future.done():
            # Each caller gets an error of its own, because raising one changes it (its traceback).
            future.set_exception(type(error)(*error.args))
