"""The store on Redis: reads and writes in one round trip, whatever their number."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from mediator.base.clock import Clock, SystemClock
from mediator.base.offload import offload
from mediator.model.filters import Filter
from mediator.model.operators import Operator
from mediator.model.query import OrderBy
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import FieldType, Value
from mediator.stores.port import (
    Fragment,
    FragmentOf,
    LogEntry,
    Pushdown,
    Read,
    Record,
    RecordKey,
    RecordState,
    RememberedOperation,
    SearchPage,
    SearchRequest,
    ServerFacts,
    StoreRefused,
    StoreTimeout,
    StoreTooCostly,
    SystemConfig,
    Write,
    WriteResult,
)
from mediator.stores.redis.answers import recalled
from mediator.stores.redis.arguments import supports
from mediator.stores.redis.changelog import StreamLogs
from mediator.stores.redis.commands import command
from mediator.stores.redis.facts import DURABILITY, facts_of, refuse_unfit, settings_of
from mediator.stores.redis.gathering import Gathering
from mediator.stores.redis.intents import marking_runs
from mediator.stores.redis.keeping import drop_class, fill_indexes
from mediator.stores.redis.line import Line
from mediator.stores.redis.lua import SOURCES
from mediator.stores.redis.paging import Listing, listing
from mediator.stores.redis.plan import Plans, are_large, records_of
from mediator.stores.redis.runs import Run, runs_of
from mediator.stores.redis.searches import Search, choose

__all__ = ["RedisStore"]


class RedisStore:
    """A Redis or Valkey server; see `Store`, `Ordered` and `Queryable`.

    Args:
        config: How to reach it.
        clock: Tells the time of calls.
    """

    def __init__(self, config: SystemConfig, clock: Clock | None = None) -> None:
        self.config = config
        clock = clock or SystemClock()
        # Long answers (listings, drops) must not hold up short ones.
        self._line = Line(config, clock, SOURCES)
        self._bulk_line = Line(config, clock, SOURCES) if config.pool_size > 1 else self._line
        self._plans = Plans(config)
        self._under_way = 0
        self._logs = StreamLogs(config, self._bulk_line)
        self._gathering = Gathering(self._plans, self._line, config.name)

    async def open(self) -> None:
        """Connect, check that the server is fit, and ask it for the durability wanted."""
        self._line.open()
        self._bulk_line.open()
        refuse_unfit(await self._settings())
        loads = [command("SCRIPT", "LOAD", text) for text in SOURCES]
        await self._line.ask(loads, writes=True)
        await self._ask_for_durability()

    async def close(self) -> None:
        """Release the connections."""
        await self._line.close()
        await self._bulk_line.close()

    async def ping(self) -> None:
        """Return if the server answers."""
        await self._line.ask([command("PING")])

    async def time_us(self) -> int:
        """Return what the server's clock shows."""
        ((seconds, microseconds),) = await self._line.ask([command("TIME")])
        return int(seconds) * 1_000_000 + int(microseconds)

    async def facts(self) -> ServerFacts:
        """Observe version, append-only file and replicas; CONFIG may be forbidden."""
        return facts_of(await self._settings())

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        """Whether the scripts apply the operator exactly: no arithmetic on decimals."""
        return supports(operator, type_)

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:  # noqa: ARG002 - which indexes are filled is known in the store
        """Fill new indexes and remove those that are no more."""
        await fill_indexes(self._bulk_line, self._plans.of(fragment))

    async def drop(self, fragment: Fragment) -> None:
        """Remove the class: records, tombstones, indexes, remembered operations."""
        await drop_class(self._bulk_line, self._plans.of(fragment))

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records in one round trip."""
        if not calls:
            return []
        plans = [self._plans.of(call.fragment) for call in calls]
        with _packing:
            commands = [plan.query(call) for plan, call in zip(plans, calls, strict=True)]
        replies = await self._line.ask(commands)
        return await offload(are_large(replies), records_of, plans, calls, replies)

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        """Apply writes in one round trip; a script does those of one form and partition.

        A single write goes at once while nothing else is under way; otherwise it is gathered with
        the others of its turn of the event loop.
        """
        if not calls:
            return []
        if len(calls) == 1 and self._under_way:
            with _packing:
                result = self._gathering.join(calls[0], token)
            return [await result]
        try:
            runs = runs_of(self._plans, calls, token)
            commands = list(map(Run.command, runs))
        except _UNFIT as error:
            raise _unfit(error) from None
        self._under_way += 1
        try:
            replies = await self._line.ask(commands, writes=True)
        finally:
            self._under_way -= 1
        if len(runs) == 1:
            return runs[0].results(replies[0])
        results: dict[int, WriteResult] = {}
        for run, reply in zip(runs, replies, strict=True):
            results.update(zip(run.positions, run.results(reply), strict=True))
        return [results[position] for position in range(len(calls))]

    async def fence(self, fragment: Fragment, id_: str, token: str) -> dict[str, int]:
        """Fence a record against the writes of a token; see `Store.fence`."""
        plan = self._plans.of(fragment)
        with _packing:
            commands = [plan.fence(id_, token)]
        [versions] = await self._line.ask(commands, writes=True)
        return plan.versions(versions)

    async def lock(self, keys: Sequence[RecordKey], intent: str) -> list[RecordState]:
        """Set an intent on each record that has none; see `Lockable`."""
        return await self._intent(keys, "lock", intent)

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        """Take an intent away wherever it is this one; see `Lockable`."""
        await self._intent(keys, "join" if joint else "unlock", intent)

    async def record_states(self, keys: Sequence[RecordKey]) -> list[RecordState]:
        """Tell what stands of records."""
        return await self._intent(keys, "look", "")

    async def _intent(self, keys: Sequence[RecordKey], what: str, intent: str) -> list[RecordState]:
        if not keys:
            return []
        runs = marking_runs(self._plans, keys)
        with _packing:
            commands = [run.command(what, intent) for run in runs]
        replies = await self._line.ask(commands, writes=what != "look")
        found: dict[RecordKey, RecordState] = {}
        for run, reply in zip(runs, replies, strict=True):
            found.update(run.standings(reply))
        return [found[key] for key in keys]

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        """Return what is remembered of an operation, unless its class was dropped since."""
        plan = self._plans.of(fragment)
        with _packing:
            commands = plan.recollection(id_, operation)
        flat, generation = await self._line.ask(commands)
        return recalled(plan, flat, generation) if flat else None

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Read records in the order of their ids."""
        seen = None if after is None else (MISSING, after)
        plan = self._plans.of(fragment)
        return await self._listed(listing(plan, None, fields, descending=False, after=seen), limit)

    async def count(self, fragment: Fragment) -> int:
        """Count the objects of the class."""
        prefixes = self._plans.of(fragment).prefixes
        counts = await self._line.ask([command("ZCARD", f"{prefix}ids") for prefix in prefixes])
        return sum(counts)

    async def ordered(
        self,
        fragment: Fragment,
        field_name: str,
        *,
        descending: bool,
        limit: int,
        after: tuple[Value | MissingType, str] | None = None,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Read records in the order of an indexed field."""
        plan = self._plans.of(fragment)
        if field_name not in plan.indexed:
            raise StoreRefused(f"{field_name} has no index")
        wanted = listing(plan, field_name, fields, descending=descending, after=after)
        return await self._listed(wanted, limit)

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        """Say which conditions on ids or on one index a search would use."""
        return choose(self._plans.of(fragment), filter_, order).pushdown

    async def find(self, find: SearchRequest) -> SearchPage:
        """Return a page of records."""
        search = Search(self._plans.of(find.fragment), find)
        try:
            async with asyncio.timeout(find.deadline_s):
                with _packing:
                    return await search.page(self._bulk_line)
        except TimeoutError:
            raise StoreTooCostly(f"{self.config.name} did not find records in time") from None

    def logs(self) -> Sequence[str]:
        """Name the logs; see `ChangeLog`."""
        return self._logs.names()

    async def changes(
        self, log: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> list[LogEntry]:
        """Return changes beyond a position, oldest first."""
        return await self._logs.read(log, after, limit, fragment_of)

    async def oldest(self, log: str) -> str | None:
        """Return the position of the oldest change that is still there, or None."""
        return await self._logs.oldest(log)

    async def trim(self, log: str, upto: str, keep_s: float) -> int:
        """Remove changes up to a position, but none younger than `keep_s`; return how many."""
        return await self._logs.trim(log, upto, keep_s)

    async def _listed(self, wanted: Listing, limit: int) -> list[Record]:
        try:
            async with asyncio.timeout(self.config.deadline_s):
                with _packing:
                    return (await wanted.read(self._bulk_line, None, limit))[0]
        except TimeoutError:
            raise StoreTimeout(f"{self.config.name} did not list records in time") from None

    async def _settings(self) -> dict[str, str]:
        (info,) = await self._line.ask([command("INFO")])
        wanted = command("CONFIG", "GET", "append*")
        try:
            (config,) = await self._line.ask([wanted])
        except StoreRefused:
            config = None
        return settings_of(info, config)

    async def _ask_for_durability(self) -> None:
        wanted = DURABILITY.get(self.config.durability or "")
        if wanted is None:
            return
        with suppress(StoreRefused):
            await self._line.ask([command("CONFIG", "SET", "appendfsync", wanted)], writes=True)


def _unfit(error: BaseException) -> StoreRefused:
    return StoreRefused(f"a value cannot be stored: {type(error).__name__}")


class _Packing:
    """Turns values that have no text (surrogates, integers beyond JSON's) into a refusal."""

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, _UNFIT):
            raise _unfit(error) from None


_UNFIT = (TypeError, ValueError, OverflowError)
# One for all calls: a context manager made by contextlib costs as much as packing a write.
_packing = _Packing()
