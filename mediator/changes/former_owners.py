"""Classes whose objects formerly had owners: until when, and which changes are later.

The end of ownership is timed by the catalogue's clock, a change by the clock of the system that
holds it (docs/clocks.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from mediator.changes.document import time_of

__all__ = [
    "MAX_CLASSES",
    "MAX_CLOCK_SKEW",
    "changes_open_at",
    "had_owners_until",
    "owned_until",
    "was_made_after",
]

MAX_CLOCK_SKEW: Final = timedelta(minutes=1)
"""Assumed maximum difference between the clocks of two machines."""

_UNLISTED: Final = ""
"""Stands for every unlisted class; not a valid class name."""

MAX_CLASSES: Final = 1_000
"""Maximum classes listed for a database: each schema change writes the whole list."""


def owned_until(
    times: Mapping[str, str], before: Mapping[str, Any], after: Mapping[str, Any], now: datetime
) -> dict[str, str]:
    """Return for each class that has lost its owner field when it did, in RFC 3339.

    Dropped classes count too: a later class of the same name may have no owner field.

    Args:
        times: The result of the previous schema change.
        before: The schema as it was, as JSON.
        after: The schema that replaces it.
        now: The current time, in UTC.
    """
    lost = _owned(before) - _owned(after)
    return _bounded({**times, **dict.fromkeys(lost, now.isoformat(timespec="microseconds"))})


def had_owners_until(times: Mapping[str, datetime], class_name: str) -> datetime | None:
    """Return until when the objects of a class had owners; None: never."""
    return times.get(class_name, times.get(_UNLISTED))


def changes_open_at(until: datetime) -> datetime:
    """Return the time from which every new change was certainly made without owners.

    A subscriber that started earlier would miss the changes that may be older than their times.
    """
    # One skew is for `was_made_after`, the other for a system whose clock is behind ours.
    return until + 2 * MAX_CLOCK_SKEW


def was_made_after(change: bytes, until: datetime) -> bool:
    """Whether a change, given as a JSON document, was certainly made after a time."""
    return time_of(change) > until + MAX_CLOCK_SKEW


def _owned(document: Mapping[str, Any]) -> set[str]:
    classes = document["classes"].items()
    return {name for name, schema in classes if schema.get("owner_field") is not None}


def _bounded(times: dict[str, str]) -> dict[str, str]:
    """Merge the oldest entries into one with the latest of their times, which hides more."""
    if len(times) <= MAX_CLASSES:
        return times
    newest_first = sorted(times, key=lambda name: times[name], reverse=True)
    newest, oldest = newest_first[: MAX_CLASSES - 1], newest_first[MAX_CLASSES - 1 :]
    return {**{name: times[name] for name in newest}, _UNLISTED: times[oldest[0]]}
