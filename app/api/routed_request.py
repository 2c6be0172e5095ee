"""The routed request: a request with its route, its access, its class and its preferences."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from app.api.cursors import seen_at
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

__all__ = ["FIELDS", "LONGEST_AGE_S", "UNROUTED", "Address", "Handler", "Route", "RoutedRequest"]

FIELDS: Final = frozenset({"fields"})
_READING: Final = FIELDS | {"max_age"}
_PATCHING: Final = FIELDS | {"upsert"}
LONGEST_AGE_S: Final = 3600
_READS: Final = frozenset({"GET", "HEAD"})

FindPinned: TypeAlias = Callable[[], Awaitable[FormerSchema]]
"""Finds the version that a request is pinned to; raises what `FormerSchemas.find` does."""


Revalidate: TypeAlias = Callable[[], Awaitable[None]]


async def _unauthenticated() -> None:
    """Return: without authentication there are no credentials."""


@dataclass(frozen=True, slots=True)
class Route:
    """What can be done at an address.

    Attributes:
        template: The path with its variables; the label of metrics.
        handlers: By method.
        scopes: The permission that each method needs; None: its handler authorises each class.
        offers: Media type of the answers.
        streams: Media types of answers that have no end.
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
"""The route of requests that have none."""


class Address(NamedTuple):
    """A route, and the variables of its path; empty where the path has not that one."""

    route: Route
    database: str
    class_name: str = ""
    id: str = ""
    ticket: str = ""


@dataclass(eq=False, slots=True)
class RoutedRequest:
    """A request, the route it goes to, and what is known of both: all that a handler gets.

    It is made before its route is found, as the answer to a request without one is counted, shared
    across origins and logged alike: until then its route is `UNROUTED`, and its address empty.

    Attributes:
        id: The object, the run or the flow that is addressed, if the route names one.
        ticket: The message of the flow, likewise.
        access: What the sender may do.
        owner: The subject whose objects of the class alone are there; None: everybody's.
        pinned: The version of the database's schema whose names the request uses; None: now's.
        find_pinned: Finds it again, as it is then; only where there is one.
        revalidate: Raises an error if the credentials of the sender are not good any more.
    """

    request: Request
    plane: DataPlane
    """Does the operations; the only one in reach of a handler, so that none sees more than the
    sender may."""

    resource: ClassResource = field(init=False)
    """The class with its `ClassRoute`; set on all routes that name one, and looked up only once."""

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
        """Let the handler see the names of a version, whatever it does with the data plane."""
        self.find_pinned, self.pinned = find, await find()
        self.plane = PinnedPlane(self.plane, self.pinned)

    def transact(self, transact: Transact) -> Transact:
        """Return the execution of transactions as this request may have it."""
        narrowed = self.access.transact(transact)
        return self.plane.transact(narrowed) if isinstance(self.plane, PinnedPlane) else narrowed

    def read_preferences(self) -> None:
        field = self.request.headers.get(b"prefer")
        if field is not None:
            self.preferences = parse_prefer(field)

    @property
    def database_id(self) -> str:
        """The id of the database, unlike that of earlier ones of its name; the name if unknown."""
        found = self.plane.model.databases.get(self.database)
        return found.id if found else self.database

    @property
    def schema(self) -> Schema:
        """The schema that is in force now, of the database, and with the class that is addressed.

        A handler that has waited since its class was looked up, as for a body, asks here.

        Raises:
            NotFound: The database, or the class, was dropped meanwhile.
        """
        return self._database().schema

    def route_of(self, class_name: str) -> ClassRoute:
        """Return the route of a class of the database as it is now; raises `NotFound` likewise."""
        return self._database(class_name).classes[class_name]

    def _database(self, class_name: str = "") -> DatabaseRoute:
        found, name = self.plane.model.databases.get(self.database), class_name or self.class_name
        if found is None:
            raise NotFound(f"The database {self.database} was dropped meanwhile.")
        if name not in found.classes:
            raise NotFound(f"The class {name} of {self.database} was dropped meanwhile.")
        return found

    def preference(self) -> ReadPreference:
        preferences = self.preferences
        if (
            preferences.consistency is None
            and preferences.max_staleness_s is None
            and not preferences.at_least
        ):
            return ANY
        seen = seen_at(preferences.at_least, self.database) if preferences.at_least else None
        whole = preferences.consistency == "strong"
        return ReadPreference(preferences.consistency, preferences.max_staleness_s, seen, whole)

    def selection(self) -> FieldSelection:
        query = self.request.query
        if not query:
            return self.resource.full_selection
        return self.resource.select(parse_query(query, FIELDS).get("fields"))

    def reading(self) -> tuple[FieldSelection, int | None]:
        """Return what a read shows, and for how long caches may keep an answer that is dated."""
        query = self.request.query
        if not query:
            return self.resource.full_selection, None
        given = parse_query(query, _READING)
        selection, age = self.resource.select(given.get("fields")), given.get("max_age")
        if age is None:
            return selection, None
        return selection, parse_integer(age, "max_age", minimum=1, maximum=LONGEST_AGE_S)

    def patching(self) -> tuple[FieldSelection, bool]:
        """Return what a patch may change, and whether it creates an object that does not exist."""
        query = self.request.query
        if not query:
            return self.resource.full_selection, False
        given = parse_query(query, _PATCHING)
        selection = self.resource.select(given.get("fields"))
        if not parse_flag("upsert", given.get("upsert", "false")):
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
            None if none is None else self._known(none),
        )

    def _known(self, if_none_match: str) -> Tags:
        """Read If-None-Match: no cache is confirmed a copy that its client could not decode."""
        codings = True
        if GZIP_END in if_none_match and self.request.method in _READS:
            codings = accepts_gzip(self.request.headers.get(b"accept-encoding", ""))
        return parse_tags(if_none_match, "If-None-Match", codings=codings)

    def media_type(self, *allowed: str) -> str:
        """Return the type of the body, or refuse it with those allowed (RFC 9110, 15.5.16)."""
        given = self.request.headers.get(b"content-type", "")
        type_ = media_type(given)
        if type_ in allowed:
            return type_
        name = "Accept-Patch" if self.request.method == "PATCH" else "Accept"
        listed = ", ".join(allowed)
        detail = f"The body must be one of: {listed}."
        raise HttpError(
            UNSUPPORTED_MEDIA_TYPE,
            detail,
            extra={"supported": list(allowed)},
            headers=[(name, listed)],
        )

    async def json_body(self, limit: int) -> tuple[Any, bytes]:
        """Return the body of a request without parameters, parsed and as it came.

        Raises:
            HttpError: It is not JSON, or has more than `limit` bytes; or there are parameters.
        """
        self.media_type(JSON)
        parse_query(self.request.query, frozenset())
        raw = await read_body(self.request, limit)
        return parse_json(raw), raw

    @property
    def pinned_names(self) -> tuple[bytes, ...]:
        """The version whose names are used: under other names the same body is another request."""
        return () if self.pinned is None else (b"%d" % self.pinned.version,)

    def identity(
        self, ids: OperationIds, body: bytes = b"", conditions: bytes | None = None
    ) -> Identity:
        """Return what distinguishes the writes of this request from those of others.

        `conditions` stand for the query, if that may differ between a request and its repetitions.
        """
        headers = self.request.headers
        key = headers.get(b"idempotency-key")
        if key is None:
            return Identity(ids, self.database_id, None, None)
        sender = self.access.sender
        named = (b"content-type", b"if-match", b"if-none-match")
        values = [headers.get(name, "").encode("latin-1") for name in named]
        request = self.request
        query = request.query if conditions is None else conditions
        fingerprint = fingerprint_of(
            request.method.encode(), request.path, query, *values, *self.pinned_names, body
        )
        return Identity(ids, self.database_id, parse_key(key), fingerprint, sender)


Handler: TypeAlias = Callable[[RoutedRequest], Awaitable[Response]]
"""Answers the requests of one route and method."""
