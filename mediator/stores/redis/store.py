"""The store on Redis: any number of reads or writes in one round trip."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Literal, TypeVar

from mediator.base.offload import offload
from mediator.model.filters import Filter
from mediator.model.operators import Operator
from mediator.model.query import Aggregate, OrderBy
from mediator.schema.types import FieldType
from mediator.stores.port import (
    ComputedGroup,
    Fragment,
    FragmentOf,
    LogPage,
    Pushdown,
    Read,
    Record,
    RecordKey,
    RecordState,
    RememberedOperation,
    SearchPage,
    SearchRequest,
    ServerFacts,
    StoreError,
    StoreTimeout,
    StoreTooCostly,
    SystemConfig,
    TakenClaim,
    Write,
    WriteResult,
    group_of_all,
)
from mediator.stores.redis import fencing
from mediator.stores.redis.admin import (
    drop_class,
    erase,
    facts_of,
    fill_indexes,
    refuse_unfit,
    remove_indexes,
    request_durability,
    settings_of,
)
from mediator.stores.redis.claims import reserve
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.errors import refuse_unstorable
from mediator.stores.redis.layout import IDS, layouts
from mediator.stores.redis.outbox import StreamLogs
from mediator.stores.redis.read import are_large, read_command, records_of
from mediator.stores.redis.retention import trim_stream
from mediator.stores.redis.scripts import ALL
from mediator.stores.redis.search.intervals import EVERYTHING, beyond, past
from mediator.stores.redis.search.listing import IndexListing
from mediator.stores.redis.search.plan import choose
from mediator.stores.redis.search.search import (
    can_count,
    count,
    find_page,
    group_listing,
    groups,
)
from mediator.stores.redis.transactions import change_intents
from mediator.stores.redis.write.arguments import supports
from mediator.stores.redis.write.batches import Batch, batches_of
from mediator.stores.redis.write.coalescer import Coalescer
from mediator.stores.redis.write.results import recall_commands, remembered_operation
from redis_connection.commands import command

__all__ = ["RedisStore"]

_T = TypeVar("_T")


class RedisStore:
    """A Redis or Valkey server.

    It is `Queryable`, `Lockable` and a `ChangeLog`; also `Aggregating` and `Estimating`, where an
    index can count. It is `Pipelining`: commands of one tick are sent in one request.
    """

    pipelines: Literal[True] = True

    def __init__(self, config: SystemConfig) -> None:
        self.config = config
        # Long replies (listings, drops) must not delay short ones.
        self._client = CommandClient(config, ALL)
        self._bulk_client = CommandClient(config, ALL) if config.pool_size > 1 else self._client
        self._layout_of = layouts(config)
        self._writes_under_way = 0
        self._built: dict[str, float] = {}
        self._logs = StreamLogs(config, self._bulk_client)
        self._coalescer = Coalescer(self._layout_of, self._client, config.name)

    async def open(self) -> None:
        """Connect, check the server's suitability, and request the configured durability."""
        self._client.open()
        self._bulk_client.open()
        refuse_unfit(await settings_of(self._client))
        await self._client.execute([script.load for script in ALL], writes=True)
        await request_durability(self._client, self.config.durability)

    async def close(self) -> None:
        await self._client.close()
        await self._bulk_client.close()

    async def ping(self) -> None:
        await self._client.execute([command("PING")])

    async def time_us(self) -> int:
        ((seconds, microseconds),) = await self._client.execute([command("TIME")])
        return int(seconds) * 1_000_000 + int(microseconds)

    async def facts(self) -> ServerFacts:
        return facts_of(await settings_of(self._client))

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        return supports(operator, type_)

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        previous_layout = None if previous is None else self._layout_of(previous)
        await remove_indexes(self._bulk_client, self._layout_of(fragment), previous_layout)
        await self.build(fragment)

    async def build(
        self,
        fragment: Fragment,
        previous: Fragment | None = None,  # noqa: ARG002 - nothing is removed
    ) -> None:
        """Fill the indexes that are not yet filled; see `IndexBuilding`."""
        layout = self._layout_of(fragment)
        class_, partitions = layout.prefixes[0], len(layout.prefixes)

        def on_partition(number: int) -> None:
            self._built[class_] = number / partitions

        try:
            await fill_indexes(self._bulk_client, layout, on_partition)
        finally:
            self._built.pop(class_, None)

    async def built(self, fragment: Fragment) -> float | None:
        """Return the share of the partitions that this process has filled."""
        return self._built.get(self._layout_of(fragment).prefixes[0])

    async def drop(self, fragment: Fragment) -> None:
        await drop_class(self._bulk_client, self._layout_of(fragment))

    async def erase(
        self, fragment: Fragment, names: Sequence[str], after: str | None, limit: int
    ) -> str | None:
        return await erase(self._bulk_client, self._layout_of(fragment), names, after, limit)

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        if not calls:
            return []
        layouts = [self._layout_of(call.fragment) for call in calls]
        with refuse_unstorable:
            commands = list(map(read_command, layouts, calls))
        replies = await self._client.execute(commands)
        return await offload(are_large(replies), records_of, layouts, calls, replies)

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        """Apply writes in one round trip, batch by batch.

        A single write is sent at once if no other is in progress; otherwise it is coalesced with
        the other writes of its event loop tick.
        """
        if not calls:
            return []
        if len(calls) == 1 and self._writes_under_way:
            return [await self._coalescer.add(calls[0], token)]
        with refuse_unstorable:
            batches = batches_of(self._layout_of, calls, token)
            commands = list(map(Batch.command, batches))
        self._writes_under_way += 1
        try:
            replies = await self._client.execute(commands, writes=True)
        finally:
            self._writes_under_way -= 1
        if len(batches) == 1:
            return batches[0].results(replies[0])
        results: dict[int, WriteResult] = {}
        for batch, reply in zip(batches, replies, strict=True):
            results.update(zip(batch.positions, batch.results(reply), strict=True))
        return [results[position] for position in range(len(calls))]

    async def fence(self, fragment: Fragment, id_: str, token: str) -> dict[str, int]:
        return await fencing.fence(self._client, self._layout_of(fragment), id_, token)

    async def lock(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        return await change_intents(self._client, self._layout_of, keys, "lock", intent, redo)

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        action = "join" if joint else "unlock"
        await change_intents(self._client, self._layout_of, keys, action, intent)

    async def reserve(self, writes: Sequence[Write]) -> list[TakenClaim | None]:
        return await reserve(self._client, self._layout_of, writes)

    async def record_states(
        self, keys: Sequence[RecordKey], *, redo: bool = False
    ) -> list[RecordState]:
        action = "redo" if redo else "look"
        return await change_intents(self._client, self._layout_of, keys, action, "")

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        layout = self._layout_of(fragment)
        with refuse_unstorable:
            commands = recall_commands(layout, id_, operation)
        flat, generation = await self._client.execute(commands)
        return remembered_operation(layout, flat, generation) if flat else None

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        intervals = [EVERYTHING]
        if after is not None:
            intervals = beyond(intervals, past(after, descending=False), descending=False)
        page = IndexListing(self._layout_of(fragment), IDS, intervals, False, fields)
        work = page.read(self._bulk_client, None, limit)
        records, _ = await self._within(self.config.deadline_s, work, StoreTimeout)
        return records

    async def count(self, fragment: Fragment) -> int:
        return await count(self._client, self._layout_of(fragment), None)

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        return choose(self._layout_of(fragment), filter_, order).pushdown

    async def find(self, find: SearchRequest) -> SearchPage:
        work = find_page(self._bulk_client, self._layout_of(find.fragment), find)
        return await self._within(find.deadline_s, work)

    def aggregates(self, fragment: Fragment, filter_: Filter | None, aggregate: Aggregate) -> bool:
        layout = self._layout_of(fragment)
        if aggregate.only_counts:
            return can_count(layout, filter_)
        return group_listing(layout, filter_, aggregate) is not None

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> list[ComputedGroup]:
        if aggregate.only_counts:
            number = await self.estimate(fragment, filter_, deadline_s=deadline_s)
            return group_of_all(aggregate, number)[:limit]
        layout = self._layout_of(fragment)
        work = groups(self._bulk_client, layout, filter_, aggregate, limit)
        return await self._within(deadline_s, work)

    def estimates(self, fragment: Fragment, filter_: Filter | None) -> bool:
        """Whether an index counts, but inexactly: it includes expired objects."""
        return fragment.ttl_s is not None and can_count(self._layout_of(fragment), filter_)

    async def estimate(
        self, fragment: Fragment, filter_: Filter | None, *, deadline_s: float
    ) -> int:
        work = count(self._bulk_client, self._layout_of(fragment), filter_)
        return await self._within(deadline_s, work)

    async def _within(
        self, deadline_s: float, work: Awaitable[_T], error: type[StoreError] = StoreTooCostly
    ) -> _T:
        """Read many records with any number of commands; `error` is raised at the deadline."""
        try:
            async with asyncio.timeout(deadline_s):
                with refuse_unstorable:
                    return await work
        except TimeoutError:
            raise error(f"{self.config.name} did not find records in time") from None

    def logs(self) -> Sequence[str]:
        return tuple(self._logs.keys)

    async def changes(
        self, log: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> LogPage:
        return await self._logs.read(log, after, limit, fragment_of)

    async def oldest(self, log: str) -> str | None:
        return await self._logs.oldest(log)

    async def trim(self, log: str, upto: str, keep_s: float) -> int:
        return await trim_stream(self._bulk_client, self._logs.keys[log], upto, keep_s)
