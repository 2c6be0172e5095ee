"""Rate limits of tenants: the accounts of one port.

Each replica keeps its own account of a tenant, so an installation of n replicas lets through n
times as many requests. It protects the tenants from one another; it is no quota that is billed.
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
"""The account of requests that do not say who sends them; no tenant can have this name."""

UNKNOWN: Final = "(unknown)"
"""The account of requests whose credentials are no good."""


@dataclass(eq=False)
class TenantLimiter:
    _limits: Callable[[str], TenantLimits]
    _stored: StoredObjects
    _clock: Clock
    _observe: Observer
    _refusals: Refusals | None = None
    _meters: dict[str, Meter] = field(default_factory=dict, init=False)

    def enter(self, tenant: str) -> Meter:
        """Let a request in; returns the tenant's account. `leave` is to follow.

        Raises:
            TooManyRequests: There are too many.
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
        """Return the account of a tenant, with its present limits."""
        limits = self._limits(tenant)
        meter = self._meters.get(tenant)
        if meter is None:
            meter = self._meters[tenant] = Meter(tenant, limits, self._clock, self._stored)
        elif meter.limits is not limits:
            meter.adopt(limits)
        return meter

    @property
    def meters(self) -> Iterable[Meter]:
        """The accounts of all who have sent requests."""
        return self._meters.values()

    @staticmethod
    def leave(meter: Meter) -> None:
        meter.in_flight -= 1

    @contextmanager
    def held(self, tenant: str) -> Iterator[None]:
        """Let a request in while the block runs; raises what `enter` does."""
        meter = self.enter(tenant)
        try:
            yield
        finally:
            self.leave(meter)
