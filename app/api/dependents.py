"""Views, standing queries and flows: who may see and remove them, and see what they have kept.

They depend on classes, and outlive them: a class may be gone from the schema, or have got owners or
lost them, since one was created.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import Protocol, TypeVar

from app.api.resources import Directory
from app.api.routed_request import RoutedRequest
from mediator.routing.model import DatabaseRoute

__all__ = ["Dependent", "find_dependent", "require_definition", "require_objects"]


class Dependent(Protocol):
    """What was created over classes of a database."""

    @property
    def class_names(self) -> Collection[str]:
        """The classes that it reads or writes."""

    @property
    def created(self) -> datetime:
        """When it was created, by the clock of a replica."""


_D = TypeVar("_D", bound=Dependent)


async def find_dependent(
    directory: Directory,
    routed: RoutedRequest,
    find: Callable[[DatabaseRoute, str], Awaitable[_D]],
) -> tuple[DatabaseRoute, _D]:
    """Find what a request addresses by the id in its path, if its sender may see the definition.

    Args:
        directory: Finds the database.
        routed: The request.
        find: Finds it in a database; raises `NotFound`.

    Raises:
        NotFound: There is none.
        Forbidden: As `require_definition`.
        Unavailable: It is not known whether its classes are there.
    """
    database = await directory.database(routed.database)
    found = await find(database, routed.id)
    # Another replica may have made a class a moment ago.
    await directory.look_for(routed.database, *found.class_names)
    require_definition(routed, found)
    return database, found


def require_definition(routed: RoutedRequest, dependent: Dependent) -> None:
    """Return if the request may see a definition, with its state, and remove it with all it keeps.

    Raises:
        Forbidden: Its sender may not see all objects of a class that is there; or some had owners
            since it was created.
    """
    for name in dependent.class_names:
        routed.access.require_definition(routed.database, name, dependent.created)


def require_objects(routed: RoutedRequest, dependent: Dependent) -> None:
    """Return if the request may see what was kept of objects since it was created.

    Raises:
        Forbidden: As `require_definition`; or a class is gone.
    """
    for name in dependent.class_names:
        routed.access.require_all_since(routed.database, name, dependent.created)
