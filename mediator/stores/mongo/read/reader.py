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
from mediator.stores.mongo.outbox.entries import recalled
from mediator.stores.mongo.read.ordering import Position, ranges
from mediator.stores.mongo.read.spans import is_short, spans
from mediator.stores.mongo.session import MongoSession
from mediator.stores.port import Fragment, Read, Record, RememberedOperation

__all__ = ["ALL", "Reader", "RecordSelection", "trimmed"]


@dataclass(frozen=True, slots=True)
class RecordSelection:
    """Which records a listing selects from.

    Attributes:
        condition: The condition that records satisfy; None: every record does.
        until_s: Time of the event loop up to which the server may take; None: as long as it likes.
        ids: The ids that the condition leaves, if it names them: the server then looks at no other
            records. The stand-in does so only if they are at the top of the query.
    """

    condition: Document | None = None
    until_s: float | None = None
    ids: tuple[str, ...] | None = None

    def left_ms(self) -> int | None:
        """Return how long the server may take from now on; 0 would be as long as it likes."""
        if self.until_s is None:
            return None
        return max(1, round((self.until_s - get_running_loop().time()) * 1000))

    def within(self, query: Document) -> Document:
        """Return the query for those of its records that are selected."""
        if self.condition is not None:
            query = _both(self.condition, query)
        return query if self.ids is None else _both(query, among(self.ids))


ALL: Final = RecordSelection()
"""Every record of the class."""


class Reader:
    """Reads records."""

    def __init__(self, session: MongoSession) -> None:
        self._session = session

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records: those of one class and the same fields in one round trip."""
        if len(calls) == 1:
            return [await self._one(calls[0])]
        kinds: defaultdict[tuple[Layout, tuple[str, ...] | None], set[str]] = defaultdict(set)
        for call in calls:
            kinds[layout_of(call.fragment), call.fields].add(call.id)
        found = {kind: await self._many(*kind, ids) for kind, ids in kinds.items()}
        return [found[layout_of(call.fragment), call.fields].get(call.id) for call in calls]

    async def _one(self, call: Read) -> Record | None:
        layout = layout_of(call.fragment)
        document = await self._session.find(layout, call.id, layout.projection(call.fields))
        if not document or not is_live(document):
            return None
        return await offload(is_large(document), layout.record, document)

    async def _many(
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
        return recalled(layout, document, operation)

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
        beyond, direction = ("$lt", -1) if descending else ("$gt", 1)
        rest: Document = {} if after is None else {"_id": {beyond: ordered_text(after)}}
        query, sort = LIVE | rest, {"_id": direction}
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
        for part in ranges(layout, field, descending=descending, after=after, saturates=saturates):
            if len(records) >= limit:
                break
            room = limit - len(records)
            if part.sort is None:
                some = await self._outliers(
                    layout, part.query, field, after, descending, fields, selection
                )
                records += some[:room]
            else:
                records += await self._find(layout, part.query, part.sort, room, fields, selection)
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
        found = await self._find(layout, query, None, 0, needed, selection)
        if after is not None and isinstance(after[0], float):
            limit = after[0]
            found = [r for r in found if _follows(r.values[field], limit, descending)]
        found.sort(key=lambda r: (r.values[field], r.id), reverse=descending)
        return trimmed(found, fields)

    async def count(self, fragment: Fragment, selection: RecordSelection = ALL) -> int:
        layout = layout_of(fragment)
        collection = self._session.collection(layout)
        if await is_short(self._session, layout):
            left_ms = selection.left_ms()
            options: dict[str, Any] = {} if left_ms is None else {"maxTimeMS": left_ms}
            return await collection.count_documents(selection.within(LIVE), **options)
        number = 0
        async for span in spans(self._session, layout):
            # It counts by looking at all documents, and finds by those in a range of ids.
            query, left_ms = selection.within(span | LIVE), selection.left_ms()
            found = collection.find(query, {"_id": 1}, max_time_ms=left_ms)
            number += len(await found.to_list())
        return number

    async def estimated_count(self, fragment: Fragment, deadline_s: float) -> int:
        """Return how many documents the server says there are; tombstones are counted, too."""
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
        """Find records; a `limit` of 0 means no limit; callers that want none do not call."""
        options: dict[str, Any] = {"limit": limit, "sort": sort, "max_time_ms": selection.left_ms()}
        # In one batch: the driver would take 101 documents first.
        options["batch_size"] = limit
        collection = self._session.collection(layout)
        found = collection.find(selection.within(query), layout.projection(fields), **options)
        documents = await found.to_list()
        return await offload(is_large(documents), _records, layout, documents)


def _both(condition: Document, query: Document) -> Document:
    """Join what is looked for with what is looked through.

    The stand-in tests each record by what comes first, and by the rest only if that holds: nearly
    all records are there. It sees ids and a range of ids at the top only, and one id not as `$eq`.
    """
    if condition.keys().isdisjoint(query):
        return condition | query
    both = [condition, *query.get("$and", ())]
    return {"$and": both} | {path: test for path, test in query.items() if path != "$and"}


def _records(layout: Layout, documents: Sequence[Document]) -> list[Record]:
    return list(map(layout.record, documents))


def trimmed(records: list[Record], fields: tuple[str, ...] | None) -> list[Record]:
    """Return records with nothing but some fields; None: as they are."""
    if fields is None:
        return records
    return [replace(record, values=projected(record.values, fields)) for record in records]


def _follows(value: Any, limit: float, descending: bool) -> bool:
    return bool(value < limit if descending else value > limit)
