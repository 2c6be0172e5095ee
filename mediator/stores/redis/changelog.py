"""The outboxes of a Redis store as change logs: one stream for each partition.

An entry (see `announce` in scripts/write.lua) has the texts of the fields touched: ``-field`` is
the one before, ``+field`` the one after, collections as whole values.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from mediator.changes.model import Change, change_id
from mediator.schema.types import Value
from mediator.stores.images import UNREADABLE, image_of
from mediator.stores.logs import Page, Portions, numbers_of, padded, read_on
from mediator.stores.port import FragmentOf, Logged, SystemConfig
from mediator.stores.redis.codec import NULL, decode
from mediator.stores.redis.commands import command
from mediator.stores.redis.line import Line

__all__ = ["StreamLogs"]

log = logging.getLogger(__name__)

_TRIMMED_AT_ONCE: Final = 10_000
_TRIMS: Final = 20
_BEFORE, _AFTER = b"-+"
_NULL: Final = NULL.encode()

_Kept: TypeAlias = tuple[str, bytes]


class StreamLogs:
    """The streams, read and trimmed; see `ChangeLog`.

    Args:
        config: The system.
        line: A line to it, for long answers.
    """

    def __init__(self, config: SystemConfig, line: Line) -> None:
        tags = (f"{config.namespace}:{p}" for p in range(config.partitions))
        self._keys = {f"{p}": f"{{{tag}}}:outbox" for p, tag in enumerate(tags)}
        self._portions = {name: Portions() for name in self._keys}
        self._line = line

    def names(self) -> Sequence[str]:
        """Name the logs: the numbers of the partitions."""
        return tuple(self._keys)

    async def read(
        self, name: str, after: str | None, limit: int, fragment_of: FragmentOf
    ) -> list[Logged]:
        """Return changes beyond a position."""

        async def page(after: str | None, count: int) -> Page:
            entries = await self._range(name, after, count)
            return [(_logged(*entry, fragment_of), sum(map(len, entry[1]))) for entry in entries]

        return await read_on(self._portions[name], after, limit, page)

    async def oldest(self, name: str) -> str | None:
        """Return the position of the oldest entry."""
        entries = await self._range(name, None, 1)
        return _position(entries[0][0]) if entries else None

    async def trim(self, name: str, upto: str, keep_s: float) -> int:
        """Remove entries up to a position, but none younger than `keep_s`; some of them, if many.

        Whole nodes of the stream go first, not too many at once, for the server waits meanwhile.
        """
        ((seconds, _),) = await self._line.ask([command("TIME")])
        youngest = (max(0, int((int(seconds) - keep_s) * 1000)), 0)
        milliseconds, sequence = numbers_of(upto)
        first_kept = _stream_id(*min(youngest, (milliseconds, sequence + 1)))
        removed = 0
        for _ in range(_TRIMS):
            some = await self._trim(name, "~", first_kept, "LIMIT", _TRIMMED_AT_ONCE)
            removed += some
            if not some:
                return removed + await self._trim(name, "=", first_kept)
        return removed

    async def _trim(self, name: str, *how: Any) -> int:
        asked = command("XTRIM", self._keys[name], "MINID", *how)
        (removed,) = await self._line.ask([asked], writes=True)
        return int(removed)

    async def _range(
        self, name: str, after: str | None, count: int
    ) -> list[tuple[bytes, list[bytes]]]:
        start = "-" if after is None else f"({_stream_id(*numbers_of(after))}"
        asked = command("XRANGE", self._keys[name], start, "+", "COUNT", count)
        (entries,) = await self._line.ask([asked])
        return entries or []


def _position(stream_id: bytes) -> str:
    major, _, minor = stream_id.decode().partition("-")
    return padded(major, minor)


def _stream_id(milliseconds: int, sequence: int) -> str:
    return f"{milliseconds}-{sequence}"


def _logged(stream_id: bytes, flat: Sequence[bytes], fragment_of: FragmentOf) -> Logged:
    position = _position(stream_id)
    try:
        return Logged(position, _change(flat, fragment_of))
    except UNREADABLE:
        log.warning("an entry of an outbox, at %s, is none of ours; it is left out", position)
        return Logged(position, None)


def _change(flat: Sequence[bytes], fragment_of: FragmentOf) -> Change | None:
    texts = iter(flat)
    entry = dict(zip(texts, texts, strict=True))
    database, class_name, group, kind = entry[b"what"].decode().split("/")
    fragment = fragment_of(database, class_name)
    if fragment is None:
        return None
    version = int(entry[b"version"])
    before, after = _sides(entry)
    absent = kind == "create" or b"absent" in entry
    return Change(
        id=change_id(entry[b"operation"].decode(), group),
        database=database,
        class_name=class_name,
        object_id=entry[b"object"].decode(),
        group=group,
        version=version,
        kind=kind,
        before=None if absent else image_of(fragment, before, _value),
        after=None if kind == "delete" else image_of(fragment, after, _value),
        time_us=int(entry.get(b"time", version)),
    )


def _sides(entry: Mapping[bytes, bytes]) -> tuple[list[_Kept], list[_Kept]]:
    """Return the texts of the fields before and after."""
    before: list[_Kept] = []
    after: list[_Kept] = []
    for name, text in entry.items():
        if name[0] == _AFTER:
            after.append((name[1:].decode(), text))
        elif name[0] == _BEFORE:
            before.append((name[1:].decode(), text))
    return before, after


def _value(_: str, text: bytes) -> Value:
    # `decode` looks at the tag alone: a broken text must not be told as a null that was stored.
    if text.startswith(_NULL) and text != _NULL:
        raise ValueError("a null is nothing but its tag")
    return decode(text)
