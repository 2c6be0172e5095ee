"""What routes of views, standing queries, flows and event streams have in common.

All but the streams depend on classes, and outlive them: a class may be gone from the schema, or
have got owners or lost them, since one was created.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from typing import Protocol, TypeVar

from app.api.resources import Directory
from app.api.routed_request import RoutedRequest
from app.http.message import forbid_body
from app.http.paths import parse_query
from mediator.access.model import Scope
from mediator.base.errors import Unavailable
from mediator.routing.model import DatabaseRoute

__all__ = [
    "Dependent",
    "find_dependent",
    "refuse_content",
    "require_definition",
    "require_objects",
    "require_stream",
    "required",
]


class Dependent(Protocol):
    """What was created over classes of a database."""

    @property
    def class_names(self) -> Collection[str]:
        """The classes that it reads or writes."""

    @property
    def created(self) -> datetime:
        """When it was created, by the clock of a replica."""


_D = TypeVar("_D", bound=Dependent)
_S = TypeVar("_S")


def required(service: _S | None, there: str) -> _S:
    """Return a service; raises `Unavailable` where there is no coordination Redis for it.

    Args:
        there: What is missing without, such as ``is no change feed``.
    """
    if service is None:
        detail = f"There {there} here: PORTOLAN_COORDINATION_URL is not set."
        raise Unavailable(detail, system="coordination", retry_after_s=60)
    return service


def refuse_content(routed: RoutedRequest, *, with_parameters: bool = False) -> None:
    """Refuse a body, and parameters unless the route has some; raises `Invalid`."""
    forbid_body(routed.request)
    if not with_parameters:
        parse_query(routed.request.query, frozenset())


def require_stream(routed: RoutedRequest, scope: Scope, stream: str) -> None:
    """Return if the request may do that with an event stream; raises as `Access.require`."""
    database = routed.plane.model.databases.get(routed.database)
    # What a grant says of a class that was created under the name later, it does not say of the
    # stream: then only those of the whole database do.
    name = None if database is not None and stream in database.classes else stream
    routed.access.require(scope, routed.database, name, by_anybody=False)


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
    await directory.refresh_if_missing(routed.database, *found.class_names)
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
