"""Prepared writes: a statement with its parameters, and the result that its row encodes.

Writes of one shape on one fragment share a statement: the statement depends only on the shape,
which has no values. Shapes are hashable, so that statements can be kept in a bounded cache.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

import orjson

from mediator.model.operators import Operator, OperatorFailure
from mediator.schema.types import Values
from mediator.schema.unique import constraint_name
from mediator.stores.port import (
    Fragment,
    RememberedOperation,
    Status,
    StoreRefused,
    Write,
    WriteKind,
    WriteResult,
)
from mediator.stores.postgres.claims import reservation_ids
from mediator.stores.postgres.codec import encode_value
from mediator.stores.postgres.layout import RecordTable
from mediator.stores.postgres.sql import Statement
from mediator.stores.postgres.write.operators import operator_codec

__all__ = ["PreparedWrite", "WriteShape", "check", "remembered_operation", "replay", "shape_of"]

_WAS_LIVE, _APPLIED, _REFUSAL, _CREATION_VERSION, _NULLS, _INTENT, _HEAD = range(7)
"""Columns of the returned row; `_HEAD` counts them."""

_REMEMBERED: Final = 6
"""Columns of the remembered operation, in order."""


class WriteShape(NamedTuple):
    """The properties of a write that determine its statement."""

    fragment: Fragment
    kind: WriteKind
    groups: tuple[str, ...]
    values: tuple[str, ...]
    unset: tuple[str, ...]
    operators: tuple[tuple[str, Operator], ...]
    expect: tuple[str, ...]
    require_present: bool
    creation_version: bool
    remember: bool
    returning: tuple[str, ...] | None
    has_token: bool
    has_intent: bool
    claims: tuple[str, ...]

    @property
    def is_full(self) -> bool:
        """Whether the write gives the full record (CREATE, REPLACE)."""
        return self.kind in (WriteKind.CREATE, WriteKind.REPLACE)

    @property
    def touched(self) -> tuple[str, ...]:
        """The fields that the write can change."""
        if self.kind is not WriteKind.UPDATE:
            return tuple(self.fragment.fields)
        return (*self.values, *self.unset, *(name for name, _ in self.operators))


def shape_of(call: Write, token: str) -> WriteShape:
    fragment, is_full = call.fragment, call.kind is not WriteKind.UPDATE
    return WriteShape(
        fragment,
        call.kind,
        tuple(fragment.groups) if is_full else call.groups,
        () if is_full else tuple(call.values),
        call.unset,
        tuple([(operator.field, operator.operator) for operator in call.operators]),
        tuple(call.expect),
        call.require_present,
        call.creation_version is not None,
        call.remember is not None,
        tuple(fragment.fields) if call.returning == () else call.returning,
        bool(token),
        bool(call.intent),
        tuple(map(constraint_name, fragment.unique)) if is_full else tuple(call.claims),
    )


def check(shape: WriteShape) -> None:
    """Refuse unknown names: they would be inserted into a statement."""
    fragment = shape.fragment
    fields = {*shape.touched, *(shape.returning or ())}
    groups = {*shape.groups, *shape.expect}
    claims = {*shape.claims} - {*map(constraint_name, fragment.unique)}
    if claims or fields - fragment.fields.keys() or groups - fragment.groups.keys():
        raise StoreRefused(
            f"{fragment.system}: a write names an unknown field, group or constraint"
        )


def _values_of(records: RecordTable, names: Any, row: Any, start: int, nulls: Any) -> Values:
    """Read the fields that are not missing from a row, from column `start` on."""
    values: Values = {}
    codecs = records.codecs
    for i, name in enumerate(names, start):
        value = row[i]
        if value is not None:
            decode = codecs[name].decode
            values[name] = value if decode is None else decode(value)
        elif name in nulls:
            values[name] = None
    return values


def remembered_operation(records: RecordTable, row: Any) -> RememberedOperation:
    fingerprint, created, creation_version, versions, values, nulls = row
    result = WriteResult(
        Status.REPLAYED,
        created,
        creation_version,
        orjson.loads(versions),
        _remembered(records, orjson.loads(values), nulls),
    )
    return RememberedOperation(fingerprint, result)


def replay(records: RecordTable, row: Any, call: Write) -> WriteResult:
    remembered = remembered_operation(records, row)
    return (
        remembered.result if remembered.fingerprint == call.remember else WriteResult(Status.REUSED)
    )


def _remembered(records: RecordTable, members: dict[str, Any], nulls: Any) -> Values:
    values: Values = {}
    for name, member in members.items():
        codec = records.codecs.get(name)  # the field can have left the schema since
        if codec is not None and member is not None:
            values[name] = member if codec.from_json is None else codec.from_json(member)
        elif codec is not None and name in nulls:
            values[name] = None
    return values


class PreparedWrite:
    """The statement of a shape, with its parameters and results.

    The statement is built on first use: multi-row writes may never need it.
    """

    def __init__(
        self, shape: WriteShape, records: RecordTable, build: Callable[[], Statement]
    ) -> None:
        self.shape, self._records, self._build = shape, records, build
        fields = shape.fragment.fields
        self._arguments = [operator_codec(fields[name], o) for name, o in shape.operators]

    @cached_property
    def statement(self) -> Statement:
        """The statement for one write."""
        return self._build()

    def arguments(self, call: Write, token: str) -> list[Any]:
        """Return the parameters for one write, in order."""
        return self.statement.arguments(self.parameters(call, token))

    def parameters(self, call: Write, token: str) -> dict[str, Any]:
        """Return the parameters for one write, by name."""
        shape, codecs, values = self.shape, self._records.codecs, call.values
        parameters: dict[str, Any] = {
            "id": call.id,
            "operation": call.operation,
            "fingerprint": call.remember,
            "creation_version": call.creation_version,
            "token": token,
            "intent": call.intent,
        }
        if shape.is_full or shape.values:
            if not values.keys() <= codecs.keys():
                raise StoreRefused(f"{shape.fragment.system}: a write has an unknown field")
            if shape.is_full:
                parameters["nulls"] = [name for name, value in values.items() if value is None]
            for name in codecs if shape.is_full else values:
                parameters[f"v_{name}"] = encode_value(codecs[name], values.get(name))
        for i, codec in enumerate(self._arguments):
            if codec is not None:
                parameters[f"a{i}"] = encode_value(codec, call.operators[i].argument)
        for i, constraint in enumerate(shape.claims):
            parameters[f"u{i}"] = call.claims.get(constraint)
        if shape.has_intent and self._records.claims:
            parameters["reserved"] = reservation_ids(self._records, [call.id])
        for i, group in enumerate(shape.expect):
            parameters[f"e{i}"] = call.expect[group]
        return parameters

    def result(self, row: Any, call: Write) -> WriteResult | None:
        """Return the result; None: retry, a concurrent insert committed first."""
        start = _HEAD
        if self.shape.remember:
            if row[start] is not None:
                return replay(self._records, row[start : start + _REMEMBERED], call)
            start += _REMEMBERED
        if self.shape.has_token:
            if row[start]:
                return WriteResult(Status.FENCED)
            start += 1
        groups = self._records.versions
        versions = dict(zip(groups, row[start : start + len(groups)], strict=True))
        if not row[_APPLIED]:
            return self._failure(row, versions, call)
        shape, start = self.shape, start + len(groups)
        return WriteResult(
            Status.APPLIED,
            shape.is_full and not row[_WAS_LIVE],
            max(versions.values()) if shape.kind is WriteKind.DELETE else row[_CREATION_VERSION],
            versions,
            _values_of(self._records, shape.returning or (), row, start, row[_NULLS]),
        )

    def _failure(self, row: Any, versions: dict[str, int], call: Write) -> WriteResult | None:
        kind, intent = self.shape.kind, row[_INTENT] or ""
        if intent != call.intent:
            return WriteResult(Status.LOCKED, intent=intent)
        if not row[_WAS_LIVE]:
            return self._absence(call)
        if kind is WriteKind.CREATE:
            return WriteResult(Status.EXISTS)
        if any(versions[group] != version for group, version in call.expect.items()):
            return WriteResult(Status.CONFLICT, versions=versions)
        if row[_REFUSAL] is not None:
            position, _, reason = row[_REFUSAL].partition(" ")
            name, _ = self.shape.operators[int(position)]
            return WriteResult(Status.REFUSED, failure=OperatorFailure(name, reason))
        return WriteResult(Status.MISSING) if kind is WriteKind.DELETE else None

    def _absence(self, call: Write) -> WriteResult | None:
        if not self.shape.is_full or call.require_present:
            return WriteResult(Status.MISSING)
        return WriteResult(Status.CONFLICT) if call.expect else None
