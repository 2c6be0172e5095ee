"""The security services, from the settings: keys, tokens, limits."""

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
_LIMIT_NAMES: Final = frozenset(field.name for field in fields(TenantLimits))
_COUNT_CHECK_S: Final = 5.0
"""Seconds between checks whether objects must be counted."""


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
        self._limits_snapshot: AccessSnapshot | None = None
        self._limits_by_tenant: dict[str, TenantLimits] = {}
        self.metrics_open = settings.metrics_open
        self._limits = settings.limits
        self._clock = clock
        self._keys = KeySet(settings.jwt_keys, clock) if settings.jwt_keys else None
        self.authenticator = Authenticator(access_cache, self._tokens(settings), clock)
        counting = PeriodicTask(
            "counting the objects of tenants", _COUNT_CHECK_S, self._count_objects
        )
        fetching = self._keys.periodic_tasks() if self._keys else ()
        self._scheduler = Scheduler([*access_cache.periodic_tasks(), *fetching, counting])

    def authoriser(
        self, model: Callable[[], RoutingModel], refusals: Refusals
    ) -> RequestAuthoriser:
        """Return the authoriser of the data port."""
        limiter = self.limiter(refusals)
        return RequestAuthoriser(self.authenticator, self.access_cache, limiter, model)

    def limiter(self, refusals: Refusals | None = None) -> TenantLimiter:
        """Return the limiter of one port; each port has separate accounts.

        Without `refusals`, as on the admin port, admission control refuses nothing, so that an
        operator can change the rules.
        """
        return TenantLimiter(self._limits_of, self.stored, self._clock, self._observe, refusals)

    def metered_work(self, limiter: TenantLimiter) -> MeteredWork:
        """Return the limiter of flows and deliveries, with the accounts of the data port."""
        return MeteredWork(limiter, self.access_cache.owner, self._observe)

    async def start(self) -> None:
        """Read keys and tenants, and refresh them from then on.

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
        """Return the limits of an account: the same object until a tenant changes."""
        if account == OPERATOR:
            return _NO_LIMITS
        snapshot = self.access_cache.current
        if snapshot is not self._limits_snapshot:
            self._limits_snapshot, self._limits_by_tenant = snapshot, self._merge_limits(snapshot)
        return self._limits_by_tenant.get(account, self._limits)

    def _merge_limits(self, snapshot: AccessSnapshot) -> dict[str, TenantLimits]:
        limits = {}
        for name, tenant in snapshot.tenants.items():
            # A newer version may have stored limits that this one does not know.
            tenant_limits = {
                limit: value for limit, value in tenant.limits.items() if limit in _LIMIT_NAMES
            }
            limits[name] = replace(self._limits, **tenant_limits)
        return limits

    async def _count_objects(self) -> None:
        limited_databases = {
            name: tenant.databases
            for name, tenant in self.access_cache.current.tenants.items()
            if self._limits_of(name).objects is not None
        }
        await self.stored.measure(limited_databases)
