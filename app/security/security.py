"""What lets requests in, from the settings: keys, tokens, limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Final

from app.security.authentication import Authenticator
from app.security.data_port import RequestAuthoriser
from app.security.metered_work import MeteredWork
from app.security.rate_limits import TenantLimiter
from app.security.tokens import KeySet, TokenRules, Tokens
from app.settings.access import AccessSettings
from mediator.access.cache import AccessCache, AccessSnapshot
from mediator.access.metering import TenantLimits
from mediator.access.model import OPERATOR
from mediator.access.stored_objects import CountObjects, StoredObjects
from mediator.admission.refusals import Refusals
from mediator.base.clock import Clock
from mediator.base.observation import Observer
from mediator.base.periodic_tasks import PeriodicTask, Scheduler
from mediator.routing.model import RoutingModel

__all__ = ["Security"]

_NO_LIMITS: Final = TenantLimits()
_KNOWN: Final = frozenset(field.name for field in fields(TenantLimits))
_LOOK_S: Final = 5.0
"""Seconds after which it is seen that objects are to be counted."""


class Security:
    def __init__(
        self,
        settings: AccessSettings,
        access_cache: AccessCache,
        clock: Clock,
        count: CountObjects,
        observe: Observer,
    ) -> None:
        self.access_cache = access_cache
        self.stored = StoredObjects(count, clock)
        self._observe = observe
        self._limits_in: AccessSnapshot | None = None
        self._limits_by_tenant: dict[str, TenantLimits] = {}
        self.metrics_open = settings.metrics_open
        self._limits = settings.limits
        self._clock = clock
        self._keys = KeySet(settings.jwt_keys, clock) if settings.jwt_keys else None
        self.authenticator = Authenticator(access_cache, self._tokens(settings), clock)
        counting = PeriodicTask("counting the objects of tenants", _LOOK_S, self._count_objects)
        fetching = self._keys.periodic_tasks() if self._keys else ()
        self._scheduler = Scheduler([*access_cache.periodic_tasks(), *fetching, counting])

    def authoriser(
        self, model: Callable[[], RoutingModel], refusals: Refusals
    ) -> RequestAuthoriser:
        """Return what lets requests of the data port in."""
        limiter = self.limiter(refusals)
        return RequestAuthoriser(self.authenticator, self.access_cache, limiter, model)

    def limiter(self, refusals: Refusals | None = None) -> TenantLimiter:
        """Return what bounds the requests to one port; each keeps an account of its own.

        Where refusals of admission control are not given, as on the admin port, none apply: an
        operator must be able to change the rules.
        """
        return TenantLimiter(self._limits_of, self.stored, self._clock, self._observe, refusals)

    def metered_work(self, limiter: TenantLimiter) -> MeteredWork:
        """Return what bounds flows and deliveries, by the accounts of the data port."""
        return MeteredWork(limiter, self.access_cache.owner, self._observe)

    async def start(self) -> None:
        """Read what there is, and keep looking.

        Raises:
            Unavailable: The catalogue does not answer.
        """
        await self.access_cache.refresh()
        if self._keys is not None:
            await self._keys.refresh()
        self._scheduler.start()

    async def stop(self) -> None:
        await self._scheduler.stop()

    def _tokens(self, settings: AccessSettings) -> Tokens | None:
        if self._keys is None:
            return None
        assert settings.jwt_issuer is not None
        assert settings.jwt_audience is not None
        rules = TokenRules(settings.jwt_issuer, settings.jwt_audience, settings.jwt_leeway_s)
        return Tokens(self._keys, rules, self._clock)

    def _limits_of(self, account: str) -> TenantLimits:
        """Return the limits of an account; the same object until a tenant is changed."""
        if account == OPERATOR:
            return _NO_LIMITS
        snapshot = self.access_cache.current
        if snapshot is not self._limits_in:
            self._limits_in, self._limits_by_tenant = snapshot, self._merged(snapshot)
        return self._limits_by_tenant.get(account, self._limits)

    def _merged(self, snapshot: AccessSnapshot) -> dict[str, TenantLimits]:
        limits = {}
        for name, tenant in snapshot.tenants.items():
            # A newer version may have written down limits that this one does not know.
            own = {limit: value for limit, value in tenant.limits.items() if limit in _KNOWN}
            limits[name] = replace(self._limits, **own)
        return limits

    async def _count_objects(self) -> None:
        bounded = {
            name: tenant.databases
            for name, tenant in self.access_cache.current.tenants.items()
            if self._limits_of(name).objects is not None
        }
        await self.stored.measure(bounded)
