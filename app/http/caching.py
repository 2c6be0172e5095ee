"""What an answer says to caches (RFC 9111, 9213, 9211, 9875), also in their older words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from app.http.message import Header, Headers
from mediator.schema.tree import Visibility

__all__ = ["NO_STORE", "cache_headers", "confined", "varying"]

NO_STORE: Final = (b"cache-control", b"no-store")
_PRIVATE: Final = (b"cache-control", b"private, max-age=0, must-revalidate")
_US: Final = 1_000_000


def cache_headers(
    visibility: Literal["public", "private"],
    ttl_us: int,
    end_us: int,
    tags: Sequence[str],
    *,
    hit: bool,
    date_us: int | None,
) -> Headers:
    """Return the fields of an answer that say for how long it may be kept, and by whom.

    Browsers without our client find ``max-age=0`` and revalidate; shared caches keep the answer for
    whole seconds, rounded down; our clients may keep it until ``Portolan-Expires``.

    Args:
        visibility: ``public``: by every cache; ``private``: by the client alone.
        ttl_us: Its TTL, in microseconds, from the moment that it was promised.
        end_us: When it expires by the sketch's clock, in microseconds since 1970.
        tags: Tags by which caches purge it.
        hit: Whether the sketch itself could say that the client's copy is current.
        date_us: By the sketch's clock, a time at which the answer was not outdated yet; None:
            filters show whether it is.
    """
    ttl_s = ttl_us // _US
    status = "hit" if hit else "fwd=miss"
    headers: Headers = [
        (b"portolan-expires", b"%d" % end_us),
        (b"cache-status", f"Portolan; {status}; ttl={ttl_s}".encode()),
    ]
    if date_us is not None:
        headers.append((b"portolan-as-of", b"%d" % date_us))
    if visibility == "private":
        return [_PRIVATE, *headers]
    joined = " ".join(tags).encode()
    # Varnish serves what has expired unless this forbids it, whatever must-revalidate says; nginx
    # adds its own time to that of the cache before it unless the end is absolute.
    control = f"public, max-age=0, s-maxage={ttl_s}, must-revalidate, stale-while-revalidate=0"
    return [
        (b"cache-control", control.encode()),
        (b"cdn-cache-control", b"max-age=%d" % ttl_s),
        (b"x-accel-expires", b"@%d" % (end_us // _US)),
        (b"cache-groups", ", ".join([f'"{tag}"' for tag in tags]).encode()),
        (b"xkey", joined),
        (b"surrogate-key", joined),
        (b"cache-tag", joined.replace(b" ", b",")),
        *headers,
    ]


def confined(headers: Headers, visibility: Visibility) -> Headers:
    """Return the fields of an answer that a credential may have been needed for.

    No shared cache may keep what is not public (RFC 9111, section 3.5), whatever the answer said
    before; and what a browser keeps for one user is none of the next one's business.
    """
    if visibility == "public" or NO_STORE in headers:
        return headers
    kept = [field for field in headers if field[0] != b"cache-control"]
    if visibility == "none":
        return [*kept, NO_STORE]
    return [*kept, _PRIVATE, (b"vary", b"Authorization")]


def varying(headers: Headers, always: bytes) -> Header:
    """Take out what an answer depends on, and say all of it in one line.

    Of several lines nginx, before 1.23, obeys the last one only: a client of another origin would
    get what was kept for the first.
    """
    fields = [always]
    for field in headers[:]:
        if field[0] == b"vary":
            headers.remove(field)
            fields.append(field[1])
    return b"vary", b", ".join(fields)
