"""A request on its way through the data API: what it addresses, preferences and demands."""

from __future__ import annotations

from typing import Final

from app.api.positions import seen_at
from app.api.resources import ClassResource, Selection
from app.http.idempotency import Identity, OperationIds, fingerprint_of, parse_key
from app.http.message import Request
from app.http.negotiation import media_type
from app.http.paths import parse_query, whole_number
from app.http.preconditions import NO_PRECONDITIONS, Preconditions, parse_tags
from app.http.prefer import NO_PREFERENCES, parse_prefer
from app.http.problems import UNSUPPORTED_MEDIA_TYPE, HttpError
from app.security.authorisation import EVERYTHING, Access
from mediator.data_plane.port import DataPlane
from mediator.routing.freshness import ANY, ReadPreference

__all__ = ["FIELDS", "LONGEST_AGE_S", "Call"]

FIELDS: Final = frozenset({"fields"})
_READING: Final = FIELDS | {"max_age"}
LONGEST_AGE_S: Final = 3600


class Call:
    """A request and its address, and what the client would like.

    Raises:
        HttpError: Preferences that are to be handled strictly and cannot be.
    """

    __slots__ = (
        "access",
        "class_name",
        "database",
        "id",
        "plane",
        "preferences",
        "request",
        "resource",
    )

    resource: ClassResource
    """The class; set on all routes that name one."""

    plane: DataPlane
    """Does the operations; the only one in reach of what carries out a request, so that none sees
    more than it may."""

    def __init__(
        self, request: Request, plane: DataPlane, database: str, class_name: str, id_: str
    ) -> None:
        self.access: Access = EVERYTHING
        self.plane = plane
        self.request = request
        self.database = database
        self.class_name = class_name
        self.id = id_
        prefer = request.headers.get(b"prefer")
        self.preferences = NO_PREFERENCES if prefer is None else parse_prefer(prefer)

    @property
    def database_id(self) -> str:
        """What tells the database from earlier ones of its name; the name, if it is unknown."""
        found = self.plane.model.databases.get(self.database)
        return found.id if found else self.database

    @property
    def owner(self) -> str | None:
        """Whose objects of the class are there for the request; None: everybody's."""
        return self.access.owner_of(self.database, self.resource.name)

    def preference(self) -> ReadPreference:
        """Return what is asked of the freshness of a read."""
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

    def selection(self) -> Selection:
        """Return the part of the object that the query names."""
        query = self.request.query
        if not query:
            return self.resource.whole
        return self.resource.select(parse_query(query, FIELDS).get("fields"))

    def reading(self) -> tuple[Selection, int | None]:
        """Return what a read shows, and how long caches may keep it if its answer is to be dated.

        Raises:
            HttpError: The time is no number of seconds that is allowed.
        """
        query = self.request.query
        if not query:
            return self.resource.whole, None
        given = parse_query(query, _READING)
        selection, age = self.resource.select(given.get("fields")), given.get("max_age")
        if age is None:
            return selection, None
        return selection, whole_number(age, "max_age", least=1, most=LONGEST_AGE_S)

    def preconditions(self) -> Preconditions:
        """Return If-Match and If-None-Match."""
        headers = self.request.headers
        match, none = headers.get(b"if-match"), headers.get(b"if-none-match")
        if match is None and none is None:
            return NO_PRECONDITIONS
        return Preconditions(
            None if match is None else parse_tags(match, "If-Match"),
            None if none is None else parse_tags(none, "If-None-Match"),
        )

    def media_type(self, *allowed: str) -> str:
        """Return the media type of the body.

        Raises:
            HttpError: It is none of those allowed, which the answer names (RFC 9110, 15.5.16).
        """
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

    def identity(self, ids: OperationIds, body: bytes = b"") -> Identity:
        """Tell this request from all others, by its Idempotency-Key if it has one."""
        headers = self.request.headers
        key = headers.get(b"idempotency-key")
        if key is None:
            return Identity(ids, self.database_id, None, None)
        sender = self.access.sender
        named = (b"content-type", b"if-match", b"if-none-match")
        told = [headers.get(name, "").encode("latin-1") for name in named]
        request = self.request
        print_ = fingerprint_of(request.method.encode(), request.path, request.query, *told, body)
        return Identity(ids, self.database_id, parse_key(key), print_, sender)
