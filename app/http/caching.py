"""Header fields for caches (RFC 9111, 9213, 9211, 9875), and the older fields that proxies read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from app.http.message import Header, Headers
from mediator.schema.tree import Visibility

__all__ = ["NO_STORE", "cache_headers", "merge_vary", "restrict_caching"]

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
    """Return the fields of an answer that state who can cache it, and for how long.

    Browsers without our client read ``max-age=0`` and revalidate; shared caches keep the answer for
    whole seconds, rounded down; our clients keep it until ``Portolan-Expires``.

    Args:
        visibility: ``public``: every cache; ``private``: only the client.
        ttl_us: The TTL, in microseconds, from the moment of the grant.
        end_us: When it expires by the sketch's clock, in microseconds since 1970.
        tags: Tags by which caches purge it.
        hit: Whether the sketch alone decided that the client's copy is current.
        date_us: A time by the sketch's clock at which the answer was still current; None: filters
            show whether it is.
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
    # Varnish serves expired answers unless this forbids it, whatever must-revalidate says; nginx
    # adds its TTL to that of the upstream cache unless the expiry is absolute.
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


def restrict_caching(headers: Headers, visibility: Visibility) -> Headers:
    """Restrict the caching of an answer that may have needed a credential.

    A shared cache must not keep an answer that is not public (RFC 9111, section 3.5), whatever its
    fields said, and a browser must not show one user's copy to the next user.
    """
    if visibility == "public" or NO_STORE in headers:
        return headers
    remaining = [field for field in headers if field[0] != b"cache-control"]
    if visibility == "none":
        return [*remaining, NO_STORE]
    return [*remaining, _PRIVATE, (b"vary", b"Authorization")]


def merge_vary(headers: Headers, required: bytes) -> Header:
    """Remove the Vary fields of an answer, and return one that joins them.

    Of several Vary fields nginx before 1.23 obeys only the last: a client of another origin would
    get the copy that was cached for the first.
    """
    fields = [required]
    for field in headers[:]:
        if field[0] == b"vary":
            headers.remove(field)
            fields.append(field[1])
    return b"vary", b", ".join(fields)
