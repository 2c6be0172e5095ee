"""Records in an order: each partition's page is one snapshot; pages are merged by position."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import merge
from itertools import islice
from typing import Any

from mediator.schema.tree import MissingType
from mediator.schema.types import Value
from mediator.stores.port import Record
from mediator.stores.redis.codec import encode
from mediator.stores.redis.commands import call_of
from mediator.stores.redis.line import Line
from mediator.stores.redis.lua import PAGE
from mediator.stores.redis.plan import Plan

__all__ = ["After", "Listing"]

MOST_RECORDS = 500
"""Records that one script reads at most, so that the server is not held up."""

After = tuple[Value | MissingType, str]
_Entry = tuple[bytes, Record | None]


@dataclass(frozen=True, slots=True)
class Listing:
    """Records of a class by an index, or by their ids.

    Attributes:
        plan: The fragment's.
        index: The indexed field; None: by id.
        descending: In the reverse order.
        fields: Fields to read; None: all.
    """

    plan: Plan
    index: str | None
    descending: bool
    fields: tuple[str, ...] | None

    async def read(self, line: Line, after: After | None, limit: int) -> list[Record]:
        """Read up to `limit` records beyond `after`, a value of the index and an id."""
        found: list[Record] = []
        beginning = self._beginning(after)
        while limit > 0:
            wanted = min(limit, MOST_RECORDS)
            page = await self._page(line, beginning, wanted)
            found += (record for _, record in page if record is not None)
            limit -= wanted
            if len(page) < wanted:
                break
            beginning = ("position", page[-1][0], "")
        return found

    def _beginning(self, after: After | None) -> tuple[str, str | bytes, str]:
        if after is None:
            return ("start", "", "")
        value, id_ = after
        if self.index is None:
            return ("position", id_, "")
        if isinstance(value, MissingType):
            return ("value", "missing", id_)
        return ("value", encode(value, self.plan.fragment.fields[self.index]), id_)

    async def _page(
        self, line: Line, beginning: tuple[str, str | bytes, str], limit: int
    ) -> list[_Entry]:
        direction = "down" if self.descending else "up"
        names = self.plan.names(self.fields)
        arguments = (self.index or "", direction, *beginning, limit, *names)
        replies = await line.ask(
            [call_of(PAGE, (prefix,), arguments) for prefix in self.plan.prefixes]
        )
        pages = [self._entries(reply) for reply in replies]
        merged = merge(*pages, key=lambda entry: entry[0], reverse=self.descending)
        return list(islice(merged, limit))

    def _entries(self, reply: list[Any]) -> list[_Entry]:
        parts = iter(reply)
        return [
            (position, self.plan.record_of(id_.decode(), flat) if flat else None)
            for position, id_, flat in zip(parts, parts, parts, strict=True)
        ]
