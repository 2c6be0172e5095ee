"""Server-sent events (HTML, section 9.2.6), as they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from portolan_client.problems import BrokenReply

__all__ = ["LARGEST", "Event", "EventReader"]

LARGEST: Final = 128 * 2**20
"""Bytes of an event; the service's own have two objects at most."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event, or the id that a later one would have; then `data` is empty."""

    id: str | None
    data: bytes


class EventReader:
    """Makes events of the bytes of a stream, however they are divided."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._bytes = 0
        self._id: str | None = None
        self._data: list[bytes] = []

    def receive(self, chunk: bytes) -> list[Event]:
        """Return the events that are complete.

        Lines end as the service writes them: an event may hold every other character that some
        read as the end of a line.
        """
        self._bytes += len(chunk)
        if self._bytes > LARGEST:
            raise BrokenReply("an event of the stream is too large")
        self._rest.append(chunk)
        if b"\n" not in chunk:
            return []
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest]
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
