"""The outboxes of a Redis store as change logs: one stream for each partition.

An entry (see `add_to_outbox` in scripts/write.lua) has the texts of the touched fields: ``-field``
before, ``+field`` after the write, with collections as complete values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, TypeAlias

from mediator.base.page_size import PageSize
from mediator.model.change import Change, change_id, kind_of
from mediator.schema.types import Value
from mediator.stores.outboxes import (
    UNREADABLE,
    format_position,
    image_of,
    parse_position,
    read_entries,
)
from mediator.stores.port import FragmentOf, LogEntry, LogPage, SystemConfig
from mediator.stores.redis.client import CommandClient
from mediator.stores.redis.codec import NULL, decode
from redis_connection.commands import command

__all__ = ["StreamLogs"]

log = logging.getLogger(__name__)

_BEFORE, _AFTER = b"-+"
_NULL: Final = NULL.encode()


class StreamLogs:
    """The streams as logs; see `ChangeLog`.

    Attributes:
        keys: The key of each stream by its name: the number of its partition.
    """

    def __init__(self, config: SystemConfig, client: CommandClient) -> None:
        tags = (f"{config.namespace}:{p}" for p in range(config.partitions))
        self.keys = {f"{p}": f"{{{tag}}}:outbox" for p, tag in enumerate(tags)}
        self._page_size = {name: PageSize() for name in self.keys}
        self._client = client

    async def read(
        self, name: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> LogPage:
        async def page(after: str | None, count: int) -> list[LogEntry]:
            entries = await self.entries(name, after, count)
            return [_entry(*entry, fragment_of) for entry in entries]

        return await read_entries(self._page_size[name], after, limit, page)

    async def oldest(self, name: str) -> str | None:
        entries = await self.entries(name, None, 1)
        return _position(entries[0][0]) if entries else None

    async def entries(
        self, name: str, after: str | None, count: int
    ) -> list[tuple[bytes, list[bytes]]]:
        """Return up to `count` raw entries of the stream beyond a position."""
        start = "-" if after is None else "({}-{}".format(*parse_position(after))
        xrange = command("XRANGE", self.keys[name], start, "+", "COUNT", count)
        (entries,) = await self._client.execute([xrange])
        return entries or []


_Indices: TypeAlias = Mapping[bytes, int]
_Image: TypeAlias = Sequence[tuple[str, int]]


@lru_cache(maxsize=1024)
def _format(names: tuple[bytes, ...]) -> tuple[_Indices, _Image, _Image]:
    """Return the offsets of an entry's values by name: of all, of the before and after images."""
    at = {name: 2 * number + 1 for number, name in enumerate(names)}
    at.setdefault(b"time", at[b"version"])  # `time` is left out if it equals the version
    return at, _image(at, _BEFORE), _image(at, _AFTER)


def _image(at: _Indices, sign: int) -> _Image:
    return [(name[1:].decode(), index) for name, index in at.items() if name[0] == sign]


@lru_cache(maxsize=1024)
def _subject(subject: bytes) -> tuple[str, str, str, str]:
    """Return the database's id, class, group and kind."""
    database_id, class_name, group, kind = subject.decode().split("/")
    return database_id, class_name, group, kind


def _position(stream_id: bytes) -> str:
    major, _, minor = stream_id.decode().partition("-")
    return format_position(major, minor)


def _entry(stream_id: bytes, flat: Sequence[bytes], fragment_of: FragmentOf) -> LogEntry:
    position, size = _position(stream_id), sum(map(len, flat))
    try:
        return LogEntry(position, _change(flat, fragment_of), size)
    except UNREADABLE:
        log.warning("the outbox entry at %s is not one of this service; it is skipped", position)
        return LogEntry(position, None, size)


def _change(flat: Sequence[bytes], fragment_of: FragmentOf) -> Change | None:
    at, fields_before, fields_after = _format(tuple(flat[::2]))
    database_id, class_name, group, kind = _subject(flat[at[b"what"]])
    fragment = fragment_of(database_id, class_name)
    if fragment is None:
        return None
    absent = kind == "create" or b"absent" in at
    before = None if absent else image_of(fragment, _texts(flat, fields_before), _value)
    after = None if kind == "delete" else image_of(fragment, _texts(flat, fields_after), _value)
    return Change(
        id=change_id(flat[at[b"operation"]].decode(), group),
        database=fragment.database,
        class_name=class_name,
        object_id=flat[at[b"object"]].decode(),
        group=group,
        version=int(flat[at[b"version"]]),
        kind=kind_of(kind, absent=absent),
        before=before,
        after=after,
        time_us=int(flat[at[b"time"]]),
        database_id=database_id,
    )


def _texts(flat: Sequence[bytes], image: _Image) -> list[tuple[str, bytes]]:
    return [(name, flat[index]) for name, index in image]


def _value(_: str, text: bytes) -> Value:
    # `decode` reads only the tag: a broken text must not pass for a stored null.
    if text[0] == _NULL[0] and text != _NULL:
        raise ValueError("a null is nothing but its tag")
    return decode(text)
