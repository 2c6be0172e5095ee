"""The gate of the admin port: every request passes it, whatever route it is for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from starlette.requests import HTTPConnection

from app.admin.needs import Need, Of, decide_admin, need_of
from app.api.access import refusal
from app.http.authentication import Authenticator
from app.http.browser import send_problem
from app.http.message import Receive, Scope, Send
from mediator.access.book import AccessBook
from mediator.access.decision import Decision, sees
from mediator.access.model import Principal
from mediator.errors import MediatorError, NotFound, Unauthenticated

__all__ = ["AdminGate", "visible"]

_SEES: Final = "portolan.sees"
"""Where the ASGI scope holds what whoever asks may know of."""

Sees: TypeAlias = Callable[[str], bool]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
_OPEN: Final = Need(Of.NOTHING)


class AdminGate:
    """Lets requests in.

    Args:
        app: What is behind it.
        authenticator: Finds out who asks.
        book: Tells who owns what.
        metrics_open: Whether `/metrics` needs no key.
    """

    def __init__(
        self, app: App, authenticator: Authenticator, book: AccessBook, *, metrics_open: bool
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._book = book
        self._metrics_open = metrics_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise ValueError(f"the admin port does not speak {scope['type']}")
        try:
            principal = await self._admit(scope)
        except Unauthenticated as error:
            await send_problem(error, scope["path"], _asking(scope, send))
        except MediatorError as error:
            await send_problem(error, scope["path"], send)
        else:
            if principal is not None:
                scope[_SEES] = lambda name: sees(principal, name, self._book.owner(name))
            await self._app(scope, receive, send)

    async def _admit(self, scope: Scope) -> Principal | None:
        need, named = need_of(scope["method"], scope["path"])
        if scope["path"] == "/metrics" and self._metrics_open:
            need = _OPEN
        if need.of is Of.NOTHING:
            return None
        field = _field(scope, b"authorization")
        principal = await self._authenticator.principal(field, basic=True)
        decision = decide_admin(principal, need, named, scope["query_string"], self._book)
        if decision is Decision.HIDDEN and need.of is Of.TENANT:
            raise NotFound("There is no such tenant.")
        if decision is not Decision.ALLOWED:
            raise refusal(decision, need.scope)
        return principal


def visible(request: HTTPConnection) -> Sees:
    """Return what tells whether the sender of a request may know that a database exists."""
    found: Sees = request.scope.get(_SEES, _all)
    return found


def _all(_: str) -> bool:
    """Show everything, where nobody is authenticated."""
    return True


def _field(scope: Scope, name: bytes) -> str | None:
    """Return a field of the request; one that comes twice is no credential."""
    found = [value for given, value in scope["headers"] if given == name]
    return b", ".join(found).decode("latin-1") if found else None


def _asking(scope: Scope, send: Send) -> Send:
    """Let a browser ask its user for a key, which it sends as the password of Basic."""
    if "text/html" not in (_field(scope, b"accept") or ""):
        return send

    async def ask(message: Any) -> None:
        if message["type"] == "http.response.start":
            challenge = (b"www-authenticate", b'Basic realm="portolan", charset="UTF-8"')
            message["headers"] = [*message["headers"], challenge]
        await send(message)

    return ask
