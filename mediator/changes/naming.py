"""Names of fields in changes: stored ones in the feed, those of the schema when they are read.

So a change of long ago, and one that a replica relays which does not know a new name yet, has the
names of now for its reader, and values of fields that were dropped are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import orjson

from mediator.changes.feed import Event
from mediator.routing.model import RoutingModel

__all__ = ["Naming", "named_as", "naming_by"]

Naming: TypeAlias = Callable[[str, Event], Event]
"""Returns an event of a database, given by its id, with the names of now."""


def naming_by(model: Callable[[], RoutingModel]) -> Naming:
    """Return what names fields as the routing model in force does.

    Events of classes without renamed or dropped fields are returned as they are, unread.
    """

    def named(database: str, event: Event) -> Event:
        schema = model().by_id.get(database)
        route = None if schema is None else schema.classes.get(event.class_name)
        if route is None or not route.has_other_names:
            return event
        return named_as(event, route.public_names)

    return named


def named_as(event: Event, names: Mapping[str, str]) -> Event:
    """Return an event with other names of fields; those that get none are left out."""
    members: dict[str, Any] = orjson.loads(event.data)
    for image in ("before", "after"):
        if members[image] is not None:
            known = ((names.get(stored), value) for stored, value in members[image].items())
            members[image] = {name: value for name, value in known if name is not None}
    return replace(event, data=orjson.dumps(members))
