"""What keeps browsers from being used against the admin port.

A browser that has got a key from its user (Basic), or that runs on the machine itself, sends
requests for any page. So requests that change something are refused if they come from another site:
`Sec-Fetch-Site` (W3C Fetch Metadata) says so, and `Origin` for browsers that do not know it.

Without authentication, a page may also have its own name made to point at this machine (DNS
rebinding), and then counts as the same site. So the name in the request must be this machine's.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from app.http.message import Receive, Scope, Send, request_id
from app.http.problems import CROSS_SITE, HttpError, problem_of
from app.settings.access import is_loopback

__all__ = ["CONTENT_POLICY", "BrowserGuard", "from_same_site", "host_of", "is_own", "send_problem"]

CONTENT_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    b"frame-ancestors 'none'"
)
"""Everything of a page comes from us; an answer that needs more has a policy of its own."""

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN: Final = frozenset({b"same-origin", b"none"})
_ALWAYS: Final = {
    b"content-security-policy": CONTENT_POLICY,
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


@dataclass(eq=False)
class BrowserGuard:
    """Refuses what other sites send, and adds to answers how browsers are to treat them.

    With `only_loopback` requests must be addressed to this machine by a name of its own.
    """

    _app: Any
    only_loopback: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id_ = request_id(scope)

        async def guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                _add(message, {**_ALWAYS, b"x-request-id": id_.encode()})
            await send(message)

        headers = dict(scope["headers"])
        if not from_same_site(scope["method"], headers):
            detail = "A page of another site must not change anything here."
        elif self.only_loopback and not is_loopback(host_of(headers)):
            detail = "Without authentication this is answered as localhost or 127.0.0.1 only."
        else:
            await self._app(scope, receive, guarded)
            return
        await send_problem(HttpError(CROSS_SITE, detail), id_, guarded)


def from_same_site(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request is safe, or comes from a page of ours or from no page at all."""
    if method in _SAFE:
        return True
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site in _OWN
    origin = headers.get(b"origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin.decode("latin-1")).netloc.encode() == headers.get(b"host")
    except ValueError:  # it is no address, so it is none of ours
        return False


def is_own(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser sends a request for a page of ours or for its user, or does not say."""
    return headers.get(b"sec-fetch-site", b"none") in _OWN


def host_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the host that a request is addressed to, without its port; empty if it is none."""
    try:
        return urlsplit(f"//{headers.get(b'host', b'').decode('latin-1')}").hostname or ""
    except ValueError:
        return ""


async def send_problem(error: Exception, id_: str, send: Send) -> None:
    status, headers, body = problem_of(error).answer(id_)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _add(message: MutableMapping[str, Any], fields: Mapping[bytes, bytes]) -> None:
    """Add fields that the answer has not set itself."""
    headers = list(message.get("headers", ()))
    names = {name.lower() for name, _ in headers}
    message["headers"] = [*headers, *[field for field in fields.items() if field[0] not in names]]
