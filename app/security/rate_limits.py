"""Rate limits of tenants: the accounts of one port.

Each replica keeps its own account of a tenant, so n replicas admit n times as many requests. The
limits protect tenants from one another; they are not a billed quota.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from mediator.access.metering import Meter, TenantLimits
from mediator.access.stored_objects import StoredObjects
from mediator.admission.refusals import Refusals
from mediator.base.clock import Clock
from mediator.base.errors import TooManyRequests, Unavailable
from mediator.base.observation import Observer, RequestRefused

__all__ = ["ANONYMOUS", "UNKNOWN", "TenantLimiter"]

ANONYMOUS: Final = "(anonymous)"
"""The account of requests without credentials; no tenant can have this name."""

UNKNOWN: Final = "(unknown)"
"""The account of requests with invalid credentials."""


@dataclass(eq=False)
class TenantLimiter:
    _limits: Callable[[str], TenantLimits]
    _stored: StoredObjects
    _clock: Clock
    _observe: Observer
    _refusals: Refusals | None = None
    _meters: dict[str, Meter] = field(default_factory=dict, init=False)

    def enter(self, tenant: str) -> Meter:
        """Admit a request, and return the tenant's account; the caller must `leave` it.

        Raises:
            TooManyRequests: There are too many requests.
            Unavailable: Admission control refuses requests of its priority.
        """
        meter = self.account(tenant)
        try:
            if self._refusals is not None and self._refusals.active:
                self._refusals.check_tenant(tenant, meter.limits.priority)
            meter.enter()
        except (TooManyRequests, Unavailable) as error:
            self._observe(RequestRefused(tenant, error.extra["limit"]))
            raise
        return meter

    def account(self, tenant: str) -> Meter:
        """Return the account of a tenant, with its current limits."""
        limits = self._limits(tenant)
        meter = self._meters.get(tenant)
        if meter is None:
            meter = self._meters[tenant] = Meter(tenant, limits, self._clock, self._stored)
        elif meter.limits is not limits:
            meter.adopt(limits)
        return meter

    @property
    def meters(self) -> Iterable[Meter]:
        """The accounts of all tenants that have sent requests."""
        return self._meters.values()

    @staticmethod
    def leave(meter: Meter) -> None:
        meter.in_flight -= 1

    @contextmanager
    def admit(self, tenant: str) -> Iterator[None]:
        """Admit a request while the block runs; raise the errors of `enter`."""
        meter = self.enter(tenant)
        try:
            yield
        finally:
            self.leave(meter)
