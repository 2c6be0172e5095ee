"""Runs writes: one by one or in batches of one shape, with retries where these are safe.

The server can raise only for float arithmetic: on overflow, which is a refusal, and on underflow,
which is not (IEEE 754 gives zero or a subnormal). Both have the same SQLSTATE, so the result is
computed here (`by_value`), and written on the condition that the record is unchanged since it was
read.
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

_MAX_TRANSACTION_WRITES: Final = 128
"""Writes in one transaction: each holds a lock, of which a server has 6,400 by default."""

_MAX_CONCURRENT_WRITES: Final = 8
"""Concurrency of separate writes, to different records: a batch can have many taken claims."""

_ATTEMPTS: Final = 32
"""Each failed attempt means that another write to the record succeeded."""

_FINAL_STATUSES: Final = (Status.APPLIED, Status.REPLAYED, Status.REUSED)

# All three roll back the whole pipeline of the statement.
_ROLLED_BACK: Final = (*TRANSIENT, NUMERIC_OVERFLOW, asyncpg.UniqueViolationError)

_Unfinished: TypeAlias = tuple[int, Write, WriteResult | None]
"""A write with its position, and its result in the pipeline unless that was rolled back."""


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
        """Apply writes; return the results in order.

        Raises `StoreUnavailable` only if nothing was done.
        """
        if len(calls) == 1:
            return [await self._write_one(calls[0], token)]
        results: dict[int, WriteResult] = {}
        try:
            for batch in batches(calls, token):
                await self._batch(batch, token, results)
        except StoreUnavailable as error:
            if not results:
                raise
            raise self._partial() from error
        return [results[position] for position in range(len(calls))]

    async def _write_one(self, call: Write, token: str) -> WriteResult:
        prepared = self._statements.write(shape_of(call, token))
        text = prepared.statement.text
        arguments = await offload(is_large(call.values), prepared.arguments, call, token)
        for _ in range(_ATTEMPTS):
            try:
                rows = await self._pool.use(lambda c: c.fetch(text, *arguments))
            except TRANSIENT:
                continue
            except asyncpg.UniqueViolationError as error:
                result = await self._taken_claim(call, error)
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

    async def _taken_claim(
        self, call: Write, error: asyncpg.UniqueViolationError
    ) -> WriteResult | None:
        """Return the taken claim of a write; None: retry it.

        Either the claim has just become free, or no claim was violated: then another execution of
        the operation committed first, and the retry returns its result.
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

        Another execution of the operation can have committed while this one waited for the row:
        this one saw its effect (a tombstone, a newer version), but not its remembered result.
        """
        if result is None or _is_final(call, result):
            return result
        statement = self._statements.recall(call.fragment)
        arguments = statement.arguments({"id": call.id, "operation": call.operation})
        rows = await self._pool.use(lambda c: c.fetch(statement.text, *arguments))
        return replay(self._statements.records(call.fragment), rows[0], call) if rows else result

    async def _batch(self, batch: Batch, token: str, results: dict[int, WriteResult]) -> None:
        """Apply the writes of a batch, and add their results transaction by transaction."""
        prepared = self._statements.write(batch.shape)
        max_concurrent = _MAX_CONCURRENT_WRITES if batch.shape.claims else 1
        for chunk in batch.chunks():
            rows: Sequence[Any] = [None] * len(chunk)
            # If one rolls back all, each is run separately.
            if len(chunk) > 1:
                with suppress(*_ROLLED_BACK):
                    rows = await self._run_together(prepared, [call for _, call in chunk], token)
            unfinished = list[_Unfinished]()
            for (position, call), row in zip(chunk, rows, strict=True):
                result = None if row is None else prepared.result(row, call)
                if result is not None and _is_final(call, result):
                    results[position] = result
                else:
                    unfinished.append((position, call, result))
            for start in range(0, len(unfinished), max_concurrent):
                group = unfinished[start : start + max_concurrent]
                finished = await self._finish(group, token)
                results.update(zip((position for position, *_ in group), finished, strict=True))

    async def _finish(self, writes: Sequence[_Unfinished], token: str) -> list[WriteResult]:
        """Return the results of writes; those not applied by the pipeline run concurrently."""

        async def finish(call: Write, result: WriteResult | None) -> WriteResult:
            return await self._check_replay(call, result) or await self._write_one(call, token)

        try:
            return await concurrently(finish(call, result) for _, call, result in writes)
        except StoreUnavailable as error:
            if len(writes) == 1:
                raise
            # "Nothing was done" is true of only one of them.
            raise self._partial() from error

    async def _run_together(
        self, prepared: PreparedWrite, calls: Sequence[Write], token: str
    ) -> Sequence[Any]:
        """Run writes as one transaction; return a row for each."""
        multi_row = self._statements.multi_row(prepared.shape)
        if multi_row is None:
            return await self._pipeline(prepared, calls, token)
        text, positions_by_round = multi_row.statement.text, rounds(calls)
        arguments = [
            multi_row.arguments([calls[i] for i in positions], token)
            for positions in positions_by_round
        ]
        # A pipeline is one transaction, and its first statement locks the records of all.
        rows = await self._pool.use(lambda c: c.fetchmany(text, arguments))
        by_position = dict(zip(chain.from_iterable(positions_by_round), rows, strict=True))
        return [by_position[position] for position in range(len(calls))]

    async def _pipeline(
        self, prepared: PreparedWrite, calls: Sequence[Write], token: str
    ) -> list[Any]:
        """Run writes as one transaction; all records are locked before it gets its id."""
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
            if any(record.versions[group] != version for group, version in call.expect.items()):
                return WriteResult(Status.CONFLICT, versions=record.versions)
            try:
                computed = _by_value(call, record)
            except OperatorFailed as error:
                return WriteResult(Status.REFUSED, failure=error.failure)
            result = await self._write_one(computed, token)
            if result.status is not Status.CONFLICT:
                return result
        raise self._contended()

    def _partial(self) -> StoreTimeout:
        return StoreTimeout(f"{self._system} may have applied only some of the writes")

    def _contended(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self._system}: too many writers on one record; nothing done")


def _is_final(call: Write, result: WriteResult) -> bool:
    """Whether the result is final: no operation is remembered, or its result is known."""
    return call.remember is None or result.status in _FINAL_STATUSES


@dataclass(slots=True)
class Batch:
    """Writes of one shape, with their positions in the call."""

    shape: WriteShape
    calls: list[tuple[int, Write]] = field(default_factory=list)

    def chunks(self) -> list[list[tuple[int, Write]]]:
        """Divide into transactions; a record's calls keep their order."""
        return [
            self.calls[i : i + _MAX_TRANSACTION_WRITES]
            for i in range(0, len(self.calls), _MAX_TRANSACTION_WRITES)
        ]


def batches(calls: Sequence[Write], token: str = "") -> list[Batch]:
    """Divide calls into batches which, run one after the other, keep the order of each record.

    A call joins the last batch of its shape, unless a later batch has a call on its record. A batch
    has at most one inserting or claiming write to a record: if it must be retried, because a
    concurrent write was faster, no later write must overtake it.
    """
    result: list[Batch] = []
    open_: dict[WriteShape, int] = {}
    last: dict[Hashable, int] = {}
    for position, call in enumerate(calls):
        shape, key = shape_of(call, token), (call.fragment, call.id)
        earliest = last.get(key, -1) + (1 if shape.is_full or shape.claims else 0)
        # The last batch is tested first, because comparing shapes is cheaper than hashing them.
        latest = len(result) - 1
        at = latest if result and result[latest].shape == shape else open_.get(shape, -1)
        if at < max(earliest, 0):
            at = open_[shape] = len(result)
            result.append(Batch(shape))
        result[at].calls.append((position, call))
        last[key] = at
    return result


_NO_CLOCK = datetime(1970, 1, 1, tzinfo=UTC)


def _raises(fragment: Fragment, call: OperatorCall) -> bool:
    arithmetic = call.operator in (Operator.INC, Operator.MUL)
    return arithmetic and fragment.fields[call.field].type is FieldType.FLOAT


def _by_value(call: Write, record: Record) -> Write:
    """Return the write with the results of its float arithmetic on this state of the record.

    Raises:
        OperatorFailed: A result is not a finite double.
    """
    fields, values = call.fragment.fields, dict[str, Value](call.values)
    for operator in call.operators:
        if _raises(call.fragment, operator):
            present = record.values.get(operator.field, MISSING)
            value = apply_operator(fields[operator.field], present, operator, _NO_CLOCK)
            assert not isinstance(value, MissingType)
            values[operator.field] = value
    others = tuple(o for o in call.operators if not _raises(call.fragment, o))
    return replace(call, values=values, operators=others, expect=record.versions)
