"""Decodes results of writes from replies of scripts, and remembered operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mediator.model.operators import OperatorFailure
from mediator.stores.port import RememberedOperation, Status, WriteResult
from mediator.stores.redis.codec import decode
from mediator.stores.redis.layout import Layout
from mediator.stores.redis.read import values_of
from mediator.stores.redis.scripts import UPDATE
from mediator.stores.redis.write.prepared import PreparedWrite
from redis_connection.commands import command

__all__ = ["recall_commands", "remembered_operation", "results_of"]

_CODES: Final = range(1, 11)
_APPLIED, _REPLAYED, _REUSED, _CONFLICT, _MISSING, _EXISTS, _REFUSED, *_LATER = _CODES
_FENCED, _LOCKED, _TAKEN = _LATER
_WITHOUT_DETAILS = {
    _REUSED: WriteResult(Status.REUSED),
    _MISSING: WriteResult(Status.MISSING),
    _EXISTS: WriteResult(Status.EXISTS),
    _FENCED: WriteResult(Status.FENCED),
}


def results_of(layout: Layout, prepared: PreparedWrite, reply: list[Any]) -> list[WriteResult]:
    if prepared.script is not UPDATE:
        return [_result_of(layout, row) for row in reply]
    width = 2 + len(layout.groups) + len(prepared.returned)
    return [_result_of_row(layout, prepared, reply, at) for at in range(0, len(reply), width)]


def _result_of_row(
    layout: Layout, prepared: PreparedWrite, reply: list[Any], at: int
) -> WriteResult:
    """Return the result of the row at an offset; see ``update.lua``."""
    if reply[at] != _APPLIED:
        return _result_of(layout, reply[at : at + 3])
    creation_version = int(reply[at + 1])
    at += 2
    versions = {}
    for group in layout.groups:
        if text := reply[at]:
            versions[group] = int(text)
        at += 1
    values = {}
    for name in prepared.returned:
        values[name] = decode(reply[at])
        at += 1
    return WriteResult(Status.APPLIED, False, creation_version, versions, values)


def _result_of(layout: Layout, row: list[Any]) -> WriteResult:
    code = row[0]
    if code == _APPLIED:
        _, created, creation_version, versions, values = row
        return WriteResult(
            Status.APPLIED,
            created == 1,
            int(creation_version),
            layout.versions(versions),
            values_of(layout, values) if values else {},
        )
    if code == _REPLAYED:
        return _remembered_operation(layout, _by_name(row[1])).result
    if code == _CONFLICT:
        return WriteResult(Status.CONFLICT, versions=layout.versions(row[1]))
    if code == _LOCKED:
        return WriteResult(Status.LOCKED, intent=row[1].decode())
    if code == _TAKEN:
        return WriteResult(Status.TAKEN, taken=layout.taken_claim(*row[1:]))
    if code == _REFUSED:
        failure = OperatorFailure(row[1].decode(), row[2].decode())
        return WriteResult(Status.REFUSED, failure=failure)
    return _WITHOUT_DETAILS[code]


def recall_commands(layout: Layout, id_: str, operation: str) -> list[bytes]:
    """Pack reads of a remembered operation, and of the generation of its class."""
    prefix = layout.prefix(id_)
    # The length of the id distinguishes pairs with the same concatenation.
    memory = f"{prefix}o:{len(id_.encode())}:{id_}:{operation}"
    return [command("HGETALL", memory), command("GET", f"{prefix}generation")]


def remembered_operation(
    layout: Layout, flat: list[bytes], generation: bytes | None
) -> RememberedOperation | None:
    """Return a remembered operation; None if its class was dropped since."""
    fields = _by_name(flat)
    current = fields.get("generation") == (generation or b"0")
    return _remembered_operation(layout, fields) if current else None


def _remembered_operation(layout: Layout, fields: Mapping[str, bytes]) -> RememberedOperation:
    versions = {group: fields.get(f"version.{group}") for group in layout.groups}
    values = {
        name.removeprefix("value."): decode(text)
        for name, text in fields.items()
        if name.startswith("value.") and name.removeprefix("value.") in layout.fragment.fields
    }
    result = WriteResult(
        Status.REPLAYED,
        fields["created"] == b"1",
        int(fields["creation_version"]),
        {group: int(text) for group, text in versions.items() if text},
        values,
    )
    return RememberedOperation(fields["fingerprint"].decode(), result)


def _by_name(flat: list[bytes]) -> dict[str, bytes]:
    return {name.decode(): text for name, text in zip(flat[::2], flat[1::2], strict=True)}
