"""The MongoDB store: one document for each record, every write one update of it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from pymongo.errors import OperationFailure, PyMongoError

from mediator.clock import Clock, SystemClock
from mediator.operations.operators import APPLICABLE, Operator
from mediator.schema.tree import MissingType
from mediator.schema.types import FieldType, Value
from mediator.stores.mongo.errors import guarded, translated
from mediator.stores.mongo.facts import observe
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.reading import Reader
from mediator.stores.mongo.reaping import reap
from mediator.stores.mongo.session import Session
from mediator.stores.mongo.writing import Writer
from mediator.stores.port import (
    REMEMBER_S,
    Fragment,
    Read,
    Recalled,
    Record,
    ServerFacts,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteResult,
)

__all__ = ["MongoStore"]

_T = TypeVar("_T")

_NAMESPACE_EXISTS: Final = 48


@dataclass(frozen=True, slots=True)
class _Link:
    session: Session
    reader: Reader
    writer: Writer


class MongoStore:
    """A store on MongoDB 5 or later, or on mongo-java-server; see `port.Store`.

    It uses updates of single documents only: neither transactions nor pipelines.

    Args:
        config: How to reach the system.
        clock: The store's clock: what versions, `now` and retention go by.
    """

    def __init__(self, config: SystemConfig, clock: Clock | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._link: _Link | None = None

    async def open(self) -> None:
        """Connect; raises `StoreUnavailable` if the server does not answer."""
        if self._link is not None:
            return
        try:
            session = Session(self.config)
        except PyMongoError as error:
            raise translated(self.config.name, error) from None
        try:
            await self._guarded(session.start())
        except StoreError:
            await session.client.close()
            raise
        self._link = _Link(session, Reader(session), Writer(session, self._clock))

    async def close(self) -> None:
        """Release every connection."""
        link, self._link = self._link, None
        if link is not None:
            await link.session.client.close()

    async def ping(self) -> None:
        """Return if the server answers."""
        await self._guarded(self._open_link.session.client.admin.command("ping"))

    async def facts(self) -> ServerFacts:
        """Observe the server's version and configuration."""
        return await self._guarded(observe(self._open_link.session.client, self.config))

    def supports(self, operator: Operator, type_: FieldType) -> bool:
        """Whether the operator is applied to the type exactly and atomically: it always is.

        What the server lacks or would round (`mediator.stores.mongo.native`) is computed from the
        record and written under the condition that it is unchanged.
        """
        return type_ in APPLICABLE[operator]

    async def prepare(self, fragment: Fragment, previous: Fragment | None = None) -> None:  # noqa: ARG002 - nothing depends on the previous form
        """Make the collection and its indexes; idempotent, keeps existing data."""
        await self._guarded(self._prepare(fragment))

    async def _prepare(self, fragment: Fragment) -> None:
        layout = layout_of(fragment)
        try:
            await self._open_link.session.database(fragment.database).create_collection(
                fragment.class_name, check_exists=False
            )
        except OperationFailure as error:
            if error.code != _NAMESPACE_EXISTS:
                raise
        collection = self._open_link.session.collection(layout)
        await collection.create_index({"tombstone": 1}, sparse=True)
        for name, field in fragment.fields.items():
            if field.index:
                await collection.create_index({layout.paths[name]: 1, "_id": 1})

    async def drop(self, fragment: Fragment) -> None:
        """Remove the class with all its data."""
        await self._guarded(self._open_link.session.collection(layout_of(fragment)).drop())

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records; None for those that are not there."""
        return await self._guarded(self._open_link.reader.read(calls))

    async def write(self, calls: Sequence[Write]) -> list[WriteResult]:
        """Apply writes, each atomically with its outbox entry."""
        return await self._guarded(self._open_link.writer.write(calls))

    async def recall(self, fragment: Fragment, id_: str, operation: str) -> Recalled | None:
        """Return what is remembered of an operation on an object."""
        return await self._guarded(self._open_link.reader.recall(fragment, id_, operation))

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
        return await self._guarded(self._open_link.reader.scan(fragment, after, limit, fields))

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
        """Read records ordered by (field, id), beyond `after`."""
        if not fragment.fields[field_name].index:
            raise StoreRefused(f"{field_name} is not indexed")
        work = self._open_link.reader.ordered(
            fragment, field_name, descending=descending, limit=limit, after=after, fields=fields
        )
        return await self._guarded(work)

    async def count(self, fragment: Fragment) -> int:
        """Count the objects of the class that are there."""
        return await self._guarded(self._open_link.reader.count(fragment))

    async def reap(self, limit: int) -> int:
        """Remove up to `limit` tombstones and stale entries past `REMEMBER_S`."""
        before = int((self._clock.now() - REMEMBER_S) * 1_000_000)
        work = reap(self._open_link.session.client, self.config.namespace, before, limit)
        return await self._guarded(work)

    @property
    def _open_link(self) -> _Link:
        if self._link is None:
            raise StoreUnavailable(f"{self.config.name} is not open")
        return self._link

    async def _guarded(self, work: Awaitable[_T]) -> _T:
        return await guarded(self.config.name, self.config.deadline_s, work)
