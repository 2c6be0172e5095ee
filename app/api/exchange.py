"""A request on its way, and what is known of it so far."""

from __future__ import annotations

from typing import Final

from app.api.addresses import Address
from app.http.message import Request
from app.security.authorisation import Restricted

__all__ = ["Exchange"]

_METHODS: Final = frozenset({"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE", "OPTIONS"})


class Exchange:
    """A request, and what is known of its address so far; problems need it too.

    Attributes:
        request: The request.
        kind: Its method and scheme as metrics name them: a made-up one must not make a series.
        template: Of the route, once that is found.
        database: That it is about, once that is known.
        access: What whoever asks may do, once that is known; None: nobody is asked for that.
    """

    __slots__ = ("access", "database", "kind", "request", "template")

    def __init__(self, request: Request, scheme: str) -> None:
        self.request = request
        self.kind = (request.method if request.method in _METHODS else "_OTHER", scheme)
        self.template = "unmatched"
        self.database = ""
        self.access: Restricted | None = None

    def enter(self, address: Address) -> None:
        """Note where the request goes."""
        self.template = address.route.template
        self.database = address.database
