"""What the scripts that write answer, and what is remembered of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mediator.model.operators import OperatorFailure
from mediator.stores.port import RememberedOperation, Status, WriteResult
from mediator.stores.redis.codec import decode
from mediator.stores.redis.lua import UPDATE
from mediator.stores.redis.packing import Form
from mediator.stores.redis.plan import Plan

__all__ = ["recalled", "results_of"]

_APPLIED, _REPLAYED, _REUSED, _CONFLICT, _MISSING, _EXISTS, _REFUSED, _FENCED, _LOCKED = range(
    1, 10
)
_BARE = {
    _REUSED: WriteResult(Status.REUSED),
    _MISSING: WriteResult(Status.MISSING),
    _EXISTS: WriteResult(Status.EXISTS),
    _FENCED: WriteResult(Status.FENCED),
}


def results_of(plan: Plan, form: Form, reply: list[Any]) -> list[WriteResult]:
    """Read the answers to writes of one form."""
    if form.script is not UPDATE:
        return [_result_of(plan, answer) for answer in reply]
    width = 2 + len(plan.groups) + len(form.returned)
    return [_updated(plan, form, reply, at) for at in range(0, len(reply), width)]


def _updated(plan: Plan, form: Form, reply: list[Any], at: int) -> WriteResult:
    """Read the row that begins there."""
    if reply[at] != _APPLIED:
        return _result_of(plan, reply[at : at + 3])
    creation_version = int(reply[at + 1])
    at += 2
    versions = {}
    for group in plan.groups:
        if text := reply[at]:
            versions[group] = int(text)
        at += 1
    values = {}
    for name in form.returned:
        values[name] = decode(reply[at])
        at += 1
    return WriteResult(Status.APPLIED, False, creation_version, versions, values)


def _result_of(plan: Plan, answer: list[Any]) -> WriteResult:
    code = answer[0]
    if code == _APPLIED:
        _, created, creation_version, versions, values = answer
        return WriteResult(
            Status.APPLIED,
            created == 1,
            int(creation_version),
            plan.versions(versions),
            plan.values(values) if values else {},
        )
    if code == _REPLAYED:
        return _recalled(plan, _named(answer[1])).result
    if code == _CONFLICT:
        return WriteResult(Status.CONFLICT, versions=plan.versions(answer[1]))
    if code == _LOCKED:
        return WriteResult(Status.LOCKED, intent=answer[1].decode())
    if code == _REFUSED:
        failure = OperatorFailure(answer[1].decode(), answer[2].decode())
        return WriteResult(Status.REFUSED, failure=failure)
    return _BARE[code]


def recalled(plan: Plan, flat: list[bytes], generation: bytes | None) -> RememberedOperation | None:
    """Read what is remembered of an operation; None if its class was dropped since."""
    fields = _named(flat)
    current = fields.get("generation") == (generation or b"0")
    return _recalled(plan, fields) if current else None


def _recalled(plan: Plan, fields: Mapping[str, bytes]) -> RememberedOperation:
    versions = {group: fields.get(f"version.{group}") for group in plan.groups}
    values = {
        name.removeprefix("value."): decode(text)
        for name, text in fields.items()
        if name.startswith("value.") and name.removeprefix("value.") in plan.fragment.fields
    }
    result = WriteResult(
        Status.REPLAYED,
        fields["created"] == b"1",
        int(fields["creation_version"]),
        {group: int(text) for group, text in versions.items() if text},
        values,
    )
    return RememberedOperation(fields["fingerprint"].decode(), result)


def _named(flat: list[bytes]) -> dict[str, bytes]:
    return {name.decode(): text for name, text in zip(flat[::2], flat[1::2], strict=True)}
