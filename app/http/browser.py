"""Protection of the admin port against cross-site requests and DNS rebinding.

A browser that holds its user's key (Basic), or that runs on this machine, sends requests for any
page. Unsafe requests from another site are therefore refused: `Sec-Fetch-Site` (W3C Fetch Metadata)
identifies them, or `Origin` in browsers that do not send it.

Without authentication, a page can also let its own name point at this machine (DNS rebinding), and
then counts as the same site. The host of the request must therefore be this machine.
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
"""Pages load everything from this server; an answer that needs more sets its own policy."""

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_TRUSTED_SOURCES: Final = frozenset({b"same-origin", b"none"})
_SECURITY_HEADERS: Final = {
    b"content-security-policy": CONTENT_POLICY,
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


@dataclass(eq=False)
class BrowserGuard:
    """Refuses cross-site requests, and adds security header fields to answers.

    With `only_loopback` the host of a request must be a loopback name or address.
    """

    _app: Any
    only_loopback: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id_ = request_id(scope)

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                _add(message, {**_SECURITY_HEADERS, b"x-request-id": id_.encode()})
            await send(message)

        headers = dict(scope["headers"])
        if not from_same_site(scope["method"], headers):
            detail = "A page of another site must not change anything here."
        elif self.only_loopback and not is_loopback(host_of(headers)):
            detail = "Without authentication this is answered as localhost or 127.0.0.1 only."
        else:
            await self._app(scope, receive, send_guarded)
            return
        await send_problem(HttpError(CROSS_SITE, detail), id_, send_guarded)


def from_same_site(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request is safe, or comes from one of our pages or from no page."""
    if method in _SAFE_METHODS:
        return True
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site in _TRUSTED_SOURCES
    origin = headers.get(b"origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin.decode("latin-1")).netloc.encode() == headers.get(b"host")
    except ValueError:  # not a URL, so not this site
        return False


def is_own(headers: Mapping[bytes, bytes]) -> bool:
    """Whether Sec-Fetch-Site is absent, or names our site or the user as the source."""
    return headers.get(b"sec-fetch-site", b"none") in _TRUSTED_SOURCES


def host_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the host of the Host field, without the port; empty if it is malformed."""
    try:
        return urlsplit(f"//{headers.get(b'host', b'').decode('latin-1')}").hostname or ""
    except ValueError:
        return ""


async def send_problem(error: Exception, id_: str, send: Send) -> None:
    status, headers, body = problem_of(error).answer(id_)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _add(message: MutableMapping[str, Any], fields: Mapping[bytes, bytes]) -> None:
    """Add the fields that the answer does not have."""
    headers = list(message.get("headers", ()))
    names = {name.lower() for name, _ in headers}
    message["headers"] = [*headers, *[field for field in fields.items() if field[0] not in names]]
