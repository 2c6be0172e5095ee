"""A change as a JSON document, as the feed stores it and subscribers receive it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import orjson

from mediator.base.immutable import immutable
from mediator.model.change import Change

__all__ = ["EncodedChange", "change_from", "document_of", "encoded", "time_of"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE: Final = _EPOCH.replace(tzinfo=None)
"""Without a time zone, so that `isoformat` writes none."""

_TIME: Final = b'"time":"'
_END: Final = b'"}'
_US: Final = timedelta(microseconds=1)


@immutable
class EncodedChange:
    """A change as its document, with the members that the feed compares; see `Change`."""

    class_name: str
    object_id: str
    group: str
    version: int
    document: bytes


def encoded(change: Change) -> EncodedChange:
    group, version = change.group, change.version
    return EncodedChange(change.class_name, change.object_id, group, version, document_of(change))


def document_of(change: Change) -> bytes:
    """Its time is RFC 3339 in UTC, with microseconds."""
    seconds, microseconds = divmod(change.time_us, 1_000_000)
    return orjson.dumps(
        {
            "id": change.id,
            "database": change.database,
            "class": change.class_name,
            "object": change.object_id,
            "group": change.group,
            "version": change.version,
            "kind": change.kind,
            "before": change.before,
            "after": change.after,
            "time": f"{_second(seconds)}.{microseconds:06d}Z",
        }
    )


@lru_cache(maxsize=64)  # many changes share a second
def _second(seconds: int) -> str:
    return (_EPOCH_NAIVE + timedelta(seconds=seconds)).isoformat()


def time_of(document: bytes) -> datetime:
    """Return the time of a change: the last member, so the document is not parsed."""
    time = document.rpartition(_TIME)[2]
    return datetime.fromisoformat(time.removesuffix(_END).decode())


def change_from(document: bytes, database_id: str) -> Change:
    members = orjson.loads(document)
    return Change(
        id=members["id"],
        database=members["database"],
        class_name=members["class"],
        object_id=members["object"],
        group=members["group"],
        version=members["version"],
        kind=members["kind"],
        before=members["before"],
        after=members["after"],
        time_us=(datetime.fromisoformat(members["time"]) - _EPOCH) // _US,
        database_id=database_id,
    )
