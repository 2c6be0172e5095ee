"""The effect of a write on a record, exactly as the port defines it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from mediator.model.apply import Refused, apply_operator
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Values
from mediator.stores.port import Record, RememberedOperation, Status, Write, WriteKind, WriteResult

__all__ = ["NOTHING", "Row", "apply_write", "projected"]


@dataclass(frozen=True, slots=True)
class Row:
    """A record or its tombstone.

    Attributes:
        is_live: Whether it is a record.
        record: The record; of a tombstone only the versions count.
        remembered: Operations that are remembered with it.
    """

    is_live: bool
    record: Record
    remembered: Mapping[str, RememberedOperation] = field(default_factory=dict)


NOTHING: Final = Row(False, Record("", 0, {}, {}))


def projected(record: Record, fields: tuple[str, ...] | None) -> Record:
    """Return a copy of a record with some of its fields, or all of them."""
    values = record.values
    chosen = values if fields is None else {n: values[n] for n in fields if n in values}
    return Record(record.id, record.creation_version, dict(record.versions), deepcopy(dict(chosen)))


def apply_write(
    call: Write, row: Row, now_s: float, *, fenced: bool
) -> tuple[WriteResult, Row | None]:
    """Return the result of a write and the new row; None: it is not applied."""
    known = None if call.remember is None else row.remembered.get(call.operation)
    if known is not None:
        if known.fingerprint != call.remember:
            return WriteResult(Status.REUSED), None
        return replace(known.result, status=Status.REPLAYED), None
    if fenced:
        return WriteResult(Status.FENCED), None
    refusal = _refusal(call, row)
    if refusal is not None:
        return refusal, None
    try:
        values = _values(call, row, now_s)
    except Refused as refused:
        return WriteResult(Status.REFUSED, failure=refused.failure), None
    record = _record(call, row, values, now_s)
    result = _result(call, row, record)
    if call.remember is None:
        return result, Row(call.kind is not WriteKind.DELETE, record, row.remembered)
    remembered = {**row.remembered, call.operation: RememberedOperation(call.remember, result)}
    return result, Row(call.kind is not WriteKind.DELETE, record, remembered)


def _refusal(call: Write, row: Row) -> WriteResult | None:
    """Return the result of a write that is not applied, or None."""
    if call.kind is WriteKind.CREATE and row.is_live:
        return WriteResult(Status.EXISTS)
    needs_record = call.kind in (WriteKind.UPDATE, WriteKind.DELETE) or call.require_present
    of_generation = call.kind is WriteKind.DELETE and call.creation_version is not None
    is_later = of_generation and row.record.creation_version > (call.creation_version or 0)
    if needs_record and (not row.is_live or is_later):
        return WriteResult(Status.MISSING)
    current = row.record.versions if row.is_live else {}
    if any(current.get(group) != version for group, version in call.expect.items()):
        return WriteResult(Status.CONFLICT, versions=dict(current))
    return None


def _values(call: Write, row: Row, now_s: float) -> Values:
    if call.kind is not WriteKind.UPDATE:
        return deepcopy(dict(call.values))
    old, now = row.record.values, datetime.fromtimestamp(now_s, UTC)
    values = {**old, **deepcopy(dict(call.values))}
    for name in call.unset:
        values.pop(name, None)
    for operator in call.operators:
        field_ = call.fragment.fields[operator.field]
        new = apply_operator(field_, old.get(operator.field, MISSING), operator, now)
        if not isinstance(new, MissingType):
            values[operator.field] = deepcopy(new)
    return values


def _record(call: Write, row: Row, values: Values, now_s: float) -> Record:
    old, now_us = row.record, int(now_s * 1e6)
    new = {group: max(old.versions.get(group, 0) + 1, now_us) for group in call.groups}
    versions = {**old.versions, **new}
    if call.creation_version is not None and call.kind is not WriteKind.DELETE:
        creation_version = call.creation_version
    else:
        creation_version = (
            old.creation_version if row.is_live else max(versions.values(), default=now_us)
        )
    return Record(call.id, creation_version, versions, values)


def _result(call: Write, row: Row, record: Record) -> WriteResult:
    deleted = call.kind is WriteKind.DELETE
    creation_version = (
        max(record.versions.values(), default=0) if deleted else record.creation_version
    )
    returned = {} if call.returning is None else projected(record, call.returning or None).values
    created = not row.is_live and not deleted
    return WriteResult(Status.APPLIED, created, creation_version, dict(record.versions), returned)
