"""Reads: records by id, in the order of ids or of a field; and how many there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mediator.stores.mongo.layout import LIVE, Document, Layout, is_live, layout_of
from mediator.stores.mongo.ordering import Position, ranges
from mediator.stores.mongo.outbox import recalled
from mediator.stores.mongo.session import Session
from mediator.stores.mongo.text import ordered_text
from mediator.stores.port import Fragment, Read, Recalled, Record

__all__ = ["Reader"]

_BY_ID: Final[Mapping[str, int]] = {"_id": 1}


class Reader:
    """Reads records."""

    def __init__(self, session: Session) -> None:
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
        return layout.record(document) if document and is_live(document) else None

    async def _many(
        self, layout: Layout, fields: tuple[str, ...] | None, ids: set[str]
    ) -> dict[str, Record]:
        query = LIVE | {"_id": {"$in": [ordered_text(id_) for id_ in ids]}}
        records = await self._find(layout, query, None, 0, fields)
        return {record.id: record for record in records}

    async def recall(self, fragment: Fragment, id_: str, operation: str) -> Recalled | None:
        """Return what a record remembers of an operation."""
        layout = layout_of(fragment)
        document = await self._session.find(layout, id_, {"_ops": 1})
        return recalled(layout, document, operation)

    async def scan(
        self, fragment: Fragment, after: str | None, limit: int, fields: tuple[str, ...] | None
    ) -> list[Record]:
        """Read records in the order of their ids."""
        rest: Document = {} if after is None else {"_id": {"$gt": ordered_text(after)}}
        return await self._find(layout_of(fragment), LIVE | rest, _BY_ID, limit, fields)

    async def ordered(
        self,
        fragment: Fragment,
        field: str,
        *,
        descending: bool,
        limit: int,
        after: Position | None,
        fields: tuple[str, ...] | None,
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
                ids = await self._outliers(layout, part.query, field, after, descending)
                some = await self.read([Read(fragment, id_, fields) for id_ in ids[:room]])
                records += [record for record in some if record is not None]
            else:
                records += await self._find(layout, part.query, part.sort, room, fields)
        return records

    async def _outliers(
        self, layout: Layout, query: Document, field: str, after: Position | None, descending: bool
    ) -> list[str]:
        """Return the ids of the doubles in a range in their order, beyond `after`."""
        found = await self._find(layout, query, None, 0, (field,))
        places: list[tuple[Any, str]] = [(record.values[field], record.id) for record in found]
        if after is not None and isinstance(after[0], float):
            limit = after[0]
            places = [p for p in places if (p[0] < limit if descending else p[0] > limit)]
        return [id_ for _, id_ in sorted(places, reverse=descending)]

    async def count(self, fragment: Fragment) -> int:
        """Count live records."""
        return await self._session.collection(layout_of(fragment)).count_documents(LIVE)

    async def _find(
        self,
        layout: Layout,
        query: Document,
        sort: Mapping[str, int] | None,
        limit: int,
        fields: tuple[str, ...] | None,
    ) -> list[Record]:
        """Find records; a `limit` of 0 is none, and callers that mean nothing do not ask."""
        options: dict[str, Any] = {"limit": limit, "sort": sort}
        collection = self._session.collection(layout)
        found = collection.find(query, layout.projection(fields), **options)
        return [layout.record(document) async for document in found]
