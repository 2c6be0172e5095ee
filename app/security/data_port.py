"""The gate of the data API: who asks, whether there is room, and what may be done."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from app.security.authentication import Authenticator
from app.security.authorisation import Restricted
from app.security.rate_limits import ANONYMOUS, UNKNOWN, TenantLimiter
from mediator.access.cache import AccessCache
from mediator.base.errors import Unauthenticated
from mediator.routing.model import RoutingModel

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
        book: AccessCache,
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
            TooManyRequests: There are too many requests.
            Unavailable: It is not known any more which keys hold.
        """
        try:
            principal = await self._authenticator.principal(authorization)
        except Unauthenticated:
            self._limiter.leave(self._limiter.enter(UNKNOWN))
            raise
        meter = self._limiter.enter(ANONYMOUS if principal is None else principal.tenant)
        return Restricted(principal, self._book, self._model, meter)

    def leave(self, access: Restricted) -> None:
        """Note that the request was answered."""
        self._limiter.leave(access.meter)

    async def holds(self, access: Restricted, authorization: str | None, started_s: float) -> bool:
        """Whether an answer that is still being sent may go on: by its credentials, and its time.

        Args:
            access: What the request may do.
            authorization: Its Authorization field.
            started_s: When it came, by `time.perf_counter`.
        """
        if access.meter.is_over(perf_counter() - started_s):
            return False
        try:
            return await self._authenticator.principal(authorization) == access.principal
        except Unauthenticated:
            return False
