"""A client that caches every record and keeps a bound on staleness."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, TypeVar

import httpx

from sketch.client.answers import Read, Result, read_of, result_of
from sketch.client.clock import Clock, ElapsedTime, StrictlyIncreasing
from sketch.client.connection import ServiceConnection
from sketch.client.copies import Copies
from sketch.client.filters import FilterKeeper
from sketch.client.own_writes import OwnWrites
from sketch.client.reading import CachedReader
from sketch.client.renewing import Demand, Renewer
from sketch.client.resources import ObjectResource, QueryResource
from sketch.client.statistics import Statistics
from sketch.client.transactions import Transaction, Transactor
from sketch.client.writing import ObjectWriter

__all__ = ["CoherentClient"]

_T = TypeVar("_T")

_POSITION = re.compile(r"[A-Za-z0-9_-]{1,2048}", re.ASCII)


class CoherentClient(ObjectWriter):
    """Reads and writes objects of one database; caches what it reads.

    No read returns a value whose overwrite was acknowledged, or seen by anyone, more than `delta_s`
    before the read began. A client sees its own writes at once, and never an older state of an
    object than it has seen, while its cache remembers it. Used as ``async with``.

    Args:
        base_url: Of the service, or of the cache in front of it.
        delta_s: The bound on staleness (seconds).
        mode: ``eager`` renews the filter in the background, so that reads never wait for it, and
            copies that are read often, before they are too old. ``lazy`` renews the filter when a
            read needs it, and meanwhile sends that read to the origin.
        transport: Sends the requests instead of the network.
        headers: Sent with each request, such as Authorization.
        timeout_s: For each step of a request (seconds).
        cache_bytes: The memory of all copies.
        clock: Returns elapsed seconds, sleep included; for tests.
        sleep: Waits for some seconds; for tests.
    """

    def __init__(
        self,
        base_url: str,
        database: str,
        *,
        delta_s: float = 1.0,
        mode: Literal["eager", "lazy"] = "eager",
        transport: httpx.AsyncBaseTransport | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        cache_bytes: int = 64 * 1024 * 1024,
        clock: Clock | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if not delta_s > 0:
            raise ValueError("delta_s must be positive; reads with refresh=True are always fresh")
        self.statistics = statistics = Statistics()
        ticks = StrictlyIncreasing(clock or ElapsedTime())
        own_writes, copies = OwnWrites(ticks), Copies(cache_bytes, statistics)
        connection = ServiceConnection(
            base_url, database, statistics, transport, headers or {}, timeout_s
        )
        get, forget_before = connection.get, own_writes.forget_before
        self._keeper = keeper = FilterKeeper(get, delta_s, ticks, statistics, forget_before)
        demand = Demand() if mode == "eager" else None
        self._reader = CachedReader(get, keeper, own_writes, copies, ticks, statistics, demand)
        self._renewer: Renewer | None = None
        if demand is not None:
            post, revalidate = connection.post, self._reader.revalidate
            self._renewer = Renewer(demand, post, revalidate, keeper, copies, ticks, statistics)
        super().__init__(connection, own_writes, self._reader.written, ticks)
        read = partial(self._reader.read, refresh=False)
        self._transactor = Transactor(read, connection, own_writes, sleep)
        self._connection = connection
        self._sleep = sleep
        self._background: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        """Load the first filter; without one, reads go to the origin."""
        pause = await self._keeper.renew()
        if self._renewer is not None:
            coroutines = (self._keep_fresh(pause), self._renewer.run(self._sleep))
            self._background = [asyncio.create_task(work) for work in coroutines]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel the reads under way, and close every connection."""
        # No request may begin during the awaits below: nothing would end it.
        self._connection.refuse()
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        await self._keeper.close()
        await self._reader.close()
        await self._connection.close()

    async def refresh_filter(self) -> None:
        """Fetch a filter now, or raise; copies that it contains are no longer returned."""
        await self._keeper.refresh()

    async def get(
        self,
        class_name: str,
        id_: str,
        *,
        fields: Iterable[str] | None = None,
        refresh: bool = False,
        at_least: str | None = None,
        missing_ok: bool = False,
    ) -> Read:
        """Read an object.

        Each set of `fields` is cached separately. With `refresh` the read is linearizable.
        `at_least` is a position that the response must have reached (`Written.position`). With
        `missing_ok` an absent object has the value None.

        Raises:
            NotFound: It is absent, and `missing_ok` is not set.
            Problem: The service refused; Unreachable: it did not answer.
        """
        resource = ObjectResource.of(class_name, id_, fields)
        if at_least is None:
            answer = await self._reader.read(resource, refresh=refresh)
        else:
            if not _POSITION.fullmatch(at_least):
                raise ValueError("at_least is not a position that a write has answered")
            answer = await self._reader.read_at_least(resource, at_least)
        return read_of(answer, missing_ok=missing_ok)

    def transaction(self) -> Transaction:
        """Begin a transaction; used as ``async with``, which commits it at the end.

        It reads through caches, within the bound, and writes if nothing that it read has changed.
        """
        return self._transactor.begin()

    async def transact(
        self, work: Callable[[Transaction], Awaitable[_T]], *, attempts: int = 10
    ) -> _T:
        """Call `work` in a transaction; retry after a short delay if it is aborted.

        A retry reads the copies that caused the abort from the origin.

        Raises:
            TransactionAborted: The last attempt was aborted.
            Problem: One of the writes was refused, so none was executed.
            Unreachable: The outcome is unknown.
        """
        return await self._transactor.run(work, attempts)

    async def query(
        self,
        class_name: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        one_by_one: bool = False,
        refresh: bool = False,
    ) -> Result:
        """Find objects of a class.

        The result is no older than any write that was acknowledged more than `delta_s` before.

        Args:
            class_name: The class.
            parameters: Conditions, ``order``, ``limit`` and so on (docs/queries.md). Values other
                than text are written as JSON, lists with commas.
            one_by_one: List only the ids, and read the objects as `get` does: each is cached
                separately, and the list lasts until an object enters, leaves or moves.
            refresh: As of now, whatever the filter says.

        Raises:
            NotFound: The class does not exist.
            Problem: The service refused; Unreachable: it did not answer.
        """
        query_parameters = dict(parameters or {})
        fields = query_parameters.pop("fields", None) if one_by_one else None
        if one_by_one:
            query_parameters["fields"] = "id"
        resource = QueryResource.of(class_name, query_parameters)
        result = result_of(await self._reader.read(resource, refresh=refresh))
        if not one_by_one:
            return result
        reads = [
            self.get(class_name, item["id"], fields=fields, refresh=refresh, missing_ok=True)
            for item in result.items
        ]
        values = [read.value for read in await asyncio.gather(*reads)]
        return replace(result, items=[value for value in values if value is not None])

    async def _keep_fresh(self, pause: float) -> None:
        while True:
            await self._sleep(pause)
            pause = await self._keeper.renew()
