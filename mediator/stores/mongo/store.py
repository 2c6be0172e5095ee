"""The MongoDB store: each record is one document, and each write is one update of it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from pymongo.errors import PyMongoError

from mediator.base.clock import Clock, ServerClock, SystemClock
from mediator.model.filters import Filter
from mediator.model.operators import APPLICABLE, Operator
from mediator.model.query import Aggregate, OrderBy
from mediator.schema.types import FieldType
from mediator.stores.mongo import claims, transactions
from mediator.stores.mongo.admin import build, erase, observe, prepare
from mediator.stores.mongo.errors import as_store_error, guarded
from mediator.stores.mongo.fencing import fence
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.mirror import absorb, forget, replace_copies
from mediator.stores.mongo.outbox.archive import archive_of
from mediator.stores.mongo.outbox.pending import (
    SCAN_EVERY_S,
    SWEEP_EVERY_S,
    SWEEP_WITHIN_S,
    acknowledge,
    pending,
    sweep,
)
from mediator.stores.mongo.read.reader import Reader
from mediator.stores.mongo.retention import REAP_WITHIN_S, Reaper
from mediator.stores.mongo.search.aggregates import SUMMABLE, aggregate_groups
from mediator.stores.mongo.search.searcher import find_page, pushdown, selection_of, selects
from mediator.stores.mongo.session import MongoSession
from mediator.stores.mongo.write.single import exceeding
from mediator.stores.mongo.write.writer import Writer
from mediator.stores.port import (
    RETENTION_S,
    ComputedGroup,
    Fragment,
    Pushdown,
    Read,
    Record,
    RecordKey,
    RecordState,
    RememberedOperation,
    SearchPage,
    SearchRequest,
    ServerFacts,
    SizedWrite,
    StoreTimeout,
    StoreTooCostly,
    StoreUnavailable,
    SystemConfig,
    TakenClaim,
    UnrelayedChanges,
    Write,
    WriteResult,
    by_fragment,
    group_of_all,
    record_states,
)
from mediator.stores.port.search import computes

__all__ = ["Link", "MongoStore"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Link:
    """An open session, with its reader, writer and reaper."""

    session: MongoSession
    reader: Reader
    writer: Writer
    reaper: Reaper


_BUILD_S: Final = 7200.0
"""Timeout in seconds for the indexes and claims of a class, which is read and written meanwhile."""


class MongoStore:
    """A store on MongoDB 5 or later, or on mongo-java-server; see `port.Store`.

    It uses only updates of single documents: neither transactions nor pipelines.

    Args:
        config: How to reach the system.
        clock: The store's clock for versions, `now` and retention. None: the server's clock, as
            estimated here.
    """

    def __init__(self, config: SystemConfig, clock: Clock | None = None) -> None:
        self.config = config
        self._server = ServerClock(SystemClock())
        self._clock = clock or self._server
        self._link: Link | None = None

    async def open(self) -> None:
        """Connect; raises `StoreUnavailable` if the server does not answer."""
        if self._link is not None:
            return
        try:
            session = MongoSession(self.config)
        except PyMongoError as error:
            raise as_store_error(self.config.name, error) from None
        try:
            await self._guarded(session.start())
            await self._guarded(self._read_clock(session))
        except BaseException:  # leave no connection behind
            await session.close()
            raise
        writer = Writer(session, self._clock)
        reaper = Reaper(session.client, self.config.namespace)
        self._link = Link(session, Reader(session), writer, reaper)

    async def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.session.close()

    async def ping(self) -> None:
        await self._guarded(self.link.session.client.admin.command("ping"))

    async def time_us(self) -> int:
        """Return the server's time in microseconds; its milliseconds are rounded down."""
        return await self._guarded(self._read_clock(self.link.session))

    async def _read_clock(self, session: MongoSession) -> int:
        sent_at = self._server.monotonic()
        server_us = await session.time_us()
        self._server.read(server_us, sent_at)
        return server_us

    async def facts(self) -> ServerFacts:
        """Query the server's version and configuration."""
        return await self._guarded(observe(self.link.session.client, self.config))

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        """Whether the operator is applied to the type exactly and atomically: always if applicable.

        Operators that the server lacks or would round (`mongo.write.operators`) are computed from
        the record, and written under the condition that it is unchanged.
        """
        return type_ in APPLICABLE[operator]

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:
        """Create the collection and its indexes; idempotent, keeps existing data."""
        await guarded(self.config.name, _BUILD_S, prepare(self.link.session, fragment, previous))

    async def build(
        self,
        fragment: Fragment,
        previous: Fragment | None = None,  # noqa: ARG002 - nothing is removed
    ) -> None:
        """Build the missing indexes; see `IndexBuilding`."""
        await guarded(self.config.name, _BUILD_S, build(self.link.session, fragment))

    async def built(self, fragment: Fragment) -> float | None:  # noqa: ARG002
        """Return None: the server reports it only to users with the right to see all operations."""
        return None

    async def drop(self, fragment: Fragment) -> None:
        layout, session = layout_of(fragment), self.link.session
        await self._guarded(session.collection(layout).drop())
        await self._guarded(session.collection(archive_of(layout)).drop())

    async def erase(
        self, fragment: Fragment, names: Sequence[str], after: str | None, limit: int
    ) -> str | None:
        """Remove fields from records; see `Erasing`."""
        return await self._guarded(
            erase(self.link.session, layout_of(fragment), names, after, limit)
        )

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records; None for absent records."""
        return await self._guarded(self.link.reader.read(calls))

    async def write(self, calls: Sequence[Write], token: str = "") -> list[WriteResult]:
        """Apply writes, each atomically with its outbox entry."""
        return await self._guarded(self.link.writer.write(calls, token), writes=True)

    async def fence(self, fragment: Fragment, id_: str, token: str) -> dict[str, int]:
        """Fence a record against the writes of a token; see `Store.fence`."""
        work = fence(self.link.session, fragment, id_, token, self._now_us())
        return await self._guarded(work)

    async def lock(
        self, keys: Sequence[RecordKey], intent: str, redo: str = ""
    ) -> list[RecordState]:
        """Set an intent on each record that has none; see `Lockable`."""
        session, now_us = self.link.session, self._now_us()
        return await record_states(
            keys,
            lambda f, ids: self._guarded(
                transactions.lock(session, layout_of(f), ids, intent, redo, now_us)
            ),
        )

    async def unlock(self, keys: Sequence[RecordKey], intent: str, *, joint: bool = False) -> None:
        """Remove this intent from the records that have it; see `Lockable`."""
        session = self.link.session
        for fragment, ids in by_fragment(keys).items():
            layout = layout_of(fragment)
            await self._guarded(transactions.unlock(session, layout, ids, intent, joint=joint))

    async def reserve(self, writes: Sequence[Write]) -> list[TakenClaim | None]:
        """Reserve the claims of writes; see `Claiming`."""
        session = self.link.session
        # One after the other: of two writes with the same claim, the first gets it.
        return [await self._guarded(claims.reserve(session, write)) for write in writes]

    async def exceeding(self, calls: Sequence[SizedWrite]) -> list[bool]:
        """Return which writes would make their records too large; see `Bounded`."""
        return await self._guarded(exceeding(self.link.writer.single, calls))

    async def record_states(
        self, keys: Sequence[RecordKey], *, redo: bool = False
    ) -> list[RecordState]:
        """Return the states of records; see `Lockable`."""
        read_states = partial(transactions.record_states, self.link.session, redo=redo)
        return await record_states(
            keys, lambda f, ids: self._guarded(read_states(layout_of(f), ids))
        )

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        return await self._guarded(self.link.reader.recall(fragment, id_, operation))

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None = None,
    ) -> list[Record]:
        """Read up to `limit` records in the order of their ids, beyond `after`."""
        if limit < 1:
            return []
        return await self._guarded(self.link.reader.scan(fragment, after, limit, fields))

    def pushdown(
        self, fragment: Fragment, filter_: Filter | None, order: tuple[OrderBy, ...]
    ) -> Pushdown:
        """Plan a search; before the store is open, the stand-in's defects are assumed."""
        return pushdown(fragment, filter_, order, is_stand_in=self._is_stand_in)

    async def find(self, find: SearchRequest) -> SearchPage:
        work = find_page(self.link.reader, find, is_stand_in=self._is_stand_in)
        return await self._search(work, find.deadline_s)

    def aggregates(self, fragment: Fragment, filter_: Filter | None, aggregate: Aggregate) -> bool:
        is_selected = selects(fragment, filter_, is_stand_in=self._is_stand_in)
        return is_selected and computes(fragment, aggregate, SUMMABLE)

    async def aggregate(
        self,
        fragment: Fragment,
        filter_: Filter | None,
        aggregate: Aggregate,
        *,
        limit: int,
        deadline_s: float,
    ) -> list[ComputedGroup]:
        selection = selection_of(fragment, filter_, deadline_s, is_stand_in=self._is_stand_in)
        if aggregate.only_counts:
            work = self.link.reader.count(fragment, selection)
            return group_of_all(aggregate, await self._search(work, deadline_s))[:limit]
        layout, session = layout_of(fragment), self.link.session
        groups = aggregate_groups(session, layout, selection, aggregate, limit)
        return await self._search(groups, deadline_s)

    def estimates(self, fragment: Fragment, filter_: Filter | None) -> bool:  # noqa: ARG002 - the server knows the size of every collection
        return filter_ is None

    async def estimate(
        self,
        fragment: Fragment,
        filter_: Filter | None,  # noqa: ARG002 - None, or else `estimates` has refused it
        *,
        deadline_s: float,
    ) -> int:
        work = self.link.reader.estimated_count(fragment, deadline_s)
        return await self._search(work, deadline_s)

    async def count(self, fragment: Fragment) -> int:
        return await self._guarded(self.link.reader.count(fragment))

    async def absorb(self, fragment: Fragment, records: Sequence[Record]) -> list[bool]:
        """Replace copies by newer records; see `Mirror`."""
        link = self.link
        return await self._guarded(absorb(link.session, link.reader, fragment, records))

    async def replace_copies(
        self, fragment: Fragment, copies: Sequence[Record], records: Sequence[Record]
    ) -> int:
        """Replace copies that are unchanged since they were read; see `Mirror`."""
        return await self._guarded(replace_copies(self.link.session, fragment, copies, records))

    async def forget(self, fragment: Fragment, tombstones: Sequence[tuple[str, int]]) -> None:
        """Remove the copies of deleted objects; see `Mirror`."""
        work = forget(self.link.session, fragment, tombstones, self._now_us())
        await self._guarded(work)

    @property
    def sweep_every_s(self) -> float:
        """The interval of `sweep` in seconds."""
        has_index = self._link is not None and not self._link.session.is_stand_in
        return SWEEP_EVERY_S if has_index else SCAN_EVERY_S

    def take_written(self, limit: int) -> list[tuple[str, str, str]]:
        """Take up to `limit` records that this process has written; see `PendingChanges`."""
        return [] if self._link is None else self._link.writer.recent_writes.take(limit)

    async def pending(self, fragment: Fragment, ids: Sequence[str]) -> list[UnrelayedChanges]:
        link = self.link
        return await self._guarded(pending(link.session, link.writer.recent_writes, fragment, ids))

    async def sweep(self, fragment: Fragment, after: str | None, limit: int) -> list[str]:
        """Find up to `limit` records with pending changes, in the order of their ids."""
        work = sweep(self.link.session, fragment, after, limit)
        return await guarded(self.config.name, SWEEP_WITHIN_S, work)

    async def acknowledge(self, relayed: Sequence[UnrelayedChanges]) -> None:
        """Remove relayed changes, unless another relay has removed them."""
        await self._guarded(acknowledge(self.link.session, relayed))

    async def reap(self, limit: int) -> int:
        """Remove up to `limit` tombstones and remembered operations past `RETENTION_S`."""
        before = int((self._clock.now() - RETENTION_S) * 1_000_000)
        work = self.link.reaper.reap(before, limit)
        return await guarded(self.config.name, REAP_WITHIN_S, work)

    @property
    def link(self) -> Link:
        """The open connection; raises `StoreUnavailable` if there is none."""
        if self._link is None:
            raise StoreUnavailable(f"{self.config.name} is not open")
        return self._link

    @property
    def _is_stand_in(self) -> bool:
        return self._link is None or self._link.session.is_stand_in

    async def _search(self, work: Awaitable[_T], deadline_s: float) -> _T:
        try:
            return await guarded(self.config.name, deadline_s, work)
        except StoreTimeout:
            raise StoreTooCostly(f"{self.config.name} did not find records in time") from None

    def _now_us(self) -> int:
        return int(self._clock.now() * 1_000_000)

    async def _guarded(self, work: Awaitable[_T], *, writes: bool = False) -> _T:
        return await guarded(self.config.name, self.config.deadline_s, work, writes=writes)
