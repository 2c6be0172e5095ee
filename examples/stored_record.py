"""The effect of a write on a record, as the port defines it: a pure function.

A store whose server has conditional updates (a script, a statement) leaves this to the server. A
store whose server only stores bytes reads the record, calls `apply_write` and stores the result, in
one transaction that locks out other writers.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from mediator.model.apply import OperatorFailed, apply_operator
from mediator.schema.tree import MISSING, MissingType
from mediator.schema.types import Values, projected
from mediator.stores.port import Record, RememberedOperation, Status, Write, WriteKind, WriteResult

__all__ = ["StoredRecord", "apply_write"]


@dataclass
class StoredRecord:
    """A record or its tombstone, with its bookkeeping.

    Attributes:
        is_live: Whether the object exists; False: a tombstone, which keeps the versions.
        creation_version: Version of its creation.
        versions: Version of each group; versions only rise, also over deletes.
        values: The fields that are not missing.
        remembered: Operations by their ids.
        fenced: Tokens whose writes are refused.
        intent: Its write intent; empty: none.
        joint: The intent under which it was written last; empty: none.
    """

    is_live: bool = False
    creation_version: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    values: Values = field(default_factory=dict)
    remembered: dict[str, RememberedOperation] = field(default_factory=dict)
    fenced: set[str] = field(default_factory=set)
    intent: str = ""
    joint: str = ""

    def to_record(self, id_: str, fields: tuple[str, ...] | None) -> Record:
        """Return the record for a reader."""
        values = deepcopy(projected(self.values, fields))
        return Record(id_, self.creation_version, dict(self.versions), values)


def apply_write(record: StoredRecord, call: Write, token: str, clock_us: int) -> WriteResult:
    """Apply a write to a record; unless the result is APPLIED, nothing has changed.

    Args:
        record: The record; changed in place.
        call: The write.
        token: The token of `Store.write`.
        clock_us: The store's clock, microseconds since 1970.
    """
    previous = record.remembered.get(call.operation) if call.remember is not None else None
    if previous is not None:
        if previous.fingerprint != call.remember:
            return WriteResult(Status.REUSED)
        return replace(previous.result, status=Status.REPLAYED)
    refusal = _refusal(record, call, token)
    if refusal is not None:
        return refusal
    try:
        values = _new_values(record, call, clock_us)
    except OperatorFailed as error:
        return WriteResult(Status.REFUSED, failure=error.failure)
    result = _apply(record, call, values, clock_us)
    if call.remember is not None:
        record.remembered[call.operation] = RememberedOperation(call.remember, result)
    return result


def _refusal(record: StoredRecord, call: Write, token: str) -> WriteResult | None:
    if token in record.fenced:
        return WriteResult(Status.FENCED)
    if record.intent != call.intent:
        return WriteResult(Status.LOCKED, intent=record.intent)
    if call.kind is WriteKind.CREATE and record.is_live:
        return WriteResult(Status.EXISTS)
    if _requires_object(call) and (not record.is_live or _is_of_later_generation(record, call)):
        return WriteResult(Status.MISSING)
    if not call.expect:
        return None
    current = record.versions if record.is_live else {}
    if not current or any(current.get(g, 0) != version for g, version in call.expect.items()):
        return WriteResult(Status.CONFLICT, versions=dict(current))
    return None


def _requires_object(call: Write) -> bool:
    return call.kind in (WriteKind.UPDATE, WriteKind.DELETE) or call.require_present


def _is_of_later_generation(record: StoredRecord, call: Write) -> bool:
    """Return whether the deletion is of an earlier generation of the object."""
    return (
        call.kind is WriteKind.DELETE
        and call.creation_version is not None
        and record.creation_version > call.creation_version
    )


def _new_values(record: StoredRecord, call: Write, clock_us: int) -> Values:
    if call.kind is not WriteKind.UPDATE:
        return deepcopy(call.values)
    now = datetime.fromtimestamp(clock_us // 1_000_000, UTC).replace(
        microsecond=clock_us % 1_000_000
    )
    values = {**record.values, **deepcopy(call.values)}
    for name in call.unset:
        values.pop(name, None)
    for operator in call.operators:
        field_ = call.fragment.fields[operator.field]
        old = record.values.get(operator.field, MISSING)
        new = apply_operator(field_, old, operator, now)
        if not isinstance(new, MissingType):
            values[operator.field] = deepcopy(new)
    return values


def _apply(record: StoredRecord, call: Write, values: Values, clock_us: int) -> WriteResult:
    created = not record.is_live and call.kind is not WriteKind.DELETE
    for group in call.groups:
        record.versions[group] = max(record.versions.get(group, 0) + 1, clock_us)
    record.is_live, record.values, record.intent = call.kind is not WriteKind.DELETE, values, ""
    record.joint = call.intent or record.joint
    highest = max(record.versions.values())
    if created or call.creation_version is not None:
        record.creation_version = (
            highest if call.creation_version is None else call.creation_version
        )
    creation_version = record.creation_version if record.is_live else highest
    returned = {} if call.returning is None else deepcopy(projected(values, call.returning or None))
    return WriteResult(Status.APPLIED, created, creation_version, dict(record.versions), returned)
