"""Whether a query's results can be delivered, by owners of the classes that it uses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mediator.base.clock import EPOCH
from mediator.changes.former_owners import MAX_CLOCK_SKEW
from mediator.routing.model import DatabaseRoute
from mediator.schema.parse import parse_schema
from mediator.standing.closed import closed_class
from mediator.standing.results import QueryState, StoredQuery

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
FIELDS: dict[str, Any] = {"author": {"type": "string", "required": True, "index": True}}
INTO_A_STREAM = {"into": {"stream": "s", "values": {"a": "n.author"}}}
INTO_COPIES = {"into": {"class": "copies", "values": {"author": "n.author"}}}


def database(*owned: str, **until: datetime) -> DatabaseRoute:
    classes = {
        name: {"fields": FIELDS, **({"owner_field": "author"} if name in owned else {})}
        for name in ("notes", "copies")
    }
    return DatabaseRoute(parse_schema("db", {"classes": classes}), {}, owned_until=until)


def query(document: dict[str, Any], *administered: str, **members: Any) -> StoredQuery:
    attributes = {"administered": frozenset(administered), "created": CREATED, **members}
    return StoredQuery(document, ("class:notes", "words"), QueryState(), **attributes)


@pytest.mark.parametrize("owned", ["notes", "copies"])
@pytest.mark.parametrize("document", [{}, INTO_A_STREAM, INTO_COPIES])
def test_results_stop_for_a_class_with_owners(document: dict[str, Any], owned: str) -> None:
    uses = document and (owned == "notes" or document is INTO_COPIES)
    expected = owned if uses else None
    assert closed_class(query(document), database(owned)) == expected
    assert closed_class(query(document), database()) is None
    assert closed_class(query(document, owned), database(owned)) is None


def test_an_administrator_of_another_class_does_not_count() -> None:
    both = database("notes", "copies")
    assert closed_class(query(INTO_COPIES, "copies"), both) == "notes"
    assert closed_class(query(INTO_COPIES, "notes"), both) == "copies"
    assert closed_class(query(INTO_COPIES, "notes", "copies"), both) is None


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (timedelta(days=1), "notes"),
        (timedelta(0), "notes"),
        (-2 * MAX_CLOCK_SKEW, "notes"),
        (-2 * MAX_CLOCK_SKEW - timedelta(seconds=1), None),
    ],
)
def test_results_stop_for_a_class_that_had_owners_since(
    offset: timedelta, expected: str | None
) -> None:
    former = database(notes=CREATED + offset)
    assert closed_class(query(INTO_A_STREAM), former) == expected
    assert closed_class(query(INTO_A_STREAM, "notes"), former) is None


def test_a_query_of_an_older_version_counts_as_created_before_all() -> None:
    """It has no creation time and no creator."""
    old_query = query(INTO_A_STREAM, created=EPOCH)
    assert closed_class(old_query, database()) is None
    assert closed_class(old_query, database("notes")) == "notes"
    assert closed_class(old_query, database(notes=CREATED)) == "notes"
