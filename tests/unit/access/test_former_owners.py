"""Former owners of classes: the times at which schema changes removed them, and the feed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from mediator.access.authorisation import EVERYTHING, Unrestricted
from mediator.base.errors import Forbidden
from mediator.changes.document import document_of
from mediator.changes.former_owners import (
    MAX_CLASSES,
    MAX_CLOCK_SKEW,
    had_owners_until,
    owned_until,
    was_made_after,
)
from mediator.model.change import Change

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OWNED: dict[str, Any] = {"owner_field": "author"}
UNOWNED: dict[str, Any] = {"owner_field": None}


def times(entries: dict[str, str]) -> dict[str, datetime]:
    return {name: datetime.fromisoformat(at) for name, at in entries.items()}


def after_changes(*schemas: dict[str, Any]) -> dict[str, datetime]:
    """Return the known times after a database had these classes, for a second each."""
    entries: dict[str, str] = {}
    for number, (before, after) in enumerate(pairwise(schemas)):
        now = NOW + timedelta(seconds=number)
        entries = owned_until(entries, {"classes": before}, {"classes": after}, now)
    return times(entries)


@pytest.mark.parametrize("classes", [{"notes": UNOWNED}, {}], ids=["taken", "dropped"])
def test_a_class_that_loses_its_owner_field_had_owners_until_now(classes: dict[str, Any]) -> None:
    assert after_changes({"notes": OWNED}, classes) == {"notes": NOW}


def test_unrelated_schema_changes_are_ignored() -> None:
    assert after_changes({"notes": UNOWNED}, {"notes": OWNED}, {"notes": OWNED, "more": {}}) == {}


def test_the_time_stays_until_owners_are_removed_again() -> None:
    assert after_changes({"notes": OWNED}, {"notes": UNOWNED}, {}, {"notes": OWNED}) == {
        "notes": NOW
    }
    removal_times = after_changes({"notes": OWNED}, {"notes": UNOWNED}, {"notes": OWNED}, {})
    assert removal_times == {"notes": NOW + timedelta(seconds=2)}


def test_more_classes_than_are_listed_count_as_the_latest_of_them() -> None:
    entries: dict[str, str] = {}
    for number in range(MAX_CLASSES + 5):
        before = {"classes": {f"c{number}": OWNED}}
        entries = owned_until(entries, before, {"classes": {}}, NOW + timedelta(seconds=number))
    assert len(entries) == MAX_CLASSES
    removal_times = times(entries)
    for number in range(MAX_CLASSES + 5):
        until = had_owners_until(removal_times, f"c{number}")
        assert until == NOW + timedelta(seconds=max(number, 5))


def test_without_former_owners_nothing_is_known_of_any_class() -> None:
    assert had_owners_until({"notes": NOW}, "others") is None


class FormerlyOwned(Unrestricted):
    """An authorisation for which every class had owners until a moment."""

    def __init__(self, until: datetime) -> None:
        super().__init__()
        self._until = until

    def owned_until(self, database: str, class_name: str) -> datetime:
        return self._until


def test_the_feed_of_a_class_opens_when_no_later_change_can_seem_older() -> None:
    now = datetime.now(UTC)
    with pytest.raises(Forbidden):
        FormerlyOwned(now - MAX_CLOCK_SKEW).require_changes("db", "notes")
    moment = now - 2 * MAX_CLOCK_SKEW - timedelta(seconds=1)
    FormerlyOwned(moment).require_changes("db", "notes")
    EVERYTHING.require_changes("db", "notes")


def test_a_change_counts_as_later_only_beyond_the_difference_of_clocks() -> None:
    for after, later in (
        (timedelta(0), False),
        (MAX_CLOCK_SKEW, False),
        (2 * MAX_CLOCK_SKEW, True),
    ):
        assert was_made_after(change_at(NOW + after), NOW) is later


def change_at(moment: datetime) -> bytes:
    """Return a change whose values look like another time."""
    time_us = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    other = '"time":"1999-01-01T00:00:00.000000Z"}'
    values = {"time": "1999-01-01T00:00:00.000000Z", "text": other}
    change = Change("id", "db", "notes", "n", "main", 1, "create", None, values, time_us, "db_1")
    return document_of(change)
