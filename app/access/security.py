"""What lets requests in, from the settings: keys, tokens, limits."""

from __future__ import annotations

from collections.abc import Callable

from app.access.settings import AccessSettings
from app.api.gate import Gate
from app.http.authentication import Authenticator
from app.http.jwks import KeySet
from app.http.limits import Limits, TenantLimiter
from app.http.tokens import TokenRules, Tokens
from mediator.access.book import AccessBook
from mediator.access.model import OPERATOR
from mediator.clock import Clock
from mediator.control.watch import Watch
from mediator.placement.routing import RoutingModel

__all__ = ["Security"]

_NO_LIMITS = Limits()


class Security:
    """Authenticates requests, and knows who owns what.

    Args:
        settings: What is trusted.
        book: The keys and tenants that there are.
        clock: The time.
    """

    def __init__(self, settings: AccessSettings, book: AccessBook, clock: Clock) -> None:
        self.book = book
        self.metrics_open = settings.metrics_open
        self._limits = settings.limits
        self._clock = clock
        self._keys = KeySet(settings.jwt_keys, clock) if settings.jwt_keys else None
        self.authenticator = Authenticator(book, self._tokens(settings), clock)
        duties = [*book.duties(), *(self._keys.duties() if self._keys else ())]
        self._watch = Watch(duties)

    def gate(self, model: Callable[[], RoutingModel]) -> Gate:
        """Return the gate of the data API."""
        return Gate(self.authenticator, self.book, self.limiter(), model)

    def limiter(self) -> TenantLimiter:
        """Return what bounds the requests to one port; each keeps an account of its own."""
        return TenantLimiter(self._limits_of, self._clock)

    async def start(self) -> None:
        """Read what there is, and keep looking.

        Raises:
            Unavailable: The catalogue does not answer.
        """
        await self.book.refresh()
        if self._keys is not None:
            await self._keys.refresh()
        self._watch.start()

    async def stop(self) -> None:
        """Look no more."""
        await self._watch.stop()

    def _tokens(self, settings: AccessSettings) -> Tokens | None:
        if self._keys is None:
            return None
        assert settings.jwt_issuer is not None
        assert settings.jwt_audience is not None
        rules = TokenRules(settings.jwt_issuer, settings.jwt_audience, settings.jwt_leeway_s)
        return Tokens(self._keys, rules, self._clock)

    def _limits_of(self, account: str) -> Limits:
        if account == OPERATOR:
            return _NO_LIMITS
        tenant = self.book.current.tenants.get(account)
        if tenant is None or not tenant.limits:
            return self._limits
        own, general = tenant.limits, self._limits
        return Limits(
            own.get("rate", general.rate),
            own.get("burst", general.burst),
            own.get("in_flight", general.in_flight),
        )
