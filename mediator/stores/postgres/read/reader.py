"""Reads records by id: one statement for each class and set of fields."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from mediator.base.offload import offload
from mediator.stores.port import Fragment, Read, Record
from mediator.stores.postgres.connection import Pool
from mediator.stores.postgres.read.statements import RecordReader, are_large
from mediator.stores.postgres.statements import Statements

__all__ = ["Reader"]


class Reader:
    """Reads records through a pool."""

    def __init__(self, statements: Statements, pool: Pool) -> None:
        self._statements, self._pool = statements, pool

    async def read(self, calls: Sequence[Read]) -> list[Record | None]:
        """Read records; None for absent records."""
        if len(calls) == 1:
            call = calls[0]
            names = tuple(call.fragment.fields) if call.fields is None else call.fields
            statement = self._statements.read(call.fragment, names, False)
            rows = await self._pool.use(lambda c: c.fetch(statement.text, call.id))
            if not rows:
                return [None]
            return [
                await offload(are_large(rows), self._statements.reader(call.fragment, names), *rows)
            ]
        return await self._read_many(calls)

    async def _read_many(self, calls: Sequence[Read]) -> list[Record | None]:
        groups: dict[tuple[Fragment, tuple[str, ...]], list[int]] = {}
        for i, call in enumerate(calls):
            names = tuple(call.fragment.fields) if call.fields is None else call.fields
            groups.setdefault((call.fragment, names), []).append(i)
        records: list[Record | None] = [None] * len(calls)
        for (fragment, names), indexes in groups.items():
            statement = self._statements.read(fragment, names, True)
            ids = list({calls[i].id for i in indexes})
            rows = await self._pool.use(_fetch(statement.text, ids))
            read = self._statements.reader(fragment, names)
            by_id = await offload(are_large(rows), _by_id, read, rows)
            for i in indexes:
                records[i] = by_id.get(calls[i].id)
        return records


def _by_id(read: RecordReader, rows: Sequence[Any]) -> dict[str, Record]:
    return {row[0]: read(row) for row in rows}


def _fetch(text: str, *arguments: Any) -> Callable[[Any], Awaitable[list[Any]]]:
    return lambda connection: connection.fetch(text, *arguments)
