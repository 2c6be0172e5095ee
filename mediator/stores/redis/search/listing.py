"""Pages of records in an order: a snapshot of each partition, merged by position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Any, Final, TypeAlias

from mediator.base.offload import offload
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Value
from mediator.stores.port import Record
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.codec import Text, decode, encode, item_encoder
from mediator.stores.redis.layout import IDS, Index, Layout
from mediator.stores.redis.read import are_large, record_of
from mediator.stores.redis.scripts import COUNT, GROUPS, PAGE
from mediator.stores.redis.search.intervals import Cut, Interval

__all__ = ["IndexListing", "Resume"]

MAX_RECORDS: Final = 500
"""Maximum number of records read by one script, so that it does not block the server for long."""

MAX_GROUPS: Final = 500
"""Maximum number of values counted by one script."""

MAX_INTERVALS: Final = 500
"""Maximum number of intervals read by one script."""

Resume: TypeAlias = tuple[int, bytes | None]
"""Where a listing resumes: the number of an interval, and the last member read from it."""

_End: TypeAlias = tuple[Text | int, ...]
_Entry: TypeAlias = tuple[int, bytes, Record | None]

_EDGES: Final = (b"\x00", b"\x01", b"\x02", b"\x03")
"""The first bytes of members: of missing, null, values, and the end."""

_EDGES_OF_IDS: Final = (b"", b"", b"", b"\xff")
_BEHIND: Final = b"\xff"
"""An id or a state follows the value in a member; neither begins with this byte."""


@dataclass(frozen=True, slots=True)
class IndexListing:
    """Records of a class by an index, or by their ids.

    Attributes:
        layout: The layout of the fragment.
        index: The index.
        intervals: Intervals of the index, in reading order.
        descending: Whether to read in the reverse order.
        fields: Fields to read; None: all.
        fixed: The values of the index's first fields; the intervals are of the next field.
    """

    layout: Layout
    index: Index
    intervals: Sequence[Interval]
    descending: bool
    fields: tuple[str, ...] | None
    fixed: tuple[Value | MissingType, ...] = ()

    async def read(
        self, client: CommandClient, resume: Resume | None, limit: int
    ) -> tuple[list[Record], Resume | None]:
        """Read up to `limit` records; return them and where to resume, if there are more."""
        records: list[Record] = []
        while limit > 0 and self.intervals:
            page, resume = await self._page(client, resume or (0, None), min(limit, MAX_RECORDS))
            records += (record for *_, record in page if record is not None)
            limit -= len(page)
            if resume is None:
                break
        return records, resume

    async def count(self, client: CommandClient) -> int:
        """Count the records without reading them."""
        total = 0
        for first in range(0, len(self.intervals), MAX_INTERVALS):
            ends = [self._ends(*interval) for interval in self.intervals[first:][:MAX_INTERVALS]]
            arguments = (self.index.name, *_texts(ends))
            total += sum(
                await client.execute(
                    [COUNT.call((prefix,), *arguments) for prefix in self.layout.prefixes]
                )
            )
        return total

    async def groups(self, client: CommandClient, limit: int) -> Counter[Value | MissingType]:
        """Count the records by value of the index, for `limit` values or more if it has so many."""
        counts: Counter[Value | MissingType] = Counter()
        for prefix in self.layout.prefixes:
            resume: Resume | None = (0, None)
            remaining = limit
            while resume is not None and remaining > 0:
                groups, resume = await self._groups(client, prefix, resume, remaining)
                counts.update(groups)
                remaining -= len(groups)
        return counts

    async def _groups(
        self, client: CommandClient, prefix: str, resume: Resume, limit: int
    ) -> tuple[dict[Value | MissingType, int], Resume | None]:
        """Count some values in one partition; return where to resume, if more can follow."""
        first, value = resume
        max_groups = min(limit, MAX_GROUPS)
        ends = [self._ends(low, high) for low, high in self.intervals[first:][:MAX_INTERVALS]]
        if value is not None:
            ends[0] = (("bytes", value + _BEHIND, 0), ends[0][1])
        arguments = (self.index.name, max_groups, len(ends), *_texts(ends))
        [reply] = await client.execute([GROUPS.call((prefix,), *arguments)])
        items = iter(reply)
        groups: dict[Value | MissingType, int] = {}
        for number, value, count, text in zip(items, items, items, items, strict=True):
            groups[MISSING if text is None else decode(text)] = count
            resume = (first + number - 1, value)
        if len(groups) == max_groups:
            return groups, resume
        next_interval = first + MAX_INTERVALS
        return groups, (next_interval, None) if next_interval < len(self.intervals) else None

    async def _page(
        self, client: CommandClient, resume: Resume, limit: int
    ) -> tuple[list[_Entry], Resume | None]:
        first, next_interval = resume[0], resume[0] + MAX_INTERVALS
        arguments = self._arguments(resume, limit)
        replies = await client.execute(
            [PAGE.call((prefix,), *arguments) for prefix in self.layout.prefixes]
        )
        pages = [await offload(are_large(reply[3::4]), self._entries, reply) for reply in replies]
        # Each partition returns its first `limit`, so these include the first `limit` of all.
        merged = merge(*pages, key=lambda entry: entry[1], reverse=self.descending)
        page = list(islice(merged, limit))
        if len(page) == limit:
            number, member, _ = page[-1]
            # Lua counts the intervals from 1.
            return page, (first + number - 1, member)
        return page, (next_interval, None) if next_interval < len(self.intervals) else None

    def _arguments(self, resume: Resume, limit: int) -> tuple[Any, ...]:
        first, member = resume
        ends = [self._ends(low, high) for low, high in self.intervals[first:][:MAX_INTERVALS]]
        if member is not None:
            low, high = ends[0]
            # Lower ends are inclusive: a NUL makes the least member beyond the last one read.
            bound = ("bytes", member if self.descending else member + b"\0", 0)
            ends[0] = (low, bound) if self.descending else (bound, high)
        direction = "down" if self.descending else "up"
        names = self.layout.names(self.fields)
        return (self.index.name, direction, limit, len(names), *names, *_texts(ends))

    def _ends(self, low: Cut, high: Cut) -> tuple[_End, _End]:
        if self.index is IDS:
            return _end_of_ids(low), _end_of_ids(high)
        return self._end(low), self._end(high)

    def _end(self, cut: Cut) -> _End:
        """Return an end as ``ranges.lua`` reads it: the suffix of the values, then their texts."""
        values = zip(self.index.fields, (*self.fixed, *cut.values), strict=False)
        texts = [self._text(name, value) for name, value in values]
        state, *tail = cut.key
        match tail:
            case []:
                return ("bytes", _EDGES[state], len(texts), *texts)
            case [_, side]:
                return ("bytes", _BEHIND if side else "", len(texts), *texts)
        return ("id", tail[-1], len(texts), *texts)

    def _text(self, name: str, value: Value | MissingType) -> Text:
        if isinstance(value, MissingType):
            return ""
        field = self.layout.fragment.fields[name]
        return item_encoder(field.items)(value) if self.index.of_elements else encode(value, field)

    def _entries(self, reply: list[Any]) -> list[_Entry]:
        items = iter(reply)
        return [
            (number, member, record_of(self.layout, id_.decode(), flat) if flat else None)
            for number, member, id_, flat in zip(items, items, items, items, strict=True)
        ]


def _texts(ends: Iterable[tuple[_End, _End]]) -> Iterator[Text | int]:
    return (text for low, high in ends for text in (*low, *high))


def _end_of_ids(cut: Cut) -> _End:
    state, *tail = cut.key
    if not tail:
        return ("bytes", _EDGES_OF_IDS[state], 0)
    id_, behind = tail
    # A longer id would begin after the id.
    return ("bytes", id_ + b"\0" if behind else id_, 0)
