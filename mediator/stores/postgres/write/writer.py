"""Runs writes: one by one or in batches of one shape, retried where that is safe.

Float arithmetic is the one thing that the server may raise for: on overflow, which is a refusal,
and on underflow, which is none (IEEE 754 gives zero or a subnormal). The two have one SQLSTATE, so
the values are looked at: the result is computed here (`by_value`), and written on the condition
that the record is still what was read.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final, TypeAlias

import asyncpg

from mediator.base.concurrency import concurrently
from mediator.base.offload import is_large, offload
from mediator.model.apply import OperatorFailed, apply_operator
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import FieldType, Value
from mediator.stores.port import (
    Fragment,
    Read,
    ReadRecords,
    Record,
    Status,
    StoreTimeout,
    StoreUnavailable,
    Write,
    WriteResult,
)
from mediator.stores.postgres.connection import Pool, transaction
from mediator.stores.postgres.errors import NUMERIC_OVERFLOW, TRANSIENT
from mediator.stores.postgres.statements import Statements
from mediator.stores.postgres.write.multi_row import rounds
from mediator.stores.postgres.write.prepared import PreparedWrite, WriteShape, replay, shape_of

__all__ = ["Writer", "batches"]

_TOGETHER: Final = 128
"""Writes in one transaction: each holds a lock, of which a server has 6,400 as it comes."""

_AT_ONCE: Final = 8
"""Writes by themselves at a time, each of another record: of many values, all may be taken."""

_ATTEMPTS: Final = 32
"""Each lost attempt means that another write to the record got through."""

_ANSWERED: Final = (Status.APPLIED, Status.REPLAYED, Status.REUSED)

# All three roll back the whole pipeline that the statement was sent in.
_ROLLED_BACK: Final = (*TRANSIENT, NUMERIC_OVERFLOW, asyncpg.UniqueViolationError)

_Unfinished: TypeAlias = tuple[int, Write, WriteResult | None]
"""A write with its position, and its result in the pipeline, if that was not rolled back."""


class Writer:
    """Applies writes through a pool."""

    def __init__(
        self,
        system: str,
        statements: Statements,
        pool: Pool,
        read: ReadRecords,
    ) -> None:
        self._system, self._statements, self._pool, self._read = system, statements, pool, read

    async def write(self, calls: Sequence[Write], token: str) -> list[WriteResult]:
        """Apply writes; the results in the same order.

        Raises `StoreUnavailable` only if nothing was done.
        """
        if len(calls) == 1:
            return [await self._one(calls[0], token)]
        results: dict[int, WriteResult] = {}
        try:
            for batch in batches(calls, token):
                await self._batch(batch, token, results)
        except StoreUnavailable as error:
            if not results:
                raise
            raise self._partial() from error
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
            except asyncpg.UniqueViolationError as error:
                result = await self._taken(call, error)
                if result is not None:
                    return await self._check_replay(call, result) or result
                continue
            except NUMERIC_OVERFLOW:
                if not any(_raises(call.fragment, operator) for operator in call.operators):
                    raise
                return await self._by_value(call, token)
            result = await self._check_replay(call, prepared.result(rows[0], call))
            if result is not None:
                return result
        raise self._contended()

    async def _taken(self, call: Write, error: asyncpg.UniqueViolationError) -> WriteResult | None:
        """Return who has what a write claims; None: it may be tried again.

        Either it has just become free, or it was no claim: then another execution of the operation
        committed first, and the retry returns its result.
        """
        claims = self._statements.claims(call.fragment)
        constraint = claims.violated_by(error)
        if constraint is None:
            if call.remember is None:
                raise error
            return None
        claim = call.claims[constraint]
        taken = await self._pool.use(lambda c: claims.holder(c, constraint, claim))
        if taken is None or taken.holder == call.id:
            return None
        return WriteResult(Status.TAKEN, taken=taken)

    async def _check_replay(self, call: Write, result: WriteResult | None) -> WriteResult | None:
        """Return the remembered result if a write failed because it had been applied meanwhile.

        Another execution of the operation may have been committed while this one waited for the
        row: it saw what that one did (a tombstone, a newer version), but not its remembered result.
        """
        if result is None or _is_final(call, result):
            return result
        statement = self._statements.recall(call.fragment)
        arguments = statement.arguments({"id": call.id, "operation": call.operation})
        rows = await self._pool.use(lambda c: c.fetch(statement.text, *arguments))
        return replay(self._statements.records(call.fragment), rows[0], call) if rows else result

    async def _batch(self, batch: Batch, token: str, results: dict[int, WriteResult]) -> None:
        """Apply the writes of a batch, and add their results one transaction after the other."""
        prepared = self._statements.write(batch.shape)
        at_once = _AT_ONCE if batch.shape.claims else 1
        for chunk in batch.chunks():
            rows: Sequence[Any] = [None] * len(chunk)
            # If one rolls back all, each is run by itself.
            if len(chunk) > 1:
                with suppress(*_ROLLED_BACK):
                    rows = await self._together(prepared, [call for _, call in chunk], token)
            left = list[_Unfinished]()
            for (position, call), row in zip(chunk, rows, strict=True):
                result = None if row is None else prepared.result(row, call)
                if result is not None and _is_final(call, result):
                    results[position] = result
                else:
                    left.append((position, call, result))
            for start in range(0, len(left), at_once):
                some = left[start : start + at_once]
                finished = await self._finish(some, token)
                results.update(zip((position for position, *_ in some), finished, strict=True))

    async def _finish(self, writes: Sequence[_Unfinished], token: str) -> list[WriteResult]:
        """Return the results of writes: those that the pipeline has not done are done together."""

        async def finish(call: Write, result: WriteResult | None) -> WriteResult:
            return await self._check_replay(call, result) or await self._one(call, token)

        try:
            return await concurrently(finish(call, result) for _, call, result in writes)
        except StoreUnavailable as error:
            if len(writes) == 1:
                raise
            # That nothing was done is true of one of them.
            raise self._partial() from error

    async def _together(
        self, prepared: PreparedWrite, calls: Sequence[Write], token: str
    ) -> Sequence[Any]:
        """Run writes as one transaction; return the row of each."""
        multi_row = self._statements.multi_row(prepared.shape)
        if multi_row is None:
            return await self._pipeline(prepared, calls, token)
        text, divided = multi_row.statement.text, rounds(calls)
        arguments = [multi_row.arguments([calls[i] for i in each], token) for each in divided]
        # A pipeline is a transaction, and the first statement locks the records of all of them.
        rows = await self._pool.use(lambda c: c.fetchmany(text, arguments))
        by_position = dict(zip(chain.from_iterable(divided), rows, strict=True))
        return [by_position[position] for position in range(len(calls))]

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
                exact = _by_value(call, record)
            except OperatorFailed as refused:
                return WriteResult(Status.REFUSED, failure=refused.failure)
            result = await self._one(exact, token)
            if result.status is not Status.CONFLICT:
                return result
        raise self._contended()

    def _partial(self) -> StoreTimeout:
        return StoreTimeout(f"{self._system} may have done a part of the writes")

    def _contended(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._system}: too many writers on one record; nothing done")


def _is_final(call: Write, result: WriteResult) -> bool:
    """Whether nothing but this can be the result: nothing is remembered, or it is known."""
    return call.remember is None or result.status in _ANSWERED


@dataclass(slots=True)
class Batch:
    """Writes of one shape, with their positions among all."""

    shape: WriteShape
    calls: list[tuple[int, Write]] = field(default_factory=list)

    def chunks(self) -> list[list[tuple[int, Write]]]:
        """Divide into transactions; a record's calls keep their order."""
        return [self.calls[i : i + _TOGETHER] for i in range(0, len(self.calls), _TOGETHER)]


def batches(calls: Sequence[Write], token: str = "") -> list[Batch]:
    """Divide calls into batches which, run one after the other, keep the order of each record.

    A call joins the last batch of its shape, unless a later batch holds a call on its record.
    Writes that insert or claim something are at most one to a record in a batch: one that must be
    tried again, because a concurrent one was faster, must not be overtaken.
    """
    divided: list[Batch] = []
    open_: dict[WriteShape, int] = {}
    last: dict[Hashable, int] = {}
    for position, call in enumerate(calls):
        shape, key = shape_of(call, token), (call.fragment, call.id)
        earliest = last.get(key, -1) + (1 if shape.whole or shape.claims else 0)
        # The last batch is looked at first, as comparing shapes is cheaper than hashing them.
        latest = len(divided) - 1
        at = latest if divided and divided[latest].shape == shape else open_.get(shape, -1)
        if at < max(earliest, 0):
            at = open_[shape] = len(divided)
            divided.append(Batch(shape))
        divided[at].calls.append((position, call))
        last[key] = at
    return divided


_NO_CLOCK = datetime(1970, 1, 1, tzinfo=UTC)


def _raises(fragment: Fragment, call: OperatorCall) -> bool:
    arithmetic = call.operator in (Operator.INC, Operator.MUL)
    return arithmetic and fragment.fields[call.field].type is FieldType.FLOAT


def _by_value(call: Write, record: Record) -> Write:
    """Return the write with its float arithmetic done, for exactly this state of the record.

    Raises:
        OperatorFailed: A result is no finite double.
    """
    fields, values = call.fragment.fields, dict[str, Value](call.values)
    for operator in call.operators:
        if _raises(call.fragment, operator):
            present = record.values.get(operator.field, MISSING)
            value = apply_operator(fields[operator.field], present, operator, _NO_CLOCK)
            assert not isinstance(value, MissingType)
            values[operator.field] = value
    rest = tuple(o for o in call.operators if not _raises(call.fragment, o))
    return replace(call, values=values, operators=rest, expect=record.versions)
