"""Authentication, rate limits and authorisation of the data API."""

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
        """Admit a request; the caller must `release` its access.

        Raises:
            Unauthenticated: Its credentials are invalid.
            TooManyRequests: There are too many requests.
            Unavailable: The cached keys are too old to decide.
        """
        try:
            principal = await self._authenticator.principal(authorization)
        except Unauthenticated:
            # A separate account, whose limits bound guesses.
            self.limiter.leave(self.limiter.enter(UNKNOWN))
            raise
        meter = self.limiter.enter(ANONYMOUS if principal is None else principal.tenant)
        return Access(principal, self._access_cache, self._model, meter)

    def release(self, access: Access) -> None:
        self.limiter.leave(access.meter)

    async def revalidate(self, access: Access, authorization: str | None) -> None:
        """Check that the credentials of a request are still valid.

        Raises:
            Unauthenticated: They were revoked, have expired, or stand for another principal.
            Unavailable: The cached keys are too old to decide.
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
