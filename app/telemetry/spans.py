"""Work that is done, as plain values: what the service hands to the process that sends spans.

Only what differs from one request to the next is told, and that as JSON takes it: to make spans of
it is the other process's part (`encoding.py`).
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

__all__ = ["Call", "Done", "Ended", "Location", "Outgoing", "Request"]

Location: TypeAlias = tuple[int, int, str, int, int, bool, int, int]
"""Where and when: both halves of the trace's id (JSON knows no 128 bits), the trace's state, the
span's id, that of its parent (0: none), whether the parent is remote, beginning and end (ns)."""

Call: TypeAlias = tuple[int, float, str, str, str, str, str, int, str]
"""A store call: its end (ns), its seconds, the kind of system, the system, the database, the class,
the operation, how many were sent together, and how it failed (empty: it did not)."""

Request: TypeAlias = tuple[Location, tuple[str, str, int, str, int], list[Call]]
"""A request that was answered: method, route, status, scheme, and calls that were left out."""

Outgoing: TypeAlias = tuple[Location, str, dict[str, str | int], bool]
"""A call of ours to somebody else: its name, its attributes, and whether it failed."""

Done: TypeAlias = Request | Outgoing
"""What is handed over; by its length it is seen which it is."""


class Ended(Protocol):
    """Something that was done, and is put into plain values when there is time for it."""

    def plain(self) -> Done:
        """Return it as plain values."""
