"""Reads records by id, in the order of ids or of a field, and counts them."""

from __future__ import annotations

from asyncio import get_running_loop
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from mediator.base.offload import is_large, offload
from mediator.schema.types import projected
from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import LIVE, Document, Layout, among, is_live, layout_of
from mediator.stores.mongo.outbox.archive import OPERATIONS, add_archived
from mediator.stores.mongo.outbox.entries import remembered_operation
from mediator.stores.mongo.read.ordering import Position, ranges
from mediator.stores.mongo.read.spans import is_short, spans
from mediator.stores.mongo.session import MongoSession
from mediator.stores.port import Fragment, Read, Record, RememberedOperation

__all__ = ["ALL", "Reader", "RecordSelection", "project_fields"]


@dataclass(frozen=True, slots=True)
class RecordSelection:
    """The records that a listing selects from.

    Attributes:
        condition: The condition on records; None: all records.
        until_s: The server's deadline, in event loop time; None: no deadline.
        ids: The ids to which the condition restricts records, if it names them: the server then
            reads no others. The stand-in does so only if they are at the top of the query.
    """

    condition: Document | None = None
    until_s: float | None = None
    ids: tuple[str, ...] | None = None

    def remaining_ms(self) -> int | None:
        """Return the server's remaining time; never 0, which would be unlimited."""
        if self.until_s is None:
            return None
        return max(1, round((self.until_s - get_running_loop().time()) * 1000))

    def within(self, query: Document) -> Document:
        """Return the query restricted to the selected records."""
        if self.condition is not None:
            query = _conjunction(self.condition, query)
        return query if self.ids is None else _conjunction(query, among(self.ids))


ALL: Final = RecordSelection()
"""Every record of the class."""


class Reader:
    """Reads records."""

    def __init__(self, session: MongoSession) -> None:
        self._session = session

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records, in one round trip for each class and set of fields."""
        if len(calls) == 1:
            return [await self._read_one(calls[0])]
        kinds: defaultdict[tuple[Layout, tuple[str, ...] | None], set[str]] = defaultdict(set)
        for call in calls:
            kinds[layout_of(call.fragment), call.fields].add(call.id)
        records_by_kind = {kind: await self._read_many(*kind, ids) for kind, ids in kinds.items()}
        return [
            records_by_kind[layout_of(call.fragment), call.fields].get(call.id) for call in calls
        ]

    async def _read_one(self, call: Read) -> Record | None:
        layout = layout_of(call.fragment)
        document = await self._session.find(layout, call.id, layout.projection(call.fields))
        if not document or not is_live(document):
            return None
        return await offload(is_large(document), layout.record, document)

    async def _read_many(
        self, layout: Layout, fields: tuple[str, ...] | None, ids: set[str]
    ) -> dict[str, Record]:
        query = LIVE | among(ids)
        records = await self._find(layout, query, None, 0, fields)
        return {record.id: record for record in records}

    async def recall(
        self, fragment: Fragment, id_: str, operation: str
    ) -> RememberedOperation | None:
        layout = layout_of(fragment)
        document = await self._session.find(layout, id_, OPERATIONS)
        if document is not None:
            stored = {document["_id"]: document}
            await add_archived(self._session, layout, stored, [(id_, operation)])
        return remembered_operation(layout, document, operation)

    async def scan(
        self,
        fragment: Fragment,
        after: str | None,
        limit: int,
        fields: tuple[str, ...] | None,
        *,
        descending: bool = False,
        selection: RecordSelection = ALL,
    ) -> list[Record]:
        """Read records in the order of their ids."""
        comparison, direction = ("$lt", -1) if descending else ("$gt", 1)
        beyond_id: Document = {} if after is None else {"_id": {comparison: ordered_text(after)}}
        query, sort = LIVE | beyond_id, {"_id": direction}
        return await self._find(layout_of(fragment), query, sort, limit, fields, selection)

    async def ordered(
        self,
        fragment: Fragment,
        field: str,
        *,
        descending: bool,
        limit: int,
        after: Position | None,
        fields: tuple[str, ...] | None,
        selection: RecordSelection,
    ) -> list[Record]:
        """Read records in the order of a field."""
        layout = layout_of(fragment)
        records: list[Record] = []
        saturates = self._session.is_stand_in
        for order_range in ranges(
            layout, field, descending=descending, after=after, saturates=saturates
        ):
            if len(records) >= limit:
                break
            room = limit - len(records)
            if order_range.sort is None:
                outliers = await self._outliers(
                    layout, order_range.query, field, after, descending, fields, selection
                )
                records += outliers[:room]
            else:
                records += await self._find(
                    layout, order_range.query, order_range.sort, room, fields, selection
                )
        return records

    async def _outliers(
        self,
        layout: Layout,
        query: Document,
        field: str,
        after: Position | None,
        descending: bool,
        fields: tuple[str, ...] | None,
        selection: RecordSelection,
    ) -> list[Record]:
        """Return the records of a range of doubles in their order, beyond `after`."""
        needed = None if fields is None else tuple({*fields, field})
        records = await self._find(layout, query, None, 0, needed, selection)
        if after is not None and isinstance(after[0], float):
            bound = after[0]
            records = [r for r in records if _follows(r.values[field], bound, descending)]
        records.sort(key=lambda r: (r.values[field], r.id), reverse=descending)
        return project_fields(records, fields)

    async def count(self, fragment: Fragment, selection: RecordSelection = ALL) -> int:
        layout = layout_of(fragment)
        collection = self._session.collection(layout)
        if await is_short(self._session, layout):
            remaining_ms = selection.remaining_ms()
            options: dict[str, Any] = {} if remaining_ms is None else {"maxTimeMS": remaining_ms}
            return await collection.count_documents(selection.within(LIVE), **options)
        number = 0
        async for span in spans(self._session, layout):
            # The stand-in counts by reading all documents, but finds by reading a range of ids.
            query, remaining_ms = selection.within(span | LIVE), selection.remaining_ms()
            cursor = collection.find(query, {"_id": 1}, max_time_ms=remaining_ms)
            number += len(await cursor.to_list())
        return number

    async def estimated_count(self, fragment: Fragment, deadline_s: float) -> int:
        """Return the server's estimate of the number of documents, including tombstones."""
        collection = self._session.collection(layout_of(fragment))
        return await collection.estimated_document_count(maxTimeMS=max(1, round(deadline_s * 1000)))

    async def _find(
        self,
        layout: Layout,
        query: Document,
        sort: Mapping[str, int] | None,
        limit: int,
        fields: tuple[str, ...] | None,
        selection: RecordSelection = ALL,
    ) -> list[Record]:
        """Find records; a `limit` of 0 means no limit, so it must not be passed for no records."""
        options: dict[str, Any] = {
            "limit": limit,
            "sort": sort,
            "max_time_ms": selection.remaining_ms(),
        }
        # In one batch: by default the driver's first batch has 101 documents.
        options["batch_size"] = limit
        collection = self._session.collection(layout)
        cursor = collection.find(selection.within(query), layout.projection(fields), **options)
        documents = await cursor.to_list()
        return await offload(is_large(documents), _records, layout, documents)


def _conjunction(condition: Document, query: Document) -> Document:
    """Join a condition and a query, the condition first.

    The stand-in tests conditions in order, and nearly all records are live. It uses ids and ranges
    of ids only at the top of a query, and one id not as `$eq`.
    """
    if condition.keys().isdisjoint(query):
        return condition | query
    conditions = [condition, *query.get("$and", ())]
    return {"$and": conditions} | {path: test for path, test in query.items() if path != "$and"}


def _records(layout: Layout, documents: Sequence[Document]) -> list[Record]:
    return list(map(layout.record, documents))


def project_fields(records: list[Record], fields: tuple[str, ...] | None) -> list[Record]:
    """Return records with only some fields; None: unchanged."""
    if fields is None:
        return records
    return [replace(record, values=projected(record.values, fields)) for record in records]


def _follows(value: Any, limit: float, descending: bool) -> bool:
    return bool(value < limit if descending else value > limit)
