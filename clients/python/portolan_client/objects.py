"""Single objects: read, put, create, patch, update, delete; and many by their ids."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from portolan_client.calls import Call, JsonObject, Reply
from portolan_client.encoding import (
    Freshness,
    encode_json,
    field_names,
    path_of,
    quoted,
    with_parameters,
)

__all__ = [
    "JSON",
    "Found",
    "Read",
    "Staleness",
    "Written",
    "create",
    "delete",
    "get",
    "get_many",
    "key_header",
    "patch",
    "patch_by",
    "put",
    "update",
    "update_by",
]

JSON: Final = {"Content-Type": "application/json"}
UPDATE: Final = {"Content-Type": "application/vnd.portolan.update+json"}
_STALENESS: Final = re.compile(r"bound=(\d[\d.e+-]*), measured=(\d[\d.]*)")


@dataclass(frozen=True, slots=True)
class Staleness:
    """The staleness of a materialised view's answer: its bound, and the measured one (s)."""

    bound_s: float
    measured_s: float


@dataclass(frozen=True, slots=True)
class Read:
    """An object, or some of its fields, as it was read.

    Attributes:
        fields: The requested fields; None: all.
        etag: The version that was read.
        staleness: Of a materialised view's answer; None: the systems answered.
        partial: Cache groups that a write over several systems has not reached yet.
    """

    class_name: str
    id: str
    fields: tuple[str, ...] | None
    value: JsonObject
    etag: str | None
    staleness: Staleness | None = None
    partial: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write.

    Attributes:
        value: The object; after a patch the fields that it named; None after a delete.
        etag: The new version, if the write knows all of it.
        position: For `Freshness.at_least` of a read that must see the write.
        replayed: Whether this is the recorded reply to the same request, sent before.
        partial: Cache groups that the write has not reached yet.
    """

    id: str
    value: JsonObject | None
    etag: str | None
    position: str | None
    replayed: bool = False
    partial: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """Objects by their ids, and the ids of absent objects."""

    items: Sequence[JsonObject]
    missing: Sequence[str] = field(default=())


def get(
    class_name: str,
    id_: str,
    *,
    fields: Iterable[str] | None = None,
    freshness: Freshness | None = None,
    known: Read | None = None,
) -> Call[Read]:
    """Read an object, or some of its fields.

    With `known`, an earlier read of the same, only a change is transferred; without a change, the
    result is `known`.

    Raises:
        NotFound: It is absent.
        ValueError: `known` is a read of something else.
    """
    names = field_names(fields)
    headers = dict(freshness.headers) if freshness else {}
    if known is not None:
        if (known.class_name, known.id, known.fields) != (class_name, id_, names):
            raise ValueError("known is a read of something else")
        if known.etag is not None:
            headers["If-None-Match"] = known.etag
    path = with_parameters(path_of(class_name, id_), fields=_join(names))
    return Call("GET", path, partial(_parse_read, class_name, id_, names, known), headers)


def get_many(
    class_name: str,
    ids: Iterable[str],
    *,
    fields: Iterable[str] | None = None,
    freshness: Freshness | None = None,
) -> Call[Found]:
    """Read at most a thousand objects by their ids."""
    # Commas separate ids, so those within an id are escaped, and so is the sign of an escape.
    id_list = ",".join(id_.replace("%", "%25").replace(",", "%2C") for id_ in ids)
    path = with_parameters(path_of(class_name), ids=id_list, fields=_join(field_names(fields)))
    return Call("GET", path, _parse_many, freshness.headers if freshness else {})


def put(
    class_name: str,
    id_: str,
    value: Mapping[str, Any],
    *,
    fields: Iterable[str] | None = None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Written]:
    """Set an object, or exactly some fields of it, to `value`.

    Raises:
        PreconditionFailed: `if_match` does not hold, or `if_none_match` (``*``: no object).
    """
    headers = _write_headers(JSON, idempotency_key, if_match, if_none_match)
    return _write("PUT", _resource(class_name, id_, fields), headers, value, _written_to(id_))


def create(
    class_name: str, value: Mapping[str, Any], *, idempotency_key: str | None = None
) -> Call[Written]:
    """Create an object, under the `id` in `value` or one that the service chooses.

    Raises:
        AlreadyExists: An object with that id exists.
    """
    return _write(
        "POST", path_of(class_name), _write_headers(JSON, idempotency_key), value, _parse_created
    )


def patch(
    class_name: str,
    id_: str,
    changes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    if_match: str | None = None,
    upsert: bool = False,
    representation: bool = False,
    idempotency_key: str | None = None,
) -> Call[Written]:
    """Change an object by a merge patch (RFC 7396), or a list by JSON Patch (RFC 6902).

    With `upsert` an object that does not exist is created. With `representation` the result is
    the whole object, where one system holds it.
    """
    headers = _write_headers(JSON, idempotency_key, if_match, representation=representation)
    path = _patch_path(class_name, id_, upsert=upsert)
    return _write("PATCH", path, headers, changes, _written_to(id_))


def update(
    class_name: str,
    id_: str,
    operators: Mapping[str, Mapping[str, Any]],
    *,
    if_match: str | None = None,
    upsert: bool = False,
    representation: bool = False,
    idempotency_key: str | None = None,
) -> Call[Written]:
    """Change an object by operators that its store applies: ``{"stock": {"inc": -1}}``.

    With `upsert` an object that does not exist is created: the operators change its defaults.

    Raises:
        Conflict: The result would break a bound of the field; nothing was done.
    """
    headers = _write_headers(UPDATE, idempotency_key, if_match, representation=representation)
    path = _patch_path(class_name, id_, upsert=upsert)
    return _write("PATCH", path, headers, operators, _written_to(id_))


def patch_by(
    class_name: str,
    key: Mapping[str, Any],
    changes: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    representation: bool = False,
    idempotency_key: str | None = None,
) -> Call[Written]:
    """Change the object that has the values of a unique constraint, or create it with them.

    Args:
        class_name: The class.
        key: A value for each field of the constraint.
        changes: A merge patch (RFC 7396), or a list that is a JSON Patch (RFC 6902).
        representation: Whether the result is the whole object, where one system holds it.
        idempotency_key: Of the request; a new one by default.

    Raises:
        Invalid: The fields are not those of a unique constraint, or the patch changes them.
        NotUnique: Another object has other unique values of the new one.
    """
    headers = _write_headers(JSON, idempotency_key, representation=representation)
    return _write("PATCH", _key_path(class_name, key), headers, changes, _parse_created)


def update_by(
    class_name: str,
    key: Mapping[str, Any],
    operators: Mapping[str, Mapping[str, Any]],
    *,
    representation: bool = False,
    idempotency_key: str | None = None,
) -> Call[Written]:
    """Change an object by operators, or create it, as `patch_by` does by a patch."""
    headers = _write_headers(UPDATE, idempotency_key, representation=representation)
    return _write("PATCH", _key_path(class_name, key), headers, operators, _parse_created)


def _key_path(class_name: str, key: Mapping[str, Any]) -> str:
    condition = {"and": [{"eq": [name, value]} for name, value in key.items()]}
    filter_ = encode_json(condition).decode()
    return with_parameters(path_of(class_name), filter=filter_, upsert="true")


def _patch_path(class_name: str, id_: str, *, upsert: bool) -> str:
    return with_parameters(path_of(class_name, id_), upsert="true" if upsert else None)


def delete(
    class_name: str,
    id_: str,
    *,
    fields: Iterable[str] | None = None,
    if_match: str | None = None,
    idempotency_key: str | None = None,
) -> Call[Written]:
    """Delete an object, or some of its fields.

    Raises:
        NotFound: It is absent.
    """
    headers = _write_headers({}, idempotency_key, if_match)
    return Call("DELETE", _resource(class_name, id_, fields), _written_to(id_), headers)


def key_header(idempotency_key: str | None) -> dict[str, str]:
    """Return the key by which the service recognises a repeated request."""
    return {"Idempotency-Key": quoted(idempotency_key or uuid.uuid4().hex)}


def _write(
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: Any,
    read: Callable[[Reply], Written],
) -> Call[Written]:
    return Call(method, path, read, headers, encode_json(body))


def _write_headers(
    media_type: Mapping[str, str],
    idempotency_key: str | None,
    if_match: str | None = None,
    if_none_match: str | None = None,
    *,
    representation: bool = False,
) -> dict[str, str]:
    headers = {**media_type, **key_header(idempotency_key)}
    if if_match is not None:
        headers["If-Match"] = if_match
    if if_none_match is not None:
        headers["If-None-Match"] = if_none_match
    if representation:
        headers["Prefer"] = "return=representation"
    return headers


def _resource(class_name: str, id_: str, fields: Iterable[str] | None) -> str:
    return with_parameters(path_of(class_name, id_), fields=_join(field_names(fields)))


def _join(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else ",".join(names)


def _parse_read(
    class_name: str, id_: str, fields: tuple[str, ...] | None, known: Read | None, reply: Reply
) -> Read:
    if reply.not_modified and known is not None:
        return known
    value, etag = reply.json_object(), reply.headers.get("etag")
    return Read(class_name, id_, fields, value, etag, _staleness(reply), reply.groups_behind)


def _staleness(reply: Reply) -> Staleness | None:
    match = _STALENESS.fullmatch(reply.headers.get("portolan-staleness", ""))
    return Staleness(float(match[1]), float(match[2])) if match else None


def _parse_many(reply: Reply) -> Found:
    body = reply.json_object()
    return Found(body["items"], body["missing"])


def _written_to(id_: str) -> Callable[[Reply], Written]:
    return lambda reply: _written(id_, reply, reply.json_object() if reply.content else None)


def _parse_created(reply: Reply) -> Written:
    value = reply.json_object()
    return _written(value["id"], reply, value)


def _written(id_: str, reply: Reply, value: JsonObject | None) -> Written:
    headers = reply.headers
    return Written(
        id_,
        value,
        headers.get("etag"),
        headers.get("portolan-position"),
        headers.get("idempotency-replayed") == "true",
        reply.groups_behind,
    )
