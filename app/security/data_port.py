"""Authorisation of the data API: who sends a request, within which limits, and what it may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from app.security.authentication import Authenticator
from app.security.rate_limits import ANONYMOUS, UNKNOWN, TenantLimiter
from mediator.access.authorisation import Access
from mediator.access.cache import AccessCache
from mediator.base.errors import Unauthenticated
from mediator.routing.model import RoutingModel

__all__ = ["RequestAuthoriser"]


@dataclass(eq=False)
class RequestAuthoriser:
    _authenticator: Authenticator
    _access_cache: AccessCache
    limiter: TenantLimiter
    _model: Callable[[], RoutingModel]

    async def authorise(self, authorization: str | None) -> Access:
        """Let a request in; `release` is to follow.

        Raises:
            Unauthenticated: Its credentials are not good.
            TooManyRequests: There are too many requests.
            Unavailable: It is not known any more which keys hold.
        """
        try:
            principal = await self._authenticator.principal(authorization)
        except Unauthenticated:
            # Charged to an account of their own, whose limits bound guesses.
            self.limiter.leave(self.limiter.enter(UNKNOWN))
            raise
        meter = self.limiter.enter(ANONYMOUS if principal is None else principal.tenant)
        return Access(principal, self._access_cache, self._model, meter)

    def release(self, access: Access) -> None:
        self.limiter.leave(access.meter)

    async def revalidate(self, access: Access, authorization: str | None) -> None:
        """Return if the credentials of a request are still good.

        Raises:
            Unauthenticated: They were revoked, have ended, or stand for something else.
            Unavailable: It is not known any more which keys hold.
        """
        if await self._authenticator.principal(authorization) != access.principal:
            detail = "The key or the token has other rights by now: send the request again."
            raise Unauthenticated(detail, presented=True)

    async def is_valid(self, access: Access, authorization: str | None, started_s: float) -> bool:
        """Whether an answer that began at `started_s` (`perf_counter`) may still be sent."""
        if access.meter.is_over(perf_counter() - started_s):
            return False
        try:
            await self.revalidate(access, authorization)
        except Unauthenticated:
            return False
        return True
