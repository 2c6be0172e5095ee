"""Authorisation of the data API: who sends a request, within which limits, and what it may do."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from app.security.authentication import Authenticator
from app.security.rate_limits import ANONYMOUS, UNKNOWN, TenantLimiter
from mediator.access.authorisation import Access
from mediator.access.cache import AccessCache
from mediator.base.errors import Unauthenticated
from mediator.routing.model import RoutingModel

__all__ = ["RequestAuthoriser"]


class RequestAuthoriser:
    """Authenticates the requests of the data API, and says what each may do."""

    def __init__(
        self,
        authenticator: Authenticator,
        access_cache: AccessCache,
        limiter: TenantLimiter,
        model: Callable[[], RoutingModel],
    ) -> None:
        self._authenticator = authenticator
        self._access_cache = access_cache
        self._limiter = limiter
        self._model = model

    async def authorise(self, authorization: str | None) -> Access:
        """Let a request in; `release` is to follow.

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
        return Access(principal, self._access_cache, self._model, meter)

    def release(self, access: Access) -> None:
        """Note that the request was answered."""
        self._limiter.leave(access.meter)

    async def is_valid(self, access: Access, authorization: str | None, started_s: float) -> bool:
        """Whether an answer that began at `started_s` (`perf_counter`) may still be sent."""
        if access.meter.is_over(perf_counter() - started_s):
            return False
        try:
            return await self._authenticator.principal(authorization) == access.principal
        except Unauthenticated:
            return False
