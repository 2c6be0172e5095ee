"""Authorisation of the admin port: ASGI middleware before all of its routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from starlette.requests import HTTPConnection

from app.http.browser import send_problem
from app.http.message import Receive, Scope, Send, field_of, request_id
from app.http.problems import HttpError
from app.security.authentication import Authenticator
from app.security.permissions import database_of, permission_of
from app.security.rate_limits import ANONYMOUS, UNKNOWN, TenantLimiter
from mediator.access.authorisation import refusal
from mediator.access.cache import AccessCache
from mediator.access.decision import AccessDecision, Extent, Permission, decide_route, sees
from mediator.access.model import Principal
from mediator.base.errors import MediatorError, NotFound, Unauthenticated

__all__ = ["AdminAuthoriser", "sender", "visible"]

_SEES_KEY: Final = "portolan.sees"
"""The key of the `Sees` of a request in the ASGI scope."""

_SENDER_KEY: Final = "portolan.sender"
"""The key of the sender in the ASGI scope."""


class Sees(Protocol):
    """Whether the sender may know of a database, or of a class in it."""

    def __call__(self, database: str, class_name: str | None = None, /) -> bool:
        """Return whether the sender may know of it."""


App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(eq=False)
class AdminAuthoriser:
    """Passes on permitted requests, and refuses others.

    Attributes:
        metrics_open: Whether `/metrics` needs no key.
    """

    _app: App
    _authenticator: Authenticator
    _access_cache: AccessCache
    _limiter: TenantLimiter
    metrics_open: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"the admin port does not speak {scope['type']}")
        permission, variables = permission_of(scope["method"], scope["path"])
        if permission.extent is Extent.NOTHING or (
            scope["path"] == "/metrics" and self.metrics_open
        ):
            # Health checks and metrics must not fail because of the requests of others.
            await self._app(scope, receive, send)
            return
        with ExitStack() as stack:
            try:
                principal = await self._admit(scope, permission, variables, stack)
            except Unauthenticated as error:
                await send_problem(error, request_id(scope), _challenging(scope, send))
            except (MediatorError, HttpError) as error:
                await send_problem(error, request_id(scope), send)
            else:
                scope[_SEES_KEY] = partial(self._sees, principal)
                scope[_SENDER_KEY] = principal
                await self._app(scope, receive, send)

    def _sees(self, principal: Principal, database: str, class_name: str | None = None, /) -> bool:
        return sees(principal, database, self._access_cache.owner(database), class_name)

    async def _principal(self, scope: Scope) -> Principal | None:
        try:
            field = field_of(scope, b"authorization")
            return await self._authenticator.principal(field, basic=True)
        except Unauthenticated:
            # A separate account, whose limits bound guesses.
            with self._limiter.admit(UNKNOWN):
                raise

    async def _admit(
        self, scope: Scope, permission: Permission, variables: Mapping[str, str], stack: ExitStack
    ) -> Principal:
        principal = await self._principal(scope)
        account = ANONYMOUS if principal is None else principal.tenant
        stack.enter_context(self._limiter.admit(account))
        database = database_of(variables, scope["query_string"])
        owner_of = self._access_cache.owner
        tenant = variables.get("tenant")
        decision = decide_route(principal, permission, database, tenant, owner_of)
        if decision is AccessDecision.HIDDEN and permission.extent is Extent.TENANT:
            raise NotFound("There is no such tenant.")
        if decision is not AccessDecision.ALLOWED:
            raise refusal(decision, permission.scope)
        assert principal is not None
        return principal


def visible(request: HTTPConnection) -> Sees:
    """Return the `Sees` of a request's sender."""
    sees_: Sees = request.scope.get(_SEES_KEY, _sees_all)
    return sees_


def sender(request: HTTPConnection) -> Principal | None:
    """Return the sender of a request; None if requests are not authenticated."""
    principal: Principal | None = request.scope.get(_SENDER_KEY)
    return principal


def _sees_all(_database: str, _class_name: str | None = None, /) -> bool:
    """Show everything, because requests are not authenticated."""
    return True


def _challenging(scope: Scope, send: Send) -> Send:
    """Make a browser prompt for a key, which it sends as the password of Basic."""
    if "text/html" not in (field_of(scope, b"accept") or ""):
        return send

    async def challenge(message: Any) -> None:
        if message["type"] == "http.response.start":
            field = (b"www-authenticate", b'Basic realm="portolan", charset="UTF-8"')
            message["headers"] = [*message["headers"], field]
        await send(message)

    return challenge
