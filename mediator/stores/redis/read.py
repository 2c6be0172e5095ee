"""Reads records: packs a command for each, and decodes its reply."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from mediator.stores.port import Read, Record
from mediator.stores.redis.codec import decode
from mediator.stores.redis.layout import Layout
from mediator.stores.redis.scripts import READ
from redis_connection.commands import command

__all__ = ["are_large", "read_command", "record_of", "record_of_reply", "records_of", "values_of"]

_JOINT: Final = {b"!m": "intent", b"!j": "joint"}
"""Attributes of joint writes, by their name in the hash."""

_LARGE: Final = 2**15
"""Size of replies in bytes beyond which decoding can take more than about a millisecond."""


def read_command(layout: Layout, call: Read) -> bytes:
    """Pack a read; only collections need a script, which reads them together with the hash."""
    prefix, names = layout.prefix(call.id), layout.names(call.fields)
    fields = layout.collections if call.fields is None else call.fields
    if layout.collections and not layout.collections.isdisjoint(fields):
        return READ.call((prefix,), call.id, *names)
    if not names:
        return command("HGETALL", f"{prefix}r:{call.id}")
    return command("HMGET", f"{prefix}r:{call.id}", *names)


def record_of_reply(layout: Layout, call: Read, reply: list[bytes] | None) -> Record | None:
    if not reply:
        return None
    names = layout.names(call.fields)
    if names and layout.collections.isdisjoint(names):
        return _record(layout, call.id, zip((n.encode() for n in names), reply, strict=True))
    return record_of(layout, call.id, reply)


def record_of(layout: Layout, id_: str, flat: list[bytes]) -> Record | None:
    """Return the record of alternating names and complete values."""
    texts = iter(flat)
    return _record(layout, id_, zip(texts, texts, strict=True))


def records_of(
    layouts: Sequence[Layout], calls: Sequence[Read], replies: Sequence[list[bytes] | None]
) -> list[Record | None]:
    return list(map(record_of_reply, layouts, calls, replies))


def values_of(layout: Layout, flat: list[bytes]) -> dict[str, Any]:
    """Return the fields among alternating names and complete values."""
    texts = iter(flat)
    return {
        layout.field_names[name]: decode(text)
        for name, text in zip(texts, texts, strict=True)
        if name in layout.field_names
    }


def are_large(replies: Iterable[Sequence[bytes | None] | None]) -> bool:
    """Whether decoding records from replies takes more than about a millisecond."""
    return sum(len(text) for flat in replies if flat for text in flat if text) > _LARGE


def _record(layout: Layout, id_: str, pairs: Iterable[tuple[bytes, bytes | None]]) -> Record | None:
    creation_version, versions, values, joint = None, {}, {}, {}
    field_names, group_names = layout.field_names, layout.group_names
    for name, text in pairs:
        if text is None:
            continue
        if name in field_names:
            values[field_names[name]] = decode(text)
        elif name in group_names:
            versions[group_names[name]] = int(text)
        elif name == b"!b":
            creation_version = int(text)
        elif layout.fragment.joint and name in _JOINT:
            joint[_JOINT[name]] = text.decode()
    # A tombstone, or an absent record with an intent.
    if creation_version is None:
        return None
    return Record(id_, creation_version, versions, values, **joint)
