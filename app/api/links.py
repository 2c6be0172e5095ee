"""Links to the next page of a listing (RFC 8288), for clients that know no cursors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from app.http.message import Headers
from sketch.protocol.keys import canonical_query

__all__ = ["next_link"]

_LONGEST: Final = 2_000
"""Bytes of an address: proxies have a few kilobytes for all header fields of an answer."""


def next_link(path: str, parameters: Iterable[tuple[str, str]], cursor: str | None) -> Headers:
    """Return the field that leads to the page after a cursor, in the form that caches keep.

    Nothing if no page follows, or if the address is too long for a field: the body has the cursor.
    """
    if cursor is None:
        return []
    kept = [(name, value) for name, value in parameters if name != "after"]
    address = f"{path}?{canonical_query([*kept, ('after', cursor)])}"
    if len(address) > _LONGEST:
        return []
    return [(b"link", f'<{address}>; rel="next"'.encode())]
