"""Shared code of the routes of views, standing queries, flows and event streams.

All but the streams depend on classes, and can outlive them: since the creation, a class may have
been dropped, or its objects may have got or lost owners.
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
    "require_service",
    "require_stream",
]


class Dependent(Protocol):
    """A view, standing query or flow, which depends on classes of a database."""

    @property
    def class_names(self) -> Collection[str]:
        """The classes that it reads or writes."""

    @property
    def created(self) -> datetime:
        """When it was created, by the clock of a replica."""


_D = TypeVar("_D", bound=Dependent)
_S = TypeVar("_S")


def require_service(service: _S | None, clause: str) -> _S:
    """Return a service; raise `Unavailable` if there is no coordination Redis for it.

    Args:
        service: The service, if there is one.
        clause: The rest of the sentence after "There", such as ``is no change feed``.
    """
    if service is None:
        detail = f"There {clause} here: PORTOLAN_COORDINATION_URL is not set."
        raise Unavailable(detail, system="coordination", retry_after_s=60)
    return service


def refuse_content(routed: RoutedRequest, *, with_parameters: bool = False) -> None:
    """Refuse a body, and parameters unless the route has some; raise `Invalid`."""
    forbid_body(routed.request)
    if not with_parameters:
        parse_query(routed.request.query, frozenset())


def require_stream(routed: RoutedRequest, scope: Scope, stream: str) -> None:
    """Require a permission for an event stream; raise the errors of `Access.require`."""
    database = routed.plane.model.databases.get(routed.database)
    # If a class of this name was created later, grants for the name mean the class: then only
    # grants for the whole database cover the stream.
    name = None if database is not None and stream in database.classes else stream
    routed.access.require(scope, routed.database, name, by_anybody=False)


async def find_dependent(
    directory: Directory,
    routed: RoutedRequest,
    find: Callable[[DatabaseRoute, str], Awaitable[_D]],
) -> tuple[DatabaseRoute, _D]:
    """Find the dependent that a request addresses, if the sender may see its definition.

    Args:
        directory: Finds the database.
        routed: The request.
        find: Finds the dependent in a database; raises `NotFound`.

    Raises:
        NotFound: There is none.
        Forbidden: As `require_definition`.
        Unavailable: The existence of its classes cannot be determined.
    """
    database = await directory.database(routed.database)
    dependent = await find(database, routed.id)
    # Another replica may just have created a class.
    await directory.refresh_if_missing(routed.database, *dependent.class_names)
    require_definition(routed, dependent)
    return database, dependent


def require_definition(routed: RoutedRequest, dependent: Dependent) -> None:
    """Require the permission to see a definition and its state, and to drop it with its data.

    Raises:
        Forbidden: The sender may not see all objects of an existing class, or some of them had
            owners since the creation.
    """
    for name in dependent.class_names:
        routed.access.require_definition(routed.database, name, dependent.created)


def require_objects(routed: RoutedRequest, dependent: Dependent) -> None:
    """Require the permission to see the object values that a dependent stores since its creation.

    Raises:
        Forbidden: As `require_definition`; or a class was dropped.
    """
    for name in dependent.class_names:
        routed.access.require_all_since(routed.database, name, dependent.created)
