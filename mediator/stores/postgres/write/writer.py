"""Runs writes: one by one or in batches, retried where that is safe."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import asyncpg

from mediator.base.offload import is_large, offload
from mediator.model.apply import Refused
from mediator.stores.port import (
    Read,
    Record,
    Status,
    StoreUnavailable,
    Write,
    WriteResult,
)
from mediator.stores.postgres.connection import Pool, transaction
from mediator.stores.postgres.errors import NUMERIC_OVERFLOW, TRANSIENT
from mediator.stores.postgres.statements import Statements
from mediator.stores.postgres.write.batches import Batch, batches
from mediator.stores.postgres.write.floats import by_value, has_float_arithmetic
from mediator.stores.postgres.write.prepared import PreparedWrite, replay
from mediator.stores.postgres.write.shape import shape_of

__all__ = ["Writer"]

_ATTEMPTS: Final = 32
"""Each lost attempt means that another write to the record got through."""

_ANSWERED: Final = (Status.APPLIED, Status.REPLAYED, Status.REUSED)

# All three roll back the whole pipeline that the statement was sent in.
_ROLLED_BACK: Final = (*TRANSIENT, NUMERIC_OVERFLOW, asyncpg.UniqueViolationError)


class Writer:
    """Applies writes through a pool."""

    def __init__(
        self,
        system: str,
        statements: Statements,
        pool: Pool,
        read: Callable[[Sequence[Read]], Awaitable[list[Record | None]]],
    ) -> None:
        self._system, self._statements, self._pool, self._read = system, statements, pool, read

    async def write(self, calls: Sequence[Write], token: str) -> list[WriteResult]:
        """Apply writes; the results in the same order."""
        if len(calls) == 1:
            return [await self._one(calls[0], token)]
        results: dict[int, WriteResult] = {}
        for batch in batches(calls, token):
            results |= await self._batch(batch, token)
        return [results[position] for position in range(len(calls))]

    async def _one(self, call: Write, token: str) -> WriteResult:
        prepared = self._statements.write(shape_of(call, token))
        text = prepared.statement.text
        arguments = await offload(is_large(call.values), prepared.arguments, call, token)
        for _ in range(_ATTEMPTS):
            try:
                rows = await self._pool.use(lambda c: c.fetch(text, *arguments))
            except TRANSIENT:
                continue
            except asyncpg.UniqueViolationError:
                # Another execution of this operation committed first; the retry returns its result.
                if call.remember is None:
                    raise
                continue
            except NUMERIC_OVERFLOW:
                if not has_float_arithmetic(call):
                    raise
                return await self._by_value(call, token)
            result = await self._check_replay(call, prepared.result(rows[0], call))
            if result is not None:
                return result
        raise self._contended()

    async def _check_replay(self, call: Write, result: WriteResult | None) -> WriteResult | None:
        """Return the remembered result if a write failed because it had been applied meanwhile.

        Another execution of the operation may have been committed while this one waited for the
        row: it saw what that one did (a tombstone, a newer version), but not its remembered result.
        """
        if result is None or call.remember is None or result.status in _ANSWERED:
            return result
        statement = self._statements.recall(call.fragment)
        arguments = statement.arguments({"id": call.id, "operation": call.operation})
        rows = await self._pool.use(lambda c: c.fetch(statement.text, *arguments))
        return replay(self._statements.records(call.fragment), rows[0], call) if rows else result

    async def _batch(self, batch: Batch, token: str) -> dict[int, WriteResult]:
        prepared, results = self._statements.write(batch.shape), dict[int, WriteResult]()
        for chunk in batch.chunks():
            rows: Sequence[Any] = [None] * len(chunk)
            # If one rolls back all, each is run by itself.
            if len(chunk) > 1:
                with suppress(*_ROLLED_BACK):
                    rows = await self._pipeline(prepared, [call for _, call in chunk], token)
            for (position, call), row in zip(chunk, rows, strict=True):
                result = None if row is None else prepared.result(row, call)
                results[position] = await self._check_replay(call, result) or await self._one(
                    call, token
                )
        return results

    async def _pipeline(
        self, prepared: PreparedWrite, calls: Sequence[Write], token: str
    ) -> list[Any]:
        """Run writes as one transaction; all their records are locked before it gets its id."""
        lock, text = self._statements.lock(prepared.shape.fragment), prepared.statement.text
        ids = lock.arguments({"ids": [call.id for call in calls]})
        arguments = [prepared.arguments(call, token) for call in calls]

        async def run(connection: Any) -> list[Any]:
            async with transaction(connection):
                await connection.fetch(lock.text, *ids)
                rows: list[Any] = await connection.fetchmany(text, arguments)
                return rows

        return await self._pool.use(run)

    async def _by_value(self, call: Write, token: str) -> WriteResult:
        for _ in range(_ATTEMPTS):
            (record,) = await self._read([Read(call.fragment, call.id)])
            if record is None:
                return WriteResult(Status.MISSING)
            if any(record.versions[group] != seen for group, seen in call.expect.items()):
                return WriteResult(Status.CONFLICT, versions=record.versions)
            try:
                exact = by_value(call, record)
            except Refused as refused:
                return WriteResult(Status.REFUSED, failure=refused.failure)
            result = await self._one(exact, token)
            if result.status is not Status.CONFLICT:
                return result
        raise self._contended()

    def _contended(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._system}: too many writers on one record; nothing done")
