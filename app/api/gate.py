"""The gate of the data API: who asks, whether there is room, and what may be done."""

from __future__ import annotations

from collections.abc import Callable

from app.api.access import Restricted
from app.http.authentication import Authenticator
from app.http.limits import ANONYMOUS, UNKNOWN, TenantLimiter
from mediator.access.book import AccessBook
from mediator.errors import Unauthenticated
from mediator.placement.routing import RoutingModel

__all__ = ["Gate"]


class Gate:
    """Lets requests in.

    Args:
        authenticator: Finds out who asks.
        book: Tells who owns what.
        limiter: Bounds what a tenant asks for.
        model: Returns the routing model in force.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        book: AccessBook,
        limiter: TenantLimiter,
        model: Callable[[], RoutingModel],
    ) -> None:
        self._authenticator = authenticator
        self._book = book
        self._limiter = limiter
        self._model = model

    async def enter(self, authorization: str | None) -> Restricted:
        """Let a request in; `leave` is to follow.

        Args:
            authorization: Its Authorization field.

        Raises:
            Unauthenticated: Its credentials are no good.
            HttpError: There are too many requests.
            Unavailable: It is not known any more which keys hold.
        """
        try:
            principal = await self._authenticator.principal(authorization)
        except Unauthenticated:
            self._limiter.enter(UNKNOWN)
            self._limiter.leave(UNKNOWN)
            raise
        access = Restricted(principal, self._book, self._model)
        self._limiter.enter(_account(access))
        return access

    def leave(self, access: Restricted) -> None:
        """Note that the request was answered."""
        self._limiter.leave(_account(access))

    async def holds(self, access: Restricted, authorization: str | None) -> bool:
        """Whether the credentials of an answer that is still being sent are good yet."""
        try:
            return await self._authenticator.principal(authorization) == access.principal
        except Unauthenticated:
            return False


def _account(access: Restricted) -> str:
    return ANONYMOUS if access.principal is None else access.principal.tenant
