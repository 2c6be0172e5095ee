"""What routes have in common whose resources are in the coordination Redis."""

from __future__ import annotations

from typing import TypeVar

from app.api.routed_request import RoutedRequest
from app.http.message import forbid_body
from app.http.paths import parse_query
from mediator.access.model import Scope
from mediator.base.errors import Unavailable

__all__ = ["refuse_content", "require_stream", "required"]

_T = TypeVar("_T")


def required(service: _T | None, there: str) -> _T:
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
