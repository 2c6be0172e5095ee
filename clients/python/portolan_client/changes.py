"""The change feed: each write once, from a position on, whatever happens to the connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from portolan_client.calls import Call, JsonObject
from portolan_client.encoding import with_parameters
from portolan_client.problems import BrokenReply, PortolanError, Problem, Unreachable
from portolan_client.retries import NO_ANSWER, pauses_s

__all__ = [
    "BEGINNING",
    "ENDS",
    "MAX_EVENT_BYTES",
    "SILENCE_S",
    "Change",
    "Event",
    "EventReader",
    "Feed",
]

BEGINNING: Final = "beginning"
"""The position before all stored changes."""

SILENCE_S: Final = 45.0
"""The silence after which a connection counts as lost: the service sends every 15 seconds."""

ENDS: Final = (*NO_ANSWER, Problem)
"""Errors after which a stream may be requested again."""

_TRANSIENT: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses after which the feed reconnects: the service's, and a proxy's that has lost it."""

MAX_EVENT_BYTES: Final = 128 * 2**20
"""Limit of an event; the service's events have at most two objects."""

_FIRST_PAUSE_S: Final = 0.25
_MAX_PAUSE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one cache group of an object.

    Attributes:
        id: Unique, and the same if the change is received again.
        version: The new version of the group; it increases with every change.
        before: The previous values of the fields written; None: the object was absent.
        after: Their new values; None: the object is deleted.
        position: Where to resume after this change.
    """

    id: str
    database: str
    class_name: str
    object_id: str
    group: str
    version: int
    kind: Literal["create", "replace", "update", "delete"]
    before: JsonObject | None
    after: JsonObject | None
    time: datetime
    position: str = field(compare=False)


class Feed:
    """The position of a reader of the feed, and its retries when the stream ends.

    Args:
        class_name: Changes of one class only; None: of all.
        after: A position; None: from now on.
        reconnects: Attempts in a row that may fail before it gives up.
    """

    def __init__(self, class_name: str | None, after: str | None, reconnects: int) -> None:
        self._class_name = class_name
        self._position = after
        self._reconnects = reconnects
        self._pauses = self._new_pauses()
        self._reader = EventReader()

    def request(self) -> Call[None]:
        """Return the request for the changes after the last received one."""
        self._reader = EventReader()
        parameters = {"class": self._class_name, "after": self._position}
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        return Call("GET", with_parameters("changes", **parameters), lambda _: None, headers)

    def receive(self, chunk: bytes) -> Iterator[Change]:
        """Yield the complete changes."""
        for event in self._reader.receive(chunk):
            self._pauses = self._new_pauses()
            self._position = event.id or self._position
            if event.data:
                yield _change(event)

    def pause_s(self, cause: Exception | None) -> float:
        """Return the time until the next attempt (seconds).

        Args:
            cause: Why the stream ended, one of `ENDS`; None: the service has ended it.

        Raises:
            Problem: `cause`, if it is permanent, or if too many attempts have failed in a row.
            Unreachable: Too many attempts had no reply, or streams that ended at once.
        """
        error = cause
        if cause is not None and not isinstance(cause, PortolanError):
            error = Unreachable(f"the stream of changes: {cause!r}")
        if isinstance(error, Problem) and error.status not in _TRANSIENT:
            raise error
        pause = next(self._pauses, None)
        if pause is None:
            raise error or Unreachable("the service ends the stream of changes at once")
        retry_after_s = error.retry_after_s if isinstance(error, Problem) else None
        return pause + min(retry_after_s or 0.0, _MAX_PAUSE_S)

    def _new_pauses(self) -> Iterator[float]:
        return pauses_s(self._reconnects, _FIRST_PAUSE_S, _MAX_PAUSE_S)


def _change(event: Event) -> Change:
    try:
        document = json.loads(event.data)
        return Change(
            document["id"],
            document["database"],
            document["class"],
            document["object"],
            document["group"],
            document["version"],
            document["kind"],
            document["before"],
            document["after"],
            datetime.fromisoformat(document["time"]),
            event.id or "",
        )
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise BrokenReply(f"an event of the feed is not a change: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Event:
    """An event; with empty `data`, only the id that a later one would have."""

    id: str | None
    data: bytes


class EventReader:
    """Parses server-sent events (HTML, section 9.2.6) from the chunks of a stream."""

    def __init__(self) -> None:
        self._buffer: list[bytes] = []
        self._bytes = 0
        self._id: str | None = None
        self._data: list[bytes] = []

    def receive(self, chunk: bytes) -> list[Event]:
        """Return the complete events.

        Only a line feed ends a line, as the service writes it: an event may hold other characters
        that some parsers read as the end of a line.
        """
        self._bytes += len(chunk)
        if self._bytes > MAX_EVENT_BYTES:
            raise BrokenReply("an event of the stream is too large")
        self._buffer.append(chunk)
        if b"\n" not in chunk:
            return []
        *lines, rest = b"".join(self._buffer).split(b"\n")
        self._buffer = [rest]
        return [event for line in lines if (event := self._event(line)) is not None]

    def _event(self, line: bytes) -> Event | None:
        """Read a line; an empty one ends the event."""
        if not line:
            event = Event(self._id, b"\n".join(self._data))
            self._data, self._bytes = [], 0
            return event
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"id":
            self._id = value.decode(errors="replace")
        elif name == b"data":
            self._data.append(value)
        return None
