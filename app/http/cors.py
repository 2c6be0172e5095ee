"""Cross-origin resource sharing, per database (fetch.spec.whatwg.org, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from app.http.message import Headers

__all__ = ["EVERY_DATABASE", "CrossOrigin"]

EVERY_DATABASE: Final = "*"
_EXPOSED: Final = (
    b"ETag, Age, Cache-Status, Link, Location, Retry-After, Server-Timing, X-Request-Id, "
    b"Accept-Patch, Preference-Applied, Idempotency-Replayed, Portolan-Position, Portolan-Partial, "
    b"Portolan-Staleness, Portolan-Expires, Portolan-As-Of, Portolan-Sketch-Time, Portolan-Schema"
)
_ALLOWED = (
    b"Accept, Content-Type, Cache-Control, If-Match, If-None-Match, Idempotency-Key, Prefer, "
    b"Authorization, Portolan-Schema, "
    b"X-Request-Id"
)
_EXPOSING: Final = (b"access-control-expose-headers", _EXPOSED)
_MAX_AGE = b"600"
_BY_ORIGIN: Final = (b"vary", b"Origin")


class CrossOrigin:
    """Which origins may read which database.

    `EVERY_DATABASE` stands for all databases, and an origin ``*`` for all origins. Where nothing
    `shares`, no database is shared.
    """

    def __init__(self, origins: Mapping[str, tuple[str, ...]]) -> None:
        self.shares = any(origins.values())
        self._origins = {name: frozenset(of) for name, of in origins.items() if of}

    def headers(self, database: str, origin: str | None) -> Headers:
        """Return the fields of an answer; empty where the database is not shared."""
        allowed = self._origins.get(database) or self._origins.get(EVERY_DATABASE)
        if not allowed:
            return []
        if "*" in allowed:
            # Alike for all, with an Origin or without: a shared cache keeps one copy for everyone.
            return [(b"access-control-allow-origin", b"*"), _EXPOSING]
        if origin not in allowed:
            # Varies all the same: a shared cache must not answer an allowed origin with this.
            return [_BY_ORIGIN]
        shared = (b"access-control-allow-origin", origin.encode("latin-1"))
        return [shared, _BY_ORIGIN, _EXPOSING]

    def preflight(self, methods: str) -> Headers:
        return [
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-allow-headers", _ALLOWED),
            (b"access-control-max-age", _MAX_AGE),
        ]
