"""Queries whose results go somewhere, and classes that got owners since these were created.

Nobody requests results that go into a stream or a class, so no request is refused. Who may read the
stream would receive objects of all owners; who may not write others' objects would go on doing so.
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
    """Return a class because of which results may not go where they are to go; None: they may.

    That is one that the query reads, or that its results go into, whose objects have owners, or had
    since the query was created, unless who created it could administer the class.
    """
    into = destination_of(stored.document)
    if into is None:
        return None
    used = {into.target, *map(Source.of, stored.relations)}
    names = {each.name for each in used if each.kind == "class"} - stored.administered
    owned = (name for name in sorted(names) if _had_owners(database, name, stored.created))
    return next(owned, None)


def _had_owners(database: DatabaseRoute, class_name: str, since: datetime) -> bool:
    """Whether objects of a class have owners, or had some time since a moment."""
    class_ = database.schema.classes.get(class_name)
    if class_ is not None and class_.owner_field is not None:
        return True
    until = had_owners_until(database.owned_until, class_name)
    return until is not None and since <= changes_open_at(until)
