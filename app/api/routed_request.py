"""The routed request: a request with its route, its access, its class and its preferences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from app.api.cursors import parse_position
from app.api.resources import ClassResource, FieldSelection
from app.http.idempotency import Identity, OperationIds, fingerprint_of, parse_key
from app.http.jsonbody import parse_json
from app.http.message import Request, Response, read_body
from app.http.negotiation import JSON, accepts_gzip, media_type
from app.http.paths import parse_integer, parse_query
from app.http.preconditions import (
    GZIP_END,
    NO_PRECONDITIONS,
    Preconditions,
    Tags,
    parse_tags,
)
from app.http.prefer import NO_PREFERENCES, Preferences, parse_prefer
from app.http.problems import UNSUPPORTED_MEDIA_TYPE, HttpError
from mediator.access.authorisation import EVERYTHING, Access
from mediator.access.metered_plane import Transact
from mediator.access.model import Scope
from mediator.base.errors import NotFound
from mediator.data_plane.pinned_plane import PinnedPlane
from mediator.data_plane.port import DataPlane
from mediator.query.parameters import parse_flag, wrong_parameter
from mediator.routing.former_schemas import FormerSchema
from mediator.routing.freshness import ANY, ReadPreference
from mediator.routing.model import ClassRoute, DatabaseRoute
from mediator.schema.tree import Schema

__all__ = ["FIELDS", "MAX_AGE_S", "UNROUTED", "Address", "Handler", "Route", "RoutedRequest"]

FIELDS: Final = frozenset({"fields"})
_READ_PARAMETERS: Final = FIELDS | {"max_age"}
_PATCH_PARAMETERS: Final = FIELDS | {"upsert"}
MAX_AGE_S: Final = 3600
_READ_METHODS: Final = frozenset({"GET", "HEAD"})

FindPinned: TypeAlias = Callable[[], Awaitable[FormerSchema]]
"""Finds the version that a request is pinned to; raises the errors of `FormerSchemas.find`."""


Revalidate: TypeAlias = Callable[[], Awaitable[None]]


async def _unauthenticated() -> None:
    """Accept the request: without authentication, there are no credentials to check."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path template and its handlers.

    Attributes:
        template: The path with its variables; the label of metrics.
        handlers: By method.
        scopes: The permission that each method needs; None: its handler authorises each class.
        offers: Media type of the answers.
        streams: Media types of endless answers.
        patch_types: Media types of PATCH, for Accept-Patch.
        is_pinnable: Whether requests may be pinned to a version of the database's schema.
        of_class: Whether the address names a class.
    """

    template: str
    handlers: Mapping[str, Handler]
    scopes: Mapping[str, Scope] | None
    offers: str = JSON
    streams: tuple[str, ...] = ()
    patch_types: tuple[str, ...] = ()
    is_pinnable: bool = True
    of_class: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "of_class", "{class}" in self.template)

    @property
    def allow(self) -> str:
        return ", ".join([*self.handlers, "OPTIONS"])


UNROUTED: Final = Route("unmatched", {}, None)
"""The route of requests that match none."""


class Address(NamedTuple):
    """A route, and the variables of its path; empty if the path does not have them."""

    route: Route
    database: str
    class_name: str = ""
    id: str = ""
    ticket: str = ""


@dataclass(eq=False, slots=True)
class RoutedRequest:
    """A request with its route, its sender's access and its class: the context of a handler.

    It is created before routing, with `UNROUTED` and an empty address, because answers to requests
    without a route are counted, logged and shared across origins as well.

    Attributes:
        id: The object, the run or the flow that is addressed, if the route names one.
        ticket: The message of the flow, if the route names one.
        access: The sender's permissions.
        owner: The only subject whose objects of the class are visible; None: everybody's are.
        pinned: The version of the database's schema whose names the request uses; None: current.
        find_pinned: Looks up the pinned version again; only set if there is one.
        revalidate: Raises an error if the credentials of the sender are no longer valid.
    """

    request: Request
    plane: DataPlane
    """Executes operations. Handlers have no other data plane, so they see only what the sender
    may."""

    resource: ClassResource = field(init=False)
    """The class with its `ClassRoute`; set on routes that name a class, and looked up only once."""

    route: Route = field(default=UNROUTED, init=False)
    database: str = field(default="", init=False)
    class_name: str = field(default="", init=False)
    id: str = field(default="", init=False)
    ticket: str = field(default="", init=False)
    access: Access = field(default=EVERYTHING, init=False)
    owner: str | None = field(default=None, init=False)
    preferences: Preferences = field(default=NO_PREFERENCES, init=False)
    pinned: FormerSchema | None = field(default=None, init=False)
    find_pinned: FindPinned = field(init=False)
    # By a factory: a function that is an attribute of the class would be bound as a method.
    revalidate: Revalidate = field(default_factory=lambda: _unauthenticated, init=False)

    def go_to(self, address: Address) -> None:
        self.route, self.database, self.class_name, self.id, self.ticket = address

    async def pin(self, find: FindPinned) -> None:
        """Let the handler, and its data plane, use the names of a version."""
        self.find_pinned, self.pinned = find, await find()
        self.plane = PinnedPlane(self.plane, self.pinned)

    def transact(self, transact: Transact) -> Transact:
        """Restrict the execution of transactions to the sender's access and the pinned version."""
        narrowed = self.access.transact(transact)
        return self.plane.transact(narrowed) if isinstance(self.plane, PinnedPlane) else narrowed

    def read_preferences(self) -> None:
        field = self.request.headers.get(b"prefer")
        if field is not None:
            self.preferences = parse_prefer(field)

    @property
    def database_id(self) -> str:
        """The database's id, unlike that of earlier ones of its name; the name if it is unknown."""
        route = self.plane.model.databases.get(self.database)
        return route.id if route else self.database

    @property
    def schema(self) -> Schema:
        """The current schema of the database, which has the addressed class.

        Handlers read it after a wait, for instance for a body, instead of `resource.schema`.

        Raises:
            NotFound: The database, or the class, was dropped meanwhile.
        """
        return self._database().schema

    def route_of(self, class_name: str) -> ClassRoute:
        """Return the current route of a class of the database; raises `NotFound` like `schema`."""
        return self._database(class_name).classes[class_name]

    def _database(self, class_name: str = "") -> DatabaseRoute:
        route, name = self.plane.model.databases.get(self.database), class_name or self.class_name
        if route is None:
            raise NotFound(f"The database {self.database} was dropped meanwhile.")
        if name not in route.classes:
            raise NotFound(f"The class {name} of {self.database} was dropped meanwhile.")
        return route

    def preference(self) -> ReadPreference:
        preferences = self.preferences
        if (
            preferences.consistency is None
            and preferences.max_staleness_s is None
            and not preferences.at_least
        ):
            return ANY
        versions = (
            parse_position(preferences.at_least, self.database) if preferences.at_least else None
        )
        whole = preferences.consistency == "strong"
        return ReadPreference(preferences.consistency, preferences.max_staleness_s, versions, whole)

    def selection(self) -> FieldSelection:
        query = self.request.query
        if not query:
            return self.resource.full_selection
        return self.resource.select(parse_query(query, FIELDS).get("fields"))

    def read_parameters(self) -> tuple[FieldSelection, int | None]:
        """Return the selection of a read, and its `max_age` in seconds, for caches."""
        query = self.request.query
        if not query:
            return self.resource.full_selection, None
        parameters = parse_query(query, _READ_PARAMETERS)
        selection, age = self.resource.select(parameters.get("fields")), parameters.get("max_age")
        if age is None:
            return selection, None
        return selection, parse_integer(age, "max_age", minimum=1, maximum=MAX_AGE_S)

    def patch_parameters(self) -> tuple[FieldSelection, bool]:
        """Return the selection of a patch, and whether it creates a missing object."""
        query = self.request.query
        if not query:
            return self.resource.full_selection, False
        parameters = parse_query(query, _PATCH_PARAMETERS)
        selection = self.resource.select(parameters.get("fields"))
        if not parse_flag("upsert", parameters.get("upsert", "false")):
            return selection, False
        if selection.fields is not None:
            raise wrong_parameter("fields", "does not go together with upsert")
        if self.preconditions() is not NO_PRECONDITIONS:
            raise wrong_parameter("upsert", "does not go together with If-Match or If-None-Match")
        return selection, True

    def preconditions(self) -> Preconditions:
        headers = self.request.headers
        match, none = headers.get(b"if-match"), headers.get(b"if-none-match")
        if match is None and none is None:
            return NO_PRECONDITIONS
        return Preconditions(
            None if match is None else parse_tags(match, "If-Match"),
            None if none is None else self._parse_if_none_match(none),
        )

    def _parse_if_none_match(self, if_none_match: str) -> Tags:
        """Parse If-None-Match; compressed copies match only if the client accepts gzip."""
        codings = True
        if GZIP_END in if_none_match and self.request.method in _READ_METHODS:
            codings = accepts_gzip(self.request.headers.get(b"accept-encoding", ""))
        return parse_tags(if_none_match, "If-None-Match", codings=codings)

    def media_type(self, *allowed: str) -> str:
        """Return the type of the body; raise an `HttpError` unless allowed (RFC 9110, 15.5.16)."""
        content_type = self.request.headers.get(b"content-type", "")
        type_ = media_type(content_type)
        if type_ in allowed:
            return type_
        name = "Accept-Patch" if self.request.method == "PATCH" else "Accept"
        allowed_types = ", ".join(allowed)
        detail = f"The body must be one of: {allowed_types}."
        raise HttpError(
            UNSUPPORTED_MEDIA_TYPE,
            detail,
            extra={"supported": list(allowed)},
            headers=[(name, allowed_types)],
        )

    async def json_body(self, limit: int) -> tuple[Any, bytes]:
        """Return the body of a request without parameters, parsed and raw.

        Raises:
            HttpError: It is not JSON, or has more than `limit` bytes; or there are parameters.
        """
        self.media_type(JSON)
        parse_query(self.request.query, frozenset())
        raw = await read_body(self.request, limit)
        return parse_json(raw), raw

    @property
    def pinned_names(self) -> tuple[bytes, ...]:
        """The pinned version, for fingerprints: it changes the meaning of a body."""
        return () if self.pinned is None else (b"%d" % self.pinned.version,)

    def identity(
        self, ids: OperationIds, body: bytes = b"", conditions: bytes | None = None
    ) -> Identity:
        """Return the identity of this request's writes.

        `conditions` replace the query if that can differ between a request and its retries.
        """
        headers = self.request.headers
        key = headers.get(b"idempotency-key")
        if key is None:
            return Identity(ids, self.database_id, None, None)
        sender = self.access.sender
        fields = (b"content-type", b"if-match", b"if-none-match")
        values = [headers.get(name, "").encode("latin-1") for name in fields]
        request = self.request
        query = request.query if conditions is None else conditions
        fingerprint = fingerprint_of(
            request.method.encode(), request.path, query, *values, *self.pinned_names, body
        )
        return Identity(ids, self.database_id, parse_key(key), fingerprint, sender)


Handler: TypeAlias = Callable[[RoutedRequest], Awaitable[Response]]
"""Answers the requests of one route and method."""
