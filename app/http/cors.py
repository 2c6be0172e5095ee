"""Cross-origin resource sharing, per database (fetch.spec.whatwg.org, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.http.message import Headers

__all__ = ["EVERY_DATABASE", "CrossOrigin"]

EVERY_DATABASE: Final = "*"
_EXPOSED_HEADERS: Final = (
    b"ETag, Age, Cache-Status, Link, Location, Retry-After, Server-Timing, X-Request-Id, "
    b"Accept-Patch, Preference-Applied, Idempotency-Replayed, Portolan-Position, Portolan-Partial, "
    b"Portolan-Staleness, Portolan-Expires, Portolan-As-Of, Portolan-Sketch-Time, Portolan-Schema"
)
_ALLOWED_HEADERS = (
    b"Accept, Content-Type, Cache-Control, If-Match, If-None-Match, Idempotency-Key, Prefer, "
    b"Authorization, Portolan-Schema, "
    b"X-Request-Id"
)
_EXPOSE_HEADERS: Final = (b"access-control-expose-headers", _EXPOSED_HEADERS)
_MAX_AGE = b"600"
_VARY_ORIGIN: Final = (b"vary", b"Origin")


class CrossOrigin:
    """Which origins may read which database.

    `EVERY_DATABASE` stands for all databases, and an origin ``*`` for all origins. `shares` is
    false if no database is shared.
    """

    def __init__(self, origins: Mapping[str, tuple[str, ...]]) -> None:
        self.shares = any(origins.values())
        self._origins = {name: frozenset(allowed) for name, allowed in origins.items() if allowed}

    def headers(self, database: str, origin: str | None) -> Headers:
        """Return the fields of an answer; empty where the database is not shared."""
        allowed = self._origins.get(database) or self._origins.get(EVERY_DATABASE)
        if not allowed:
            return []
        if "*" in allowed:
            # The same for all requests, with or without Origin: a shared cache keeps one copy.
            return [(b"access-control-allow-origin", b"*"), _EXPOSE_HEADERS]
        if origin not in allowed:
            # Vary, even so: a shared cache must not serve this to an allowed origin.
            return [_VARY_ORIGIN]
        allow_origin = (b"access-control-allow-origin", origin.encode("latin-1"))
        return [allow_origin, _VARY_ORIGIN, _EXPOSE_HEADERS]

    def preflight(self, methods: str) -> Headers:
        return [
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-allow-headers", _ALLOWED_HEADERS),
            (b"access-control-max-age", _MAX_AGE),
        ]
