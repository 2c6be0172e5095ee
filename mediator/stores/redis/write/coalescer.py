"""Coalesces single writes of one event loop tick into one script call.

Concurrent writes share the fixed cost of a call, in the server and here. Each caller has a separate
future: its cancellation does not affect the others, and a write that cannot be encoded fails before
it joins them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from mediator.stores.port import StoreError, StoreUnavailable, Write, WriteResult
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.errors import refuse_unstorable
from mediator.stores.redis.layout import LayoutOf
from mediator.stores.redis.write.batches import MAX_WRITES, Batch
from mediator.stores.redis.write.prepared import prepare

__all__ = ["Coalescer"]

_MAX_ARGUMENTS: Final = 10_000
"""Maximum number of arguments of a coalesced call; a write with more is sent separately."""


class _SharedBatch:
    """A batch, and the futures of its callers, in order."""

    __slots__ = ("batch", "futures")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.futures: list[asyncio.Future[WriteResult]] = []

    def has_room(self, row: list[Any]) -> bool:
        arguments = len(self.batch.rows) + len(row)
        return len(self.futures) < MAX_WRITES and arguments <= _MAX_ARGUMENTS


class Coalescer:
    def __init__(self, layout_of: LayoutOf, client: CommandClient, name: str) -> None:
        self._layout_of = layout_of
        self._client = client
        self._name = name
        self._pending: list[_SharedBatch] = []
        self._latest: dict[tuple[int, int], _SharedBatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, call: Write, token: str) -> asyncio.Future[WriteResult]:
        """Add a write to those of this tick; writes to one record keep their order."""
        loop = asyncio.get_running_loop()
        layout = self._layout_of(call.fragment)
        row: list[Any] = []
        with refuse_unstorable:
            prepared = prepare(layout, call, has_token=bool(token))
            partition = layout.partition(call.id)
            prepared.add(row, call, token)
        if not self._pending:
            loop.call_soon(self._send)
        shared = self._latest.get((id(layout), partition))
        if shared is None or shared.batch.prepared is not prepared or not shared.has_room(row):
            shared = _SharedBatch(Batch(layout, partition, prepared))
            self._latest[id(layout), partition] = shared
            self._pending.append(shared)
        shared.batch.rows += row
        future: asyncio.Future[WriteResult] = loop.create_future()
        shared.futures.append(future)
        return future

    def _send(self) -> None:
        pending = self._pending
        self._pending, self._latest = [], {}
        for shared in pending:
            task = asyncio.get_running_loop().create_task(self._execute(shared))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _execute(self, shared: _SharedBatch) -> None:
        try:
            (reply,) = await self._client.execute([shared.batch.command()], writes=True)
            results = shared.batch.results(reply)
        except StoreError as error:
            _fail(shared, error)
        except BaseException:
            # Callers await only their futures: without a result they would wait for ever.
            _fail(shared, StoreUnavailable(f"{self._name}: the call was broken off"))
            raise
        else:
            for future, result in zip(shared.futures, results, strict=True):
                if not future.done():
                    future.set_result(result)


def _fail(shared: _SharedBatch, error: StoreError) -> None:
    for future in shared.futures:
        if not future.done():
            # Each caller gets a separate error, because raising one changes its traceback.
            future.set_exception(type(error)(*error.args))
