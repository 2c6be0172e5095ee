"""Classes whose objects had owners once: until when, and which changes are of a later time.

Until when objects had owners is a time of the catalogue's clock, and when a change was made one of
the system that holds it (docs/clocks.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from mediator.changes.document import time_of

__all__ = [
    "CLOCKS_DIFFER",
    "MOST_CLASSES",
    "changes_open_at",
    "had_owners_until",
    "owned_until",
    "was_made_after",
]

CLOCKS_DIFFER: Final = timedelta(minutes=1)
"""By how much the clocks of two machines are taken to differ at most."""

_ANY_OTHER: Final = ""
"""Stands for every class that is not listed: no class has this name."""

MOST_CLASSES: Final = 1_000
"""Classes that are listed for a database; a longer list would cost each of its schema changes."""


def owned_until(
    known: Mapping[str, str], before: Mapping[str, Any], after: Mapping[str, Any], now: datetime
) -> dict[str, str]:
    """Return for each class that has lost its owner field until when it had one, in RFC 3339.

    A class that is dropped loses it too: a later one of its name may have none.

    Args:
        known: What the schema change before returned.
        before: The schema as it was, as JSON.
        after: The schema that replaces it.
        now: When, in UTC.
    """
    lost = _owned(before) - _owned(after)
    return _bounded({**known, **dict.fromkeys(lost, now.isoformat(timespec="microseconds"))})


def had_owners_until(times: Mapping[str, datetime], class_name: str) -> datetime | None:
    """Return until when the objects of a class had owners; None: they never had."""
    return times.get(class_name, times.get(_ANY_OTHER))


def changes_open_at(until: datetime) -> datetime:
    """Return from when on every new change is certainly of a time without owners.

    A subscriber that began earlier would miss changes: those that may be older than their times.
    """
    # One is for `was_made_after`, the other for a system whose clock is behind ours.
    return until + 2 * CLOCKS_DIFFER


def was_made_after(change: bytes, until: datetime) -> bool:
    """Whether a change, as a JSON document, was certainly made after a moment."""
    return time_of(change) > until + CLOCKS_DIFFER


def _owned(document: Mapping[str, Any]) -> set[str]:
    classes = document["classes"].items()
    return {name for name, schema in classes if schema.get("owner_field") is not None}


def _bounded(times: dict[str, str]) -> dict[str, str]:
    """Let one entry stand for the oldest, with the latest of their times: that hides more."""
    if len(times) <= MOST_CLASSES:
        return times
    newest_first = sorted(times, key=lambda name: times[name], reverse=True)
    kept, others = newest_first[: MOST_CLASSES - 1], newest_first[MOST_CLASSES - 1 :]
    return {**{name: times[name] for name in kept}, _ANY_OTHER: times[others[0]]}
