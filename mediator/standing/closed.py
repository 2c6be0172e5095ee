"""Queries with a destination, and classes that have got owners since the query's creation.

Nobody requests results that go into a stream or a class, so no request can be refused. Readers of
the stream would receive objects of all owners; creators without permission would keep writing other
owners' objects.
"""

from __future__ import annotations

from datetime import datetime

from mediator.changes.former_owners import changes_open_at, had_owners_until
from mediator.routing.model import DatabaseRoute
from mediator.standing.destination_parser import destination_of
from mediator.standing.query import Source
from mediator.standing.results import StoredQuery

__all__ = ["closed_class"]


def closed_class(stored: StoredQuery, database: DatabaseRoute) -> str | None:
    """Return a class that bars results from their destination; None: none does.

    Such a class is read by the query or receives its results, and its objects have owners, or had
    since the query was created. A class that the query's creator could administer bars nothing.
    """
    into = destination_of(stored.document)
    if into is None:
        return None
    involved = {into.target, *map(Source.of, stored.relations)}
    names = {item.name for item in involved if item.kind == "class"} - stored.administered
    barring = (name for name in sorted(names) if _had_owners(database, name, stored.created))
    return next(barring, None)


def _had_owners(database: DatabaseRoute, class_name: str, since: datetime) -> bool:
    """Whether objects of a class have owners, or had at any time after `since`."""
    class_ = database.schema.classes.get(class_name)
    if class_ is not None and class_.owner_field is not None:
        return True
    until = had_owners_until(database.owned_until, class_name)
    return until is not None and since <= changes_open_at(until)
