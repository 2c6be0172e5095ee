"""Field names in changes: stored names in the feed, the schema's names for readers.

Readers see current names even in old changes and in changes relayed by a replica that does not know
a new name yet. Values of dropped fields are left out.
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
"""Returns an event of a database, given by its id, with current field names."""


def naming_by(model: Callable[[], RoutingModel]) -> Naming:
    """Return a function that names fields by the current routing model.

    Events of classes without renamed or dropped fields are returned unparsed.
    """

    def rename(database: str, event: Event) -> Event:
        schema = model().by_id.get(database)
        route = None if schema is None else schema.classes.get(event.class_name)
        if route is None or not route.has_other_names:
            return event
        return named_as(event, route.public_names)

    return rename


def named_as(event: Event, names: Mapping[str, str]) -> Event:
    """Return an event with renamed fields; fields without a new name are left out."""
    members: dict[str, Any] = orjson.loads(event.data)
    for image in ("before", "after"):
        if members[image] is not None:
            renamed = ((names.get(stored), value) for stored, value in members[image].items())
            members[image] = {name: value for name, value in renamed if name is not None}
    return replace(event, data=orjson.dumps(members))
