"""Changes that a browser asks for on behalf of another site are refused (CSRF).

Browsers say where a request comes from, and pages cannot make them say otherwise: `Sec-Fetch-Site`
(W3C Fetch Metadata, section 2.3), and before there was that, `Origin` (RFC 6454, section 7). A
client that sends neither is no browser, so nobody else's page can be behind it.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from app.http.problems import CROSS_SITE, HttpError

__all__ = ["refuse_other_sites"]

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OURS: Final = frozenset({"same-origin", "none"})
"""`none`: the user typed the address or follows a bookmark."""


async def refuse_other_sites(request: Request) -> None:
    """Refuse what would change something, and is asked for by another site's page.

    Raises:
        HttpError: It is (403).
    """
    if request.method in _SAFE:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        ours = site in _OURS
    else:
        ours = origin is None or origin.partition("://")[2] == request.headers.get("host")
    if not ours:
        raise HttpError(CROSS_SITE, "Changes are asked for by pages of this address only.")
